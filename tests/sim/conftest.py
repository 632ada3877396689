"""A world for each test."""

from collections.abc import Iterator

import pytest
from sim.world import World

from simulated import KEPT


@pytest.fixture
def world() -> Iterator[World]:
    with World(7) as world:
        yield world
    KEPT.clear()
