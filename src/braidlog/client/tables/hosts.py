"""Asking the hosts of a table, and keeping positions of it readable.

*Theory of operation.* Any host that has all of a table answers. A question names the
position that the answer has to be after; a host that is behind waits a little and then
refuses, and the next one is asked. What nobody answers in time is an error, never an
older answer.

*Invariants.* A position is kept by one host, and asked for again long before its lease
ends.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Self, TypeVar

from braidlog.client.connection.attempts import first_of
from braidlog.client.connection.routing import Routes
from braidlog.client.retry import Verdict, verdict_of
from braidlog.client.tables.calls import TableCalls
from braidlog.closable import AsyncClosable
from braidlog.errors import (
    BeyondEndError,
    LogError,
    NotFoundError,
    NotReadyError,
    OlderNodesError,
    QuotaExceededError,
    RemoteProtocolError,
    TrimmedError,
    UnavailableError,
)
from braidlog.wire.messages import Feature, Message
from braidlog.wire.rows import SHARED_LEASE, ReleaseRows, Rows, ScanRows
from braidlog.wire.tables import TableInfo

__all__ = ["Answered", "PositionLease", "TableHosts"]

T = TypeVar("T", bound=Message)

_WAIT_MS: Final = 1000
"""How long a host may wait for a position before the next one is asked."""
_LEASE_S: Final = 15.0
_RENEWALS: Final = 3
"""How often a lease is asked for while it lasts."""
_SHARED_S: Final = 120.0
"""So long after the last reader of a shared position another one may come."""
_SHARINGS: Final = 4
"""How often it is asked for in that time."""
_SHARE_S: Final = 2.0
"""Longest time in which a host has to say that it keeps one."""
_HINT: Final = (
    "`braidlog cluster status` shows the hosts of the table; with `stale_ok=True` a "
    "read takes what a host has"
)

Question = Callable[[TableInfo, int], Message]
"""Makes the question to a host, of the table as it is now and how long it may wait."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What a host said."""

    node: int
    message: Message
    payload: memoryview

    def of(self, kind: type[T]) -> T:
        """Return the message.

        Raises:
            RemoteProtocolError: it is of another kind.
        """
        if not isinstance(self.message, kind):
            what = type(self.message).__name__
            raise RemoteProtocolError(f"{what} came instead of {kind.__name__}")
        return self.message


