"""The whole of it under faults: losses, crashes, partitions, commands."""

import pytest

from property.metarepo.simulation import Simulation


@pytest.mark.parametrize("seed", [1, 6, 12])
def test_nothing_is_lost_and_everything_comes_to_rest(seed: int) -> None:
    world = Simulation(seed)
    world.play()
    assert len(world.checker.acknowledged) > 100
