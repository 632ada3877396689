"""Which nodes are slow, as the leader judges it.

*Theory of operation.* Time is cut into windows. In a window a node *lags* if the median
of its lags (`braidlog.metarepo.leader.answers`) is at least `floor`, and its answers
take `factor` times as long as those of more than half of the other nodes, and
`factor` times as long as they usually do. An answer is the lag and what a sync takes in
this cluster: on slow disks the same lag means less. A node that lags in most windows of
a while is *slow*: the streams go on without it, as without a dead one
(`braidlog.metarepo.leader.repair`). One that is merely busy for a second lags in too
few windows. Where all are slow nobody takes longer than the others.

Nodes also say in their reports how long their own syncs take now, and usually. A leader
that is new knows no history and takes theirs; and a node that is in no epoch has
nothing else by which it could be judged, until its syncs are fast again. What a node
says speaks against nobody but itself, and never alone against a replica in an epoch.

A slow node is fast again when it has been for `leave` seconds: neither its lags nor
what it says is slow, by half of the bounds. A window that is not takes four others
back. One that comes back and is slow again soon has to
be fast for twice as long the next time, up to `_RELAPSES_MAX` times.

*Invariants.* Fewer than half of the nodes that live are slow at a time, so one that
lies or is confused cannot put the others out.
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from braidlog.errors import InvalidArgumentError
from braidlog.metarepo.events import Event, Value
from braidlog.metarepo.leader.usual import Usual

__all__ = ["Said", "Slowness", "SlownessSettings"]

_RELAPSES_MAX: Final = 4
_TAKEN_BACK: Final = 4
"""Fast windows that one which is not takes back: on a busy machine there are a few."""
_SOON: Final = 60
"""One that is slow again within so many times `leave` has relapsed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlownessSettings:
    """Seconds."""

    floor: float = 0.010
    """A smaller lag is never slow; 0: nobody is judged."""
    enter: float = 2.0
    """For so long a node has to lag."""
    leave: float = 10.0
    """For so long it has to be fast again."""
    window: float = 0.25
    factor: float = 3.0

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            InvalidArgumentError: a time is negative, or a window is longer than what
                it is a part of.
        """
        if self.floor < 0 or not 0 < self.window <= min(self.enter, self.leave):
            msg = "floor must not be negative, and enter and leave at least one window"
            raise InvalidArgumentError(msg)
        if self.factor <= 1:
            raise InvalidArgumentError(f"factor = {self.factor} must be more than 1")

    @property
    def needed(self) -> int:
        """Return in how many windows a node has to lag."""
        return math.ceil(self.enter / self.window)

    @property
    def windows(self) -> int:
        """Return of how many these are."""
        return self.needed + self.needed // 4

    @property
    def memory(self) -> float:
        """Return for how long a window counts: a node may be used now and then."""
        return 5 * self.enter


class Said(NamedTuple):
    """What a node says of its own syncs, in seconds; 0: not known."""

    sync: float
    usual: float


@dataclass(slots=True)
class _Node:
    """What is remembered of one node."""

    usual: Usual = field(default_factory=Usual)
    windows: deque[tuple[float, bool]] = field(default_factory=deque)
    """When it was judged, and whether it lagged."""
    slow_since: float | None = None
    fast: int = 0
    """Windows in which it was fast since, less those that were taken back."""
    relapses: int = 0
    back: float = -math.inf
    """When it was fast again last."""
    answer: float = 0.0
    """How long its answers took in the last window in which there were any."""


class Slowness:
    """Soft state of one leader; see the module."""

    def __init__(self, settings: SlownessSettings, now: float) -> None:
        """Begin to judge: nobody is slow."""
        self.settings = settings
        self._nodes: dict[int, _Node] = {}
        self._said: dict[int, Said] = {}
        self._events: list[Event] = []
        self._began = now
        self._base = 0.0
        self.slow: frozenset[int] = frozenset()
        """The nodes that are slow."""

    # --- what there is to see

    def unfit(self, now: float, nodes: Collection[int]) -> frozenset[int]:
        """Return which of these nodes must not become replicas now."""
        if not self._is_young(now):
            return self.slow
        # Whoever led before may have put them out, also those that say it in a moment.
        said = self._said
        return self.slow.union(n for n in nodes if n not in said or self._says_slow(n))

    def _is_young(self, now: float) -> bool:
        return now < self._began + 2 * self.settings.enter

    def slow_for(self, node: int, now: float) -> float:
        """Return for how many seconds a node has been slow, 0 if it is not."""
        known = self._nodes.get(node)
        if known is None or known.slow_since is None:
            return 0.0
        return max(0.0, now - known.slow_since)

    def answers(self) -> dict[int, float]:
        """Return how long nodes took to answer when there was something to answer."""
        return {n: each.answer for n, each in self._nodes.items() if each.answer}

    def take_events(self) -> list[Event]:
        """Return which nodes have become slow, or fast again."""
        events, self._events = self._events, []
        return events

    # --- inputs

    def says(self, node: int, said: Said) -> None:
        """Take what a node says of its own syncs."""
        self._said[node] = said

    def forget(self, known: Collection[int]) -> None:
        """Drop nodes that were removed."""
        for gone in self._nodes.keys() - set(known):
            del self._nodes[gone]
        for gone in self._said.keys() - set(known):
            del self._said[gone]
        self.slow &= set(known)

    # --- judging

    def judge(
        self,
        now: float,
        lags: Mapping[int, float],
        alive: Collection[int],
        members: Callable[[], Collection[int]],
    ) -> bool:
        """Judge a window that ends now; tell whether somebody is slow or fast by it.

        ``lags`` are those of the window, ``alive`` the nodes that live, ``members``
        gives those that have a replica in an epoch.
        """
        self._base = _lower(
            said.sync for n in alive if (said := self._said.get(n)) and said.sync
        )
        answers = {n: lags[n] + self._base for n in alive if n in lags}
        lagging: dict[int, float] = {}
        before = self.slow
        for gone in self._nodes.keys() - set(alive):
            self._nodes[gone].fast = 0
        for node in sorted(alive):
            known = self._nodes.setdefault(node, _Node())
            lags_now = self._lags(node, known, lags, answers)
            out = False
            if lags_now is None and self._says_slow(node) and node not in members():
                # There is nothing else to judge it by. If it was put out before this
                # node led, it does not come back for a moment in which it is fast.
                lags_now, out = True, self._is_young(now)
            if node in answers:
                known.answer = answers[node]
                known.usual.note(answers[node])
            if known.slow_since is not None:
                self._recover(node, known, now, lags, answers)
            elif lags_now is not None and (
                self._count(known, now, lags=lags_now) or out
            ):
                lagging[node] = answers.get(node, 0.0)
        self._put_out(lagging, answers, alive, now)
        return self.slow != before

    def _lags(
        self,
        node: int,
        known: _Node,
        lags: Mapping[int, float],
        answers: Mapping[int, float],
    ) -> bool | None:
        """Tell whether a node lags in this window, None if that cannot be said."""
        others = _others(node, answers)
        if others is None:
            return None
        settings, answer = self.settings, answers[node]
        behind = lags[node] >= settings.floor and answer >= settings.factor * others
        usual = known.usual.seconds
        changed = bool(usual) and answer >= settings.factor * usual
        return behind and (changed or self._says_slow(node))

    def _says_slow(self, node: int) -> bool:
        said, settings = self._said.get(node), self.settings
        if said is None or not said.usual:
            return False
        longer = settings.factor * max(said.usual, self._base)
        return said.sync >= max(settings.floor, longer)

    def _count(self, known: _Node, now: float, *, lags: bool) -> bool:
        """Note a window; tell whether the node lagged in most of the last ones."""
        settings, windows = self.settings, known.windows
        windows.append((now, lags))
        while len(windows) > settings.windows or now - windows[0][0] > settings.memory:
            windows.popleft()
        return sum(lagged for _, lagged in windows) >= settings.needed

    def _put_out(
        self,
        lagging: Mapping[int, float],
        answers: Mapping[int, float],
        alive: Collection[int],
        now: float,
    ) -> None:
        """Take for slow those that lag, the slowest first, while enough are left."""
        most = (len(alive) - 1) // 2
        for node in sorted(lagging, key=lambda node: (-lagging[node], node)):
            if len(self.slow & set(alive)) >= most:
                return
            known = self._nodes[node]
            soon = now - known.back < _SOON * self.settings.leave
            known.relapses = min(known.relapses + 1, _RELAPSES_MAX) if soon else 0
            known.slow_since, known.fast = now, 0
            known.windows.clear()
            self.slow |= {node}
            self._events.append(self._told_slow(node, known, answers))

    def _told_slow(
        self, node: int, known: _Node, answers: Mapping[int, float]
    ) -> Event:
        said = self._said.get(node, Said(0.0, 0.0))
        others = _others(node, answers)
        # Where it was compared with nobody it was judged by what it says alone, also if
        # it answered itself: it may have left its epoch in this window.
        if others is not None:
            text = (
                f"node {node} is slow: its replicas are durable after"
                f" {_ms(known.answer)}, usually {_ms(known.usual.seconds)}, those of"
                f" the other nodes after {_ms(others)}"
            )
        else:
            text = (
                f"node {node} is slow: it says that its syncs take {_ms(said.sync)},"
                f" usually {_ms(said.usual)}"
            )
        fields: dict[str, Value] = {
            "peer": node,
            "answer_us": round(known.answer * 1e6),
            "sync_us": round(said.sync * 1e6),
        }
        return Event("node_slow", text, fields, warning=True)

    # --- being fast again

    def _recover(
        self,
        node: int,
        known: _Node,
        now: float,
        lags: Mapping[int, float],
        answers: Mapping[int, float],
    ) -> None:
        """Look whether a slow node has been fast for long enough."""
        if not self._is_fast(node, lags, answers):
            known.fast = max(0, known.fast - _TAKEN_BACK)
            return
        known.fast += 1
        settings = self.settings
        if known.fast * settings.window < settings.leave * 2.0**known.relapses:
            return
        seconds = self.slow_for(node, now)
        known.slow_since, known.back = None, now
        self.slow -= {node}
        text = f"node {node} is fast again, after {seconds:.1f} s"
        self._events.append(Event("node_fast", text, {"peer": node}))

    def _is_fast(
        self, node: int, lags: Mapping[int, float], answers: Mapping[int, float]
    ) -> bool:
        """Tell whether nothing speaks against a node, by half of the bounds."""
        floor, factor = self.settings.floor / 2, max(1.5, self.settings.factor / 2)
        others = _others(node, answers)
        if others is not None:
            longer = answers[node] >= factor * others
            if lags[node] >= floor and longer:
                return False
        said = self._said.get(node)
        return said is None or said.sync < max(floor, factor * self._base)


def _others(node: int, answers: Mapping[int, float]) -> float | None:
    """Return how long the other nodes take to answer, None if nothing can be compared.

    It is the median, of two the greater: most of them take no longer than that.
    """
    others = [answers[each] for each in answers if each != node]
    return statistics.median_high(others) if node in answers and others else None


def _lower(times: Iterable[float]) -> float:
    """Return the median, of two the smaller; 0 of none."""
    found = list(times)
    return statistics.median_low(found) if found else 0.0


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"
