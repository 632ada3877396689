"""What was appended to one log, what was answered, and what readers saw.

*Theory of operation.* Payloads name records: each is invoked once, whatever number of
times it is sent. Positions are learnt from acknowledgements and from readers, and the
first to tell one fixes it: payload, GLSN, stream and LLSN belong to each other for
ever. All that can be checked at once is checked at once; `finish` compares with the
whole log.

What it holds the log to: an acknowledged record is at its position, and only there; one
that surely failed is nowhere; nothing is read that was not appended; all readers see
one order; a record that was invoked after another was acknowledged is behind it; LLSNs
and GLSNs of a stream grow together, and LLSNs are dense; below a trim there is nothing,
and all above it is there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from sim.errors import MisuseError, ViolationError

__all__ = ["AppendChecker", "Outcome", "Seen"]


class Outcome(Enum):
    """What the writer knows of an append."""

    # Also that of a call that ended without a sure answer.
    UNKNOWN = "unknown"
    ACKED = "acknowledged"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Seen:
    """A record at its position."""

    glsn: int
    payload: bytes
    # 0: the reader was not told stream and LLSN.
    stream: int = 0
    llsn: int = 0


@dataclass(slots=True)
class _Append:
    payload: bytes
    # Highest position acknowledged when it was invoked, or 0: its own is above.
    floor: int
    producer: tuple[int, int] | None
    outcome: Outcome = Outcome.UNKNOWN
    glsn: int = 0


@dataclass(slots=True)
class _Reader:
    next: int
    seen: int = 0


@dataclass(slots=True)
class _Stream:
    """LLSNs that were seen, in order, and their GLSNs."""

    llsns: list[int] = field(default_factory=list)
    glsns: list[int] = field(default_factory=list)


class AppendChecker:
    """Checker of one log; see the module."""

    def __init__(self) -> None:
        """Begin with an empty log."""
        self._appends: dict[bytes, _Append] = {}
        self._producers: dict[tuple[int, int], bytes] = {}
        self._log: dict[int, Seen] = {}
        self._streams: dict[int, _Stream] = {}
        self._readers: dict[str, _Reader] = {}
        self._acked_max = 0
        # Positions up to here were trimmed, or a trim of them was asked for.
        self._trim_asked = 0
        self._trimmed = 0

    # Writers.

    def invoked(self, payload: bytes, producer: int = 0, sequence: int = 0) -> None:
        """Note that a writer is about to append; retries are not noted again."""
        if payload in self._appends:
            raise MisuseError(f"{payload!r} is invoked twice")
        identity = (producer, sequence) if producer else None
        if identity is not None:
            if identity in self._producers:
                raise MisuseError(f"{identity} is given to two payloads")
            self._producers[identity] = payload
        self._appends[payload] = _Append(payload, self._acked_max, identity)

    def acked(self, payload: bytes, glsn: int, stream: int = 0, llsn: int = 0) -> None:
        """Note an acknowledgement; a retry may bring the same one again."""
        append = self._append(payload)
        self._place(Seen(glsn, payload, stream, llsn), "an acknowledgement")
        append.outcome = Outcome.ACKED
        self._acked_max = max(self._acked_max, glsn)

    def failed(self, payload: bytes) -> None:
        """Note an error that says that nothing was or will be appended."""
        append = self._append(payload)
        if append.glsn:
            where = append.glsn
            raise ViolationError(f"{payload!r} is at {where} and said to have failed")
        append.outcome = Outcome.FAILED

    def _append(self, payload: bytes) -> _Append:
        if payload not in self._appends:
            raise MisuseError(f"{payload!r} was not invoked")
        return self._appends[payload]

    # Readers.

    @property
    def trim_done(self) -> int:
        """Return up to where a trim was acknowledged."""
        return self._trimmed

    def read(self, reader: str, seen: Seen, trimmed: int | None = None) -> None:
        """Note a record that was read by its position.

        `trimmed` is what `trim_done` was when the read began, if that was before now.
        """
        trimmed = self._trimmed if trimmed is None else trimmed
        if seen.glsn <= trimmed:
            where = f"{reader} reads {seen.glsn}"
            raise ViolationError(f"{where} after a trim up to {trimmed}")
        self._place(seen, reader)

    def subscribed(self, reader: str, begin: int) -> None:
        """Note that a subscription begins, or is begun anew, at a position."""
        self._readers[reader] = _Reader(begin)

    def delivered(self, reader: str, seen: Seen) -> None:
        """Note the next record of a subscription.

        What was in its buffers may come after a trim.
        """
        subscription = self._readers[reader]
        if seen.glsn != subscription.next:
            expected = subscription.next
            raise ViolationError(f"{reader} gets {seen.glsn} instead of {expected}")
        self._place(seen, reader)
        subscription.next += 1
        subscription.seen += 1

    def skipped(self, reader: str, to: int) -> None:
        """Note that a subscription was told that all below `to` is trimmed."""
        if to - 1 > self._trim_asked:
            where = f"{reader} is told that {to - 1} is trimmed"
            raise ViolationError(f"{where}, asked for was {self._trim_asked}")
        self._readers[reader].next = max(self._readers[reader].next, to)

    def refused(self, reader: str, glsn: int) -> None:
        """Note that a read was refused because the position is trimmed."""
        if glsn > self._trim_asked:
            where = f"{reader} is told that {glsn} is trimmed"
            raise ViolationError(f"{where}, asked for was {self._trim_asked}")

    # Trims.

    def trim_asked(self, glsn: int) -> None:
        """Note that positions up to this one may be gone from now on."""
        self._trim_asked = max(self._trim_asked, glsn)

    def trimmed(self, glsn: int) -> None:
        """Note that the trim was acknowledged: they are gone for ever."""
        if glsn > self._trim_asked:
            raise MisuseError(f"a trim up to {glsn} was not asked for")
        self._trimmed = max(self._trimmed, glsn)

    # Rules.

    def _place(self, seen: Seen, who: str) -> None:
        append = self._appends.get(seen.payload)
        if append is None:
            what = f"{seen.payload!r} at {seen.glsn}, which nobody appended"
            raise ViolationError(f"{who} has {what}")
        if append.outcome is Outcome.FAILED:
            what = f"{seen.payload!r} at {seen.glsn}, whose append surely failed"
            raise ViolationError(f"{who} has {what}")
        known = self._log.get(seen.glsn)
        if known is not None and known.payload != seen.payload:
            what = f"{seen.payload!r} at {seen.glsn}, where {known.payload!r} was"
            raise ViolationError(f"{who} has {what}")
        if append.glsn not in (0, seen.glsn):
            what = f"{seen.payload!r} at {seen.glsn} and at {append.glsn}"
            raise ViolationError(f"{who} has {what}")
        if seen.glsn <= append.floor:
            what = f"{seen.payload!r} at {seen.glsn}; when it was invoked"
            raise ViolationError(f"{who} has {what}, {append.floor} was acknowledged")
        append.glsn = seen.glsn
        self._place_in_stream(seen, known, who)

    def _place_in_stream(self, seen: Seen, known: Seen | None, who: str) -> None:
        if not seen.stream:
            self._log.setdefault(seen.glsn, seen)
            return
        if known is not None and known.stream:
            if known != seen:
                raise ViolationError(f"{who} has {seen}, known is {known}")
            return
        self._log[seen.glsn] = seen
        stream = self._streams.setdefault(seen.stream, _Stream())
        at = bisect_left(stream.llsns, seen.llsn)
        if seen.llsn < 1 or stream.llsns[at : at + 1] == [seen.llsn]:
            raise ViolationError(f"{who} has {seen}: the LLSN is another record's")
        # Between two records with distance n in the stream is room for the n - 1.
        for other, way in ((at - 1, 1), (at, -1)):
            if 0 <= other < len(stream.llsns):
                llsns = (seen.llsn - stream.llsns[other]) * way
                if (seen.glsn - stream.glsns[other]) * way < llsns:
                    near = f"LLSN {stream.llsns[other]} is at {stream.glsns[other]}"
                    raise ViolationError(f"{who} has {seen}, while {near}")
        stream.llsns.insert(at, seen.llsn)
        stream.glsns.insert(at, seen.glsn)

    def finish(self, log: Iterable[Seen], low: int, high: int) -> None:
        """Compare with the log as it is read at the end, from `low` to `high`."""
        if low <= self._trimmed:
            raise ViolationError(f"the log begins at {low}, trimmed: {self._trimmed}")
        if low > self._trim_asked + 1:
            raise ViolationError(f"the log begins at {low}: {self._trim_asked=}")
        expected = low
        llsns: dict[int, int] = {}
        for seen in log:
            if seen.glsn != expected:
                raise ViolationError(f"the log has {seen.glsn} behind {expected - 1}")
            self._place(seen, "the log")
            llsn = llsns.setdefault(seen.stream, seen.llsn)
            if seen.stream and seen.llsn != llsn:
                raise ViolationError(f"the log has {seen} instead of LLSN {llsn}")
            llsns[seen.stream] = seen.llsn + 1
            expected += 1
        if expected != high + 1:
            raise ViolationError(f"the log ends at {expected - 1} instead of {high}")
        lost = [glsn for glsn in self._log if glsn > high]
        if lost:
            seen = self._log[min(lost)]
            raise ViolationError(f"{seen} was told, and the log ends at {high}")

    def counts(self) -> dict[str, int]:
        """Return the number of appends by outcome, and of known positions."""
        outcomes = [append.outcome for append in self._appends.values()]
        found = {outcome.value: outcomes.count(outcome) for outcome in Outcome}
        return {**found, "positions": len(self._log)}
