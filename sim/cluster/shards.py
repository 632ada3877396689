"""A cluster whose log is a shard: the same clients, checkers and storms."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Final

from braidlog.node.config import NodeConfig
from sim.cluster.scenario import ClusterScenario
from sim.cluster.shape import Shape
from sim.faults import Storm
from sim.world import World

_ACTIONS: Final = (
    "trim",
    "restart",
    "side log",
    "vote",
    "drain",
    "move",
    "move",
    "grow",
    "shrink",
)
"""What can be done to a shard, and to the repository beside it."""
_REPAIR_MS: Final = 1_000


class ShardScenario(ClusterScenario):
    """Members come and go; what is damaged in a member's log is not mended."""

    def build(self, world: World, storm: Storm) -> None:
        """Start the nodes."""
        self._actions = storm.actions or _ACTIONS
        super().build(world, storm)

    def _config(self, number: int) -> NodeConfig:
        config = super()._config(number)
        timing = replace(config.timing, shard_repair_ms=_REPAIR_MS)
        return replace(config, timing=timing)

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
