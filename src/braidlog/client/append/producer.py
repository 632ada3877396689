"""The appends of one client to one stream: in order, each stored exactly once.

Theory of operation: what is appended waits until it becomes part of a batch. A batch is
closed at once if nothing is under way (or when it has lingered), otherwise when it is
full: while one is under way the next one gathers. A closed batch has a producer and a
sequence and is sent, with the same bytes, until it is settled: the position of the
first time is the answer to every repeat. The primary takes the batches of a producer in
the order of their sequences only, so nothing is stored twice and nothing overtakes.

If an attempt fails in a way that another may not (a broken connection, a new primary),
no batch is sent until all attempts that are under way have ended; then everything
unsettled is sent again in order.

A batch that is refused for good leaves a hole, and the primary will take nothing behind
it. What is before the hole is settled first; then the producer goes on in a new epoch
with sequence 1, which fences every copy that may still be under way. What was behind
the hole is sent again in it: the primary cannot have stored it, unless what is the hole
now may have been stored by an attempt of unknown outcome. Then what is behind it and
may have been stored fails with it.

A producer that the caller brings keeps its numbers, is never renumbered, and leaves no
hole; its batches stay in line with the others.

Invariants: the batches of one producer under way are the oldest unsettled ones, in
order; the sequences of unsettled batches of the producer's epoch are dense; a batch
that may have been stored never gets another sequence.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from braidlog._native import Entry, Line
from braidlog.client.retry import Verdict, is_unknown, verdict_of
from braidlog.errors import (
    LogError,
    RemoteProtocolError,
    SequenceExpiredError,
    SequenceGapError,
    UnknownProducerError,
)
from braidlog.types import Producer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ProducerLimits:
    """When batches are closed, and how many are under way."""

    linger_s: float = 0.0
    batch_bytes_max: int = 1 << 20
    batch_records_max: int = 16384
    in_flight_max: int = 4


@dataclass(slots=True, eq=False)
class Outgoing(Generic[T]):
    """A closed batch that is not settled."""

    entries: list[Entry[T]]
    producer: Producer
    sequence: int
    count: int
    own: bool
    """Whether the producer is this client's, and not one that the caller brought."""
    data: bytes | None = None
    """The batch as encoded; None until the shell has done so, and when renumbered."""
    flying: bool = False
    unknown: bool = False
    """Whether an attempt that ended may have stored it."""
    since: int = 1
    """Where the log ended, at least, when it was sent first."""


Failure: TypeAlias = "tuple[Entry[T], LogError]"


