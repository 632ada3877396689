"""Who is slow, window by window; the lags and the words of nodes are given."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from braidlog.errors import InvalidArgumentError
from braidlog.metarepo.leader.slowness import Said, Slowness, SlownessSettings

WINDOW = 0.25
FAST = {1: 0.001, 2: 0.0, 3: 0.002}
NOBODY: frozenset[int] = frozenset()


class Judged:
    """A judge and its clock."""

    def __init__(self, nodes: int = 3, *, says: bool = True) -> None:
        self.now = 100.0
        self.judge = Slowness(SlownessSettings(), self.now)
        self.alive = list(range(1, nodes + 1))
        self.members = set(self.alive)
        if says:
            for node in self.alive:
                self.says(node, 0.001, 0.001)

    def says(self, node: int, sync: float, usual: float) -> None:
        self.judge.says(node, Said(sync, usual))

    def pass_(self, seconds: float, lags: Mapping[int, float]) -> frozenset[int]:
        """Judge windows with these lags; return who is slow at the end."""
        for _ in range(round(seconds / WINDOW)):
            self.now += WINDOW
            self.judge.judge(self.now, lags, self.alive, lambda: self.members)
        return self.judge.slow

    def names(self) -> list[str]:
        return [event.name for event in self.judge.take_events()]


@pytest.mark.parametrize("delay", [0.02, 0.1])
def test_a_node_that_lags_is_slow_after_two_seconds(delay: float) -> None:
    judged = Judged()
    judged.pass_(10, FAST)
    slow = FAST | {2: delay}
    assert judged.pass_(1.75, slow) == NOBODY
    assert judged.pass_(0.25, slow) == {2}
    (event,) = judged.judge.take_events()
    assert event.name == "node_slow"
    assert event.warning
    assert f"durable after {delay * 1e3 + 1:.1f} ms" in event.text
    # It is told once, not as long as it is so.
    judged.pass_(5, FAST)
    assert judged.names() == []


def test_one_that_is_busy_for_a_second_is_left_alone() -> None:
    judged = Judged()
    judged.pass_(10, FAST)
    for _ in range(10):
        judged.pass_(1.25, FAST | {2: 0.3})
        assert judged.pass_(3, FAST) == NOBODY


def test_where_all_are_slow_nobody_is() -> None:
    judged = Judged()
    judged.pass_(10, FAST)
    for node in (1, 2, 3):
        judged.says(node, 0.05, 0.001)
    assert judged.pass_(30, {1: 0.03, 2: 0.0, 3: 0.04}) == NOBODY


def test_one_that_was_never_faster_is_not_slow() -> None:
    """A node at another place: what it says of its syncs is as on the others."""
    judged = Judged()
    assert judged.pass_(60, FAST | {3: 0.03}) == NOBODY


def test_a_new_leader_takes_the_history_that_a_node_says() -> None:
    judged = Judged()
    judged.says(3, 0.03, 0.001)
    assert judged.pass_(2, FAST | {3: 0.03}) == {3}


def test_what_a_node_says_of_itself_is_not_enough() -> None:
    judged = Judged()
    judged.says(3, 0.03, 0.001)
    assert judged.pass_(10, FAST) == NOBODY
    assert judged.pass_(10, {}) == NOBODY
    # Where it has no replica there is nothing else.
    judged.members = {1, 2}
    assert judged.pass_(1.75, {}) == NOBODY
    assert judged.pass_(WINDOW, {}) == {3}


def test_one_that_left_its_epoch_and_answered_alone_is_judged_by_what_it_says() -> None:
    judged = Judged()
    judged.members = {1, 2}
    judged.says(3, 0.03, 0.001)
    # It was the first of its stream, and nobody else was heard in the window.
    alone = {3: 0.0}
    assert judged.pass_(WINDOW, alone) == {3}
    (event,) = judged.judge.take_events()
    assert "it says that its syncs take 30.0 ms, usually 1.0 ms" in event.text


def test_one_that_is_in_an_epoch_and_answers_alone_is_not_judged() -> None:
    judged = Judged()
    judged.pass_(10, FAST)
    judged.says(3, 0.03, 0.001)
    assert judged.pass_(10, {3: 0.03}) == NOBODY


def test_what_a_node_says_keeps_it_out_under_a_new_leader() -> None:
    judged = Judged()
    nodes = (1, 2, 3, 4)
    # Node 4 has not said yet how it is.
    assert judged.judge.unfit(judged.now, nodes) == {4}
    judged.says(3, 0.03, 0.001)
    assert judged.judge.unfit(judged.now, nodes) == {3, 4}
    judged.pass_(5, FAST)
    assert judged.judge.unfit(judged.now, nodes) == NOBODY


def test_a_new_leader_keeps_out_whom_the_one_before_put_out() -> None:
    judged = Judged()
    judged.members = {1, 2}
    judged.says(3, 0.03, 0.001)
    assert judged.pass_(WINDOW, {}) == {3}
    judged.says(3, 0.001, 0.001)
    assert judged.pass_(9.5, {}) == {3}
    assert judged.pass_(1, {}) == NOBODY


def test_small_lags_and_small_differences_are_nothing() -> None:
    judged = Judged()
    judged.pass_(10, {1: 0.0, 2: 0.0001, 3: 0.0001})
    assert judged.pass_(10, {1: 0.0, 2: 0.0001, 3: 0.009}) == NOBODY
    for node in (1, 2, 3):
        judged.says(node, 0.03, 0.03)
    # A lag of half a sync of all disks.
    assert judged.pass_(10, {1: 0.0, 2: 0.001, 3: 0.015}) == NOBODY


@pytest.mark.parametrize(("nodes", "most"), [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2)])
def test_fewer_than_half_are_slow(nodes: int, most: int) -> None:
    judged = Judged(nodes)
    fast = dict.fromkeys(judged.alive, 0.0)
    judged.pass_(10, fast)
    assert len(judged.pass_(10, fast | {1: 0.02, 2: 0.05})) <= most
    if most == 1 and nodes > 3:
        assert judged.judge.slow == {2}  # The slower one.


def test_dead_nodes_do_not_count_as_left() -> None:
    judged = Judged(5)
    fast = dict.fromkeys(judged.alive, 0.0)
    judged.pass_(10, fast)
    judged.alive = [1, 2, 3]
    assert len(judged.pass_(10, {1: 0.02, 2: 0.05, 3: 0.0})) <= 1


def test_it_comes_back_when_it_was_fast_for_ten_seconds() -> None:
    judged = Judged()
    judged.pass_(10, FAST)
    judged.pass_(2, FAST | {2: 0.02})
    judged.says(2, 0.02, 0.001)
    assert judged.pass_(60, {}) == {2}
    judged.says(2, 0.001, 0.001)
    assert judged.pass_(9.5, {}) == {2}
    judged.says(2, 0.02, 0.001)
    # A busy moment takes back four times as long, not all of it.
    judged.pass_(WINDOW, {})
    judged.says(2, 0.001, 0.001)
    assert judged.pass_(1.25, {}) == {2}
    assert judged.pass_(WINDOW, {}) == NOBODY
    assert judged.names() == ["node_slow", "node_fast"]


def test_one_that_is_slow_again_soon_is_out_for_twice_as_long() -> None:
    judged = Judged()
    judged.pass_(10, FAST)
    out: list[float] = []
    for _ in range(7):
        judged.pass_(2.5, FAST | {2: 0.02})
        assert judged.judge.slow == {2}
        begun = judged.now
        while judged.pass_(WINDOW, {}):
            assert judged.now - begun < 1000
        out.append(judged.now - begun)
    assert out == [10.0, 20.0, 40.0, 80.0, 160.0, 160.0, 160.0]
    judged.pass_(700, FAST)
    judged.pass_(2, FAST | {2: 0.02})
    assert judged.pass_(10, {}) == NOBODY


def test_a_node_that_is_dead_meanwhile_is_not_fast() -> None:
    judged = Judged()
    judged.pass_(10, FAST)
    judged.pass_(2, FAST | {2: 0.02})
    judged.pass_(5, {})
    judged.alive = [1, 3]
    judged.pass_(20, {})
    judged.alive = [1, 2, 3]
    assert judged.pass_(9, {}) == {2}
    assert judged.pass_(1, {}) == NOBODY


def test_a_removed_node_is_forgotten() -> None:
    judged = Judged()
    judged.pass_(10, FAST)
    judged.pass_(2, FAST | {2: 0.02})
    judged.judge.forget({1, 3})
    assert judged.judge.slow == NOBODY
    assert judged.judge.slow_for(2, judged.now) == 0.0


def test_how_long_it_is_slow() -> None:
    judged = Judged()
    judged.pass_(10, FAST)
    judged.pass_(3, FAST | {2: 0.02})
    assert judged.judge.slow_for(2, judged.now) == pytest.approx(1.0)
    assert judged.judge.slow_for(1, judged.now) == 0.0


@pytest.mark.parametrize(
    "wrong",
    [{"floor": -0.1}, {"window": 3.0}, {"window": 0.0}, {"leave": 0.1}, {"factor": 1}],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidArgumentError):
        SlownessSettings(**wrong)
