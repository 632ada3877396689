"""Open tables: what the native core gives, in terms of the catalog and of the log.

The core knows positions and trees. What ties them to a store is here: the cursor that
pins the log goes on with each flush, ``after`` waits for a record that is durable, and
the base of a tree is the position before the first one that it follows.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from braidlog import _native
from braidlog.errors import (
    BeyondEndError,
    ClosedError,
    CorruptionError,
    MissingFileError,
)
from braidlog.store.tables.entry import (
    PARTS_MAX,
    IndexEntry,
    TableEntry,
    TablePart,
)
from braidlog.suggestions import table_mended

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from braidlog._native import Record

__all__ = ["OpenSnapshot", "OpenTable", "OpenTables"]

_STRICT: Final = "strict "
"""In front of a field of which no record may be missing in the index."""


class Reads:
    """Reading at one position, which ``after`` may bring forward."""

    def _snapshot(self, after: int | None) -> _native.TableSnapshot:
        raise NotImplementedError

    def get(self, key: Buffer, after: int | None = None) -> Record | None:
        """Return the record that has the value of a key."""
        return self._snapshot(after).get(key)

    def get_many(
        self, keys: Sequence[Buffer], after: int | None = None
    ) -> list[Record | None]:
        """Return one for each key, all at one position."""
        return self._snapshot(after).get_many(keys)

    def get_arrow(
        self, keys: Any, columns: list[str] | None, after: int | None = None
    ) -> Any:
        """Return a row for each key of Arrow data, with nulls where there is none."""
        return self._snapshot(after).get_many_arrow(keys, columns)

    def scan(self, after: int | None = None, **bounds: Any) -> Iterator[Record]:
        """Iterate over keys, at one position."""
        return self._snapshot(after).scan(**bounds)

    def batches(self, after: int | None = None, **bounds: Any) -> _native.TableBatches:
        """Scan as Arrow batches."""
        return self._snapshot(after).batches(**bounds)

    def scan_index(
        self, name: str, after: int | None = None, **bounds: Any
    ) -> Iterator[Record]:
        """Iterate in the order of an index."""
        return self._snapshot(after).scan_index(name, **bounds)

    def batches_index(
        self, name: str, after: int | None = None, **bounds: Any
    ) -> _native.TableBatches:
        """Scan an index as Arrow batches."""
        return self._snapshot(after).index_batches(name, **bounds)


class OpenSnapshot(Reads):
    """A table at one position. What that needs stays there until this is closed."""

    def __init__(self, native: _native.TableSnapshot) -> None:
        """Hold a snapshot."""
        self._native: _native.TableSnapshot | None = native
        self.position = native.position

    def _snapshot(self, after: int | None) -> _native.TableSnapshot:
        if self._native is None:
            msg = "the snapshot is closed"
            raise ClosedError(msg)
        if after is not None and after > self.position:
            msg = f"the snapshot is of position {self.position}, not of {after}"
            raise BeyondEndError(msg, next=self.position + 1)
        return self._native

    def divide(
        self, bytes_per_part: int, index: str | None, begin: Any, end: Any
    ) -> list[TablePart]:
        """Divide keys, or a part of an index, into parts of about so many bytes."""
        snapshot = self._snapshot(None)
        parts = snapshot.divide(bytes_per_part, PARTS_MAX, index, begin, end)
        return [TablePart(*part) for part in parts]

    def part_batches(
        self, index: str, part: TablePart, columns: list[str] | None
    ) -> _native.TableBatches:
        """Scan a part of an index as Arrow batches."""
        snapshot = self._snapshot(None)
        return snapshot.index_part_batches(index, part.begin, part.end, columns)

    def index_part(self, name: str, begin: Any, end: Any) -> float:
        """Return about which part of an index is between two values."""
        some, whole = self._snapshot(None).index_part(name, begin, end)
        return some / whole if whole else 0.0

    def close(self) -> None:
        """Let go of it. Idempotent."""
        self._native = None


class OpenTable(Reads):
    """The trees of a table, open for writing."""

    def __init__(
        self,
        native: _native.Table,
        view: _native.LogView,
        store: _native.Store,
        entry: TableEntry,
        node: int,
    ) -> None:
        """Wrap a table that is open."""
        self._native = native
        self._view = view
        self._store = store
        self._definition = definition_of(entry, node)
        self._id = entry.id
        self._pin = entry.pin
        self._flushes = 0
        self._merges = 0

    def _check(self, after: int | None) -> None:
        if after is None:
            return
        end = self._view.range()[1]
        if after >= end:
            msg = f"position {after} is not durable yet: the log ends at {end}"
            raise BeyondEndError(msg, next=end)

    def _snapshot(self, after: int | None) -> _native.TableSnapshot:
        self._check(after)
        return self._native.snapshot()

    def get(self, key: Buffer, after: int | None = None) -> Record | None:
        """Return the record that has the value of a key."""
        if after is not None:
            self._check(after)
        return self._native.get(key)

    def at(self, position: int | None) -> OpenSnapshot:
        """Return the table at a position, or at the last applied one."""
        self._check(position)
        return OpenSnapshot(self._native.snapshot(position))

    def apply(self, progress: Callable[[int], object] | None = None) -> int:
        """Apply what is durable in the log; return the last applied position.

        ``progress`` is called with it after each piece.
        """
        end = self._view.range()[1]
        while progress is not None and (applied := self._native.position) + 1 < end:
            progress(applied)
            _, full = self._native.follow(end)
            if full:
                self._flushes += self._native.flush()
        return self._native.catch_up(end)

    def flush(self, progress: Callable[[int], object] | None = None) -> None:
        """Write what the log has to files, and let the log go as far as it may."""
        self.apply(progress)
        self._flushes += self._native.flush()
        self.move_pin()

    def move_pin(self) -> None:
        """Let the log go of what all trees have in files."""
        needed = self._native.retained + 1
        if needed > self._pin:
            self._store.move_table_pin(self._id, needed)
            self._pin = needed

    def merge(self) -> bool:
        """Do one merge or split that is due; return whether there was one."""
        merged = self._native.merge()
        self._merges += merged
        return merged

    def begin(self, index: IndexEntry) -> int:
        """Begin an index; return the position behind its base.

        This comes before the catalog has the index, so that nothing which the building
        needs is let go of.
        """
        return self._native.begin_index(self._definition, _index_of(index)) + 1

    @property
    def lost(self) -> list[tuple[str, int, str]]:
        """Indexes that could not be opened: name, tree, reason."""
        return self._native.lost()

    def build(self, tree: int, progress: Callable[[int], bool]) -> bool:
        """Read what an index lacks; False if ``progress`` said to stop."""
        stopped = False

        def tell(read: int) -> bool:
            nonlocal stopped
            stopped = not progress(read)
            return not stopped

        try:
            self._native.build_index(tree, tell)
        except ClosedError:
            if stopped:
                return False
            raise
        return True

    def detach(self, tree: int) -> None:
        """Forget an index."""
        self._native.drop_index(tree)

    @property
    def read(self) -> bool:
        """Whether somebody reads it; a snapshot may be open for long."""
        return self._native.is_read

    @property
    def trees(self) -> list[int]:
        """All trees that need their files."""
        return self._native.trees()

    @property
    def dropped(self) -> list[int]:
        """Trees of dropped indexes that somebody still reads."""
        return self._native.dropped_and_read()

    def verify(
        self, progress: Callable[[int], object] | None = None
    ) -> tuple[int, int]:
        """Read everything, and compare indexes with records."""
        self.apply()
        return self._native.verify(progress)

    def stats(self) -> dict[str, Any]:
        """Return the fields of `TableStats`, and what descriptions need beside them."""
        return figures(self._native.stats(), self._flushes, self._merges)

    def abandon(self) -> None:
        """Say that the table was dropped: what is running changes nothing any more."""
        self._native.abandon()

    def close(self) -> None:
        """Let go of the files; what is in memory is in the log. Idempotent."""
        self._native.close()


class OpenTables:
    """Opens tables of one store."""

    def __init__(self, store: _native.Store, directory: Path) -> None:
        """Open none yet; ``directory`` is that of all tables."""
        self._store = store
        self._directory = directory
        self._node = store.node()
        self._cache = _native.TableCache()

    def check_field(self, field: str) -> None:
        """Refuse what describes no field of a record.

        Raises:
            InvalidArgumentError: It says what is wrong, and what is allowed.
        """
        _native.index_spec(field.removeprefix(_STRICT))

    def prepare(self, entry: TableEntry) -> None:
        """Make the files of a table that is to be created.

        Before the catalog has it: what this refuses does not come to be, and files of a
        table that does not are orphans.

        Raises:
            InvalidArgumentError: an option makes no sense.
        """
        view = self._store.view(entry.stream, entry.log)
        definition = definition_of(entry, self._node)
        options = options_of(entry)
        _native.create_table_files(
            view, self._directory, definition, self._cache, **options
        )

    def open(self, entry: TableEntry) -> OpenTable:
        """Open the trees of a table of the catalog.

        Raises:
            MissingFileError: its directory is gone, and the log has not all of it.
            CorruptionError: it is damaged, or its log is not the one that it was made
                of.
        """
        view = self._store.view(entry.stream, entry.log)
        definition = definition_of(entry, self._node)
        options = options_of(entry)
        with advising(entry):
            native = _native.Table.open(
                view, self._directory, definition, self._cache, **options
            )
        return OpenTable(native, view, self._store, entry, self._node)

    def collect_orphans(self, known: Iterable[tuple[int, list[int]]]) -> int:
        """Remove files of tables and trees that are not ``known``; return of how many.

        Nobody may be creating one meanwhile.
        """
        return self._store.collect_table_orphans(self._directory, list(known))


@contextlib.contextmanager
def advising(entry: TableEntry) -> Iterator[None]:
    """Say of damage that is found by an open how the table is mended."""
    try:
        yield
    except MissingFileError:
        raise  # The file may come back.
    except CorruptionError as error:
        raise error.advising(table_mended(entry.name)) from None


def figures(raw: dict[str, Any], flushes: int, merges: int) -> dict[str, Any]:
    """Sum up what the core says of the trees of a table."""
    trees = [raw["primary"], *raw["indexes"]]
    left_out = [raw[what] for what in ("without_key", "long_keys", "lost")]
    firsts = [first[0][0] for _, first in left_out if first]
    missing = {each["name"]: each["refused"] for each in raw["indexes"]}
    return {
        "applied": raw["position"],
        "flushed": raw["retained"],
        "oldest": raw["floor"],
        "entries": sum(tree["run_entries"] for tree in trees),
        "memory_bytes": sum(tree["memory_bytes"] for tree in trees),
        "file_bytes": sum(tree["run_bytes"] for tree in trees),
        "files": sum(tree["runs"] for tree in trees),
        "ranges": sum(tree["ranges"] for tree in trees),
        "flushes": flushes,
        "merges": merges,
        "left_out": sum(count for count, _ in left_out),
        "left_out_first": min(firsts, default=None),
        "missing": {
            name: (count, first[0] if first else None)
            for name, (count, first) in missing.items()
        },
    }


def options_of(entry: TableEntry) -> dict[str, Any]:
    """Return the options of a table as the core takes them."""
    options = entry.options
    return {
        "deletes": options.rule,
        "history": options.history,
        "memory_bytes": options.memory_bytes,
    }


def definition_of(entry: TableEntry, node: int, *, built: bool = False) -> Any:
    """Return a table of the catalog as the core takes it.

    With ``built`` indexes that are still being built are left out.
    """
    indexes = [_index_of(each) for each in entry.indexes if each.active or not built]
    return node, entry.id, entry.primary, entry.start - 1, indexes


def _index_of(index: IndexEntry) -> Any:
    field = index.field.removeprefix(_STRICT)
    strict = field != index.field
    return index.tree, index.name, field, strict, index.position - 1
