"""The only writer of a shard: its appends carry the epoch in which it owns the log.

*Theory of operation.* One batch is on its way at a time; what is appended meanwhile is
the next one. So the batches of a writer are in the order of its calls, and a batch
whose outcome is not known is sent again, as a repeat of its producer, until it is.

*Invariants.* Nothing is stored twice. Once a batch had to be given up without knowing
what became of it, the writer takes no more: who goes on acquires anew and reads what is
there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from braidlog.client.append.log_appender import LogAppender
from braidlog.client.append.pieces import OpenPiece
from braidlog.client.append.rows import Row
from braidlog.client.batches import BatchCodec
from braidlog.client.connection.cluster import Cluster
from braidlog.client.retry import is_unknown
from braidlog.errors import (
    ClosedError,
    InvalidArgumentError,
    LogError,
    NotReadyError,
    QuotaExceededError,
    RemoteProtocolError,
)
from braidlog.store.arguments import (
    DurationLike,
    TimestampLike,
    checked_position,
    checked_timeout,
    checked_values,
)
from braidlog.types import Compression, HeadersLike, Producer
from braidlog.wire.messages import Acquire, Acquired, Appended, AppendTo, Release

if TYPE_CHECKING:
    from typing_extensions import Buffer


@dataclass(slots=True, eq=False)
class _Waiting:
    """Records of one call."""

    rows: list[Row]
    size: int
    expected: int | None
    deadline: float
    done: asyncio.Future[int]


class AsyncLogWriter:
    """The owner of a log, until another one takes over; `AsyncClusterLog.acquire`."""

    def __init__(
        self,
        cluster: Cluster,
        log: bytes,
        name: str,
        granted: Acquired,
        appender: LogAppender,
        codec: BatchCodec,
        compression: Compression,
    ) -> None:
        """Own a log in an epoch; users call `AsyncClusterLog.acquire`."""
        self.name = name
        """Name of the writer."""
        self.epoch = granted.epoch
        """Number of this ownership; every later one has a greater number."""
        self.end = granted.next
        """The next position: no append of an earlier writer comes behind it."""
        self._cluster = cluster
        self._log = log
        self._rows = appender.rows
        self._codec = codec
        self._compression = compression
        entropy = cluster.settings.entropy(8)
        self._producer = Producer(int.from_bytes(entropy, "little") or 1)
        self._sequence = 1
        self._waiting: list[_Waiting] = []
        self._bytes = 0
        self._sending: asyncio.Task[None] | None = None
        self._ended: LogError | None = None

    @classmethod
    async def acquired(
        cls,
        cluster: Cluster,
        log: bytes,
        message: Acquire,
        appender: LogAppender,
        codec: BatchCodec,
        compression: Compression,
    ) -> AsyncLogWriter:
        """Become the owner of a log; see `AsyncClusterLog.acquire`."""
        answer, _ = await cluster.ask_shard(log, message)
        if not isinstance(answer, Acquired):
            msg = f"{type(answer).__name__} is no answer to Acquire"
            raise RemoteProtocolError(msg)
        cluster.reached(log, answer.next)
        return cls(cluster, log, message.owner, answer, appender, codec, compression)

    def __repr__(self) -> str:
        """Return name and epoch."""
        return f"AsyncLogWriter({self.name!r}, epoch={self.epoch})"

    async def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        timestamp: TimestampLike | None = None,
        headers: HeadersLike | None = None,
        expected: int | None = None,
        timeout: DurationLike | None = None,  # noqa: ASYNC109
    ) -> int:
        """Append one record and return its position once a majority has it durably.

        With an ``expected`` position it is appended there or not at all.

        Raises:
            FencedError: another writer has taken over. Its ``outcome`` is "unknown" if
                an attempt before it got no answer; else nothing was appended.
            ConflictError: the log does not end at the ``expected`` position.
            DeadlineError: the outcome is not known; the writer takes no more.
            TooLargeError: the record is over its limit.
        """
        row, size = self._rows.sized(value, key, timestamp, headers)
        return await self._put([row], size, expected, timeout)

    async def append_many(
        self,
        values: Iterable[Buffer | None],
        *,
        expected: int | None = None,
        timeout: DurationLike | None = None,  # noqa: ASYNC109
    ) -> range:
        """Append records in one batch, all or none, and return their positions.

        Raises:
            TooLargeError: they are more than one batch can have.
            Exception: see `append`.
        """
        pairs = [
            self._rows.sized(value, None, None, None)
            for value in checked_values(values)
        ]
        if not pairs:
            return range(self.end, self.end)
        rows = [row for row, _ in pairs]
        size = sum(size for _, size in pairs)
        limits = self._cluster.settings
        if len(rows) > limits.batch_records_max or size > limits.batch_bytes_max:
            msg = (
                f"{len(rows)} records of {size} bytes are more than one batch has: at "
                f"most {limits.batch_records_max} of {limits.batch_bytes_max} bytes"
            )
            raise InvalidArgumentError(msg)
        first = await self._put(rows, size, expected, timeout)
        return range(first, first + len(rows))

    async def renew(self) -> int:
        """Stay the owner for another ``ttl``; return the next position of the log.

        Appends do so too.

        Raises:
            FencedError: another writer has taken over.
        """
        self._check()
        end = await self._cluster.shard_end(self._log, self.epoch)
        self.end = max(self.end, end.next)
        return end.next

    async def release(self) -> None:
        """Let the log belong to nobody. Appends that are on their way are waited for.

        Raises:
            FencedError: another writer has taken over.
        """
        self._check()
        if self._sending is not None:
            await asyncio.wait({self._sending})
        self._check()
        self._ended = ClosedError(f"writer {self.name!r} has released the log")
        stream = self._cluster.routes.log(self._log).streams[0].stream
        await self._cluster.ask_shard(self._log, Release(stream, self.epoch))

    def _check(self) -> None:
        self._cluster.check_open()
        if self._ended is not None:
            raise self._ended

    async def _put(
        self,
        rows: list[Row],
        size: int,
        expected: int | None,
        timeout: DurationLike | None,  # noqa: ASYNC109
    ) -> int:
        self._check()
        settings, loop = self._cluster.settings, asyncio.get_running_loop()
        if expected is not None:
            expected = checked_position(expected, "expected")
        within = None if timeout is None else checked_timeout(timeout)
        within = settings.timeout_s if within is None else within
        if self._bytes and self._bytes + size > settings.outstanding_bytes_max:
            limit = settings.outstanding_bytes_max
            raise NotReadyError(f"{limit} bytes wait to be acknowledged already")
        done: asyncio.Future[int] = loop.create_future()
        deadline = loop.time() + within
        self._waiting.append(_Waiting(rows, size, expected, deadline, done))
        self._bytes += size
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all())
        # Whoever is cancelled may have stored it all the same.
        return await asyncio.shield(done)

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                group = self._next()
                try:
                    first = await self._send(group)
                except Exception as error:
                    self._fail(group, error)
                    continue
                for each in group:
                    if not each.done.done():
                        each.done.set_result(first)
                    first += len(each.rows)
                self.end = max(self.end, first)
        finally:
            self._sending = None

    def _next(self) -> list[_Waiting]:
        """Take what goes into the next batch; what is conditional goes alone."""
        limits = self._cluster.settings
        group: list[_Waiting] = []
        size = count = 0
        while self._waiting:
            each = self._waiting[0]
            size, count = size + each.size, count + len(each.rows)
            large = size > limits.batch_bytes_max or count > limits.batch_records_max
            alone = each.expected is not None or (group and group[-1].expected)
            if group and (large or alone):
                break
            group.append(self._waiting.pop(0))
        self._bytes -= sum(each.size for each in group)
        return group

    async def _send(self, group: list[_Waiting]) -> int:
        piece = OpenPiece()
        for each in group:
            for row in each.rows:
                piece.add(len(piece), row, 0)
        columns, count = piece.close().records, len(piece)
        data = self._codec.encode(
            [columns], self._producer, self._sequence, self._compression
        )
        loop, settings = asyncio.get_running_loop(), self._cluster.settings
        deadline = min(each.deadline for each in group)
        stream = self._cluster.routes.log(self._log).streams[0].stream
        expected, repeat = group[0].expected or 0, False
        backoff = self._cluster.backoff()
        while True:
            message = AppendTo(stream, self.epoch, expected, repeat)
            try:
                answer, _ = await self._cluster.ask_shard(
                    self._log, message, data, until=deadline
                )
            except LogError as error:
                final = not is_unknown(error)
                if repeat:
                    # An attempt before may be stored: even who is fenced now may have
                    # owned the log when that came.
                    error.outcome = "unknown"
                    final &= not isinstance(error, QuotaExceededError)
                if final or loop.time() >= deadline:
                    raise
                repeat = True
                await asyncio.sleep(backoff.pause(settings.share()))
                continue
            if not isinstance(answer, Appended) or answer.count != count:
                raise RemoteProtocolError(f"{answer} is no answer to AppendTo")
            self._sequence += count
            return answer.glsn

    def _fail(self, group: list[_Waiting], error: Exception) -> None:
        if not isinstance(error, LogError) or is_unknown(error):
            # What comes next would not follow from what is known to be stored.
            self._ended = ClosedError(
                f"writer {self.name!r} does not know what became of an append: acquire "
                f"the log again and read its end ({error})"
            )
            self._ended.outcome = "not_stored"
            late, self._waiting, self._bytes = self._waiting, [], 0
            for each in late:
                if not each.done.done():
                    each.done.set_exception(self._ended)
        for each in group:
            if not each.done.done():
                each.done.set_exception(error)
