"""The simulation notices every planted bug."""

import pytest

from braidlog.logstream import ReplicaInvariantError
from property.logstream.checkers import ViolationError
from property.logstream.mutations import PLANTED, Planted
from property.logstream.simulation import STORMS, run

SEEDS = 60  # most are found in the first few


def violates(seed: int, storm: str) -> bool:
    try:
        run(seed, STORMS[storm])
    except (ViolationError, ReplicaInvariantError, AssertionError):
        # An assertion is the storage's, which refuses what breaks its contract.
        return True
    return False


@pytest.mark.parametrize("planted", PLANTED, ids=lambda planted: planted.name)
def test_the_simulation_finds_it(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted.mutate(monkeypatch)
    assert any(violates(seed, planted.storm) for seed in range(SEEDS))
