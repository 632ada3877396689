"""The judge of slow nodes against a dumb model, and what holds for any input."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from braidlog.metarepo.leader.slowness import Said, Slowness, SlownessSettings

SETTINGS = SlownessSettings(enter=1.0, leave=2.0)
WINDOW = SETTINGS.window
NODES = (1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Window:
    """What is given for one window."""

    lags: Mapping[int, float]
    alive: tuple[int, ...]
    said: Mapping[int, Said]


times = st.sampled_from([0.0, 0.0005, 0.002, 0.02, 0.1])
windows = st.builds(
    Window,
    st.dictionaries(st.sampled_from(NODES), times),
    st.sets(st.sampled_from(NODES), min_size=1).map(lambda nodes: tuple(sorted(nodes))),
    st.dictionaries(st.sampled_from(NODES), st.builds(Said, times, times), max_size=2),
)
# Each repeated, or nobody would be slow for long.
histories = st.lists(st.tuples(windows, st.integers(1, 12)), max_size=12).map(
    lambda found: [each for each, count in found for _ in range(count)]
)


class Model:
    """Keeps all that was ever given, and computes each answer from the beginning."""

    def __init__(self) -> None:
        self.now = 0.0
        self.said: dict[int, Said] = {}
        self.answers: dict[int, list[float]] = {node: [] for node in NODES}
        self.judged: dict[int, list[tuple[float, bool]]] = {n: [] for n in NODES}
        self.fast: dict[int, list[bool]] = {node: [] for node in NODES}
        self.out: dict[int, float] = {}
        self.relapses = dict.fromkeys(NODES, 0)
        self.back = dict.fromkeys(NODES, -1e9)

    def pass_(self, window: Window) -> frozenset[int]:
        """Return who is slow behind a window."""
        self.now += WINDOW
        self.said |= window.said
        syncs = [self.said[n].sync for n in window.alive if n in self.said]
        syncs = sorted(each for each in syncs if each)
        base = syncs[(len(syncs) - 1) // 2] if syncs else 0.0
        answers = {n: window.lags[n] + base for n in window.alive if n in window.lags}
        candidates = []
        for node in NODES:
            others = [answers[each] for each in answers if each != node]
            compared = node in answers and bool(others)
            longest = sorted(others)[len(others) // 2] if compared else 0.0
            lag = window.lags.get(node, 0.0)
            lags = compared and lag >= 0.01 and answers[node] >= 3 * longest
            usual = usually(self.answers[node])
            said = self.said.get(node, Said(0.0, 0.0))
            says = said.usual > 0 and said.sync >= max(0.01, 3 * max(said.usual, base))
            changed = usual > 0 and node in answers and answers[node] >= 3 * usual
            if node in answers:
                self.answers[node].append(answers[node])
            if node in self.out:
                bad = compared and lag >= 0.005 and answers[node] >= 1.5 * longest
                fast = not bad and said.sync < max(0.005, 1.5 * base)
                if node not in window.alive:
                    self.fast[node] = []
                    continue
                self.fast[node].append(fast)
                self._back(node)
            elif compared and node in window.alive:
                self.judged[node].append((self.now, lags and (changed or says)))
                recent = [
                    each
                    for at, each in self.judged[node][-5:]
                    if self.now - at <= 5 * SETTINGS.enter
                ]
                if sum(recent) >= 4:
                    candidates.append((-answers[node], node))
        for _, node in sorted(candidates):
            if len({*self.out} & {*window.alive}) < (len(window.alive) - 1) // 2:
                soon = self.now - self.back[node] < 60 * SETTINGS.leave
                self.relapses[node] = min(4, self.relapses[node] + 1) if soon else 0
                self.out[node] = self.now
                self.judged[node], self.fast[node] = [], []
        return frozenset(self.out)

    def _back(self, node: int) -> None:
        needed = round(SETTINGS.leave * 2 ** self.relapses[node] / WINDOW)
        fast = 0
        for each in self.fast[node]:
            fast = fast + 1 if each else max(0, fast - 4)
        if fast >= needed:
            del self.out[node]
            self.back[node] = self.now


def usually(times: Sequence[float]) -> float:
    """Return what `Usual` makes of times."""
    if len(times) < 8:
        return 0.0
    value = max(1e-5, statistics.median(times[:8]))
    for each in times[8:]:
        if each > value:
            value *= 1.0005
        elif each < value:
            value = max(1e-5, value * 0.998)
    return value


def run(history: Sequence[Window]) -> list[frozenset[int]]:
    judge, now = Slowness(SETTINGS, 0.0), 0.0
    found: list[frozenset[int]] = []
    for window in history:
        now += WINDOW
        for node, said in window.said.items():
            judge.says(node, said)
        changed = judge.judge(now, window.lags, window.alive, lambda: NODES)
        before = found[-1] if found else frozenset()
        assert changed == (judge.slow != before)
        found.append(judge.slow)
    return found


@given(histories)
def test_it_judges_as_the_model_does(history: list[Window]) -> None:
    model = Model()
    assert run(history) == [model.pass_(window) for window in history]


# One node is slow for a few windows, then fast for a few, and so on.
turns = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 12)), max_size=12)


@given(turns)
def test_it_judges_one_that_is_slow_now_and_then_as_the_model_does(
    found: list[tuple[int, int]],
) -> None:
    fast = Window(dict.fromkeys(NODES, 0.0005), NODES, {})
    slow = Window({**fast.lags, 2: 0.02}, NODES, {})
    history = [fast] * 10
    for lags, calm in found:
        history += [slow] * lags + [fast] * calm
    model = Model()
    assert run(history) == [model.pass_(window) for window in history]


@given(histories)
def test_never_half_of_the_nodes_are_put_out(history: list[Window]) -> None:
    before: frozenset[int] = frozenset()
    for window, slow in zip(history, run(history), strict=True):
        if slow - before:
            assert 2 * len(slow & {*window.alive}) < len(window.alive)
            assert slow - before <= {*window.alive}
        before = slow


@given(histories, st.sampled_from([0.0, 0.02]))
def test_calm_brings_everybody_back(history: list[Window], lag: float) -> None:
    """After so much time in which all are alike, whatever came before."""
    calm = Window(
        dict.fromkeys(NODES, lag), NODES, dict.fromkeys(NODES, Said(0.001, 0.001))
    )
    longest = SETTINGS.leave * 16 + 2 * WINDOW
    found = run([*history, *[calm] * round(longest / WINDOW)])
    assert found[-1] == frozenset()


@given(histories, st.sampled_from(NODES))
def test_one_that_never_lags_is_never_slow(history: list[Window], node: int) -> None:
    fast = [Window({**each.lags, node: 0.0}, each.alive, each.said) for each in history]
    assert all(node not in slow for slow in run(fast))


@given(st.permutations(NODES), histories)
def test_numbers_of_nodes_mean_nothing_but_in_a_tie(
    order: list[int], history: list[Window]
) -> None:
    names = dict(zip(NODES, order, strict=True))
    # Lags that all differ: then the slowest one is always the same.
    distinct = [
        Window(
            {n: lag * (1 + n / 1000) + n * 1e-7 for n, lag in each.lags.items()},
            each.alive,
            each.said,
        )
        for each in history
    ]
    renamed = [
        Window(
            {names[n]: lag for n, lag in each.lags.items()},
            tuple(sorted(names[n] for n in each.alive)),
            {names[n]: said for n, said in each.said.items()},
        )
        for each in distinct
    ]
    expected = [frozenset(names[n] for n in slow) for slow in run(distinct)]
    assert run(renamed) == expected
