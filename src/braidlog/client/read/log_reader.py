"""Reads a log of a cluster: forwards, backwards, and on from its end.

*Theory of operation.* Streams are merged by position (`MergeReader`), and come as
spans, parts of encoded batches. Backwards, windows of positions are read forwards, the
last one first (`Windows`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterable
from typing import TYPE_CHECKING, Final, Protocol

from braidlog.client.batches import BatchCodec, OpenBatch
from braidlog.client.connection.cluster import Cluster
from braidlog.client.read.archived import Wanted
from braidlog.client.read.backward import Windows
from braidlog.client.read.merge import Span
from braidlog.client.read.merge_reader import MergeReader
from braidlog.client.read.span_rows import rows_of
from braidlog.errors import (
    BeyondEndError,
    ClosedError,
    RemoteProtocolError,
    StoreFailedError,
    TrimmedError,
)
from braidlog.store.arguments import (
    DurationLike,
    checked_count,
    checked_position,
    checked_timeout,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from braidlog._native import Record

# Enough to learn that something is there.
_LOOK_BYTES: Final = 1
# Read at a time on the way back, and the least that a stream is asked for.
_WINDOW_BYTES: Final = 1 << 20
_WINDOW_CREDIT_MIN: Final = 16 << 10
# Passed on between two turns of the loop, in which more can come.
_TURN_BYTES: Final = 256 << 10

_ALL: Final[Wanted] = (None, None, None)


class LogPositions(Protocol):
    """Which positions a log has."""

    @property
    def end(self) -> int:
        """Next position, as far as this client knows."""

    async def refresh(self) -> range:
        """Ask the cluster; return the positions that can be read now."""


class LogReader:
    """Reads one log; the calls of programs are those of `AsyncClusterLog`."""

    def __init__(
        self, cluster: Cluster, log: bytes, codec: BatchCodec, positions: LogPositions
    ) -> None:
        """Read the log of this id."""
        self._cluster = cluster
        self._id = log
        self._codec = codec
        self._log = positions

    async def bounds(self, begin: int | None, end: int | None) -> tuple[int, int]:
        """Return what of ``begin`` to ``end`` can be read now.

        Raises:
            TrimmedError: ``begin`` is below the first position.
            BeyondEndError: ``begin`` is above the end.
        """
        self._cluster.check_open()
        begin = None if begin is None else checked_position(begin, "begin")
        end = None if end is None else checked_count(end, "end")
        there = await self._log.refresh()
        begin = there.start if begin is None else begin
        stop = there.stop if end is None else end
        if begin < there.start:
            msg = f"position {begin} was trimmed: the log begins at {there.start}"
            raise TrimmedError(msg, first=there.start)
        if begin > there.stop:
            msg = f"position {begin} is not written yet"
            raise BeyondEndError(msg, next=there.stop)
        return begin, min(stop, there.stop)

    async def spans(self, begin: int, end: int) -> AsyncGenerator[Span, None]:
        """Iterate over the parts of batches between two positions."""
        if begin >= end:
            return
        async with MergeReader(self._cluster, self._id, begin, end) as reading:
            turns = _Turns()
            while spans := await reading.next():
                for span in spans:
                    yield span
                    await turns.passed(span)

    def records(self, span: Span) -> Iterable[Record]:
        """Return the records of a part of a batch."""
        first = span.glsn - span.skip
        return self._open(span).records(first, span.skip, span.skip + span.count)

    def _wanted(self, span: Span, choice: Wanted) -> list[Record]:
        records = self.records(span)
        if choice == _ALL:
            return list(records)
        return [record for record in records if matches(record, *choice)]

    async def counted(
        self, begin: int, end: int, choice: Wanted
    ) -> AsyncGenerator[tuple[list[Record], int], None]:
        """Iterate over what is wanted of each batch, and the position behind it."""
        spans = self.spans(begin, end)
        async with contextlib.aclosing(spans):
            async for span in spans:
                yield self._wanted(span, choice), span.glsn + span.count

    async def counted_back(
        self, begin: int, end: int, choice: Wanted, *, whole: bool = False
    ) -> AsyncGenerator[tuple[list[Record], int], None]:
        """Iterate from the end; with what is wanted of each batch, where it begins."""
        spans = self._spans_back(begin, end, whole=whole)
        async with contextlib.aclosing(spans):
            async for span in spans:
                chunk = self._wanted(span, choice)
                chunk.reverse()
                yield chunk, span.glsn

    async def _spans_back(
        self, begin: int, end: int, *, whole: bool
    ) -> AsyncGenerator[Span, None]:
        windows = Windows(begin, end, _WINDOW_BYTES)
        while not windows.done:
            try:
                spans = await self._window(windows)
            except TrimmedError as error:
                if not whole or error.first <= windows.low:
                    raise
                # All of the log was asked for, and this is where it begins by now.
                windows.trimmed(error.first)
                continue
            if spans is None:
                windows.halve()
                continue
            for span in windows.took(spans):
                yield span

    async def _window(self, windows: Windows) -> list[Span] | None:
        """Return the spans of a window; None if they are more than it may have."""
        streams = len(tuple(self._cluster.streams_of(self._id)))
        # Nodes give what is behind the window, too, so they are asked for less.
        credit = max(_WINDOW_CREDIT_MIN, _WINDOW_BYTES // (2 * streams))
        found: list[Span] = []
        size = 0
        async with MergeReader(
            self._cluster,
            self._id,
            windows.low,
            windows.high,
            prefetch_bytes=credit,
        ) as reading:
            while spans := await reading.next():
                found += spans
                size += sum(len(span.data) for span in spans)
                if size > windows.bytes_max and reading.position < windows.high:
                    return None
        return found

    def _open(self, span: Span) -> OpenBatch:
        batch = self._codec.open(span.data)
        if batch.count != span.size:
            msg = f"a batch of {batch.count} records came as one of {span.size}"
            raise RemoteProtocolError(msg)
        return batch

    async def follow(
        self,
        begin: int | None,
        timeout: DurationLike | None,  # noqa: ASYNC109
    ) -> AsyncGenerator[Span, None]:
        """Iterate over parts from ``begin`` on, waiting for what is not there yet."""
        timeout = checked_timeout(timeout)
        begin = None if begin is None else checked_position(begin, "begin")
        there = await self._log.refresh()
        begin = there.start if begin is None else begin
        if begin < there.start:
            msg = f"position {begin} was trimmed: the log begins at {there.start}"
            raise TrimmedError(msg, first=there.start)
        if begin >= there.stop and not await self.wait(begin, timeout=timeout):
            return
        async with MergeReader(self._cluster, self._id, begin) as reading:
            known = self._log.end
            turns = _Turns()
            while True:
                # What is there takes as long as it takes: a timeout is for what is not.
                within = None if reading.position < known else timeout
                spans = await reading.next(within)
                if not spans:
                    known = (await self._log.refresh()).stop
                    if reading.position >= known:
                        return
                for span in spans:
                    yield span
                    await turns.passed(span)

    async def rows(
        self, begin: int, end: int, columns: list[str]
    ) -> AsyncGenerator[pa.RecordBatch, None]:
        """Iterate over batches with columns of a log, and ``stream`` and ``llsn``."""
        spans = self.spans(begin, end)
        async with contextlib.aclosing(spans):
            async for span in spans:
                batch = rows_of(self._codec, span, columns=columns)
                assert batch is not None  # noqa: S101, RUF100 - no time was given
                yield batch

    async def wait(self, position: int, timeout: float | None) -> bool:  # noqa: ASYNC109
        """Wait until a position can be read; see `AsyncClusterLog.wait`."""
        try:
            if position < self._log.end or position < (await self._log.refresh()).stop:
                return True
            if timeout is not None and timeout <= 0:
                return False
            async with MergeReader(
                self._cluster, self._id, position, prefetch_bytes=_LOOK_BYTES
            ) as reading:
                return bool(await reading.next(timeout))
        except StoreFailedError:
            raise
        except ClosedError:
            return False


class _Turns:
    """Gives others a turn of the loop from time to time."""

    def __init__(self) -> None:
        self._bytes = 0

    async def passed(self, span: Span) -> None:
        """Count a span that was passed on."""
        self._bytes += len(span.data)
        if self._bytes >= _TURN_BYTES:
            self._bytes = 0
            await asyncio.sleep(0)


def matches(
    record: Record, key: bytes | None, since: int | None, until: int | None
) -> bool:
    """Tell whether a record has this key and is of this time."""
    if key is not None and record.key != key:
        return False
    if since is not None and record.timestamp < since:
        return False
    return until is None or record.timestamp < until