class StreamProducer(Generic[T]):
    """Batches, sequences and repeats of one stream."""

    def __init__(self, producer: Producer, limits: ProducerLimits) -> None:
        """Begin with sequence 1."""
        self.producer = producer
        self.last_error: LogError | None = None
        self._limits = limits
        self._next = 1
        self.waiting: Line[T] = Line(limits.batch_bytes_max, limits.batch_records_max)
        """What is not part of a batch yet; it takes more by itself."""
        self._unsettled: list[Outgoing[T]] = []
        # What is behind a hole, and whether the hole may have been stored.
        self._behind: list[Outgoing[T]] | None = None
        self._hole_unknown = False
        self._recovering = False
        self._failed: list[Failure[T]] = []

    @property
    def idle(self) -> bool:
        """Whether there is nothing left to do."""
        return not (self.waiting or self._unsettled or self._behind)

    @property
    def under_way(self) -> int:
        """Number of batches that are sent and not answered."""
        return sum(batch.flying for batch in self._closed())

    def _closed(self) -> list[Outgoing[T]]:
        return self._unsettled + (self._behind or [])

    # -- in ----------------------------------------------------------------------

    def add(self, entry: Entry[T], now: float) -> None:
        """Put records at the end of the line."""
        self.waiting.add(entry, now)

    def withdraw(self, entry: Entry[T]) -> bool:
        """Take records back; False if they may be stored already.

        In that case they are sent on, because what is behind them in the line needs
        them to be stored first.
        """
        entry.expired = True
        return self.waiting.remove(entry)

    @property
    def has_failed(self) -> bool:
        """Whether `failed` has something to tell."""
        return bool(self._failed)

    def failed(self) -> list[Failure[T]]:
        """Return what failed for good since the last call."""
        failed, self._failed = self._failed, []
        return failed

    def expire(self, now: float) -> list[tuple[Entry[T], bool]]:
        """Return what is late, each once, and whether it was never sent.

        What was never sent is not in the log and never will be.
        """
        late = self.waiting.expire(now)
        for entry in late:
            entry.expired = True
        sent = [
            entry
            for batch in self._closed()
            for entry in batch.entries
            if entry.deadline <= now and not entry.expired
        ]
        for entry in sent:
            entry.expired = True
        return [(entry, True) for entry in late] + [(entry, False) for entry in sent]

    def deadline(self) -> float | None:
        """Return when `expire` is due next."""
        first = self.waiting.deadline
        times = [] if first is None else [first]
        for batch in self._closed():
            times += [entry.deadline for entry in batch.entries if not entry.expired]
        return min(times, default=None)

    # -- out ---------------------------------------------------------------------

    def take(self, now: float) -> Outgoing[T] | None:
        """Return the batch to send now, as under way; None if there is none."""
        if self._recovering:
            if self.under_way:
                return None
            self._recovering = False
        if self._behind is not None:
            self._close_hole()
        for batch in self._unsettled:
            if not batch.flying:
                batch.flying = True
                return batch
        waiting, under_way = self.waiting, len(self._unsettled)
        if not waiting or self._behind is not None:
            return None
        if under_way:
            may_close = waiting.full and under_way < self._limits.in_flight_max
        else:
            lingered = now >= waiting.oldest + self._limits.linger_s
            may_close = lingered or waiting.full
        if not may_close:
            return None
        batch = self._close()
        batch.flying = True
        self._unsettled.append(batch)
        return batch

    def due(self) -> float | None:
        """Return when the batch that gathers has lingered; None if it need not wait."""
        if self._unsettled or self._behind or not self.waiting:
            return None
        return self.waiting.oldest + self._limits.linger_s

    def _close(self) -> Outgoing[T]:
        entries, count = self.waiting.close()
        head = entries[0]
        if head.producer is not None:
            return Outgoing(entries, head.producer, head.sequence, count, own=False)
        sequence = self._next
        self._next += count
        return Outgoing(entries, self.producer, sequence, count, own=True)

    # -- answers -----------------------------------------------------------------

    def settle(self, batch: Outgoing[T], count: int) -> list[Entry[T]]:
        """Take note that a batch is stored; return what it held."""
        behind = self._behind
        if behind and batch in behind and batch.own and not self._hole_unknown:
            msg = f"sequence {batch.sequence} was stored behind one that was not"
            raise RemoteProtocolError(msg)
        if count != batch.count:
            msg = f"{batch.count} records were sent and {count} stored"
            raise RemoteProtocolError(msg)
        self._drop(batch)
        return batch.entries

    def fail(self, batch: Outgoing[T], error: LogError) -> None:
        """Take note of an attempt that failed."""
        batch.flying = False
        self.last_error = error
        if isinstance(error, SequenceExpiredError):
            self._drop(batch)
            self._tell([batch], error)
        elif self._behind is not None and batch in self._behind:
            # It has its turn again when the hole is closed.
            batch.unknown = batch.unknown or is_unknown(error)
        elif isinstance(error, SequenceGapError):
            self._gap(batch, error)
        elif verdict_of(error) is Verdict.FINAL:
            self._refuse(batch, error)
        else:
            batch.unknown = batch.unknown or is_unknown(error)
            self._recovering = True

    def abandon(self) -> None:
        """Give up all attempts that are under way: their answers will not be told."""
        for batch in self._closed():
            if batch.flying:
                batch.flying = False
                batch.unknown = True
                self._recovering = True

    def give_up(self, error: LogError) -> None:
        """Fail everything, because nothing will be sent any more."""
        batches = self._closed()
        for batch in batches:
            batch.unknown = batch.unknown or batch.flying
            batch.flying = False
        self._tell(batches, error)
        waiting = self.waiting.clear()
        self._failed += [(entry, copy.copy(error)) for entry in waiting]
        self._unsettled = []
        self._behind = None

    def leave(self) -> tuple[list[Outgoing[T]], list[Entry[T]]]:
        """Give away what is not settled: batches in order, and what waited behind.

        Nothing is sent any more; `unknown` of a batch says whether it may be stored.
        """
        batches = self._closed()
        for batch in batches:
            batch.unknown = batch.unknown or batch.flying
            batch.flying = False
        self._unsettled, self._behind = [], None
        return batches, self.waiting.clear()

    def _gap(self, batch: Outgoing[T], error: SequenceGapError) -> None:
        if error.expected == 1 and batch.sequence > 1:
            msg = f"sequence {batch.sequence} of producer {batch.producer.id}"
            error = UnknownProducerError(f"{msg}: {error.message}", expected=1)
        line = self._unsettled
        earlier = line[: line.index(batch)]
        if any(before.producer.id == batch.producer.id for before in earlier):
            self._recovering = True
        elif not batch.own or batch.unknown:
            self._refuse(batch, error)
        else:
            # The primary has forgotten this producer. The batch is not stored, so it
            # may go in a new epoch.
            self._open_hole(line.index(batch), unknown=False)

    def _refuse(self, batch: Outgoing[T], error: LogError) -> None:
        at = self._unsettled.index(batch)
        self._drop(batch)
        if batch.own:
            self._open_hole(at, unknown=batch.unknown)
        self._tell([batch], error)

    def _open_hole(self, at: int, *, unknown: bool) -> None:
        behind = self._unsettled[at:]
        del self._unsettled[at:]
        self._behind = behind + (self._behind or [])
        self._hole_unknown = self._hole_unknown or unknown
        self._recovering = True

    def _close_hole(self) -> None:
        behind = self._behind
        if behind is None or self._unsettled:
            return
        if self._hole_unknown:
            lost = [batch for batch in behind if batch.own and batch.unknown]
            behind = [batch for batch in behind if batch not in lost]
            self._tell(
                lost,
                self.last_error
                or LogError("an earlier batch of this producer has an unknown outcome"),
            )
        self._behind = None
        self._hole_unknown = False
        self._unsettled = behind
        self.producer = Producer(self.producer.id, self.producer.epoch + 1)
        self._next = 1
        for batch in behind:
            if batch.own:
                self._renumber(batch)

    def _renumber(self, batch: Outgoing[T]) -> None:
        batch.producer = self.producer
        batch.sequence = self._next
        batch.data = None
        # What is before it was not stored, so neither was this.
        batch.unknown = False
        self._next += batch.count

    def _drop(self, batch: Outgoing[T]) -> None:
        batch.flying = False
        line = self._unsettled if batch in self._unsettled else self._behind
        if line is None or batch not in line:
            raise RemoteProtocolError(f"sequence {batch.sequence} was answered twice")
        line.remove(batch)

    def _tell(self, batches: Iterable[Outgoing[T]], error: LogError) -> None:
        for batch in batches:
            for entry in batch.entries:
                # Each waiter raises its own: a traceback belongs to one of them.
                told = copy.copy(error)
                # What is stored is, however many attempts came to nothing.
                if batch.unknown and told.outcome != "stored":
                    told.outcome = "unknown"
                self._failed.append((entry, told))
