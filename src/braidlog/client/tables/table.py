"""Tables of a cluster, as programs call them.

The calls are those of `AsyncTable`. A read sees a table at one position of its log. It
has everything that was acknowledged before the read began, whoever appended it. A read
that names a position as ``after`` saves the question where the log ends, and has what
is up to there. With ``stale_ok`` it has what a host has at the moment.
"""
# One file: the calls of a few small classes that share their contracts.

from __future__ import annotations

import abc
import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Self

from braidlog import _native
from braidlog.client.tables import upkeep
from braidlog.client.tables.catalog import (
    STRICT,
    ClusterTableDescription,
    TableHostDescription,
    described_index,
    index_missing,
    index_of,
    listed,
)
from braidlog.client.tables.change import AsyncClusterDdl
from braidlog.client.tables.hosts import PositionLease, Question, TableHosts
from braidlog.client.tables.reads import Found, Page, Wanted, get_rows, scan_pages
from braidlog.closable import AsyncClosable
from braidlog.errors import (
    BeyondEndError,
    ClosedError,
    CorruptionError,
    InvalidArgumentError,
    LogError,
    TrimmedError,
    UnavailableError,
)
from braidlog.store.arguments import (
    DurationLike,
    checked_columns,
    checked_flag,
    checked_key,
    checked_limit,
    checked_position,
    checked_timeout,
)
from braidlog.store.tables.entry import (
    IndexDescription,
    TableOptions,
    TableStats,
)
from braidlog.wire.messages import Message
from braidlog.wire.rows import GetTable, TableStatus
from braidlog.wire.tables import IndexInfo, IndexStatus, TableInfo

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from braidlog._native import Record

__all__ = [
    "AsyncClusterTable",
    "AsyncClusterTableIndex",
    "AsyncClusterTableSnapshot",
    "AsyncSnapshotIndex",
]

_LOOK_S: Final = 0.2
"""Between looks whether an index is built."""
_DESCRIBE_S: Final = 2.0
"""Longest time in which a host has to describe its table."""


_HISTORY: Final = "`history` of a table says how far back it can be read, at least"