class TableHosts:
    """Asks the hosts of one table, whatever it is called by now."""

    def __init__(self, calls: TableCalls, info: TableInfo) -> None:
        """Bind to a table that is there."""
        self.calls = calls
        self.cluster = calls.cluster
        self._info = info
        self._liked = 0
        """The host that answered last."""

    @property
    def known(self) -> TableInfo:
        """The table as it was last seen."""
        return self._info

    def info(self, routes: Routes | None = None) -> TableInfo:
        """Return the table as the metadata has it: renamed, emptied or rebuilt.

        Raises:
            NotFoundError: it was dropped.
        """
        before = self._info
        if routes is None:
            tables = self.calls.tables(before.log)
        else:
            tables = routes.metadata.tables
        found = next((t for t in tables if t.table == before.table), None)
        if found is None:
            mine = (before.log, before.created, before.name)
            same = (t for t in tables if (t.log, t.created, t.name) == mine)
            found = next(same, None)
        if found is None:
            raise NotFoundError(f"table {before.name!r} was dropped")
        self._info = found
        return found

    async def position(self, after: int | None, *, stale_ok: bool = False) -> int:
        """Return the position that an answer has to be after.

        Raises:
            BeyondEndError: ``after`` is not in the log yet.
        """
        if after is None and stale_ok:
            return 0
        log = self.known.log
        try:
            if after is not None and after <= self.calls.known_end(log):
                return after
            end = await self.calls.end(log)
        except NotFoundError as error:
            # A log that tables follow is not deleted.
            msg = f"table {self.known.name!r} was dropped"
            raise NotFoundError(msg) from error
        if after is None:
            return end
        if after > end:
            msg = f"position {after} is not written yet: the log ends at {end + 1}"
            raise BeyondEndError(msg, next=end + 1)
        return after

    async def ask(
        self,
        question: Question,
        *,
        prefer: int = 0,
        only: bytes = b"",
        within: float | None = None,
    ) -> Answered:
        """Ask hosts until one answers; ``only`` this identity of the table.

        Raises:
            UnavailableError: no host that has all of the table answers in time.
            NotFoundError: the table was dropped.
            LogError: what a host says that another one would say too.
        """
        settings = self.cluster.settings
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (settings.timeout_s if within is None else within)
        backoff = self.cluster.backoff()
        said: dict[int, LogError] = {}
        self.cluster.check_open()
        if self._is_news_needed():
            await self.calls.newest()
        while True:
            await asyncio.sleep(backoff.pause(settings.share()))
            info = self.info()
            if only and info.table != only:
                msg = f"table {info.name!r} was emptied or rebuilt"
                raise TrimmedError(msg, first=info.begin)
            left = max(0.0, deadline - loop.time())

            async def tried(
                node: int, info: TableInfo = info, left: float = left
            ) -> Answered:
                try:
                    return await self._ask(node, partial(question, info), left)
                except TrimmedError as error:
                    said[node] = error
                    # Each host merges by itself: another one may have it still.
                    raise NotReadyError(error.message) from error
                except LogError as error:
                    said[node] = error
                    raise

            attempts = [partial(tried, node) for node in self._order(info, prefer)]
            try:
                # One that hangs must not hold up what another one can answer.
                answer = await first_of(attempts, settings.hedge_s)
            except LogError as error:
                self.cluster.check_open()
                if verdict_of(error) is Verdict.FINAL:
                    raise
                if gone := self._gone(info, said, late=loop.time() >= deadline):
                    raise gone from None
            else:
                self._liked = answer.node
                return answer
            if loop.time() >= deadline:
                raise self._refused(info, said)
            with contextlib.suppress(LogError):
                await self.cluster.refresh()

    def _is_news_needed(self) -> bool:
        """Whether what is known has no such table: it may be new."""
        try:
            self.info()
        except NotFoundError:
            return True
        return False

    async def _ask(
        self, node: int, question: Callable[[int], Message], left: float
    ) -> Answered:
        wait_ms = int(min(_WAIT_MS, 1000 * left))
        within = min(left, self.cluster.settings.attempt_timeout_s + wait_ms / 1000)
        message = question(wait_ms)
        async with self.calls.places:
            answer, payload = await self.cluster.ask_node(node, message, within=within)
        return Answered(node, answer, payload)

    async def ask_host(
        self, node: int, question: Callable[[int], Message], left: float
    ) -> Message:
        """Ask one host, once; ``left`` is the time that there is for it.

        Raises:
            LogError: what it says, or that it does not answer.
        """
        return (await self._ask(node, question, left)).message

    def require(self, feature: Feature, nodes: Iterable[int] = ()) -> None:
        """Refuse to ask nodes, or all hosts, what their version does not know.

        Raises:
            OlderNodesError: there is one.
        """
        asked = {*nodes} or {*self.info().joined}
        older = sorted({*self.cluster.routes.older(feature)} & asked)
        if older:
            named = ", ".join(map(str, older))
            msg = (
                "hosts of the table run a version that cannot be asked for this: "
                f"{named}"
            )
            error = OlderNodesError(msg, nodes=tuple(older))
            raise error.advising("Upgrade those nodes")

    def _order(self, info: TableInfo, prefer: int) -> list[int]:
        """Return the hosts that have all of it, the best first."""
        alive = {node.node for node in self.cluster.routes.nodes if node.alive}
        turn = int(self.cluster.settings.share() * len(info.joined or (0,)))
        spread = [*info.joined[turn:], *info.joined[:turn]]
        return sorted(
            spread,
            key=lambda node: (node != prefer, node not in alive, node != self._liked),
        )

    def _gone(
        self, info: TableInfo, said: dict[int, LogError], *, late: bool
    ) -> TrimmedError | None:
        """Return that a position is gone, unless a host that lives may have it."""
        gone = {n: e for n, e in said.items() if isinstance(e, TrimmedError)}
        alive = {node.node for node in self.cluster.routes.nodes if node.alive}
        if not gone or not (late or gone.keys() >= {*info.joined} & alive):
            return None
        return min(gone.values(), key=lambda error: error.first)

    def _refused(self, info: TableInfo, said: dict[int, LogError]) -> UnavailableError:
        why = "; ".join(f"node {n}: {error.message}" for n, error in said.items())
        msg = f"no host of table {info.name!r} answers"
        msg = f"{msg}: {why}" if why else msg
        for error in said.values():
            if isinstance(error, QuotaExceededError):
                return error.repeated(msg)
        return UnavailableError(msg).advising(_HINT)

    async def hold(self, at: int, after: int, prefer: int = 0) -> PositionLease:
        """Keep a position readable, 0: what a host has that is after ``after``.

        Raises:
            TrimmedError: it is too long ago.
            LogError: as `ask`.
        """
        table, number = self.info().table, self.calls.new_lease()
        question = _keep(at, after, number, _LEASE_S)
        answer = await self.ask(question, prefer=prefer, only=table)
        position = answer.of(Rows).position
        return PositionLease(self, table, position, answer.node, number)


