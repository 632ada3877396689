"""Slow disks in the simulation: fixed seeds, and planted bugs that are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sim.scenario import Outcome, run_seed
from sim.slow.failover import STORM, FailoverScenario
from sim.slow.plans import STORMS
from sim.slow.scenario import SlowScenario

from braidlog.metarepo.leader.leadership import Leadership
from braidlog.metarepo.leader.slowness import Slowness, SlownessSettings
from braidlog.metarepo.leader.survey import Survey
from property.cluster.search import first_failure

TRIED_MAX = 8
Patch = pytest.MonkeyPatch


def run(seed: int, plan: str) -> Outcome:
    return run_seed("slow-nodes", SlowScenario, seed, STORMS[plan])


@pytest.mark.parametrize(
    ("seed", "plan"),
    [
        (1, "one"),
        (1, "all"),
        (1, "second"),
        pytest.param(1, "alternating", marks=pytest.mark.slow),
        # A learner was promoted by a leader that had not heard of its disk yet.
        pytest.param(107, "alternating", marks=pytest.mark.slow),
    ],
)
def test_slow_disks(seed: int, plan: str) -> None:
    outcome = run(seed, plan)
    assert outcome.passed, outcome.error


@pytest.mark.soak
@pytest.mark.parametrize("plan", STORMS)
@pytest.mark.parametrize("seed", range(10, 40))
def test_slow_disks_of_more_seeds(seed: int, plan: str) -> None:
    outcome = run(seed, plan)
    assert outcome.passed, outcome.error


@pytest.mark.parametrize("seed", [1])
def test_the_end_of_a_node_does_not_concern_other_streams(seed: int) -> None:
    outcome = run_seed("failover", FailoverScenario, seed, STORM)
    assert outcome.passed, outcome.error


def peers_do_not_count(patch: Patch) -> None:
    """Whoever lags by so many milliseconds is slow, whatever the others do."""

    def wrong(
        self: Slowness, node: int, known: Any, lags: Any, answers: Any
    ) -> bool | None:
        return lags[node] >= self.settings.floor if node in lags else None

    patch.setattr(Slowness, "_lags", wrong)


def one_window_is_enough(patch: Patch) -> None:
    """A node is slow as soon as it lags once."""
    patch.setattr(SlownessSettings, "needed", property(lambda _: 1))


def nobody_comes_back(patch: Patch) -> None:
    """What is slow stays slow."""
    patch.setattr(Slowness, "_is_fast", lambda *_: False)


def slow_ones_are_promoted(patch: Patch) -> None:
    """Repair takes a learner back although its node is slow."""
    look = Survey.__init__

    def wrong(self: Survey, *given: Any, **named: Any) -> None:
        look(self, *given, **named)
        self.unfit = frozenset()

    patch.setattr(Survey, "__init__", wrong)


def a_slow_leader_goes_on(patch: Patch) -> None:
    """The leader of the repository keeps the lead whatever its disk does."""
    patch.setattr(Leadership, "successor", lambda *_: 0)


@pytest.mark.parametrize(
    ("plant", "plan"),
    [
        (peers_do_not_count, "all"),
        (one_window_is_enough, "second"),
        (nobody_comes_back, "one"),
        pytest.param(slow_ones_are_promoted, "one", marks=pytest.mark.slow),
        pytest.param(a_slow_leader_goes_on, "one", marks=pytest.mark.slow),
    ],
)
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None], plan: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    first_failure(lambda seed: run(seed, plan), range(1, TRIED_MAX))
