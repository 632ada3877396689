"""What the leader sees of slow nodes: reports in, verdicts out, window by window."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from braidlog.metarepo.events import Event
from braidlog.metarepo.leader.collector import Collector
from braidlog.metarepo.leader.slowness import Said, Slowness, SlownessSettings
from braidlog.metarepo.machine.state import State
from braidlog.wire.messages import Report

__all__ = ["SlowNodes"]

_LATE_SHARE: Final = 0.25
"""Of a window, for which the leader may have been late itself. A median bears that."""
_NOBODY: Final[frozenset[int]] = frozenset()


class SlowNodes:
    """Soft state of one leader; nobody is slow if the floor is 0."""

    def __init__(
        self, settings: SlownessSettings, collector: Collector, now: float
    ) -> None:
        """Begin to look at what the collector measures."""
        self.measures = settings.floor > 0
        """Whether anything is measured of the reports that the collector takes."""
        self._collector = collector
        self._settings = settings
        self._judge = Slowness(settings, now)
        self._begun = now
        self._late = 0.0

    @property
    def slow(self) -> frozenset[int]:
        """Return the nodes that are slow."""
        return self._judge.slow

    def unfit(self, now: float, nodes: Collection[int]) -> frozenset[int]:
        """Return which of these nodes must not become replicas now."""
        return self._judge.unfit(now, nodes) if self.measures else _NOBODY

    def slow_ms(self, node: int, now: float) -> int:
        """Return for how long a node has been slow, 0 if it is not."""
        seconds = self._judge.slow_for(node, now)
        return max(1, round(seconds * 1000)) if node in self.slow else 0

    def answers(self) -> dict[int, float]:
        """Return how long the nodes took to answer last, in seconds."""
        return self._judge.answers()

    def take_events(self) -> list[Event]:
        """Return which nodes have become slow, or fast again."""
        return self._judge.take_events()

    def says(self, report: Report) -> None:
        """Take what a heartbeat says of the disk of its node."""
        said = Said(report.sync_us / 1e6, report.usual_us / 1e6)
        self._judge.says(report.node, said)

    def forget(self, known: Collection[int]) -> None:
        """Drop nodes that were removed."""
        self._judge.forget(known)

    def passed(
        self, state: State, alive: Callable[[int], bool], now: float, late: float
    ) -> bool:
        """Let time pass; tell whether somebody is slow or fast by it.

        The leader itself is ``late`` by so many seconds, and has measured that, too.
        """
        if not self.measures:
            return False
        self._late += late
        window = now - self._begun
        if window < self._settings.window:
            return False
        late, self._late, self._begun = self._late, 0.0, now
        if late > _LATE_SHARE * self._settings.window:
            self._collector.forget_lags()
            return False
        lags = self._collector.take_lags(state, now, self._settings.floor)
        living = [node for node in state.nodes if alive(node)]
        return self._judge.judge(now, lags, living, lambda: _members(state))


def _members(state: State) -> set[int]:
    return {node for each in state.streams.values() for node in each.replicas}