def _keep(at: int, after: int, number: int, lasts_s: float) -> Question:
    """Make the question that reads nothing and keeps a position."""

    def question(info: TableInfo, wait_ms: int) -> Message:
        lease_ms = int(lasts_s * 1000)
        return ScanRows(
            info.table, b"", b"", b"", False, 1, 1, at, after, wait_ms, lease_ms, number
        )

    return question


class PositionLease(AsyncClosable):
    """A position that a host keeps readable, until this is closed."""

    def __init__(
        self, hosts: TableHosts, table: bytes, position: int, node: int, number: int
    ) -> None:
        """Ask for it again and again; `TableHosts.hold` has asked first."""
        self._number = number
        self._closed = False
        self._hosts = hosts
        self.table = table
        self.position = position
        self.node = node
        """The host that keeps it."""
        self._task = asyncio.create_task(self._renew())
        self._sharing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Return this."""
        return self

    async def _renew(self) -> None:
        question = _keep(self.position, self.position, self._number, _LEASE_S)
        while True:
            await asyncio.sleep(_LEASE_S / _RENEWALS)
            # What cannot be kept is found out by whoever reads.
            with contextlib.suppress(LogError):
                answer = await self._hosts.ask(
                    question,
                    prefer=self.node,
                    only=self.table,
                    within=_LEASE_S / _RENEWALS,
                )
                self.node = answer.node

    async def share(self) -> None:
        """Have every host keep it for whoever else reads there, two minutes longer.

        They are asked again and again until this is closed.

        Raises:
            OlderNodesError: one is of a version that cannot be asked.
        """
        self._hosts.require(Feature.TABLE_PARTS)
        # What was before the first record needs nobody who keeps it.
        if self.position and self._sharing is None and not self._closed:
            await self._share()
            self._sharing = asyncio.create_task(self._share_on())

    async def _share_on(self) -> None:
        while True:
            await asyncio.sleep(_SHARED_S / _SHARINGS)
            await self._share()

    async def _share(self) -> None:
        at, info = self.position, self._hosts.info()
        if info.table != self.table:
            return  # It was emptied or rebuilt: whoever reads finds that out.
        question = partial(_keep(at, at, SHARED_LEASE, _SHARED_S), info)

        async def one(node: int) -> None:
            # One that cannot keep it is not asked to read there.
            with contextlib.suppress(LogError):
                await self._hosts.ask_host(node, question, _SHARE_S)

        await asyncio.gather(*map(one, info.joined))

    async def close(self) -> None:
        """Ask for it no more, and tell the host that it is not needed. Idempotent.

        Nobody waits for the host: if it hears nothing, the lease ends by itself.
        """
        if self._closed:
            return
        self._closed = True
        tasks = [task for task in (self._task, self._sharing) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        message = ReleaseRows(self.table, self.position, self._number)
        self._hosts.calls.tell(self.node, message)