def _successor(prefix: bytes) -> bytes | None:
    """Return the lowest key above all that begin with a prefix; None: there is none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _wanted(
    begin: Buffer | None,
    end: Buffer | None,
    prefix: Buffer | None,
    *,
    reverse: bool = False,
    limit: int | None = None,
) -> Wanted:
    low = b"" if begin is None else checked_key(begin)
    high = None if end is None else checked_key(end)
    if prefix is not None:
        plain = checked_key(prefix)
        low, above = max(low, plain), _successor(plain)
        if above is not None:
            high = above if high is None else min(high, above)
    count = checked_limit(limit)
    return Wanted(low, high, checked_flag(reverse, "reverse"), count)


async def _records(pages: AsyncGenerator[Page, None]) -> AsyncIterator[Record]:
    async with contextlib.aclosing(pages):
        async for page in pages:
            for record in page.records():
                yield record


async def _chunks(
    pages: AsyncGenerator[Page, None],
) -> AsyncGenerator[list[Record], None]:
    async with contextlib.aclosing(pages):
        async for page in pages:
            yield page.records()


async def _batches(
    pages: AsyncGenerator[Page, None], columns: list[str] | None
) -> AsyncGenerator[list[pa.RecordBatch], None]:
    import pyarrow as pa

    async with contextlib.aclosing(pages):
        async for page in pages:
            found = _native.rows_arrow(page.batch, page.positions, columns)
            yield [pa.record_batch(found)]


async def _each(chunks: AsyncGenerator[list[Any], None]) -> AsyncIterator[Any]:
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            for item in chunk:
                yield item


async def _gathered(
    chunks: AsyncGenerator[list[pa.RecordBatch], None], columns: list[str] | None
) -> pa.Table:
    import pyarrow as pa

    from braidlog.client.arrow import log_schema

    schema, found = log_schema(columns), []
    async with contextlib.aclosing(chunks):
        async for chunk in chunks:
            found += chunk
    return pa.Table.from_batches(found, schema)


class _Reads(abc.ABC):
    """Where reads of a table go: to its newest state, or to a position that is held."""

    _hosts: TableHosts

    @abc.abstractmethod
    async def _at(
        self, after: int | None, *, stale_ok: bool
    ) -> tuple[int, PositionLease | None]:
        """Return what an answer has to be after, and the position that is held."""


class AsyncTableReads(_Reads):
    """Reading a table of a cluster: its newest state, or that of a snapshot."""

    async def _pages(
        self, wanted: Wanted, after: int | None, *, stale_ok: bool
    ) -> AsyncGenerator[Page, None]:
        position, held = await self._at(after, stale_ok=stale_ok)
        pages = scan_pages(self._hosts, wanted, position, held)
        async with contextlib.aclosing(pages):
            async for page in pages:
                yield page

    async def get(
        self, key: Buffer, *, after: int | None = None, stale_ok: bool = False
    ) -> Record | None:
        """Return the record that has the value of a key; None if the key has none.

        Every record counts that was acknowledged when the call began. With ``after``
        those up to there count at least, and with ``stale_ok`` those that a host has.

        Raises:
            BeyondEndError: the record at ``after`` is not written yet.
            UnavailableError: no host of the table answers in time that has all of them.
        """
        found = await self._found([checked_key(key)], after, stale_ok=stale_ok)
        return found.records(1)[0]

    async def get_many(
        self,
        keys: Iterable[Buffer],
        *,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> Any:
        """Look up many keys, all at one position; see `Table.get_many`."""
        if not hasattr(keys, "__arrow_c_array__"):
            plain = [checked_key(key) for key in keys]
            found = await self._found(plain, after, stale_ok=stale_ok)
            return found.records(len(plain))
        import pyarrow as pa

        wanted = pa.array(keys)
        if wanted.null_count or not _is_text(wanted.type):
            msg = "keys must be a column of binary or text without nulls"
            raise InvalidArgumentError(msg)
        plain = [checked_key(_bytes_of(key)) for key in wanted.to_pylist()]
        found = await self._found(plain, after, stale_ok=stale_ok)
        return _arrow_rows(plain, found)

    async def _found(
        self, keys: list[bytes], after: int | None, *, stale_ok: bool
    ) -> Found:
        position, held = await self._at(after, stale_ok=stale_ok)
        return await get_rows(self._hosts, keys, position, held)

    def scan(
        self,
        begin: Buffer | None = None,
        end: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncIterator[Record]:
        """Iterate over the records of keys ``begin`` to ``end`` (half-open) in order.

        All is of the moment when the iteration begins; see `Table.scan`.
        """
        wanted = _wanted(begin, end, prefix, reverse=reverse, limit=limit)
        return _records(self._pages(wanted, after, stale_ok=stale_ok))

    def _scan_chunks(
        self,
        begin: Buffer | None = None,
        end: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        reverse: bool = False,
        limit: int | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncGenerator[list[Record], None]:
        wanted = _wanted(begin, end, prefix, reverse=reverse, limit=limit)
        return _chunks(self._pages(wanted, after, stale_ok=stale_ok))

    def __aiter__(self) -> AsyncIterator[Record]:
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
        stale_ok: bool = False,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Scan as `pyarrow.RecordBatch`; see `Table.batches`."""
        return _each(
            self._batch_chunks(
                begin,
                end,
                prefix=prefix,
                columns=columns,
                after=after,
                stale_ok=stale_ok,
            )
        )

    def _batch_chunks(
        self,
        begin: Buffer | None = None,
        end: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        columns: list[str] | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncGenerator[list[pa.RecordBatch], None]:
        wanted = _wanted(begin, end, prefix)
        pages = self._pages(wanted, after, stale_ok=stale_ok)
        return _batches(pages, checked_columns(columns))

    async def to_arrow(
        self,
        begin: Buffer | None = None,
        end: Buffer | None = None,
        *,
        prefix: Buffer | None = None,
        columns: list[str] | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> pa.Table:
        """Return the keys ``begin`` to ``end`` as one Arrow table, in memory."""
        columns = checked_columns(columns)
        chunks = self._batch_chunks(
            begin, end, prefix=prefix, columns=columns, after=after, stale_ok=stale_ok
        )
        return await _gathered(chunks, columns)


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow.types as kinds

    text = (kinds.is_string, kinds.is_large_string)
    return any(
        is_one(kind) for is_one in (*text, kinds.is_binary, kinds.is_large_binary)
    )


def _bytes_of(key: Any) -> Any:
    return key.encode() if isinstance(key, str) else key


def _arrow_rows(keys: list[bytes], found: Found) -> pa.RecordBatch:
    """Return a row for each key, with nulls where it has no value."""
    import pyarrow as pa

    from braidlog.client.arrow import log_schema

    parts, done = [], 0
    for page, numbers in found.pages:
        # Up to the last key of the page; those behind it belong to the next one.
        end = numbers[-1] + 1
        own = [number - done for number in numbers]
        rows = _native.rows_arrow(page.batch, page.positions, None, keys[done:end], own)
        parts.append(pa.record_batch(rows))
        done = end
    if done < len(keys):
        parts.append(
            pa.record_batch(_native.rows_arrow(b"", (), None, keys[done:], []))
        )
    if not parts:
        return pa.RecordBatch.from_pylist([], log_schema())
    whole = pa.Table.from_batches(parts).combine_chunks()
    batches: list[pa.RecordBatch] = whole.to_batches()
    return batches[0]


class AsyncIndexReads(_Reads):
    """Reading by an indexed field."""

    _table: TableHosts
    _name: str
    _bound: IndexInfo | None = None
    """What had the name when a snapshot was asked for it."""

    def _wanted(
        self, *, reverse: bool = False, limit: int | None = None, **bounds: Any
    ) -> Wanted:
        info = self._hosts.known
        named = (i for i in info.indexes if i.name == self._name)
        found = self._bound or next(named, None)
        if found is None:
            raise index_missing(info, self._name)
        field = found.field.decode().removeprefix(STRICT)
        low, high = _native.index_bounds(field, **bounds)
        count = checked_limit(limit)
        reverse = checked_flag(reverse, "reverse")
        tree = b"" if self._bound is None else self._bound.tree
        return Wanted(low or b"", high, reverse, count, self._name, tree)

    async def _pages(
        self, wanted: Wanted, after: int | None, *, stale_ok: bool
    ) -> AsyncGenerator[Page, None]:
        position, held = await self._at(after, stale_ok=stale_ok)
        # An error of the catalog is the answer, and not one to try again for.
        wanted.tree_in(self._hosts.info())
        pages = scan_pages(self._hosts, wanted, position, held)
        async with contextlib.aclosing(pages):
            async for page in pages:
                yield page

    def get(
        self,
        value: Any,
        *,
        limit: int | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncIterator[Record]:
        """Iterate over the records whose field has this value, in the order of keys.

        Raises:
            NotReadyError: the index is still being built.
            InvalidArgumentError: the value is of another type than the field, or the
                index could not be built.
        """
        wanted = self._wanted(value=value, limit=limit)
        return _records(self._pages(wanted, after, stale_ok=stale_ok))

    def _get_chunks(
        self,
        value: Any,
        *,
        limit: int | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncGenerator[list[Record], None]:
        wanted = self._wanted(value=value, limit=limit)
        return _chunks(self._pages(wanted, after, stale_ok=stale_ok))

    def scan(
        self,
        begin: Any = None,
        end: Any = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncIterator[Record]:
        """Iterate in the order of the field, from ``begin`` to ``end`` (half-open).

        See `TableIndex.scan`.
        """
        wanted = self._wanted(begin=begin, end=end, reverse=reverse, limit=limit)
        return _records(self._pages(wanted, after, stale_ok=stale_ok))

    def _scan_chunks(
        self,
        begin: Any = None,
        end: Any = None,
        *,
        reverse: bool = False,
        limit: int | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncGenerator[list[Record], None]:
        wanted = self._wanted(begin=begin, end=end, reverse=reverse, limit=limit)
        return _chunks(self._pages(wanted, after, stale_ok=stale_ok))

    def __aiter__(self) -> AsyncIterator[Record]:
        """Iterate over all records that have the field."""
        return self.scan()

    def batches(
        self,
        begin: Any = None,
        end: Any = None,
        *,
        columns: list[str] | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Scan as `pyarrow.RecordBatch`; see `Table.batches`."""
        return _each(
            self._batch_chunks(
                begin, end, columns=columns, after=after, stale_ok=stale_ok
            )
        )

    def _batch_chunks(
        self,
        begin: Any = None,
        end: Any = None,
        *,
        columns: list[str] | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> AsyncGenerator[list[pa.RecordBatch], None]:
        wanted = self._wanted(begin=begin, end=end)
        pages = self._pages(wanted, after, stale_ok=stale_ok)
        return _batches(pages, checked_columns(columns))

    async def to_arrow(
        self,
        begin: Any = None,
        end: Any = None,
        *,
        columns: list[str] | None = None,
        after: int | None = None,
        stale_ok: bool = False,
    ) -> pa.Table:
        """Return a part of the index as one Arrow table, in memory."""
        columns = checked_columns(columns)
        chunks = self._batch_chunks(
            begin, end, columns=columns, after=after, stale_ok=stale_ok
        )
        return await _gathered(chunks, columns)


class AsyncClusterTableIndex(AsyncIndexReads):
    """An index of a table of a cluster. Get one from `AsyncClusterTable.index`."""

    def __init__(self, table: AsyncClusterTable, name: str) -> None:
        """Stand for an index that is there; users call `AsyncClusterTable.index`."""
        self._of = table
        self._hosts = table._hosts
        self._name = name

    def __repr__(self) -> str:
        """Show name and table."""
        return f"<ClusterTableIndex {self._name!r} of {self._of.name!r}>"

    async def _at(
        self, after: int | None, *, stale_ok: bool
    ) -> tuple[int, PositionLease | None]:
        return await self._of._at(after, stale_ok=stale_ok)

    @property
    def name(self) -> str:
        """Name of the index."""
        return self._name

    async def describe(self) -> IndexDescription:
        """Return what there is to know of the index.

        Raises:
            NotFoundError: it was dropped.
        """
        for index in (await self._of.describe()).indexes:
            if index.name == self._name:
                return index
        raise index_missing(self._hosts.known, self._name)

    async def wait(self, *, timeout: DurationLike | None = None) -> bool:  # noqa: ASYNC109
        """Wait until it is built by a host; False if ``timeout`` seconds pass first.

        Raises:
            NotFoundError: it was dropped.
            InvalidArgumentError: it could not be built.
        """
        limit = checked_timeout(timeout)
        loop, cluster = asyncio.get_running_loop(), self._hosts.cluster
        deadline = None if limit is None else loop.time() + limit
        info = self._hosts.info(await self._hosts.calls.newest())
        while True:
            found = next((i for i in info.indexes if i.name == self._name), None)
            if found is not None and found.status is IndexStatus.ABORTED:
                raise InvalidArgumentError(found.reason)
            if found is None or found.status is not IndexStatus.BUILDING:
                index_of(info, self._name)
                return True
            left = _LOOK_S if deadline is None else deadline - loop.time()
            if left <= 0:
                return False
            await cluster.change(min(left, _LOOK_S))
            info = self._hosts.info()


class AsyncSnapshotIndex(AsyncIndexReads):
    """An index at the position of a snapshot; see `AsyncClusterTableSnapshot`."""

    def __init__(self, snapshot: AsyncClusterTableSnapshot, index: IndexInfo) -> None:
        """Stand for an index that is there."""
        self._of = snapshot
        self._hosts = snapshot._hosts
        self._name = index.name
        self._bound = index

    def __repr__(self) -> str:
        """Show name and snapshot."""
        return f"<SnapshotIndex {self._name!r} of {self._of!r}>"

    async def _at(
        self, after: int | None, *, stale_ok: bool
    ) -> tuple[int, PositionLease | None]:
        return await self._of._at(after, stale_ok=stale_ok)


class AsyncClusterTableSnapshot(AsyncTableReads, AsyncClosable):
    """A table of a cluster at one position. Get one from `AsyncClusterTable.at`."""

    def __init__(self, table: AsyncClusterTable, position: int | None) -> None:
        """Remember what to hold; entering holds it."""
        self._hosts = table._hosts
        self._of = table
        self._asked = position
        self._held: PositionLease | None = None

    def __repr__(self) -> str:
        """Show table and position."""
        at = self._asked if self._held is None else self._held.position
        return f"<ClusterTableSnapshot of {self._hosts.known.name!r} at {at}>"

    async def __aenter__(self) -> Self:
        """Hold the position, on one of the hosts."""
        after = await self._hosts.position(self._asked)
        try:
            self._held = await self._hosts.hold(self._asked or 0, after)
        except TrimmedError as error:
            msg = (
                f"table {self._hosts.known.name!r} can be read from position "
                f"{error.first} on, not at {self._asked}"
            )
            raise TrimmedError(msg, first=error.first).advising(_HISTORY) from error
        return self

    async def _entered(self) -> AsyncClusterTableSnapshot:
        return await self.__aenter__()

    async def _at(
        self, after: int | None, *, stale_ok: bool
    ) -> tuple[int, PositionLease | None]:
        held = self._position()
        if after is not None and checked_position(after, "after") > held.position:
            msg = f"the snapshot is of position {held.position}, not of {after}"
            raise BeyondEndError(msg, next=held.position + 1)
        return held.position, held

    def _position(self) -> PositionLease:
        if self._held is None:
            raise ClosedError("the snapshot is not open: use it in its block")
        return self._held

    @property
    def position(self) -> int:
        """Position of the last record that counts."""
        return self._position().position

    def index(self, name: str) -> AsyncSnapshotIndex:
        """Return an index as it was at that position.

        Raises:
            NotFoundError: there is none of that name.
            NotReadyError: it is still being built.
        """
        return AsyncSnapshotIndex(self, index_of(self._hosts.info(), name))

    async def close(self) -> None:
        """Let go of what only this needs. Idempotent."""
        held, self._held = self._held, None
        if held is not None:
            await held.close()


class AsyncClusterTable(AsyncTableReads):
    """The latest value of each key of a log of a cluster.

    Get one from `AsyncClient.table`. Any node that keeps the table answers.
    """

    def __init__(self, hosts: TableHosts) -> None:
        """Stand for a table that is there; users call `AsyncClient.table`."""
        self._hosts = hosts

    def __repr__(self) -> str:
        """Show the name."""
        return f"<ClusterTable {self.name!r}>"

    async def _at(
        self, after: int | None, *, stale_ok: bool
    ) -> tuple[int, PositionLease | None]:
        checked = None if after is None else checked_position(after, "after")
        stale_ok = checked_flag(stale_ok, "stale_ok")
        return await self._hosts.position(checked, stale_ok=stale_ok), None

    @property
    def name(self) -> str:
        """Name of the table, when it was last looked at."""
        return self._hosts.known.name

    @property
    def log(self) -> str:
        """Name of the log that it follows."""
        return self._hosts.cluster.routes.log(self._hosts.known.log).name

    async def index(self, name: str) -> AsyncClusterTableIndex:
        """Return an index of the table.

        Raises:
            NotFoundError: there is none of that name; or it was given up because of a
                record that it cannot hold, which the error names.
        """
        info = self._hosts.info()
        if all(index.name != name for index in listed(info)):
            info = self._hosts.info(await self._hosts.calls.newest())
        if all(index.name != name for index in listed(info)):
            raise index_missing(info, name)
        return AsyncClusterTableIndex(self, name)

    def at(self, position: int | None = None) -> AsyncClusterTableSnapshot:
        """Return the table as it was when ``position`` was its last record.

        For ``async with``; see `Table.at`. A host keeps what it can read until the
        block ends. If that host fails, reads go on at another one, as long as that one
        still has the position.

        Raises:
            TrimmedError: that is too long ago; ``first`` is the oldest position.
            BeyondEndError: the record at ``position`` is not written yet.
        """
        if position is not None:
            position = checked_position(position)
        return AsyncClusterTableSnapshot(self, position)

    async def _held_at(self, position: int | None = None) -> AsyncClusterTableSnapshot:
        return await self.at(position)._entered()

    async def applied(self) -> int:
        """Return the position of the last record that the host has which answers."""
        return (await self._status(0)).applied

    async def _status(self, after: int, within: float | None = None) -> TableStatus:
        def question(info: TableInfo, wait_ms: int) -> Message:
            return GetTable(info.table, after, wait_ms)

        asked: Question = question
        return (await self._hosts.ask(asked, within=within)).of(TableStatus)

    async def wait(self, position: int, *, timeout: DurationLike | None = None) -> bool:  # noqa: ASYNC109
        """Wait until a host has the record at ``position``.

        Returns False if ``timeout`` seconds pass first, or once the client is closed.
        """
        position, limit = checked_position(position), checked_timeout(timeout)
        loop = asyncio.get_running_loop()
        deadline = None if limit is None else loop.time() + limit
        step = self._hosts.cluster.settings.timeout_s
        while True:
            left = step if deadline is None else min(step, deadline - loop.time())
            try:
                await self._status(position, max(0.0, left))
            except UnavailableError:
                if deadline is not None and loop.time() >= deadline:
                    return False
            except ClosedError:
                return False
            else:
                return True

    async def flush(self, *, progress: Callable[[int], object] | None = None) -> None:
        """Write what the log has to files now, so that the log may let go of it.

        Every host does it, because every host holds the log. ``progress`` is called
        with the last position that a host has applied, when that host is done.

        Raises:
            UnavailableError: a host did not do it in time, and holds the log.
            UnauthorizedError: the token is not of role `admin`.
            OlderNodesError: a host is of a version that cannot be asked.
        """
        await upkeep.flush(self._hosts, progress)

    async def verify(
        self, progress: Callable[[int], object] | None = None
    ) -> tuple[int, int]:
        """Read the whole table on each of its hosts; see `Table.verify`.

        Every record counts that was acknowledged when the call began. Returns how many
        records there are, and how many entries of indexes, on the host that has most.
        ``progress`` is called with how many all hosts have read so far. A host goes on
        reading as long as this call waits. One that finds damage takes the table from
        another host, if there is one.

        Raises:
            CorruptionError: a page is damaged on a host, or an index has not what it
                should.
            UnavailableError: a host that has all of the table does not answer in time.
            UnauthorizedError, OlderNodesError: as `flush`.
        """
        return await upkeep.verify(self._hosts, progress)

    def damaged_index(self, error: CorruptionError) -> str | None:
        """Return the name of the index whose file an error names.

        None is for the table itself, which has to be made anew of its log.
        """
        parts = error.path.split("/")
        for index in self._hosts.known.indexes:
            if index.tree.hex() in parts:
                return index.name
        return None

    async def stats(self) -> TableStats:
        """Return figures of the table on the host that answers."""
        status = await self._status(0)
        figures = {
            name: int(value)
            for name, value in status.figures.items()
            if name in TableStats.__dataclass_fields__
        }
        plain = dict.fromkeys(TableStats.__dataclass_fields__, 0) | figures
        plain |= {"applied": status.applied, "flushed": status.flushed}
        return TableStats(**plain)

    async def describe(self) -> ClusterTableDescription:
        """Return settings and state of the table, on each of its hosts."""
        routes = await self._hosts.calls.newest()
        info = self._hosts.info(routes)
        log = routes.log(info.log)
        asked = [self._describe_on(info, node) for node in info.hosts]
        said = await asyncio.gather(*asked)
        hosts = []
        for node, answer in zip(info.hosts, said, strict=True):
            failed = answer if isinstance(answer, LogError) else None
            applied = 0 if isinstance(answer, LogError) else answer.applied
            hosts.append(
                TableHostDescription(
                    node=node,
                    joined=node in info.joined,
                    applied=applied,
                    lag=max(0, log.high_watermark - applied) if not failed else 0,
                    failure=failed.message if failed else None,
                )
            )
        answers = [each for each in said if not isinstance(each, LogError)]
        best = max(answers, key=lambda each: each.applied, default=None)
        return _described(info, log.name, log.high_watermark, tuple(hosts), best)

    async def _describe_on(self, info: TableInfo, node: int) -> TableStatus | LogError:
        cluster, calls = self._hosts.cluster, self._hosts.calls
        try:
            async with calls.places:
                answer, _ = await cluster.ask_node(
                    node, GetTable(info.table), within=_DESCRIBE_S
                )
        except LogError as error:
            cluster.check_open()
            return error
        if isinstance(answer, TableStatus):
            return answer
        return UnavailableError(f"it answered with {type(answer).__name__}")

    def ddl(self) -> AsyncClusterDdl:
        """Change this and other tables together; see `AsyncClient.ddl`."""
        return AsyncClusterDdl(self._hosts.calls)

    async def rebuild(self) -> None:
        """Make the table anew of its log; `ddl` does it with other changes.

        Raises:
            TrimmedError: the log does not reach back to where the table began.
        """
        async with self.ddl() as change:
            change.rebuild(self._hosts.info().name)


def _described(
    info: TableInfo,
    log: str,
    end: int,
    hosts: tuple[TableHostDescription, ...],
    best: TableStatus | None,
) -> ClusterTableDescription:
    options = TableOptions.decode(info.options)
    figures = best.figures if best is not None else {}
    applied = best.applied if best is not None else 0
    first = figures.get("left_out_first")
    return ClusterTableDescription(
        name=info.name,
        id=info.table.hex(),
        log=log,
        created=info.created,
        start=info.begin,
        applied=applied,
        lag=max(0, end - applied),
        oldest=best.floor if best is not None else 0,
        replicas=info.replicas,
        hosts=hosts,
        history=options.history,
        memory_bytes_max=options.memory_bytes,
        deletes=options.deletes,
        indexes=tuple(described_index(index, figures) for index in listed(info)),
        left_out=int(figures.get("left_out", 0)),
        left_out_first=None if first is None else int(first),
    )
