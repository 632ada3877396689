"""Hosts in the simulation: fixed seeds, and planted bugs that have to be found."""

import io
from dataclasses import replace

import pytest
from sim.applications.scenario import ApplicationScenario
from sim.faults import Storm
from sim.scenario import Outcome, run_seed

from property.cluster.planted_applications import PLANTED
from property.cluster.search import first_failure
from sim import __main__ as command

TRIED_MAX = 10
# Of bugs that show in few seeds.
TRIED_SLOW_MAX = 40


def run(seed: int, storm: Storm, out: io.StringIO | None = None) -> Outcome:
    return run_seed("applications", ApplicationScenario, seed, storm, out=out)


def storm_of(name: str, seconds: float = 3.0) -> Storm:
    return replace(command.storm_of("applications", name), seconds=seconds)


@pytest.mark.parametrize(
    ("seed", "storm"),
    [
        (3, "kills"),
        # Databases of which a loss of power took back one more than another.
        (13, "blackouts"),
        # Leaders whose clocks are hours apart, and a host whose place must be kept.
        (61, "blackouts"),
    ],
)
def test_an_application_keeps_its_promises(seed: int, storm: str) -> None:
    outcome = run(seed, storm_of(storm))
    assert outcome.passed, outcome.error


@pytest.mark.slow
def test_a_seed_that_found_something() -> None:
    # Outcomes that an idle host logged after the last look at it were no violation.
    outcome = run(100398, command.storm_of("applications", "blackouts"))
    assert outcome.passed, outcome.error


def test_threads_follow_the_seed() -> None:
    traces = [io.StringIO(), io.StringIO()]
    outcomes = [run(7, storm_of("kills", 1.0), trace) for trace in traces]
    assert outcomes[0].passed, outcomes[0].error
    assert traces[0].getvalue() == traces[1].getvalue() != ""
    assert outcomes[0] == outcomes[1]


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    "bug",
    [
        pytest.param(name, marks=pytest.mark.slow if planted.slow else ())
        for name, planted in PLANTED.items()
    ],
)
def test_a_planted_bug_of_a_host_is_found(
    bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = PLANTED[bug]
    planted.plant(monkeypatch)
    tried = TRIED_SLOW_MAX if planted.slow else TRIED_MAX
    first_failure(
        lambda seed: run(seed, planted.storm), (*planted.seeds, *range(1, tried))
    )
