"""What carries the appends of one stream to its primary; `StreamProducer` decides.

An appender has a connection as long as nothing fails. When an attempt fails it looks
where the primary is now, with pauses, and sends again what the producer says.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from functools import partial

from braidlog._native import Line, settle
from braidlog.client.append.byte_budget import ByteBudget
from braidlog.client.append.change import Left, Records, Waiter
from braidlog.client.append.flush import Flush
from braidlog.client.append.producer import Outgoing, ProducerLimits, StreamProducer
from braidlog.client.batches import BatchCodec, Encoded
from braidlog.client.connection.cluster import Cluster
from braidlog.client.connection.link import Link
from braidlog.client.connection.routing import Routes
from braidlog.client.retry import Verdict, late, verdict_of
from braidlog.client.settings import ClientSettings
from braidlog.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    LogError,
    NotFoundError,
    NotReadyError,
    QuotaExceededError,
    RemoteProtocolError,
)
from braidlog.raft import NotLeaderError
from braidlog.types import Compression, Producer
from braidlog.wire.messages import Append, Appended, Message

__all__ = ["Records", "StreamAppender", "Waiter"]


class _Attempt:
    """A batch that was sent, until it is answered or given up."""

    __slots__ = ("appender", "batch", "gone")

    def __init__(self, appender: StreamAppender, batch: Outgoing[Waiter]) -> None:
        self.appender = appender
        self.batch = batch
        self.gone = False

    def answered(self, message: Message, payload: memoryview) -> None:
        if not self.gone:
            self.appender.ended(self, message)

    def failed(self, error: LogError) -> None:
        if not self.gone:
            self.appender.ended(self, error)


class StreamAppender:
    """The appends of one client to one stream."""

    def __init__(
        self,
        cluster: Cluster,
        stream: int,
        producer: Producer,
        codec: BatchCodec,
        compression: Callable[[], Compression],
        budget: ByteBudget,
        flush: Flush,
        closed_batch: Callable[[int], None],
        appended: Callable[[int], None],
        log_end: Callable[[], int],
    ) -> None:
        """Begin without a connection."""
        self.stream = stream
        self._cluster = cluster
        self._codec = codec
        self._compression = compression
        self._budget = budget
        self._flush = flush
        self._closed_batch = closed_batch
        self._appended = appended
        self._log_end = log_end
        self._loop = asyncio.get_running_loop()
        self._link: Link | None = None
        self._node = 0
        # The node that was tried last; and of a shard who leads it, if that is known
        # better than by the routes.
        self._aim: int | None = None
        self._leader = 0
        self._epoch = 0
        self._backoff = cluster.backoff()
        # The last epoch of the stream in which an append was tried.
        self._tried = 0
        # The routes have to be newer than this before they are believed again.
        self._doubted = -1
        self._reaching: asyncio.Task[None] | None = None
        self._under_way: list[_Attempt] = []
        """In the order in which they were sent."""
        self._due: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._stuck: asyncio.TimerHandle | None = None
        self._quota: asyncio.TimerHandle | None = None
        """Nothing is sent before that: the node said so."""
        settings = cluster.settings
        self._core: StreamProducer[Waiter] = StreamProducer(producer, _limits(settings))
        self._lingers = settings.linger_s > 0
        self.line: Line[Waiter] = self._core.waiting
        """Takes plain records by itself."""
        self.line.serve(
            budget=budget.core,
            clock=settings.clock,
            time=self._loop.time,
            waiter=self._loop.create_future,
            record_bytes_max=settings.record_bytes_max,
            timeout_s=settings.timeout_s,
            schedule=partial(flush.add, self),
            expire_at=self._arm_expiry,
        )

    # -- in ----------------------------------------------------------------------

    def add(self, entry: Records) -> None:
        """Append records behind those before; ``entry.waiter`` gets the first GLSN."""
        self.line.add(entry, self._loop.time())

    def withdraw(self, entry: Records) -> bool:
        """Nobody waits for these records any more; False if they may be stored."""
        taken_back = self._core.withdraw(entry)
        if taken_back:
            self._budget.give(entry.size)
        return taken_back

    def schedule(self) -> None:
        """Send what there is to send, once what runs now has appended all it wants."""
        if not self.line.scheduled:
            self._flush.add(self)

    def routes_changed(self) -> None:
        """Go to the new primary, if there is one."""
        if self._core.idle or self._reaching is not None:
            return
        routes = self._cluster.routes
        try:
            primary = self._target(routes)
        except LogError:
            self._link = None  # The log was deleted; `_reach` finds out and says so.
        else:
            if primary is None or primary == self._node:
                return
            self._link = None
            # The next one counts for itself.
            self._stop_quota_wait()
        self.schedule()

    def close(self, error: LogError) -> None:
        """Fail everything that is not settled."""
        self._stop()
        self._core.give_up(error)
        self._tell()

    def leave(self) -> Left:
        """Give away everything that is not settled, and do nothing any more."""
        self._stop()
        self._tell()
        return Left(self.stream, *self._core.leave())

    def _stop(self) -> None:
        for timer in (self._due, self._expiry, self._stuck, self._quota):
            if timer is not None:
                timer.cancel()
        if self._reaching is not None:
            self._reaching.cancel()
        self._forget_attempts()

    # -- out ---------------------------------------------------------------------

    def pump(self) -> Link | None:
        """Send what there is to send; return the link that has to be flushed."""
        self.line.scheduled = False
        if self._cluster.closed or self._quota is not None:
            return None
        if self._link is None or self._link.closed:
            if not self._core.idle:
                self._reach()
            return None
        now = self._loop.time()
        last = None
        # A batch that cannot be sent takes the connection away.
        while (link := self._link) is not None:
            if (batch := self._core.take(now)) is None:
                break
            self._send(link, batch)
            last = link
        if self._core.has_failed:
            self._tell()
        if self._lingers and self._due is None:
            self._arm_linger(now)
        return last

    def _send(self, link: Link, batch: Outgoing[Waiter]) -> None:
        attempt = _Attempt(self, batch)
        try:
            if batch.data is None:
                if not batch.unknown:
                    batch.since = self._log_end()
                batch.data = self._encode(batch)
                if batch.own:
                    self._closed_batch(self.stream)
            append = Append(self.stream, self._epoch, batch.unknown)
            link.send(append, batch.data, attempt)
        except LogError as error:
            self._failed(batch, error)
            return
        self._under_way.append(attempt)
        if self._stuck is None:
            self._arm_stuck(attempt)

    def _encode(self, batch: Outgoing[Waiter]) -> bytes:
        if not batch.own:
            records = batch.entries[0].records
            if isinstance(records, Encoded):
                return records.data
        return self._codec.encode(
            batch.entries, batch.producer, batch.sequence, self._compression()
        )

    def ended(self, attempt: _Attempt, answer: Message | LogError) -> None:
        """Take what an attempt came to."""
        self._under_way.remove(attempt)
        batch = attempt.batch
        if not isinstance(answer, Appended):
            self._failed(batch, _error_of(answer))
            return
        try:
            entries = self._core.settle(batch, answer.count)
        except RemoteProtocolError as error:
            self._failed(batch, error)
            return
        budget = self._budget
        settle(entries, answer.glsn, budget.core)
        if budget.core.shut:
            budget.serve()
        self._backoff.reset()
        self._appended(answer.glsn + answer.count)
        if not self.line.scheduled:
            self._flush.add(self)

    def _failed(self, batch: Outgoing[Waiter], error: LogError) -> None:
        if self._cluster.closed and isinstance(error, ConnectionLostError):
            error = ClosedError("the client is closed")
        self._core.fail(batch, error)
        if verdict_of(error) is Verdict.MOVED:
            self._doubted = max(self._doubted, self._epoch_index)
            self._link = None
            self._look_elsewhere(error)
        elif isinstance(error, QuotaExceededError) and self._quota is None:
            share = self._cluster.settings.share()
            pause = self._backoff.pause_of_quota(error, share)
            self._quota = self._loop.call_later(pause, self._quota_waited)
        self._tell()
        self.schedule()

    def _quota_waited(self) -> None:
        self._quota = None
        self.schedule()

    def _stop_quota_wait(self) -> None:
        if self._quota is not None:
            self._quota.cancel()
            self._quota = None

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
                self._look_elsewhere(error)
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
        node = self._aim = self._target(routes)
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

    def _target(self, routes: Routes) -> int | None:
        """Return the node to append on, None while there is none."""
        if routes.stream(self.stream).epoch > self._epoch:
            self._leader = 0
        return self._leader or routes.primary(self.stream)

    def _look_elsewhere(self, error: LogError) -> None:
        """Of a shard: go where a member says, or to the next one.

        Its members elect a leader by themselves, and it may be long before the metadata
        says who it is.
        """
        if self._cluster.closed or isinstance(error, QuotaExceededError):
            return  # A quota says nothing of who leads.
        if isinstance(error, NotLeaderError) and error.leader:
            self._leader = error.leader
            return
        with contextlib.suppress(LogError):  # It was deleted; `_reach` finds out.
            self._leader = self._cluster.routes.next_member(self.stream, self._aim)

    def _forget_attempts(self) -> None:
        under_way, self._under_way = self._under_way, []
        for attempt in under_way:
            attempt.gone = True
        self._core.abandon()

    # -- time --------------------------------------------------------------------

    def _arm_linger(self, now: float) -> None:
        due = self._core.due()
        if due is None or due <= now:
            return
        self._due = self._loop.call_at(due, self._lingered)

    def _lingered(self) -> None:
        self._due = None
        self.schedule()

    def _arm_expiry(self, when: float) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        self._expiry = self._loop.call_at(when, self._expire)
        self.line.expires = when

    def _expire(self) -> None:
        self._expiry, self.line.expires = None, math.inf
        last = self._core.last_error
        for entry, never in self._core.expire(self._loop.time()):
            if never:
                self._budget.give(entry.size)
            error = late(
                f"stream {self.stream} did not store the append in time"
                + (f"; the last answer was: {last}" if last else ""),
                last,
            )
            error.outcome = "not_stored" if never else "unknown"
            if not entry.waiter.done():
                entry.waiter.set_exception(error)
        if (deadline := self._core.deadline()) is not None:
            self._arm_expiry(deadline)

    def _arm_stuck(self, attempt: _Attempt) -> None:
        within = self._cluster.settings.attempt_timeout_s
        self._stuck = self._loop.call_later(within, self._look_if_stuck, attempt)

    def _look_if_stuck(self, attempt: _Attempt) -> None:
        self._stuck = None
        if attempt in self._under_way:
            msg = f"node {self._node} did not answer an append to stream {self.stream}"
            self._core.last_error = DeadlineError(msg)
            self._forget_attempts()
            self._doubted = max(self._doubted, self._epoch_index)
            self._link = None
            self.schedule()
        elif self._under_way:
            self._arm_stuck(self._under_way[0])


def _limits(settings: ClientSettings) -> ProducerLimits:
    return ProducerLimits(
        linger_s=settings.linger_s,
        batch_bytes_max=settings.batch_bytes_max,
        batch_records_max=settings.batch_records_max,
        in_flight_max=settings.in_flight_max,
    )


def _error_of(answer: Message | LogError) -> LogError:
    if isinstance(answer, NotFoundError):
        # The replica may have moved; whether the log is gone the routes say.
        return NotReadyError(answer.message)
    if isinstance(answer, LogError):
        return answer
    return RemoteProtocolError(f"{type(answer).__name__} is no answer to Append")
