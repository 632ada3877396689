"""Reads that wait on a node, for something new or until answers are read."""

from __future__ import annotations

import heapq
import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from braidlog.errors import LogError, NotReadyError
from braidlog.node.metrics.latency import Histogram
from braidlog.node.share import share_of_one
from braidlog.serving.sessions import Request, Session, told
from braidlog.wire.messages import Read, Records

READERS_MAX: Final = 100_000
"""Reads that wait, of all streams and connections."""
READERS_OF_ONE_MAX: Final = 8192
"""Reads of one connection that wait. When half of `READERS_MAX` wait it is the other
half, in equal shares."""
_SLACK: Final = 64
"""Numbers of reads that no longer wait which a heap may hold beyond those that do."""
READS_AT_ONCE_MAX: Final = 8
"""Reads that are answered in one turn of the loop. One may search through much of the
disk, and a node that says nothing meanwhile is taken for dead."""
WAIT_MAX_S: Final = 60.0
"""No read waits longer, whatever it asks for."""


class Watched(Protocol):
    """What a lane asks before it says that more can be read."""

    watched: bool


class Readable(Protocol):
    """What is read of a replica, of a stream or of a shard."""

    @property
    def core(self) -> Watched:
        """Return what says whether somebody waits."""

    @property
    def committed(self) -> int:
        """Return the first LLSN that is not committed here."""

    @property
    def high_watermark(self) -> int:
        """Return the GLSN up to which nothing of the stream is missing here."""

    @property
    def stopped(self) -> bool:
        """Tell whether it serves no reads."""

    def read(
        self, message: Read, *, expired: bool
    ) -> tuple[Records, tuple[bytes | memoryview, ...]] | None:
        """Return committed batches; None: there is nothing yet, and time to wait."""


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

    replica: Readable
    touch: Callable[[], None]
    """Has the replica looked at: a read may have found damage."""
    waiting: dict[int, Reader] = field(default_factory=dict)
    """By a number that rises with each."""
    _ahead: tuple[list[tuple[int, int]], list[tuple[int, int]]] = field(
        default_factory=lambda: ([], [])
    )
    """Heaps of where reads begin and their numbers: those by LLSN, those by GLSN. A
    number that no longer waits stays until it comes up or the heap is made anew."""

    def add(self, number: int, reader: Reader) -> None:
        """Let a read wait."""
        self.waiting[number] = reader
        ahead = self._ahead[reader.message.by_glsn]
        heapq.heappush(ahead, (reader.message.begin, number))
        # Reads of what never comes would be forgotten one by one and stay here.
        if len(ahead) > 2 * len(self.waiting) + _SLACK:
            ahead[:] = [each for each in ahead if each[1] in self.waiting]
            heapq.heapify(ahead)

    def reached(self, llsn: int, glsn: int) -> list[int]:
        """Take out whom what was committed before these can serve, as they came."""
        found: set[int] = set()
        for ahead, end in zip(self._ahead, (llsn, glsn), strict=True):
            while ahead and ahead[0][0] < end:
                _, number = heapq.heappop(ahead)
                if number in self.waiting:
                    found.add(number)
        return sorted(found)


class Readers:
    """All reads that wait on a node; each connection has a share of the places."""

    def __init__(
        self,
        bytes_max: int,
        connections: Callable[[], int],
        latency: Histogram,
        soon: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """Answer with ``bytes_max`` at most; `connections` share the places.

        `soon` has something done in another turn of the loop, with other work between;
        without it all reads are answered at once.
        """
        self._soon = soon
        self._begun = 0
        """Reads that were looked at in this turn."""
        self._later: dict[Session, deque[tuple[StreamReaders, Reader, float]]] = {}
        """Reads that came in a turn with too many. Connections take turns, or one with
        very many would keep all others waiting."""
        self._bytes_max = bytes_max
        self._connections = connections
        self._latency = latency
        self._count = 0
        self._numbers = itertools.count()
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
        if self._soon is not None:
            self._begun += 1
            if self._begun == 1:
                self._soon(self._next)
            if self._begun > READS_AT_ONCE_MAX:
                if self._has_place(request):
                    later = self._later.setdefault(request.session, deque())
                    later.append((stream, reader, now))
                return
        self._begin(stream, reader, now)

    def _next(self) -> None:
        """Go on in another turn."""
        self._begun = 0
        while self._later and self._begun < READS_AT_ONCE_MAX:
            session, later = next(iter(self._later.items()))
            del self._later[session]
            self._begun += 1
            self._count -= 1
            session.readers -= 1
            self._begin(*later.popleft())
            if later:
                self._later[session] = later
        if self._begun and self._soon is not None:
            self._soon(self._next)

    def _begin(self, stream: StreamReaders, reader: Reader, now: float) -> None:
        request = reader.request
        if self._answered(stream, reader, now) or not self._has_place(request):
            return
        request.park()
        stream.add(next(self._numbers), reader)
        # The lane says of others nothing when more can be read.
        stream.replica.core.watched = True

    def _has_place(self, request: Request) -> bool:
        """Take a place for a read that waits, or refuse it."""
        waiting = request.session.readers
        if waiting >= self._share():
            request.fail(
                NotReadyError(
                    f"this connection has {waiting} waiting reads; a read needs a free "
                    "place"
                )
            )
            return False
        request.session.readers += 1
        self._count += 1
        return True

    def _share(self) -> int:
        """Return how many reads of one connection may wait."""
        taken, connections = self._count, self._connections()
        return share_of_one(taken, READERS_MAX, READERS_OF_ONE_MAX, connections)

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
        waiting, replica = stream.waiting, stream.replica
        if not waiting:
            return
        every = due_only or replica.stopped
        if due_only:
            looked_at = [
                number
                for number, reader in waiting.items()
                if now >= reader.deadline or reader.stirs
            ]
        elif replica.stopped:
            looked_at = list(waiting)
        else:
            # Thousands may wait for what comes later: a commit costs them nothing.
            looked_at = stream.reached(replica.committed, replica.high_watermark + 1)
        for number in looked_at:
            reader = waiting[number]
            if self._answered(stream, reader, now):
                del waiting[number]
                reader.request.session.readers -= 1
                self._count -= 1
            elif not every:
                stream.add(number, reader)
        if not waiting:
            replica.core.watched = False

    def drop(self, stream: StreamReaders, error: LogError) -> None:
        """Refuse what waits for a replica that is gone."""
        for reader in stream.waiting.values():
            if not reader.request.gone:
                reader.request.fail(error)
            reader.request.session.readers -= 1
        self._count -= len(stream.waiting)
        stream.waiting.clear()
