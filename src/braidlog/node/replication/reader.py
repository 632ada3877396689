"""Reads that wait on a node, for something new or until answers are read."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from braidlog.errors import LogError, NotReadyError
from braidlog.logstream.replica import Replica
from braidlog.node.metrics.latency import Histogram
from braidlog.serving.sessions import Request, told
from braidlog.wire.messages import Read

__all__ = ["ReadCounters", "Readers", "StreamReaders"]

READERS_MAX: Final = 100_000
"""Reads that wait, of all streams and connections."""
READERS_OF_ONE_MAX: Final = 8192
"""Reads of one connection that wait. When half of `READERS_MAX` wait it is the other
half, in equal shares."""
WAIT_MAX_S: Final = 60.0
"""No read waits longer, whatever it asks for."""


@dataclass(slots=True)
class Reader:
    """A read that waits."""

    request: Request
    message: Read
    deadline: float
    crowded: bool = False
    """Whether there may be something to read, and too many answers were not taken."""

    @property
    def stirs(self) -> bool:
        """Whether to look at it although nothing new is there."""
        return self.crowded or self.request.gone


@dataclass(slots=True)
class ReadCounters:
    """Totals since the start."""

    reads: int = 0
    read_bytes: int = 0


@dataclass(slots=True)
class StreamReaders:
    """The reads of one replica that wait."""

    replica: Replica
    touch: Callable[[], None]
    """Has the replica looked at: a read may have found damage."""
    waiting: list[Reader] = field(default_factory=list)


class Readers:
    """All reads that wait on a node; each connection has a share of the places."""

    def __init__(
        self, bytes_max: int, connections: Callable[[], int], latency: Histogram
    ) -> None:
        """Answer with ``bytes_max`` at most; `connections` share the places."""
        self._bytes_max = bytes_max
        self._connections = connections
        self._latency = latency
        self._count = 0
        self.counters = ReadCounters()

    def __len__(self) -> int:
        """Return how many wait."""
        return self._count

    def read(
        self, stream: StreamReaders, request: Request, message: Read, now: float
    ) -> None:
        """Answer a read, now or when there is something to read."""
        limit = min(message.bytes_max, self._bytes_max)
        message = msgspec.structs.replace(message, bytes_max=limit)
        wait = min(message.wait_ms / 1000, WAIT_MAX_S)
        reader = Reader(request, message, now + wait)
        if self._answered(stream, reader, now):
            return
        if request.session.readers >= self._share():
            waiting = request.session.readers
            request.fail(
                NotReadyError(
                    f"this connection has {waiting} waiting reads; a read needs a free "
                    "place"
                )
            )
            return
        request.park()
        request.session.readers += 1
        stream.waiting.append(reader)
        self._count += 1

    def _share(self) -> int:
        """Return how many reads of one connection may wait."""
        if 2 * self._count < READERS_MAX:
            return READERS_OF_ONE_MAX
        return READERS_MAX // 2 // max(1, self._connections())

    def _answered(self, stream: StreamReaders, reader: Reader, now: float) -> bool:
        """Answer a read if there is something, or if it has waited long enough."""
        if reader.request.gone:
            return True
        last = now >= reader.deadline
        # A request is small and its answer may be large: without a bound a single read
        # of a socket could ask for more than there is memory.
        reader.crowded = reader.request.crowded
        if reader.crowded:
            if last:
                reader.request.fail(
                    NotReadyError(
                        "this connection has not taken its earlier answers yet"
                    )
                )
            return last
        begun = time.monotonic()
        try:
            found = stream.replica.read(reader.message, expired=last)
        except LogError as error:
            reader.request.fail(error)
            # The disk may have turned out to be damaged, which is to be reported.
            stream.touch()
            return True
        except AssertionError:
            raise
        except Exception as error:
            reader.request.fail(told(error, "Read"))
            return True
        if found is None:
            return False
        records, batches = found
        self._latency.observe(time.monotonic() - begun)
        self.counters.reads += 1
        self.counters.read_bytes += sum(records.sizes)
        reader.request.answer(records, batches)
        return True

    def wake(
        self, stream: StreamReaders, now: float, *, due_only: bool = False
    ) -> None:
        """Look again at what waits for a replica; with `due_only` at what is due."""
        readers = stream.waiting
        if not readers:
            return
        stream.waiting = []
        replica = stream.replica
        # Thousands may wait for what comes later: a commit costs each one comparison.
        llsn, glsn = replica.committed, replica.high_watermark + 1
        stopped = replica.stopped
        for reader in readers:
            if due_only:
                rests = now < reader.deadline and not reader.stirs
            else:
                reached = glsn if reader.message.by_glsn else llsn
                rests = reader.message.begin >= reached and not stopped
            if rests or not self._answered(stream, reader, now):
                stream.waiting.append(reader)
            else:
                reader.request.session.readers -= 1
        self._count += len(stream.waiting) - len(readers)

    def drop(self, stream: StreamReaders, error: LogError) -> None:
        """Refuse what waits for a replica that is gone."""
        for reader in stream.waiting:
            if not reader.request.gone:
                reader.request.fail(error)
            reader.request.session.readers -= 1
        self._count -= len(stream.waiting)
        stream.waiting = []
