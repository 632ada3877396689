"""Read the streams of a log one by one, in parallel, for example for Spark.

Theory of operation: a scan is planned once and carried out by many processes. The plan
fixes the end of each stream, from one linearizable read of the metadata, and asks a
replica for the LLSNs of positions (GLSNs). The records in a range of LLSNs never change
once they are committed, and are the same on every replica. So a range is read from any
replica, and after a failure from the next one, from where the read stopped.

Invariants: the extents of a plan hold every position that was asked for exactly once;
a range is read completely, in order, or an error is raised.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from braidlog.client.batches import BatchCodec
from braidlog.client.connection.cluster import Cluster
from braidlog.client.read.merge import Span, spans_of
from braidlog.client.read.merge_reader import MergeReader
from braidlog.client.read.span_rows import rows_of
from braidlog.client.retry import Verdict, late, verdict_of
from braidlog.errors import (
    BeyondEndError,
    LogError,
    NotReadyError,
    RemoteProtocolError,
    TrimmedError,
)
from braidlog.wire.messages import LogInfo, Read, Records

if TYPE_CHECKING:
    import pyarrow as pa

    from braidlog.types import Producer

_MILLISECONDS: Final = 1000
# Where in a stream the plan looks how large records are, in parts of its extent.
_SAMPLES: Final = (0.0, 0.34, 0.67)


@dataclass(frozen=True, slots=True)
class StreamExtent:
    """A range of LLSNs of one stream, and about how many bytes it holds."""

    stream: int
    begin: int
    end: int
    bytes: int


@dataclass(frozen=True, slots=True)
class _Wish:
    """What to read next of a stream, and what an answer must reach."""

    stream: int
    begin: int
    by_glsn: bool
    bytes_max: int
    reach: int = 0
    """GLSN up to which the replica must know the log."""


class AsyncScan:
    """Reads of one log, stream by stream. Get one from `AsyncClient.scan`."""

    def __init__(
        self, cluster: Cluster, info: LogInfo, codec: BatchCodec, node: int = 0
    ) -> None:
        """Bind to a log as it is now; users call `AsyncClient.scan`."""
        self._cluster = cluster
        self._node = node
        self._info = info
        self._codec = codec

    @property
    def log(self) -> str:
        """Random identity of the log, 32 hexadecimal digits."""
        return self._info.log.hex()

    @property
    def positions(self) -> range:
        """The positions that could be read when the scan was made."""
        return range(max(1, self._info.trim), self._info.high_watermark + 1)

    def renewed(self) -> AsyncScan:
        """Return a scan of the log as this client knows it now."""
        info = self._cluster.routes.log(self._info.log)
        return AsyncScan(self._cluster, info, self._codec)

    # -- planning ----------------------------------------------------------------

    async def extents(self, begin: int, end: int) -> list[StreamExtent]:
        """Return the ranges of streams that hold positions ``begin`` to ``end``.

        Raises:
            TrimmedError: ``begin`` was trimmed.
            BeyondEndError: ``end`` is beyond `positions`.
        """
        there = self.positions
        if begin < there.start:
            raise TrimmedError(f"position {begin} was trimmed", first=there.start)
        if end > there.stop:
            msg = f"position {end - 1} is not written yet"
            raise BeyondEndError(msg, next=there.stop)
        if begin >= end:
            return []
        begins, ends = await self.cut(begin), await self.cut(end)
        sizes = await self.sizes({s: (begins[s], ends[s]) for s in ends})
        return [
            StreamExtent(stream, begins[stream], ends[stream], size)
            for stream, size in sizes.items()
            if begins[stream] < ends[stream]
        ]

    async def cut(self, position: int) -> dict[int, int]:
        """Return the first LLSN of each stream that is not before ``position``.

        Raises:
            TrimmedError: ``position`` was trimmed.
        """
        streams = self._info.streams
        if position >= self.positions.stop:
            return {info.stream: info.committed for info in streams}
        llsns = await asyncio.gather(
            *(self._llsn_of(info.stream, position) for info in streams)
        )
        return {
            info.stream: min(llsn, info.committed)
            for info, llsn in zip(streams, llsns, strict=True)
        }

    async def size(self, stream: int, begin: int, end: int) -> int:
        """Return about how many bytes LLSNs ``begin`` to ``end`` of a stream hold."""
        if begin >= end:
            return 0
        records = end - begin
        places = {begin + int(part * records) for part in _SAMPLES}
        samples = [await self._sample(stream, place) for place in sorted(places)]
        counted = sum(count for count, _ in samples)
        total = sum(size for _, size in samples) * records // max(1, counted)
        return max(1, total)

    async def sizes(self, ranges: Mapping[int, tuple[int, int]]) -> dict[int, int]:
        """Return `size` for ranges of LLSNs of many streams, all asked at once."""
        found = await asyncio.gather(
            *(self.size(stream, *each) for stream, each in ranges.items())
        )
        return dict(zip(ranges, found, strict=True))

    async def origins(self, stream: int, since: int) -> dict[tuple[Producer, int], int]:
        """Return the positions of batches by producer and first sequence.

        All that a stream has from position ``since`` on, as far as the scan knows it.

        Raises:
            TrimmedError: that position was trimmed.
        """
        found: dict[tuple[Producer, int], int] = {}
        if since < self.positions.start:
            first = self.positions.start
            raise TrimmedError(f"position {since} was trimmed", first=first)
        committed = {info.stream: info.committed for info in self._info.streams}
        # A stream that is gone had nothing from the first position on.
        if since >= self.positions.stop or stream not in committed:
            return found
        begin = await self._llsn_of(stream, since)
        spans = self.spans(stream, begin, committed[stream], 0)
        async with contextlib.aclosing(spans):
            async for span in spans:
                producer, sequence = self._codec.origin(span.data)
                found[producer, sequence] = span.glsn - span.skip
        return found

    async def _llsn_of(self, stream: int, glsn: int) -> int:
        """Return the first LLSN of a stream whose GLSN is at least ``glsn``."""
        wish = _Wish(stream, glsn, True, 1, reach=self._info.high_watermark)
        answer, payload = await self._ask(wish)
        for span in spans_of(answer, payload):
            if span.glsn + span.count > glsn:
                return span.llsn + max(0, glsn - span.glsn)
        return answer.next

    async def _sample(self, stream: int, llsn: int) -> tuple[int, int]:
        answer, payload = await self._ask(_Wish(stream, llsn, False, 1))
        return sum(span.size for span in spans_of(answer, payload)), len(payload)

    # -- reading -----------------------------------------------------------------

    async def batches(
        self,
        stream: int,
        begin: int,
        end: int,
        *,
        columns: list[str],
        since: int | None = None,
        until: int | None = None,
        turn: int = 0,
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Iterate over LLSNs ``begin`` to ``end`` of a stream as record batches.

        ``columns`` may name ``stream`` and ``llsn`` beside those of a log. A batch
        without a record between ``since`` and ``until`` is left out; other batches come
        whole. ``turn`` chooses the first replica to ask, so that many readers spread
        over the replicas.

        Raises:
            TrimmedError: the range was trimmed.
            DeadlineError: no replica answered for ``timeout_s``.
        """
        async for (batch,) in self.batch_chunks(
            stream, begin, end, columns=columns, since=since, until=until, turn=turn
        ):
            yield batch

    async def merged(
        self,
        begin: int,
        end: int,
        *,
        columns: list[str],
        since: int | None = None,
        until: int | None = None,
        turn: int = 0,
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Iterate over positions ``begin`` to ``end``, over all streams, in order.

        Everything else is as with `batches`, except that the search for a replica has
        no deadline.

        Raises:
            TrimmedError: the range was trimmed.
        """
        async for (batch,) in self.merged_chunks(
            begin, end, columns=columns, since=since, until=until, turn=turn
        ):
            yield batch

    async def merged_chunks(
        self,
        begin: int,
        end: int,
        *,
        columns: list[str],
        since: int | None = None,
        until: int | None = None,
        turn: int = 0,
    ) -> AsyncGenerator[list[pa.RecordBatch], None]:
        """Iterate over what `merged` does, in lists, for `blocking_iterator`."""
        if begin >= end:
            return
        log = self._info.log
        async with MergeReader(self._cluster, log, begin, end, turn=turn) as reading:
            while spans := await reading.next():
                for span in spans:
                    rows = self._rows(span, columns, since, until)
                    if rows is not None:
                        yield [rows]

    async def batch_chunks(
        self,
        stream: int,
        begin: int,
        end: int,
        *,
        columns: list[str],
        since: int | None = None,
        until: int | None = None,
        turn: int = 0,
    ) -> AsyncGenerator[list[pa.RecordBatch], None]:
        """Iterate over what `batches` does, in lists, for `blocking_iterator`."""
        spans = self.spans(stream, begin, end, turn)
        async with contextlib.aclosing(spans):
            async for span in spans:
                rows = self._rows(span, columns, since, until)
                if rows is not None:
                    yield [rows]

    def _rows(
        self, span: Span, columns: list[str], since: int | None, until: int | None
    ) -> pa.RecordBatch | None:
        return rows_of(self._codec, span, columns=columns, since=since, until=until)

    async def spans(
        self, stream: int, begin: int, end: int, turn: int
    ) -> AsyncGenerator[Span, None]:
        """Iterate over the encoded batches of LLSNs ``begin`` to ``end`` of a stream.

        Raises:
            RemoteProtocolError: replicas sent less, and no error.
        """
        size = self._cluster.settings.prefetch_bytes
        ahead: asyncio.Task[tuple[Records, memoryview]] | None = None

        def ask(llsn: int) -> asyncio.Task[tuple[Records, memoryview]]:
            wish = _Wish(stream, llsn, False, size)
            return asyncio.create_task(self._ask(wish, turn))

        try:
            ahead = ask(begin) if begin < end else None
            while ahead is not None:
                answer, payload = await ahead
                # The next answer comes while this one is looked at.
                ahead = ask(answer.next) if answer.next < end else None
                for span in spans_of(answer, payload):
                    part = span.after(min(span.count, max(0, begin - span.llsn)))
                    part = part.before(part.glsn + max(0, end - part.llsn))
                    if part.count > 0:
                        begin = part.llsn + part.count
                        yield part
        finally:
            if ahead is not None:
                ahead.cancel()
                await asyncio.gather(ahead, return_exceptions=True)
        if begin < end:
            msg = f"stream {stream} was read to LLSN {begin}, not to {end}"
            raise RemoteProtocolError(msg)

    async def _ask(self, wish: _Wish, turn: int = 0) -> tuple[Records, memoryview]:
        """Ask replicas in turn until one has what is wished."""
        cluster, settings = self._cluster, self._cluster.settings
        loop, backoff = asyncio.get_running_loop(), cluster.backoff()
        wait_ms = int(settings.read_wait_s * _MILLISECONDS)
        request = Read(wish.stream, wish.begin, wish.by_glsn, wish.bytes_max, wait_ms)
        within = settings.read_wait_s + settings.attempt_timeout_s
        deadline = loop.time() + settings.timeout_s
        while True:
            await asyncio.sleep(backoff.pause(settings.share()))
            try:
                node = self._choose(wish.stream, turn)
                answer, payload = await cluster.ask_node(node, request, within=within)
                if not isinstance(answer, Records) or answer.stream != wish.stream:
                    msg = f"{type(answer).__name__} is no answer to Read"
                    raise RemoteProtocolError(msg)
                if answer.sizes or (wish.by_glsn and answer.complete >= wish.reach):
                    return answer, payload
                raise NotReadyError(f"node {node} does not know LLSN {wish.begin} yet")
            except TrimmedError as error:
                await self._raise_trimmed(error)
            except LogError as error:
                cluster.check_open()
                if wish.stream not in cluster.streams_of(self._info.log):
                    # It was removed, and went with its last record.
                    await self._raise_trimmed(error)
                if verdict_of(error) is Verdict.FINAL:
                    raise
                if loop.time() >= deadline:
                    msg = f"no replica of stream {wish.stream} served the read in time"
                    raise late(f"{msg}: {error}", error) from error
                turn += 1
                await cluster.refresh()

    def _choose(self, stream: int, turn: int) -> int:
        nodes = self._cluster.routes.readers(stream)
        if self._node:
            return self._node
        if not nodes:
            raise NotReadyError(f"no replica of stream {stream} can serve reads now")
        return nodes[turn % len(nodes)]

    async def _raise_trimmed(self, cause: LogError) -> None:
        routes = await self._cluster.linearize()
        first = max(1, routes.log(self._info.log).trim)
        msg = f"log {self._info.name!r} was trimmed to position {first} during the read"
        raise TrimmedError(msg, first=first) from cause
