"""A table, its indexes and its snapshots, as users call them.

Order: a read sees the table at one position of its log, whatever is appended meanwhile.
It first applies what is durable, so a thread reads what it has appended itself; a
program of several threads passes the position of an append as ``after``.
"""
# One file: the calls of a few small classes that share their contracts.

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from braidlog import _native
from braidlog.closable import Closable
from braidlog.errors import (
    ClosedError,
    CorruptionError,
    LogError,
    NotFoundError,
    NotReadyError,
    TrimmedError,
    UnavailableError,
)
from braidlog.store.arguments import (
    DurationLike,
    checked_columns,
    checked_count,
    checked_flag,
    checked_limit,
    checked_position,
    checked_timeout,
)
from braidlog.store.tables.entry import (
    IndexDescription,
    TableDescription,
    TableEntry,
    TablePart,
    TableStats,
    index_given_up,
)
from braidlog.store.tables.opened import Reads
from braidlog.suggestions import does_not_exist

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from braidlog._native import Record
    from braidlog.store.tables.change import TableChanges
    from braidlog.store.tables.followed import FollowedTable, FollowedTables
    from braidlog.store.tables.host import TableHost
    from braidlog.store.tables.opened import OpenTable

__all__ = ["Table", "TableIndex", "TableSnapshot", "opening_problem"]

T = TypeVar("T")

_NO_HISTORY: Final = (
    "Read a later position; `history` of the table says how many stay readable"
)
_NOT_BUILT: Final = "Wait until it is built: `TableIndex.wait`"


class FollowedPositions(Protocol):
    """The log of a table, as the table needs it."""

    @property
    def end(self) -> int: ...
    def wait(self, position: int, *, timeout: float | None = None) -> bool: ...


_OVERTAKEN = (ClosedError, CorruptionError, NotFoundError, UnavailableError)
"""What a call may meet beneath which a table begins anew: it is closed, its files are
gone, and the log knows it no more."""


def _checked_after(after: int | None) -> int | None:
    return None if after is None else checked_position(after, "after")


def _to_arrow(batches: _native.TableBatches) -> pa.Table:
    import pyarrow as pa

    # One by one: through Arrow's own stream our errors would arrive as its errors.
    return pa.Table.from_batches(map(pa.record_batch, batches), pa.schema(batches))


