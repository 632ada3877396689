"""A shard in the simulated cluster: fixed seeds, in storms of all kinds."""

from __future__ import annotations

import pytest
from sim.cluster.shards import ShardScenario
from sim.cluster.storms import SHARD_STORMS
from sim.scenario import Outcome, run_seed


def run(seed: int, storm: str) -> Outcome:
    return run_seed("shards", ShardScenario, seed, SHARD_STORMS[storm])


@pytest.mark.parametrize(
    ("seed", "storm"),
    [
        (1, "crashes"),
        (2, "all"),
        pytest.param(3, "partitions", marks=pytest.mark.slow),
        pytest.param(4, "full", marks=pytest.mark.slow),
        pytest.param(5, "pauses", marks=pytest.mark.slow),
        pytest.param(8001, "losses", marks=pytest.mark.slow),
        pytest.param(107, "rot", marks=pytest.mark.slow),
    ],
)
def test_storms(seed: int, storm: str) -> None:
    outcome = run(seed, storm)
    assert outcome.passed, outcome.error


@pytest.mark.soak
@pytest.mark.parametrize("storm", SHARD_STORMS)
@pytest.mark.parametrize("seed", range(10, 30))
def test_more_storms(seed: int, storm: str) -> None:
    outcome = run(seed, storm)
    assert outcome.passed, outcome.error
