"""Groups of nodes in a storm keep the rules of Raft and come to rest afterwards.

`BRAIDLOG_RAFT_SEEDS=1000` runs more seeds. A violation names its seed and its storm:
`property.raft.simulation.run(seed, storm=STORMS[name])` repeats it.
"""

import os

import pytest

from property.raft.simulation import STORMS, Simulation, run

SEEDS = int(os.environ.get("BRAIDLOG_RAFT_SEEDS", "25"))


@pytest.mark.timeout(60 + SEEDS)
@pytest.mark.parametrize("name", STORMS)
def test_storm(name: str) -> None:
    commits = reads = terms = 0
    for seed in range(SEEDS):
        facts = run(seed, storm=STORMS[name]).facts
        commits += facts.commit
        reads += facts.read_count
        terms += max(facts.leaders, default=0)
    # It was worth the time: things happened.
    assert commits > 15 * SEEDS
    assert reads > 5 * SEEDS
    assert terms > 2 * SEEDS


def trace(seed: int) -> str:
    simulation = Simulation(seed, STORMS["everything"])
    simulation.run(200)
    return simulation.trace.hexdigest()


def test_a_seed_repeats_its_trace() -> None:
    assert trace(5) == trace(5)
    assert trace(5) != trace(6)
