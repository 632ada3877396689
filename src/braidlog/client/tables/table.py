"""Tables of a cluster, as programs call them.

The calls are those of `AsyncTable`. A read sees a table at one position of its log. It
has everything that was acknowledged before the read began, whoever appended it. A read
that names a position as ``after`` saves the question where the log ends, and has what
is up to there. With ``stale_ok`` it has what a host has at the moment.
"""
# One file: the calls of a few small classes that share their contracts.

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final, Self

from braidlog.client.tables import upkeep
from braidlog.client.tables.catalog import (
    ClusterTableDescription,
    TableHostDescription,
    described_index,
    index_missing,
    index_of,
    listed,
)
from braidlog.client.tables.change import AsyncClusterDdl
from braidlog.client.tables.hosts import PositionLease, Question, TableHosts
from braidlog.client.tables.reads import (
    Wanted,
    divide,
)
from braidlog.client.tables.rows import (
    AsyncIndexReads,
    AsyncTableReads,
    arrow_batches,
    each_of,
    keys_wanted,
)
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
    checked_count,
    checked_flag,
    checked_position,
    checked_timeout,
)
from braidlog.store.tables.entry import (
    IndexDescription,
    TableOptions,
    TablePart,
    TableStats,
)
from braidlog.wire.messages import Message
from braidlog.wire.rows import GetTable, TableStatus
from braidlog.wire.tables import IndexInfo, IndexStatus, TableInfo

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer


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
_ALL: Final = 1 << 62
"""Bytes that no part has."""
_HISTORY: Final = "`history` of a table says how far back it can be read, at least"


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
        self._bound: IndexInfo = index

    @property
    def id(self) -> str:
        """Identity of the index; one that is made anew under its name has another."""
        return self._bound.tree.hex()

    def __repr__(self) -> str:
        """Show name and snapshot."""
        return f"<SnapshotIndex {self._name!r} of {self._of!r}>"

    async def _at(
        self, after: int | None, *, stale_ok: bool
    ) -> tuple[int, PositionLease | None]:
        return await self._of._at(after, stale_ok=stale_ok)

    async def _divided(
        self, size: int, begin: Any, end: Any
    ) -> tuple[list[TablePart], int]:
        wanted = self._wanted(begin=begin, end=end)
        wanted.tree_in(self._hosts.info())
        return await divide(self._hosts, wanted, size, self._of._position())

    async def part(self, begin: Any = None, end: Any = None) -> float:
        """Return about which part is between two values; see `SnapshotIndex.part`."""
        parts, whole = await self._divided(_ALL, begin, end)
        return sum(part.bytes for part in parts) / whole if whole else 0.0

    async def divide(
        self, bytes_per_part: int, begin: Any = None, end: Any = None
    ) -> list[TablePart]:
        """Return parts between two values; see `SnapshotIndex.divide`."""
        size = checked_count(bytes_per_part, "bytes_per_part")
        parts, _ = await self._divided(size, begin, end)
        return parts

    def part_batches(
        self, part: TablePart, *, columns: list[str] | None = None
    ) -> AsyncIterator[pa.RecordBatch]:
        """Scan a part that `divide` gave, as `pyarrow.RecordBatch`."""
        return each_of(self._part_chunks(part, columns=columns))

    def _part_chunks(
        self, part: TablePart, *, columns: list[str] | None = None
    ) -> AsyncGenerator[list[pa.RecordBatch], None]:
        tree = self._bound.tree
        wanted = Wanted(part.begin, part.end, index=self._name, tree=tree)
        pages = self._pages(wanted, None, stale_ok=False)
        return arrow_batches(pages, checked_columns(columns))


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

    async def divide(
        self,
        bytes_per_part: int,
        begin: Buffer | None = None,
        end: Buffer | None = None,
    ) -> list[TablePart]:
        """Divide the keys ``begin`` to ``end``; see `TableSnapshot.divide`.

        Before this is closed, `share` keeps the position for those who read parts.

        Raises:
            OlderNodesError: a host is of a version that cannot be asked.
        """
        size = checked_count(bytes_per_part, "bytes_per_part")
        wanted, held = keys_wanted(begin, end, None), self._position()
        parts, _ = await divide(self._hosts, wanted, size, held)
        return parts

    async def share(self) -> None:
        """Keep the position for others, who open it with `AsyncClusterTable.at`.

        All hosts keep it, until two minutes after the last of those who shared it has
        closed it, or failed. What a host that does not answer has stays uncertain.

        Raises:
            OlderNodesError: a host is of a version that cannot be asked.
        """
        await self._position().share()

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
        # A host says nothing of an index that it has not built yet.
        best = max(answers, key=lambda each: (_built(each), each.applied), default=None)
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


def _built(status: TableStatus) -> int:
    """Return how many indexes a host has built."""
    figures = status.figures.items()
    return sum(bool(value) for name, value in figures if name.startswith("built:"))


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
