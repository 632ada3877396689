"""What the tables of a client share: questions to the leader, and places for others.

*Theory of operation.* A read that names no position has to see what was acknowledged
before it began, so it asks where the log ends. The answer is small; it has the tables
of the log only if something was decided since the client last got all metadata. Reads
that begin while such a question is under way share the next one.

*Invariants.* At most ``table_reads_max`` questions to hosts are under way at a time. An
answer is of a moment after whoever gets it has asked. What is known of a table never
becomes older.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final, Generic, TypeVar

from braidlog.client.connection.attempts import shared
from braidlog.client.connection.cluster import Cluster
from braidlog.client.connection.routing import Routes
from braidlog.errors import LogError
from braidlog.wire.messages import Feature, LogEnd
from braidlog.wire.rows import ReleaseRows
from braidlog.wire.tables import TableInfo

__all__ = ["TableCalls"]

T = TypeVar("T")

_TELLING_MAX: Final = 256
"""What is told to hosts at a time; more of it is left out."""


class _Shared(Generic[T]):
    """A question that all share who ask before it is sent."""

    def __init__(
        self, ask: Callable[[], Coroutine[Any, Any, T]], check_open: Callable[[], None]
    ) -> None:
        """Begin with no question."""
        self._ask = ask
        self._check_open = check_open
        self._next: asyncio.Task[T] | None = None
        self._running: asyncio.Task[T] | None = None

    async def answer(self) -> T:
        """Return an answer as of some moment after this call began."""
        self._check_open()
        if self._next is None:
            self._next = asyncio.create_task(self._turn())
        return await shared(self._next, self._check_open)

    async def _turn(self) -> T:
        if self._running is not None:
            await asyncio.wait([self._running])
        # Whoever calls from here on begins after this question.
        self._running, self._next = self._next, None
        return await self._ask()

    async def close(self) -> None:
        """End what is under way."""
        tasks = [each for each in (self._running, self._next) if each is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class TableCalls:
    """What all tables of a client share."""

    def __init__(self, cluster: Cluster) -> None:
        """Begin with no question."""
        self.cluster = cluster
        self.places = asyncio.Semaphore(cluster.settings.table_reads_max)
        self._metadata = _Shared(cluster.linearize, cluster.check_open)
        self._questions: dict[bytes, _Shared[LogEnd]] = {}
        self._ends: dict[bytes, int] = {}
        """The last position that each log was heard to have."""
        self._news: dict[bytes, LogEnd] = {}
        """The last answer about each log that had its tables."""
        self._leases = itertools.count(1)
        self._telling: set[asyncio.Task[None]] = set()

    def new_lease(self) -> int:
        """Return a number that no lease of this client has had."""
        return next(self._leases)

    def tell(self, node: int, message: ReleaseRows) -> None:
        """Tell a host something that nobody waits for, unless much of it waits."""
        if self.cluster.closed or len(self._telling) >= _TELLING_MAX:
            return
        if node in self.cluster.routes.older(Feature.RELEASES):
            return
        task = asyncio.create_task(self._tell(node, message))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _tell(self, node: int, message: ReleaseRows) -> None:
        within = self.cluster.settings.attempt_timeout_s
        with contextlib.suppress(LogError):
            async with self.places:
                await self.cluster.ask_node(node, message, within=within)

    async def newest(self) -> Routes:
        """Return the metadata as of some moment after this call began."""
        return await self._metadata.answer()

    async def end(self, log: bytes) -> int:
        """Return the last position of a log as of some moment after this call began.

        Raises:
            NotFoundError: the log was deleted.
        """
        if log not in self._questions:
            ask = partial(self._ask_end, log)
            self._questions[log] = _Shared(ask, self.cluster.check_open)
        return (await self._questions[log].answer()).high_watermark

    async def _ask_end(self, log: bytes) -> LogEnd:
        answer = await self.cluster.log_end(log)
        self._ends[log] = max(answer.high_watermark, self._ends.get(log, 0))
        if answer.tables is not None:
            known = self._news.get(log)
            if known is None or known.index < answer.index:
                self._news[log] = answer
        return answer

    def known_end(self, log: bytes) -> int:
        """Return the last position that a log is known to have.

        Raises:
            NotFoundError: the log was deleted.
        """
        heard = self.cluster.routes.log(log).high_watermark
        return max(heard, self._ends.get(log, 0))

    def tables(self, log: bytes) -> tuple[TableInfo, ...]:
        """Return tables as they were last heard of: those of a log, maybe others."""
        routes, news = self.cluster.routes, self._news.get(log)
        if news is None or news.tables is None or news.index <= routes.index:
            return routes.metadata.tables
        return news.tables

    async def close(self) -> None:
        """End what is under way."""
        await self._metadata.close()
        for question in self._questions.values():
            await question.close()
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)
