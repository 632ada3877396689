"""A cluster whose log is a shard: the same clients, checkers and storms."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from sim.cluster.scenario import ClusterScenario
from sim.cluster.shape import Shape
from sim.faults import Storm
from sim.world import World

_ACTIONS: Final = ("trim", "restart", "side log", "vote")
"""What can be done to a shard, and to the repository beside it."""


class ShardScenario(ClusterScenario):
    """Members do not change, so nodes are neither drained nor given other disks."""

    def build(self, world: World, storm: Storm) -> None:
        """Start the nodes."""
        self._actions = _ACTIONS
        super().build(world, storm)

    def _draw(self, random: Random) -> Shape:
        shape = super()._draw(random)
        most = len(shape.nodes)
        members = random.choice([n for n in (1, 2, 3, 3, 5) if n <= most])
        return replace(
            shape,
            streams=1,
            replication=members,
            min_replicas=members // 2 + 1,
            apart=False,
            kind="shard",
        )
