"""The tables of a node: what it keeps, and what it answers from them.

Every request that is taken is answered once. What reads files is done by workers; a
bound says how many requests have one, or wait for one.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from braidlog.errors import (
    CorruptionError,
    InvalidArgumentError,
    LogError,
    NotReadyError,
    TooLargeError,
)
from braidlog.node.metrics.status import HostedStatus
from braidlog.node.peers.links import Peers
from braidlog.node.repository.route import RepositoryRoute
from braidlog.node.requests.forwarding import Execution
from braidlog.node.share import share_of_one
from braidlog.node.tables.checks import Checks
from braidlog.node.tables.counters import TableCounters
from braidlog.node.tables.engine import Engine, FoundRows, HostedTable, ScanBounds
from braidlog.node.tables.feed import Feed
from braidlog.node.tables.host import HostParts, TableHost
from braidlog.node.tables.hosts import Hosts
from braidlog.node.tables.leases import Leases
from braidlog.node.tables.memory import TableMemory
from braidlog.node.tables.questions import Questions
from braidlog.node.tables.settings import TableSettings
from braidlog.node.tables.source import Pins
from braidlog.node.tables.view import CatalogView
from braidlog.node.tables.waiters import PositionWaiter, Waiters
from braidlog.node.tables.worker import Worker
from braidlog.serving.sessions import Request, Session, told
from braidlog.wire.messages import Message, Read
from braidlog.wire.rows import (
    DivideTable,
    FetchRun,
    FlushTable,
    GetRows,
    GetTable,
    PinRuns,
    ReleaseRows,
    Rows,
    RunPart,
    ScanRows,
    TableParts,
    TableStatus,
    UnpinRuns,
    VerifyTable,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["TABLE_REQUESTS", "TableWork", "Tables"]

_log = logging.getLogger(__name__)

TABLE_REQUESTS: Final = (
    GetRows,
    ScanRows,
    DivideTable,
    GetTable,
    FlushTable,
    VerifyTable,
    ReleaseRows,
    PinRuns,
    FetchRun,
    UnpinRuns,
)
"""What `Tables.take` takes."""

_Read = GetRows | ScanRows
_Asked = _Read | GetTable | DivideTable | FlushTable | VerifyTable
"""What waits until the host has applied a position."""
_CHECK_ID_BYTES: Final = 16
_ID_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class TableWork:
    """What a node has to be given to keep tables."""

    engine: Engine
    worker: Worker
    slow: Worker
    settings: TableSettings = field(default_factory=TableSettings)


def _check_identities(message: Message) -> None:
    """Refuse what no table or index has as identity, before an error repeats it.

    Raises:
        InvalidArgumentError: it is of another length.
    """
    table, tree = getattr(message, "table", None), getattr(message, "tree", b"")
    if table is not None and len(table) != _ID_BYTES:
        msg = f"the identity of a table has {_ID_BYTES} bytes, got {len(table)}"
        raise InvalidArgumentError(msg)
    if tree and len(tree) != _ID_BYTES:
        msg = f"the identity of an index has {_ID_BYTES} bytes, got {len(tree)}"
        raise InvalidArgumentError(msg)


def _is_gone(owner: Hashable) -> bool:
    return isinstance(owner, Session) and owner.gone


class Tables:
    """Keeps tables and answers from them."""

    def __init__(
        self,
        work: TableWork,
        route: RepositoryRoute,
        peers: Peers,
        *,
        execute: Execution,
        read: Callable[[Request, Read], None],
        share: Callable[[], float],
        connections: Callable[[], int],
        first_pin: int,
    ) -> None:
        """Begin with none.

        ``execute`` executes a command on the leader, ``read`` reads own replicas,
        ``share`` draws a number in 0..1.
        """
        settings = work.settings
        questions = Questions(peers.request, execute, settings.patience_s)
        self._work = work
        self._settings = settings
        self._worker = work.worker
        self.counters = TableCounters()
        self._view = CatalogView(route, peers, questions)
        self._feed = Feed(route.node, self._view, questions, read, share)
        self._waiters = Waiters(settings, connections)
        self._leases = Leases(settings, connections, _is_gone)
        self._connections = connections
        self._pins = Pins(settings, work.slow, first_pin, connections, _is_gone)
        self._checks = Checks(settings, work.slow)
        self._hosts = Hosts(
            HostParts(
                node=route.node,
                engine=work.engine,
                worker=work.worker,
                slow=work.slow,
                building=asyncio.Semaphore(1),
                merging=asyncio.Semaphore(1),
                questions=questions,
                feed=self._feed,
                memory=TableMemory(settings.memory_bytes_max, self.counters),
                settings=settings,
                counters=self.counters,
                share=share,
                advanced=self._advanced,
            ),
            self._view,
            self._closed,
        )
        self._answers: set[asyncio.Task[None]] = set()
        # How many of them each connection has.
        self._working: Counter[object] = Counter()

    # --- life

    def look(self) -> None:
        """Take the decisions that came."""
        self._view.look()

    def tick(self, now: float) -> None:
        """Let time pass."""
        self._waiters.tick(now)
        self._leases.tick(now)
        self._pins.tick(now)
        self._checks.tick(now)

    async def close(self) -> None:
        """Stop to keep tables, and to answer."""
        self._feed.closed = True
        await self._checks.close()
        await self._hosts.close()
        for task in self._answers:
            task.cancel()
        await asyncio.gather(*self._answers, return_exceptions=True)
        self._work.worker.close()
        self._work.slow.close()

    def status(self) -> tuple[HostedStatus, ...]:
        """Return how each table of this node is."""
        return self._hosts.status()

    @property
    def waiting(self) -> int:
        """Return how many requests wait for a position."""
        return len(self._waiters)

    def _closed(self, table: bytes) -> None:
        self._waiters.drop(table)
        self._leases.drop(table)
        self._pins.drop(table)
        self._checks.drop(table)

    def _advanced(self, table: bytes) -> None:
        try:
            host = self._hosts.host(table)
            applied = host.table.applied
        except NotReadyError:
            # It is not answered from, or its files are replaced by others.
            self._closed(table)
        else:
            self._waiters.reached(table, applied)

    # --- requests

    def take(self, request: Request, message: Message) -> None:
        """Take a request; it is answered now or later.

        Raises:
            LogError: it is refused.
        """
        now = asyncio.get_running_loop().time()
        _check_identities(message)
        if isinstance(message, VerifyTable) and self._checks.knows(message.check):
            # What it came to is said, whatever has become of the table.
            self._answer(request, self._check(message))
        elif isinstance(message, _Asked):
            self._read(request, self._checked(message), now)
        elif isinstance(message, PinRuns):
            self._answer(request, self._pin(message, request.session, now))
        elif isinstance(message, FetchRun):
            self._answer(request, self._fetch(message, now))
        elif isinstance(message, ReleaseRows):
            holder = request.session, message.lease
            self._leases.release(message.table, message.position, holder)
            request.answer(Rows(message.position, (), ()))
        elif isinstance(message, UnpinRuns):
            self._pins.let_go(message.pin, request.session)
            request.answer(RunPart(0))
        else:
            raise InvalidArgumentError(
                f"a table does not serve requests of type {type(message).__name__}"
            )

    def _checked(self, message: _Asked) -> _Asked:
        settings = self._settings
        if isinstance(message, GetRows) and len(message.keys) > settings.keys_max:
            count, limit = len(message.keys), settings.keys_max
            msg = f"{count} keys were asked for at once, at most {limit} can be"
            raise TooLargeError(msg, size=count, limit=limit)
        if isinstance(message, VerifyTable) and len(message.check) != _CHECK_ID_BYTES:
            msg = f"the identity of a check has {_CHECK_ID_BYTES} bytes"
            raise InvalidArgumentError(f"{msg}, got {len(message.check)}")
        if isinstance(message, ScanRows):
            return msgspec.structs.replace(
                message,
                count_max=max(1, min(message.count_max, settings.rows_max)),
                bytes_max=max(1, min(message.bytes_max, settings.answer_bytes_max)),
            )
        if isinstance(message, DivideTable):
            most = max(1, min(message.parts_max, settings.parts_max))
            return msgspec.structs.replace(message, parts_max=most)
        return message

    def _read(self, request: Request, message: _Asked, now: float) -> None:
        host = self._hosts.host(message.table)
        table = host.table
        position = max(message.after, getattr(message, "at", 0))
        if table.applied >= position:
            self._answer(request, self._carry_out(host, message, request.session))
            return
        wait = min(message.wait_ms / 1000, self._settings.wait_max_s)

        def late() -> None:
            if not request.gone:
                request.fail(self._behind(host, position))

        def go_on() -> None:
            if not request.gone:
                self._answer(request, self._carry_out(host, message, request.session))

        if wait <= 0:
            raise self._behind(host, position)
        waiter = PositionWaiter(request, position, now + wait, go_on, late)
        self._waiters.wait(message.table, waiter)

    def _behind(self, host: TableHost, position: int) -> NotReadyError:
        name = host.info.name
        return NotReadyError(
            f"table {name!r} has applied its log up to {host.applied} on this node, "
            f"and not yet {position}"
        )

    def _answer(
        self,
        request: Request,
        work: Awaitable[tuple[Message, Buffer | bytes]],
    ) -> None:
        """Answer with what some work comes to."""
        count, session = len(self._answers), request.session
        most, of_one = self._settings.working_max, self._settings.working_of_one_max
        share = share_of_one(count, most, of_one, self._connections())
        if count >= most or self._working[session] >= share:
            close = getattr(work, "close", None)
            if close is not None:
                close()
            whose = "of this connection" if count < most else "of all"
            request.fail(
                NotReadyError(
                    f"this node has too many reads of tables under way, {whose}"
                )
            )
            return
        self._working[session] += 1

        async def answer() -> None:
            try:
                message, payload = await work
            except LogError as error:
                request.fail(error)
            except AssertionError:
                raise
            except Exception as error:
                request.fail(told(error, "a read of a table"))
            else:
                request.answer(message, (payload,) if payload else ())
            finally:
                self._working[session] -= 1
                if not self._working[session]:
                    del self._working[session]

        task = asyncio.get_running_loop().create_task(answer())
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    async def _carry_out(
        self, host: TableHost, message: _Asked, owner: Hashable
    ) -> tuple[Message, bytes]:
        """Do what was asked for, now that the host is far enough."""
        try:
            if isinstance(message, VerifyTable):
                if not self._checks.knows(message.check):
                    now = asyncio.get_running_loop().time()
                    self._checks.begin(message.check, host, now)
                return await self._check(message)
            if isinstance(message, FlushTable):
                await host.flush()
                return await self._state(host, host.table), b""
            if isinstance(message, GetTable):
                return await self._state(host, host.table), b""
            if isinstance(message, DivideTable):
                return await self._parts(host.table, message), b""
            return await self._rows(host, message, owner)
        except CorruptionError as error:
            host.breaks(error)
            if host.is_replaceable:
                # Another host has it, or the log. Whether this one has joined does not
                # matter: readers may know that before it hears of it.
                raise host.not_ready() from error
            raise

    async def _check(self, message: VerifyTable) -> tuple[Message, bytes]:
        wait = min(message.wait_ms / 1000, self._settings.wait_max_s)
        now = asyncio.get_running_loop().time()
        return await self._checks.answer(message, wait, now), b""

    async def _rows(
        self, host: TableHost, message: _Read, owner: Hashable
    ) -> tuple[Message, bytes]:
        table = host.table
        if isinstance(message, ScanRows) and message.lease_ms:
            message = self._kept(table, message, owner)
        found = await self._worker.run(self._found(table, message))
        self.counters.table_reads += 1
        self.counters.table_rows += len(found.positions)
        self.counters.table_bytes += len(found.batch)
        rows = Rows(
            found.position, found.positions, found.found, found.next, found.looked
        )
        return rows, found.batch

    def _kept(self, table: HostedTable, message: ScanRows, owner: Hashable) -> ScanRows:
        """Keep the position of a scan, before it could be merged away."""
        at, now = message.at or table.applied, asyncio.get_running_loop().time()
        holder = owner, message.lease
        self._leases.keep(table, message.table, at, message.lease_ms, now, holder)
        return msgspec.structs.replace(message, at=at)

    def _found(self, table: HostedTable, message: _Read) -> Callable[[], FoundRows]:
        if isinstance(message, GetRows):
            most = self._settings.answer_bytes_max
            return partial(table.get_rows, message.keys, message.at, most)
        bounds = ScanBounds(
            message.tree,
            message.begin,
            message.end,
            message.reverse,
            message.count_max,
            message.bytes_max,
        )
        return partial(table.scan_rows, bounds, message.at)

    async def _parts(self, table: HostedTable, message: DivideTable) -> TableParts:
        bounds = ScanBounds(
            message.tree,
            message.begin,
            message.end,
            reverse=False,
            count_max=message.parts_max,
            bytes_max=message.bytes_each,
        )
        divide = partial(table.divide, bounds, message.at)
        divided = await self._worker.run(divide)
        begins, sizes = zip(*divided.parts, strict=True) if divided.parts else ((), ())
        return TableParts(divided.position, begins, sizes, divided.whole)

    async def _state(self, host: TableHost, table: HostedTable) -> TableStatus:
        figures = await self._worker.run(table.stats)
        return TableStatus(
            table.applied, table.flushed, table.floor, host.joined, figures
        )

    async def _pin(
        self, message: PinRuns, owner: Hashable, now: float
    ) -> tuple[Message, bytes]:
        host = self._hosts.host(message.table)
        try:
            return await self._pins.pin(host.table, message, owner, now), b""
        except CorruptionError as error:
            host.breaks(error)
            raise

    async def _fetch(self, message: FetchRun, now: float) -> tuple[Message, bytes]:
        return await self._pins.fetch(message, now)
