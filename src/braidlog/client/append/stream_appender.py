"""What carries the appends of one stream to its primary; `StreamProducer` decides.

An appender has a connection as long as nothing fails. When an attempt fails it looks
where the primary is now, with pauses, and sends again what the producer says.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import TypeAlias

from braidlog.client.append.byte_budget import ByteBudget
from braidlog.client.append.producer import Entry, Outgoing, StreamProducer
from braidlog.client.batches import BatchCodec, Encoded
from braidlog.client.connection.cluster import Cluster
from braidlog.client.connection.link import Answer, Link
from braidlog.client.retry import Verdict, verdict_of
from braidlog.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    LogError,
    NotFoundError,
    NotReadyError,
    RemoteProtocolError,
)
from braidlog.types import Compression
from braidlog.wire.messages import Append, Appended

Waiter: TypeAlias = "asyncio.Future[int]"
Records: TypeAlias = Entry[Waiter]


class StreamAppender:
    """The appends of one client to one stream."""

    def __init__(
        self,
        cluster: Cluster,
        stream: int,
        producer: StreamProducer[Waiter],
        codec: BatchCodec,
        compression: Compression,
        budget: ByteBudget,
        closed_batch: Callable[[int], None],
        appended: Callable[[int], None],
    ) -> None:
        """Begin without a connection."""
        self.stream = stream
        self._cluster = cluster
        self._core = producer
        self._codec = codec
        self._compression = compression
        self._budget = budget
        self._closed_batch = closed_batch
        self._appended = appended
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._node = 0
        self._epoch = 0
        self._backoff = cluster.backoff()
        # The last epoch of the stream in which an append was tried.
        self._tried = 0
        # The routes have to be newer than this before they are believed again.
        self._doubted = -1
        self._reaching: asyncio.Task[None] | None = None
        self._under_way: dict[asyncio.Future[Answer], Outgoing[Waiter]] = {}
        self._pumping = False
        self._due: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._expires = math.inf
        self._stuck: asyncio.TimerHandle | None = None

    # -- in ----------------------------------------------------------------------

    def add(self, entry: Records) -> None:
        """Append records behind those before; ``entry.waiter`` gets the first GLSN."""
        self._core.add(entry, self._loop.time())
        if entry.deadline < self._expires:
            self._arm_expiry(entry.deadline)
        if not self._pumping:
            self.schedule()

    def withdraw(self, entry: Records) -> bool:
        """Nobody waits for these records any more; False if they may be stored."""
        taken_back = self._core.withdraw(entry)
        if taken_back:
            self._budget.give(entry.size)
        return taken_back

    def schedule(self) -> None:
        """Send what there is to send, once what runs now has appended all it wants."""
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump)

    def routes_changed(self) -> None:
        """Go to the new primary, if there is one."""
        if self._core.idle or self._reaching is not None:
            return
        routes = self._cluster.routes
        try:
            primary = routes.primary(self.stream)
        except LogError:
            self._link = None  # The log was deleted; `_reach` finds out and says so.
        else:
            if primary is None or primary == self._node:
                return
            self._link = None
        self.schedule()

    def close(self, error: LogError) -> None:
        """Fail everything that is not settled."""
        for timer in (self._due, self._expiry, self._stuck):
            if timer is not None:
                timer.cancel()
        if self._reaching is not None:
            self._reaching.cancel()
        self._forget_attempts()
        self._core.give_up(error)
        self._tell()

    # -- out ---------------------------------------------------------------------

    def _pump(self) -> None:
        self._pumping = False
        if self._cluster.closed or self._core.idle:
            return
        if self._link is None or self._link.closed:
            self._reach()
            return
        now = self._loop.time()
        # A batch that cannot be sent takes the connection away.
        while (link := self._link) is not None:
            if (batch := self._core.take(now)) is None:
                break
            self._send(link, batch)
        self._tell()
        self._arm_linger(now)

    def _send(self, link: Link, batch: Outgoing[Waiter]) -> None:
        try:
            if batch.data is None:
                batch.data = self._encode(batch)
                if batch.own:
                    self._closed_batch(self.stream)
            append = Append(self.stream, self._epoch, batch.unknown)
            answer = link.request(append, batch.data)
        except LogError as error:
            self._failed(batch, error)
            return
        self._under_way[answer] = batch
        answer.add_done_callback(self._answered)
        if self._stuck is None:
            self._arm_stuck(answer)

    def _encode(self, batch: Outgoing[Waiter]) -> bytes:
        pieces = []
        for entry in batch.entries:
            if isinstance(entry.records, Encoded):
                return entry.records.data  # Of a producer of its own, so it is alone.
            pieces.append(entry.records)
        return self._codec.encode(
            pieces, batch.producer, batch.sequence, self._compression
        )

    def _answered(self, answer: asyncio.Future[Answer]) -> None:
        batch = self._under_way.pop(answer, None)
        if batch is None:
            # It was given up; its batch is sent again.
            if not answer.cancelled():
                answer.exception()
            return
        try:
            message, _ = answer.result()
            if not isinstance(message, Appended):
                msg = f"{type(message).__name__} is no answer to Append"
                raise RemoteProtocolError(msg)
            self._settled(batch, message)
        except asyncio.CancelledError:
            self._failed(batch, ConnectionLostError("the connection was closed"))
        except NotFoundError as error:
            # The replica may have moved; whether the log is gone the routes say.
            self._failed(batch, NotReadyError(error.message))
        except LogError as error:
            self._failed(batch, error)
        self.schedule()

    def _settled(self, batch: Outgoing[Waiter], appended: Appended) -> None:
        glsn = appended.glsn
        give = self._budget.give
        for entry in self._core.settle(batch, appended.count):
            give(entry.size)
            waiter = entry.waiter
            if not waiter.done():
                waiter.set_result(glsn)
            glsn += entry.count
        self._backoff.reset()
        self._appended(glsn)

    def _failed(self, batch: Outgoing[Waiter], error: LogError) -> None:
        if self._cluster.closed and isinstance(error, ConnectionLostError):
            error = ClosedError("the client is closed")
        self._core.fail(batch, error)
        if verdict_of(error) is Verdict.MOVED:
            self._doubted = max(self._doubted, self._epoch_index)
            self._link = None
        self._tell()
        self.schedule()

    @property
    def _epoch_index(self) -> int:
        return -1 if self._cluster.closed else self._cluster.routes.index

    def _tell(self) -> None:
        for entry, error in self._core.failed():
            self._budget.give(entry.size)
            if not entry.waiter.done():
                entry.waiter.set_exception(error)

    # -- the primary -------------------------------------------------------------

    def _reach(self) -> None:
        if self._reaching is None:
            self._reaching = asyncio.create_task(self._find_primary())
            self._reaching.add_done_callback(self._reached)

    def _reached(self, reaching: asyncio.Task[None]) -> None:
        self._reaching = None
        if reaching.cancelled() or self._cluster.closed:
            return
        reaching.result()
        self.schedule()

    async def _find_primary(self) -> None:
        while not self._core.idle:
            try:
                await self._pause()
                await self._go_to_primary()
            except LogError as error:
                if self._cluster.closed:
                    return
                self._core.last_error = error
                self._doubted = max(self._doubted, self._cluster.routes.index)
                if verdict_of(error) is Verdict.FINAL:
                    self._forget_attempts()
                    self._core.give_up(error)
                    self._tell()
            else:
                return

    async def _pause(self) -> None:
        epoch = self._cluster.routes.stream(self.stream).epoch
        if epoch > self._tried:
            # What would be waited for is known already: it came before the error did.
            self._tried = epoch
            self._backoff.reset()
        pause = self._backoff.pause(self._cluster.settings.share())
        # A change of the routes is what is waited for, if anything is.
        if pause and self._doubted >= self._cluster.routes.index:
            await self._cluster.change(pause)
        else:
            await asyncio.sleep(pause)
        if self._doubted >= self._cluster.routes.index:
            await self._cluster.refresh()

    async def _go_to_primary(self) -> None:
        routes = self._cluster.routes
        node = routes.primary(self.stream)
        address = None if node is None else routes.address(node)
        if node is None or address is None:
            raise NotReadyError(f"stream {self.stream} has no primary at the moment")
        link = await self._cluster.link(address)
        if node != self._node or link.closed:
            # An earlier primary may never answer.
            self._forget_attempts()
        self._link = link
        self._node = node
        epoch = routes.stream(self.stream).epoch
        if epoch != self._epoch:
            # A new primary may hear of its role a moment after this client did.
            self._backoff.reset()
        self._epoch = epoch
        self._tried = max(self._tried, epoch)

    def _forget_attempts(self) -> None:
        under_way, self._under_way = self._under_way, {}
        for answer in under_way:
            answer.cancel()
        self._core.abandon()

    # -- time --------------------------------------------------------------------

    def _arm_linger(self, now: float) -> None:
        due = self._core.due()
        if due is None or due <= now or self._due is not None:
            return
        self._due = self._loop.call_at(due, self._lingered)

    def _lingered(self) -> None:
        self._due = None
        self._pump()

    def _arm_expiry(self, when: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_at(when, self._expire)
        self._expires = when

    def _expire(self) -> None:
        self._expiry, self._expires = None, math.inf
        last = self._core.last_error
        for entry, never in self._core.expire(self._loop.time()):
            if never:
                self._budget.give(entry.size)
            error: LogError = DeadlineError(
                f"stream {self.stream} did not store the append in time"
                + (f"; the last answer was: {last}" if last else "")
            )
            error.outcome = "not_stored" if never else "unknown"
            if not entry.waiter.done():
                entry.waiter.set_exception(error)
        if (deadline := self._core.deadline()) is not None:
            self._arm_expiry(deadline)

    def _arm_stuck(self, answer: asyncio.Future[Answer]) -> None:
        within = self._cluster.settings.attempt_timeout_s
        self._stuck = self._loop.call_later(within, self._look_if_stuck, answer)

    def _look_if_stuck(self, answer: asyncio.Future[Answer]) -> None:
        self._stuck = None
        if answer in self._under_way:
            msg = f"node {self._node} did not answer an append to stream {self.stream}"
            self._core.last_error = DeadlineError(msg)
            self._forget_attempts()
            self._doubted = max(self._doubted, self._epoch_index)
            self._link = None
            self.schedule()
        elif self._under_way:
            # Futures are kept in the order in which they were sent.
            self._arm_stuck(next(iter(self._under_way)))
