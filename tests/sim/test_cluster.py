"""The cluster in the simulation: fixed seeds, seeds that found something, planted bugs.

Seeds of planted bugs and found ones may be others with another version of Python, so
those of planted bugs are tried one after the other.
"""

import io
from dataclasses import replace

import pytest
from sim.cluster.scenario import ClusterScenario
from sim.faults import Storm
from sim.scenario import Outcome, run_seed

from braidlog.logstream import committer
from property.cluster.planted import PLANTED
from property.cluster.search import first_failure
from sim import __main__ as command

TRIED_MAX = 15
# Of bugs that show in few seeds; only a soak looks for them.
TRIED_SLOW_MAX = 60


def run(
    seed: int,
    storm: Storm,
    out: io.StringIO | None = None,
    *,
    apart: bool | None = None,
) -> Outcome:
    def scenario() -> ClusterScenario:
        return ClusterScenario(apart=apart)

    return run_seed("cluster", scenario, seed, storm, out=out)


def storm_of(name: str, seconds: float = 2.0) -> Storm:
    return replace(command.storm_of("cluster", name), seconds=seconds)


@pytest.mark.parametrize(
    ("seed", "storm"),
    [
        (1, "calm"),
        (2, "crashes"),
        (3, "all"),
        (5, "partitions"),
        (1, "strangers"),
        (1, "changes"),
    ],
)
def test_a_cluster_keeps_its_promises(seed: int, storm: str) -> None:
    outcome = run(seed, storm_of(storm))
    assert outcome.passed, outcome.error


def test_a_seed_run_twice_gives_the_same_trace() -> None:
    traces = [io.StringIO(), io.StringIO()]
    outcomes = [run(8, storm_of("all", 1.5), trace) for trace in traces]
    assert outcomes[0].passed, outcomes[0].error
    assert outcomes[0] == outcomes[1]
    assert traces[0].getvalue() == traces[1].getvalue() != ""


# The code has changed since, and with it what happens under most of them.
FOUND = [
    # A node that was not told of a stream yet ended appends to it for good.
    (20, "connections"),
    (21, "frames"),
    # A batch that a trim went through was refused to a learner, for ever.
    (7, "clocks"),
    (41, "pauses"),
    (44, "all"),
    (50, "pauses"),
    # A connection whose reset a cut link lost was never found dead.
    (242, "all"),
    # A greeting that was never answered was waited for, for ever.
    (1069, "all"),
    # A replica that became a learner unheard was never told again.
    (22, "deaf"),
    # A node that was added in the storm was never started again after an outage.
    (20468, "all"),
    # Clients that looked with TLS at what listens, which the network did not know.
    (20116, "crashes"),
    (20210, "connections"),
    (20792, "all"),
    (20805, "outages"),
    # A node that did not vote said that it lives to voters of its settings only.
    (30859, "clocks"),
    (30871, "clocks"),
    # A voter that started again could not answer a leader that it did not know.
    (33453, "outages"),
    # A simulated producer repeated what was stored and trimmed, for ever.
    (77171, "deaf"),
    # A leader at rest took its seldom ticks for delays, so no slow node was fast again.
    (500085, "full"),
    # A voter that was sent more than fits into a batch of small segments.
    (136, "full"),
    (5, "rot"),
]
# One of each storm is enough for each change.
SHORT = {storm: (seed, storm) for seed, storm in FOUND}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "storm"),
    [
        pytest.param(*each, marks=() if each in SHORT.values() else pytest.mark.soak)
        for each in FOUND
    ],
)
def test_a_seed_that_found_something(seed: int, storm: str) -> None:
    outcome = run(seed, command.storm_of("cluster", storm))
    assert outcome.passed, outcome.error


@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(name, marks=pytest.mark.soak if planted.slow else ())
        for name, planted in PLANTED.items()
    ],
)
def test_a_planted_bug_is_found(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = PLANTED[bug]
    planted.plant(monkeypatch)
    tried = TRIED_SLOW_MAX if planted.slow else TRIED_MAX
    first_failure(
        lambda seed: run(seed, planted.storm, apart=planted.apart),
        (*planted.seeds, *range(1, tried)),
    )


def test_bugs_on_replicas_apart_from_the_voters_are_found_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There no sync of an entry of the repository hides that one was left out."""
    planted = PLANTED["report before the sync"]
    # Without the checks of the code itself: the simulation has to see it.
    monkeypatch.setattr(committer, "fail", lambda reason: None)
    planted.plant(monkeypatch)
    found = [run(seed, planted.storm, apart=True) for seed in (2, 18, 35)]
    errors = [outcome.error for outcome in found if not outcome.passed]
    assert any("ViolationError" in error for error in errors), errors
