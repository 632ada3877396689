"""Tables for asyncio: each call is the blocking one of the same name, in a thread."""

from __future__ import annotations

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from braidlog.closable import AsyncClosable
from braidlog.store.arguments import DurationLike, checked_position, checked_timeout
from braidlog.store.mirror import call_of, iterate_of
from braidlog.store.tables.table import (
    IndexReads,
    SnapshotIndex,
    Table,
    TableIndex,
    TableReads,
    TableSnapshot,
)
from braidlog.store.threads import close_in_thread, in_thread

if TYPE_CHECKING:
    from braidlog.store.tables.change import TableChanges

__all__ = ["AsyncDdl", "AsyncTable", "AsyncTableIndex", "AsyncTableSnapshot"]


class FollowedPositions(Protocol):
    """The log of a table, for asyncio."""

    async def wait(
        self,
        position: int,
        *,
        timeout: DurationLike | None = None,  # noqa: ASYNC109
    ) -> bool: ...


class AsyncDdl:
    """The block in which changes of tables are gathered, for asyncio."""

    def __init__(
        self, blocking: contextlib.AbstractContextManager[TableChanges]
    ) -> None:
        """Wrap the blocking one."""
        self._blocking = blocking

    async def __aenter__(self) -> TableChanges:
        """Begin with no changes."""
        return await in_thread(self._blocking.__enter__)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Make all changes, unless the block ended with an error."""
        return await in_thread(self._blocking.__exit__, kind, error, trace)


class AsyncIndexReads:
    """An index for asyncio: each call is the blocking one of the same name."""

    def __init__(self, index: IndexReads) -> None:
        """Wrap an index."""
        self._index = index

    @property
    def blocking(self) -> IndexReads:
        """The same index for blocking code."""
        return self._index

    get = iterate_of(IndexReads.get)
    scan = iterate_of(IndexReads.scan)
    # Each is about 1 MiB.
    batches = iterate_of(IndexReads.batches, 1)
    to_arrow = call_of(IndexReads.to_arrow)


class AsyncTableIndex(AsyncIndexReads):
    """An index of a table for asyncio. Get one from `AsyncTable.index`."""

    def __init__(self, index: TableIndex) -> None:
        """Wrap an index; users call `AsyncTable.index`."""
        super().__init__(index)
        self._named = index

    @property
    def name(self) -> str:
        """Name of the index."""
        return self._named.name

    async def wait(self, *, timeout: DurationLike | None = None) -> bool:  # noqa: ASYNC109
        """Wait until it is built; see `TableIndex.wait`."""
        return await in_thread(self._named.wait, timeout=timeout)


class AsyncTableSnapshot(AsyncClosable):
    """A table at one position, for asyncio. Get one from `AsyncTable.at`."""

    def __init__(self, table: Table, position: int | None) -> None:
        """Remember what to hold; entering holds it."""
        self._table = table
        self._wanted = position
        self._snapshot: TableSnapshot | None = None

    async def __aenter__(self) -> Self:
        """Hold the position."""
        self._snapshot = await in_thread(self._table.at, self._wanted)
        return self

    @property
    def blocking(self) -> TableReads:
        """The same snapshot for blocking code."""
        return self._held

    @property
    def _held(self) -> TableSnapshot:
        if self._snapshot is None:
            msg = "use the snapshot in `async with table.at(...)`"
            raise RuntimeError(msg)
        return self._snapshot

    @property
    def position(self) -> int:
        """Position of the last record that counts."""
        return self._held.position

    get = call_of(TableReads.get)
    get_many = call_of(TableReads.get_many)
    scan = iterate_of(TableReads.scan)
    # Each is about 1 MiB.
    batches = iterate_of(TableReads.batches, 1)
    to_arrow = call_of(TableReads.to_arrow)

    def index(self, name: str) -> AsyncIndexReads:
        """Return an index as it was at that position; see `TableSnapshot.index`."""
        index: SnapshotIndex = self._held.index(name)
        return AsyncIndexReads(index)

    async def close(self) -> None:
        """Let go of what only this needs. Idempotent."""
        if self._snapshot is not None:
            await close_in_thread(self._snapshot.close)


class AsyncTable:
    """A table for asyncio: each call is the call of `Table` with the same name."""

    def __init__(self, table: Table, log: FollowedPositions) -> None:
        """Wrap a table; users call `AsyncStore.table`."""
        self._table = table
        self._log = log

    def __repr__(self) -> str:
        """Show what it wraps."""
        return f"<AsyncTable of {self._table!r}>"

    @property
    def blocking(self) -> Table:
        """The same table for blocking code."""
        return self._table

    @property
    def name(self) -> str:
        """Name of the table, when it was last looked at."""
        return self._table.name

    @property
    def log(self) -> str:
        """Name of the log that it follows."""
        return self._table.log

    get = call_of(Table.get)
    get_many = call_of(Table.get_many)
    scan = iterate_of(Table.scan)
    # Each is about 1 MiB.
    batches = iterate_of(Table.batches, 1)
    to_arrow = call_of(Table.to_arrow)
    flush = call_of(Table.flush)
    stats = call_of(Table.stats)
    describe = call_of(Table.describe)
    verify = call_of(Table.verify)
    rebuild = call_of(Table.rebuild)

    async def applied(self) -> int:
        """Return the position of the last record that it has; see `Table.applied`."""
        return await in_thread(lambda: self._table.applied)

    async def index(self, name: str) -> AsyncTableIndex:
        """Return an index of the table; see `Table.index`."""
        return AsyncTableIndex(await in_thread(self._table.index, name))

    def at(self, position: int | None = None) -> AsyncTableSnapshot:
        """Return the table at a position, for ``async with``; see `Table.at`."""
        return AsyncTableSnapshot(self._table, position)

    async def wait(
        self,
        position: int,
        *,
        timeout: DurationLike | None = None,  # noqa: ASYNC109
    ) -> bool:
        """Wait until the table has the record at ``position``; see `Table.wait`."""
        position, limit = checked_position(position), checked_timeout(timeout)
        if not await self._log.wait(position, timeout=limit):
            return False
        # It is durable now, so what is left to do is to apply it.
        return await in_thread(self._table.wait, position, timeout=limit)
