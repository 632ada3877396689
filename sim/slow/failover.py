"""One of five nodes ends: streams without a replica on it must not notice.

Each stream gets one append after the other. What the end of the node does to a stream
is the longest time between two acknowledgements. No processor is simulated, so what
this finds is waiting: for the dead node, for a decision about other streams, for a
connection.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
from random import Random

from sim.cluster.node import name_of
from sim.cluster.shape import Shape
from sim.errors import ViolationError
from sim.faults import Storm
from sim.slow.plans import Plan
from sim.slow.scenario import Feeder, SlowScenario
from sim.world import World

__all__ = ["STORM", "FailoverScenario"]

STORM = Storm("end of a node", {}, seconds=1.0)
_WARM_S = 2.0
_AFTER_S = 2.0
_PAUSE_S = 0.01
_GAP_MEDIAN_S = 0.28
# It takes 0.15 s to know that the node is dead, and two epochs to have a third replica.
_GAP_MAX_S = 0.4
# What the network alone may add to one append: a packet may be late on each hop.
_NOISE_S = 0.1


class FailoverScenario(SlowScenario):
    """See the module."""

    pause_s = _PAUSE_S

    def _planned(self, storm: str, random: Random) -> Plan:
        return Plan((), ())

    def _draw(self, random: Random) -> Shape:
        nodes = (1, 2, 3, 4, 5)
        return Shape(
            nodes=nodes,
            voters=nodes if random.random() < 0.5 else (1, 2, 3),
            streams=10,
            replication=3,
            min_replicas=random.choice([1, 2]),
            clients=1,
            apart=False,
        )

    async def _follow(self, world: World) -> None:
        await asyncio.sleep(_WARM_S)
        placed, leader = self._placed(), self._leads()
        # Cuts wait for the leader, whichever stream they are of.
        able = [node for node in self._shape.nodes if node != leader]
        node = world.random("victim").choice(able)
        at = world.now
        world.crash(name_of(node))
        await asyncio.sleep(_AFTER_S)
        gaps = [
            self._gap(each, at) for each in self._feeders if node in placed[each.stream]
        ]
        slowest = max(gaps, default=0.0)
        if gaps and (statistics.median(gaps) > _GAP_MEDIAN_S or slowest > _GAP_MAX_S):
            raise ViolationError(f"streams stood still for {sorted(gaps)} s")
        for each in self._feeders:
            if node not in placed[each.stream]:
                self._check_untouched(each, at)
        world.note("world", f"streams stood still for {sorted(gaps)} s")

    def _gap(self, feeder: Feeder, at: float) -> float:
        """Return the longest time without an answer around the end of the node."""
        ends = [end for _, end in feeder.times]
        later = [b - a for a, b in itertools.pairwise(ends) if b > at]
        return max(later, default=_AFTER_S)

    def _check_untouched(self, feeder: Feeder, at: float) -> None:
        took = {
            before: [e - b for b, e in feeder.times if (e <= at) == before]
            for before in (True, False)
        }
        for pick, factor, more in (
            (statistics.median, 1.25, 0.0),
            (max, 1.0, _NOISE_S),
        ):
            usual, now = pick(took[True]), pick(took[False])
            if now > factor * usual + more:
                raise ViolationError(
                    f"stream {feeder.stream} has no replica on the node that ended,"
                    f" and its appends take {now * 1e3:.1f} ms by {pick.__name__},"
                    f" {usual * 1e3:.1f} ms before"
                )
