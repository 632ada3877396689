"""Memory for frames that are still coming in, of all connections together.

*Theory of operation.* Once its header is there, a frame has a size. A frame that is not
whole asks for that much memory, and waits with its connection unread until there is
room. Small ones never wait: they are many, and hold little. Room goes first to the
origin that has least of it. A frame has to be whole in a time that its size allows for;
while others wait that time is short, so that whoever sends slowly, or nothing more,
holds up nobody for long.

*Invariants.* What is granted exceeds the bound only by small frames, those of peers,
and one frame if nothing else is granted. A frame that waits was not granted.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

H = TypeVar("H", bound=Hashable)

SMALL_BYTES: Final = 16 << 10
"""Frames up to here wait for no room; 10,000 of them take 160 MiB."""
_ALLOWED_S: Final = 10.0
_RATE: Final = 256 << 10
"""Bytes a second, of a poor line."""
_HURRIED_S: Final = 2.0
_HURRIED_RATE: Final = 4 << 20
"""The same while others wait for the memory."""


@dataclass(slots=True)
class _Unfinished:
    """A frame that is not whole."""

    number: int
    """Which frame of its connection."""
    origin: str
    size: int
    since: float
    granted: bool
    exempt: bool


class Intake(Generic[H]):
    """The frames of all connections that are not whole."""

    def __init__(self, bytes_max: int) -> None:
        """Grant up to `bytes_max`."""
        self.bytes_max = bytes_max
        self.held_bytes = 0
        """What is granted now."""
        self._unfinished: dict[H, _Unfinished] = {}
        self.waiting: dict[H, None] = {}
        """Whose frames wait for memory; while there are some, read little at a time."""

    def __len__(self) -> int:
        """Return how many frames are not whole."""
        return len(self._unfinished)

    def begin(
        self,
        holder: H,
        number: int,
        size: int,
        now: float,
        *,
        origin: str = "",
        exempt: bool = False,
    ) -> bool:
        """Note a frame that is not whole, and its size as far as it is known.

        Return whether to read on; if not, `ready` names the holder later. A frame that
        was noted before changes only its size. Who is `exempt` never waits, and has all
        the time it wants.
        """
        known = self._unfinished.get(holder)
        if known is not None and (known.number, known.size) == (number, size):
            return known.granted
        since = now if known is None or known.number != number else known.since
        self.end(holder)
        frame = _Unfinished(number, origin, size, since, False, exempt)
        self._unfinished[holder] = frame
        if exempt or size <= SMALL_BYTES or (self._fits(size) and not self.waiting):
            self._grant(frame)
        else:
            self.waiting[holder] = None
        return frame.granted

    def _fits(self, size: int) -> bool:
        # A frame larger than all of it comes in alone.
        return not self.held_bytes or self.held_bytes + size <= self.bytes_max

    def _grant(self, frame: _Unfinished) -> None:
        frame.granted = True
        self.held_bytes += frame.size

    def end(self, holder: H) -> None:
        """Forget the frame of a holder: it is whole, or given up."""
        frame = self._unfinished.pop(holder, None)
        if frame is None:
            return
        self.waiting.pop(holder, None)
        if frame.granted:
            self.held_bytes -= frame.size

    def ready(self, now: float) -> list[H]:
        """Grant what has room by now; return whose frames that are."""
        ready = []
        while self.waiting:
            holder = self._next()
            frame = self._unfinished[holder]
            if not self._fits(frame.size):
                break
            del self.waiting[holder]
            frame.since = now
            self._grant(frame)
            ready.append(holder)
        return ready

    def _next(self) -> H:
        """Return who waits longest of the origin that holds least."""
        held: dict[str, int] = {}
        for each in self._unfinished.values():
            if each.granted:
                held[each.origin] = held.get(each.origin, 0) + each.size
        return min(
            self.waiting, key=lambda each: held.get(self._unfinished[each].origin, 0)
        )

    def restart(self, holder: H, now: float) -> None:
        """Let the time of a frame begin anew: it was not read meanwhile."""
        if holder in self._unfinished:
            self._unfinished[holder].since = now

    def overdue(self, now: float) -> list[H]:
        """Return whose frames should be whole by now."""
        least, rate = (
            (_HURRIED_S, _HURRIED_RATE) if self.waiting else (_ALLOWED_S, _RATE)
        )
        return [
            holder
            for holder, each in self._unfinished.items()
            if each.granted
            and not each.exempt
            and now - each.since > least + each.size / rate
        ]
