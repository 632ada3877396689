"""How long the syncs of this node take, for its metrics and its reports.

*Theory of operation.* Measured is the time from the end of a turn that wrote until that
is durable. Metrics count every turn. Reports say how long syncs take now, and usually:
of turns whose writes somebody waits for, one at a time. What is said is what three of
four of them took at least: a copy of many records takes long on any disk, a slow disk
takes long for everything. What is usual is kept over all windows in which there was a
sync. While the last ones were slower than usual the node writes a little now and then
that nobody asked for, or one that has nothing to do could never show that it is fast
again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from braidlog.metarepo.leader.usual import Usual

__all__ = ["SyncTimes"]

_WINDOW_S: Final = 0.5
_PROBE_S: Final = 0.25
_SLOWER: Final = 1.2
"""Times what is usual: from there on the node has something to show. The leader asks
for less than 1.5 times what is usual on most nodes."""
_SAMPLES_MAX: Final = 256
_TURNS_MAX: Final = 1024
"""Turns that wait for a sync. Later ones are not counted: they are as late."""


class SyncTimes:
    """Measures, by a clock in seconds that goes on within a turn of the loop."""

    def __init__(
        self,
        probe: Callable[[], None],
        least: float,
        clock: Callable[[], float],
        observe: Callable[[float], None] = lambda _: None,
    ) -> None:
        """Begin with nothing measured; `probe` writes a little, `observe` counts.

        Syncs that take less than ``least`` are never slow; 0: nobody is.
        """
        self._clock = clock
        self._observe = observe
        self._turns: deque[tuple[int, float]] = deque()
        self.written = 0
        """How far was written at the last turn."""
        self.hurried = 0
        """How much was written until then for whose sync somebody waits."""
        self._probe = probe
        self._least = least
        self._usual = Usual()
        self._waiting: tuple[int, float] | None = None
        self._samples: list[float] = []
        self._begun = self._probed = clock()
        self._last = 0.0

    @property
    def said(self) -> tuple[int, int]:
        """Return how long syncs take and usually take, in microseconds; 0: unknown."""
        usual = self._usual.seconds
        return round(self._last * 1e6), max(1, round(usual * 1e6)) if usual else 0

    def wrote(self, ticket: int, hurried: int) -> None:
        """Note at the end of a turn that wrote how far that was.

        ``hurried`` rises with the writes for whose sync somebody waits.
        """
        now = self._clock()
        if ticket > self.written and len(self._turns) < _TURNS_MAX:
            self._turns.append((ticket, now))
        if hurried != self.hurried:
            self.hurried = hurried
            if self._waiting is None:
                self._waiting = ticket, now
        self.written = ticket

    def synced(self, durable: int) -> None:
        """Note how far all is durable."""
        turns = self._turns
        if turns and turns[0][0] <= durable:
            now = self._clock()
            while turns and turns[0][0] <= durable:
                self._observe(now - turns.popleft()[1])
        if self._waiting is not None and self._waiting[0] <= durable:
            if len(self._samples) < _SAMPLES_MAX:
                self._samples.append(self._clock() - self._waiting[1])
            self._waiting = None

    def tick(self) -> None:
        """Let time pass."""
        now = self._clock()
        if now - self._begun >= _WINDOW_S:
            self._begun = now
            self._close(now)
        usual = self._usual.seconds
        doubtful = self._last >= max(self._least, _SLOWER * usual)
        known = self._least > 0 and usual > 0
        if known and doubtful and now - self._probed >= _PROBE_S:
            self._probed = now
            self._probe()

    def _close(self, now: float) -> None:
        samples, self._samples = self._samples, []
        # One that hangs takes at least that long.
        age = now - self._waiting[1] if self._waiting is not None else 0.0
        if age >= _WINDOW_S:
            samples.append(age)
        if samples:
            self._last = sorted(samples)[len(samples) // 4]
            self._usual.note(self._last)
