"""Append to single streams of a log, in bulk, for example for Spark.

Theory of operation: the caller chooses stream, producer and sequences, so a repeated
append is stored once, even if another process repeats it. Data is encoded as Arrow,
batch by batch, while earlier batches are in flight; Python sees no single record.

Invariants: batches of one call are sent in order; those of one stream are stored in
order or not at all.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from braidlog.client.batches import BatchCodec, Encoded
from braidlog.client.connection.cluster import Cluster
from braidlog.client.log import AsyncClusterLog
from braidlog.client.read.scan import AsyncScan
from braidlog.errors import FencedError, LogError, TrimmedError
from braidlog.store.threads import in_thread
from braidlog.types import Producer

# Batches of one stream that wait for their answer; the appender sends a few of them.
_AHEAD: Final = 16


class AsyncIngest:
    """Appends to one log, stream by stream. Get one from `AsyncClient.ingest`."""

    def __init__(
        self, cluster: Cluster, log: AsyncClusterLog, scan: AsyncScan, codec: BatchCodec
    ) -> None:
        """Bind to a log as it is now; users call `AsyncClient.ingest`."""
        self._cluster = cluster
        self._log = log
        self._appender = log._appender
        self._scan = scan
        self._codec = codec

    @property
    def log(self) -> str:
        """Identity of the log."""
        return self._log.id

    @property
    def streams(self) -> tuple[int, ...]:
        """The streams over which keys are spread, in the order that decides."""
        return self._cluster.routes.key_streams(bytes.fromhex(self._log.id))

    async def refresh(self) -> range:
        """Ask the cluster; return the positions that can be read now."""
        return await self._log.refresh()

    async def next_sequence(
        self, producers: Mapping[int, Producer]
    ) -> dict[int, int | None]:
        """Return for each stream the sequence that its producer must send next.

        1 if the stream does not know the producer, None if a later epoch of the
        producer has fenced this one, 0 if the stream was removed from the log.
        """
        found = await asyncio.gather(
            *(self._next(stream, who) for stream, who in producers.items())
        )
        return dict(zip(producers, found, strict=True))

    async def home(self, producer: Producer) -> int:
        """Return the stream of a producer; it never changes, and is never removed."""
        return self._appender.stream_of_producer(producer)

    async def _next(self, stream: int, producer: Producer) -> int | None:
        if not self._appender.is_open(stream):
            return 0
        try:
            return await self._appender.next_sequence(producer, stream)
        except FencedError:
            return None

    async def append_all(
        self, appends: Mapping[int, tuple[Iterable[Any], Producer, int]]
    ) -> dict[int, LogError | None]:
        """Append Arrow data to several streams at the same time.

        The argument has for each stream its record batches, the producer, and the
        sequence of the first record. The result has for each stream its error, or None
        if all its records are durable. After an error, the batches before the refused
        one are stored.

        Raises:
            DeadlineError: a stream took nothing for ``timeout_s``.
        """
        outcomes = await asyncio.gather(
            *(self._append(stream, *append) for stream, append in appends.items()),
            return_exceptions=True,
        )
        found: dict[int, LogError | None] = {}
        for stream, outcome in zip(appends, outcomes, strict=True):
            if outcome is not None and not isinstance(outcome, LogError):
                raise outcome
            found[stream] = outcome
        return found

    async def _append(
        self, stream: int, data: Iterable[Any], producer: Producer, sequence: int
    ) -> None:
        under_way: deque[asyncio.Future[int]] = deque()
        size = self._cluster.settings.batch_bytes_max
        arrow = iter(data)
        try:
            # Reading and encoding take time, and the loop has answers to read.
            while (rows := await in_thread(next, arrow, None)) is not None:
                for batch in await in_thread(
                    self._encode, rows, producer, sequence, size
                ):
                    if len(under_way) >= _AHEAD:
                        await under_way.popleft()
                    waiter = await self._appender.append_encoded(
                        stream, batch, producer, sequence
                    )
                    under_way.append(waiter)
                    sequence += batch.records
            while under_way:
                await under_way.popleft()
        finally:
            # Those behind a refused one are refused as well.
            await asyncio.gather(*under_way, return_exceptions=True)

    def _encode(
        self, rows: Any, producer: Producer, sequence: int, size: int
    ) -> list[Encoded]:
        compression = self._log.options.compression
        return self._codec.encode_arrow(rows, producer, sequence, compression, size)

    async def stored(self, stream: int, producer: Producer, since: int) -> int:
        """Return the sequence after the last that a producer stored from a position on.

        1 if it stored nothing there. Reads the stream from that position on.

        Raises:
            TrimmedError: records at that position were trimmed, so the answer is not
                known.
        """
        there = await self._log.refresh()
        if since < there.start:
            msg = (
                f"position {since} was trimmed, so the producer's last sequence "
                "there is unknown"
            )
            raise TrimmedError(msg, first=there.start)
        following = 1
        begin = min(since, there.stop)
        extents = await self._scan.renewed().extents(begin, there.stop)
        for extent in extents:
            if extent.stream != stream:
                continue
            spans = self._scan.spans(stream, extent.begin, extent.end, 0)
            async with contextlib.aclosing(spans):
                async for span in spans:
                    who, first = self._codec.origin(span.data)
                    if who == producer:
                        behind = first + span.skip + span.count
                        following = max(following, behind)
        return following