class TableReads:
    """Reading a table: its newest state, or that of a snapshot."""

    def _reads(self) -> Reads:
        raise NotImplementedError

    def get(self, key: Buffer, *, after: int | None = None) -> Record | None:
        """Return the record that has the value of a key; None if the key has none.

        Every record counts that was durable when the call began. ``after`` names one
        that has to.

        Raises:
            BeyondEndError: the record at ``after`` is not durable yet.
        """
        return self._reads().get(key, after)

    def get_many(self, keys: Iterable[Buffer], *, after: int | None = None) -> Any:
        """Look up many keys, all at one position.

        Returns a list with one record, or None, for each key. An Arrow array of keys,
        or a column in pieces, gives a `pyarrow.RecordBatch` instead: a row for each
        key, in their order, with nulls where a key has no value.
        """
        after = _checked_after(after)
        whole = hasattr(keys, "__arrow_c_array__")
        if whole or hasattr(keys, "__arrow_c_stream__"):
            import pyarrow as pa

            found = pa.array(keys) if whole else pa.chunked_array(keys).combine_chunks()
            wanted = pa.RecordBatch.from_arrays([found], names=["key"])
            return pa.record_batch(self._reads().get_arrow(wanted, None, after))
        return self._reads().get_many(list(keys), after)

    def scan(
        self,
        begin: Buffer | None = None,
        end: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
        after: int | None = None,
    ) -> Iterator[Record]:
        """Iterate over the records of keys ``begin`` to ``end`` (half-open) in order.

        Keys are compared as bytes. ``prefix`` takes the keys that begin with it. With
        ``reverse`` the last key comes first, and ``limit`` counts from there. All is
        of the moment when the iteration begins.
        """
        return self._reads().scan(
            _checked_after(after),
            begin=begin,
            end=end,
            prefix=prefix,
            reverse=checked_flag(reverse, "reverse"),
            limit=checked_limit(limit),
        )

    def __iter__(self) -> Iterator[Record]:
        """Iterate over all keys."""
        return self.scan()

    def batches(
        self,
        begin: Buffer | None = None,
        end: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        columns: list[str] | None = None,
        after: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Scan as `pyarrow.RecordBatch` of about 1 MiB, with the schema of a log.

        ``columns`` chooses and orders them.
        """
        import pyarrow as pa

        found = self._reads().batches(
            _checked_after(after),
            begin=begin,
            end=end,
            prefix=prefix,
            columns=checked_columns(columns),
        )
        yield from map(pa.record_batch, found)

    def to_arrow(
        self,
        begin: Buffer | None = None,
        end: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        columns: list[str] | None = None,
        after: int | None = None,
    ) -> pa.Table:
        """Return the keys ``begin`` to ``end`` as one Arrow table, in memory."""
        found = self._reads().batches(
            _checked_after(after),
            begin=begin,
            end=end,
            prefix=prefix,
            columns=checked_columns(columns),
        )
        return _to_arrow(found)

    def __arrow_c_stream__(self, requested_schema: Any | None = None) -> Any:
        """Export all keys through the Arrow C stream interface."""
        batches = self._reads().batches()
        return batches.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        """Export the schema through the Arrow C data interface."""
        return _native.log_schema()

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of all batches: that of a log."""
        import pyarrow as pa

        return pa.schema(self)


class IndexReads:
    """Reading by an indexed field."""

    def _ready(self) -> tuple[Reads, str]:
        raise NotImplementedError

    def get(
        self, value: Any, *, limit: int | None = None, after: int | None = None
    ) -> Iterator[Record]:
        """Iterate over the records whose field has this value, in the order of keys.

        Raises:
            NotReadyError: the index is still being built.
            InvalidArgumentError: the value is of another type than the field.
        """
        reads, name = self._ready()
        return reads.scan_index(
            name, _checked_after(after), value=value, limit=checked_limit(limit)
        )

    def scan(
        self,
        begin: Any = None,
        end: Any = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        after: int | None = None,
    ) -> Iterator[Record]:
        """Iterate in the order of the field, from ``begin`` to ``end`` (half-open).

        Records with the same value are in the order of their keys. A record without
        the field is not there.

        Raises:
            NotReadyError: the index is still being built.
            InvalidArgumentError: a bound is of another type than the field.
        """
        reads, name = self._ready()
        return reads.scan_index(
            name,
            _checked_after(after),
            begin=begin,
            end=end,
            reverse=checked_flag(reverse, "reverse"),
            limit=checked_limit(limit),
        )

    def __iter__(self) -> Iterator[Record]:
        """Iterate over all records that have the field."""
        return self.scan()

    def batches(
        self,
        begin: Any = None,
        end: Any = None,
        *,
        columns: list[str] | None = None,
        after: int | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Scan as `pyarrow.RecordBatch`; see `Table.batches`."""
        import pyarrow as pa

        reads, name = self._ready()
        after, columns = _checked_after(after), checked_columns(columns)
        bounds = {"begin": begin, "end": end, "columns": columns}
        yield from map(pa.record_batch, reads.batches_index(name, after, **bounds))

    def to_arrow(
        self,
        begin: Any = None,
        end: Any = None,
        *,
        columns: list[str] | None = None,
        after: int | None = None,
    ) -> pa.Table:
        """Return a part of the index as one Arrow table, in memory."""
        reads, name = self._ready()
        after, columns = _checked_after(after), checked_columns(columns)
        bounds = {"begin": begin, "end": end, "columns": columns}
        return _to_arrow(reads.batches_index(name, after, **bounds))


def _index_missing(
    host: TableHost | FollowedTables, entry: TableEntry, name: str
) -> NotFoundError:
    reason = host.refused(entry, name)
    if reason is not None:
        return index_given_up(entry.name, name, reason)
    known = [index.name for index in entry.indexes]
    return NotFoundError(does_not_exist(f"table {entry.name!r}: index", name, known))


class TableIndex(IndexReads):
    """An index of a table. Get one from `Table.index`."""

    def __init__(self, table: Table, name: str) -> None:
        """Stand for an index that is there; users call `Table.index`."""
        self._table = table
        self.name = name

    def __repr__(self) -> str:
        """Show name and table."""
        return f"<TableIndex {self.name!r} of {self._table.name!r}>"

    def _ready(self) -> tuple[Reads, str]:
        entry, _ = self._table._opened()
        index = entry.index(self.name)
        if index is None or not index.active:
            # Another thread may just have changed that, and `ready` may have said so.
            entry, _ = self._table._opened(anew=True)
            index = entry.index(self.name)
        if index is None:
            raise _index_missing(self._table._host, entry, self.name)
        if not index.active:
            msg = f"index {self.name!r} of table {entry.name!r} is still being built"
            raise NotReadyError(msg).advising(_NOT_BUILT)
        return self._table._reads(), self.name

    @property
    def field(self) -> str:
        """The field of a record that it is by."""
        return self.describe().field

    @property
    def built(self) -> int:
        """How many records were read so far for an index that is being built."""
        entry = self._table._current()
        index = entry.index(self.name)
        return 0 if index is None else self._table._host.built(entry.id, index.tree)

    @property
    def ready(self) -> bool:
        """Whether it is built, and can be read."""
        return self.describe().state == "active"

    def describe(self) -> IndexDescription:
        """Return what there is to know of the index.

        Raises:
            NotFoundError: it was dropped.
        """
        for index in self._table.describe().indexes:
            if index.name == self.name:
                return index
        raise _index_missing(self._table._host, self._table._current(), self.name)

    def wait(self, *, timeout: DurationLike | None = None) -> bool:
        """Wait until it is built; False if ``timeout`` seconds pass first.

        Raises:
            NotFoundError: it was dropped.
        """
        host, entry = self._table._host, self._table._current()
        return host.wait_index(entry, self.name, checked_timeout(timeout))


class SnapshotIndex(IndexReads):
    """An index at the position of a snapshot. Get one from `TableSnapshot.index`."""

    def __init__(self, snapshot: TableSnapshot, name: str) -> None:
        """Stand for an index that is there; users call `TableSnapshot.index`."""
        self._snapshot = snapshot
        self.name = name

    @property
    def id(self) -> str:
        """Identity of the index; one that is made anew under its name has another."""
        index = self._snapshot._entry.index(self.name)
        assert index is not None, "a snapshot keeps the entry that it was made of"
        return f"{index.tree:032x}"

    def _ready(self) -> tuple[Reads, str]:
        return self._snapshot._reads(), self.name

    def part(self, begin: Any = None, end: Any = None) -> float:
        """Return about which part of the index is between two values, from 0 to 1.

        It is estimated by the bytes of files, and tells whether a scan by the index
        pays: beyond a tenth of the table a scan of all keys is faster.
        """
        return self._snapshot._native.index_part(self.name, begin, end)

    def divide(
        self, bytes_per_part: int, begin: Any = None, end: Any = None
    ) -> list[TablePart]:
        """Return parts of the index between two values; see `TableSnapshot.divide`.

        The bytes are those of entries of the index, not of the records.
        """
        size = checked_count(bytes_per_part, "bytes_per_part")
        return self._snapshot._native.divide(size, self.name, begin, end)

    def part_batches(
        self, part: TablePart, *, columns: list[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Scan a part that `divide` gave, as `pyarrow.RecordBatch`."""
        import pyarrow as pa

        native, columns = self._snapshot._native, checked_columns(columns)
        yield from map(pa.record_batch, native.part_batches(self.name, part, columns))


class TableSnapshot(TableReads, Closable):
    """A table at one position of its log. Get one from `Table.at`.

    What it can read stays until it is closed; use it in a ``with`` block.
    """

    def __init__(self, table: Table, position: int | None) -> None:
        """Hold a position; users call `Table.at`."""
        try:
            held = table._attempt(lambda entry, native: (entry, native.at(position)))
        except TrimmedError as error:
            msg = (
                f"table {table.name!r} cannot be read at position {position} any "
                f"more: the oldest that can be read is {error.first}"
            )
            raise TrimmedError(msg, first=error.first).advising(_NO_HISTORY) from None
        self._host = table._host
        self._entry, self._native = held

    def __repr__(self) -> str:
        """Show table and position."""
        return f"<TableSnapshot of {self._entry.name!r} at {self.position}>"

    def _reads(self) -> Reads:
        return self._native

    @property
    def position(self) -> int:
        """Position of the last record that counts."""
        return self._native.position

    def divide(
        self,
        bytes_per_part: int,
        begin: Buffer | None = None,
        end: Buffer | None = None,
    ) -> list[TablePart]:
        """Divide the keys ``begin`` to ``end`` for several that read at a time.

        Each part has about so many bytes of files; what is only in memory does not
        count. There are 1024 parts at most: then they have more bytes. Together they
        are all of these keys, each once. Whoever reads a part opens the table itself,
        `at` this position: ``snapshot.scan(part.begin, part.end)``.
        """
        size = checked_count(bytes_per_part, "bytes_per_part")
        return self._native.divide(size, None, begin, end)

    def index(self, name: str) -> SnapshotIndex:
        """Return an index as it was at that position.

        Raises:
            NotFoundError: there is none of that name.
            NotReadyError: it was still being built when the snapshot was made.
        """
        index = self._entry.index(name)
        if index is None:
            raise _index_missing(self._host, self._entry, name)
        if not index.active:
            msg = f"index {name!r} of table {self._entry.name!r} is still being built"
            raise NotReadyError(msg).advising(_NOT_BUILT)
        return SnapshotIndex(self, name)

    def close(self) -> None:
        """Let go of what only this needs. Idempotent."""
        self._native.close()


class LatestReads(Reads):
    """Reads of what a table is now."""

    def __init__(self, table: Table) -> None:
        """Read a table; it is opened by the first read."""
        self._table = table

    def _snapshot(self, after: int | None) -> _native.TableSnapshot:
        return self._table._attempt(lambda _, native: native._snapshot(after))

    def get(self, key: Buffer, after: int | None = None) -> Record | None:
        """Return the record that has the value of a key."""
        return self._table._attempt(lambda _, native: native.get(key, after))

    def scan_index(
        self, name: str, after: int | None = None, **bounds: Any
    ) -> Iterator[Record]:
        """Iterate in the order of an index."""
        return self._table._attempt(
            lambda _, native: native.scan_index(name, after, **bounds)
        )

    def batches_index(
        self, name: str, after: int | None = None, **bounds: Any
    ) -> _native.TableBatches:
        """Scan an index as Arrow batches."""
        return self._table._attempt(
            lambda _, native: native.batches_index(name, after, **bounds)
        )


class Table(TableReads):
    """The latest value of each key of a log. Get one from `Store.table`.

    Safe to use from many threads. A table is also an Arrow stream: anything that takes
    ``__arrow_c_stream__`` (Polars, pandas, DuckDB through pyarrow) reads it directly.
    """

    def __init__(
        self,
        host: TableHost | FollowedTables,
        entry: TableEntry,
        log: FollowedPositions,
    ) -> None:
        """Stand for a table that is there; users call `Store.table`."""
        self._host = host
        self._entry = entry
        self._log = log
        self._found: tuple[int, TableEntry, OpenTable | FollowedTable] | None = None
        self._latest = LatestReads(self)

    def __repr__(self) -> str:
        """Show name and log."""
        return f"<Table {self.name!r} of log {self._entry.log!r}>"

    @property
    def name(self) -> str:
        """Name of the table, when it was last looked at."""
        return self._entry.name

    @property
    def log(self) -> str:
        """Name of the log that it follows."""
        return self._entry.log

    @property
    def stream(self) -> int:
        """Number of the stream of its log."""
        return self._entry.stream

    def _current(self) -> TableEntry:
        self._entry = self._host.current(self._entry)
        return self._entry

    def _opened(
        self, *, anew: bool = False
    ) -> tuple[TableEntry, OpenTable | FollowedTable]:
        found, changed = self._found, self._host.changed
        # A look into the catalog would take longer than most reads.
        if found is not None and found[0] == changed and not anew:
            return found[1:]
        while True:
            entry = self._current()
            native = self._host.native(entry)
            if changed is None:
                return entry, native
            before, changed = changed, self._host.changed
            # Opening it changes the catalog if files of an index are lost.
            if before == changed:
                self._found = before, entry, native
                return entry, native

    def _attempt(self, call: Callable[[TableEntry, OpenTable | FollowedTable], T]) -> T:
        """Call with the open table; once more if it began anew meanwhile."""
        while True:
            changed = self._host.changed
            try:
                return call(*self._opened())
            except _OVERTAKEN:
                # Another thread may have truncated or rebuilt it beneath the call.
                if self._host.changed_at_last() == changed:
                    raise

    def _reads(self) -> Reads:
        return self._latest

    def get(self, key: Buffer, *, after: int | None = None) -> Record | None:
        """Return the record that has the value of a key; None if the key has none.

        Every record counts that was durable when the call began. ``after`` names one
        that has to.

        Raises:
            BeyondEndError: the record at ``after`` is not durable yet.
        """
        found = self._found
        # As `_attempt` does it at last, without what costs as much as the lookup.
        if after is None and found is not None and found[0] == self._host.changed:
            try:
                return found[2].get(key)
            except _OVERTAKEN:  # the call below says what that is
                pass
        return self._latest.get(key, after)

    def index(self, name: str) -> TableIndex:
        """Return an index of the table.

        Raises:
            NotFoundError: there is none of that name; or it was given up because of a
                record that it cannot hold, which the error names until the store is
                closed.
        """
        entry = self._current()
        if entry.index(name) is None:
            raise _index_missing(self._host, entry, name)
        return TableIndex(self, name)

    def at(self, position: int | None = None) -> TableSnapshot:
        """Return the table as it was when ``position`` was its last record.

        None takes the last applied position. Use it in a ``with`` block: until it is
        closed, what it can read is kept. How far back that reaches is `history` of the
        table, at least; `describe` says it.

        Raises:
            TrimmedError: that is too long ago; ``first`` is the oldest position.
            BeyondEndError: the record at ``position`` is not durable yet.
        """
        if position is not None:
            position = checked_position(position)
        return TableSnapshot(self, position)

    @property
    def applied(self) -> int:
        """Position of the last record of the log that the table has."""
        return self._attempt(lambda _, native: native.apply())

    def wait(self, position: int, *, timeout: DurationLike | None = None) -> bool:
        """Wait until the table has the record at ``position``.

        Returns False if ``timeout`` seconds pass first, or once the store is closed.
        """
        position, limit = checked_position(position), checked_timeout(timeout)
        deadline = None if limit is None else time.monotonic() + limit
        if not self._log.wait(position, timeout=limit):
            return False
        while self.applied < position:  # Another thread is applying.
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(0.001)
        return True

    def flush(self, *, progress: Callable[[int], object] | None = None) -> None:
        """Write what the log has to files now, so that the log may let go of it.

        ``progress`` is called with the last applied position, now and then.

        Raises:
            ReadOnlyError: the store was opened read-only.
        """
        self._attempt(lambda _, native: native.flush(progress))

    def stats(self) -> TableStats:
        """Return figures of the table."""
        raw = self._attempt(lambda _, native: native.stats())
        known = TableStats.__dataclass_fields__
        return TableStats(**{name: raw[name] for name in known})

    def describe(self) -> TableDescription:
        """Return settings and state of the table."""
        applied, raw = self._attempt(lambda _, native: (native.apply(), native.stats()))
        entry = self._current()  # With the pin as it is now.
        missing = raw["missing"]
        return TableDescription(
            name=entry.name,
            id=f"{entry.id:032x}",
            log=entry.log,
            created=entry.created,
            start=entry.start,
            applied=applied,
            lag=max(0, self._log.end - 1 - applied),
            pin=entry.pin,
            oldest=raw["oldest"],
            history=entry.options.history,
            memory_bytes_max=entry.options.memory_bytes,
            deletes=entry.options.deletes,
            indexes=tuple(
                IndexDescription(
                    index.name,
                    index.field,
                    "active" if index.active else "building",
                    *missing.get(index.name, (0, None)),
                )
                for index in entry.indexes
            ),
            left_out=raw["left_out"],
            left_out_first=raw["left_out_first"],
            failure=self._host.failure(entry),
        )

    def verify(
        self, progress: Callable[[int], object] | None = None
    ) -> tuple[int, int]:
        """Read the whole table, check every page, and compare the indexes with it.

        Returns how many records there are, and how many entries of indexes.
        ``progress`` is called with how many were read so far.

        Raises:
            CorruptionError: a page is damaged, or an index has not what it should.
        """
        return self._attempt(lambda _, native: native.verify(progress))

    def damaged_index(self, error: CorruptionError) -> str | None:
        """Return the name of the index whose file an error names.

        None is for the table itself, which has to be made anew of its log.
        """
        parts = Path(error.path).parts
        for index in self._current().indexes:
            if f"{index.tree:032x}" in parts:
                return index.name
        return None

    def ddl(self) -> AbstractContextManager[TableChanges]:
        """Change this and other tables together; see `Store.ddl`."""
        return self._host.change()

    def rebuild(self) -> None:
        """Make the table anew of its log; `Store.ddl` does it with other changes.

        Raises:
            TrimmedError: the log does not reach back to where the table began.
        """
        with self._host.change() as change:
            change.rebuild(self._current().name)


def opening_problem(table: Table) -> str | None:
    """Return why a table cannot be opened; None if it can. Its pages are not read.

    Raises:
        NotFoundError: it was dropped.
    """
    try:
        table._opened()
    except NotFoundError:
        raise
    except LogError as error:
        return error.message
    return None
