"""Which disks are slow when, and what has to follow from that.

A storm of this scenario is the name of a plan: nothing else breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from types import MappingProxyType

from sim.faults import Storm

__all__ = ["PLANS", "STORMS", "Plan"]

_DELAYS_S = (0.02, 0.1)


@dataclass(frozen=True, slots=True)
class Plan:
    """Phases one after the other; each sync of the nodes takes so much longer."""

    nodes: tuple[int, ...]
    # Seconds, and the delay of each sync.
    phases: tuple[tuple[float, float], ...]
    # How often the nodes have to leave, and may, each stream that they are in.
    leaves_min: int = 0
    leaves_max: int = 0
    # Whether appends have to be as fast as before a while after the beginning.
    recovers: bool = False
    # How long everything may take to be whole behind the last phase.
    rest_s: float = 5.0


def _one(random: Random, nodes: Sequence[int]) -> Plan:
    node, delay = random.choice(nodes), random.choice(_DELAYS_S)
    return Plan((node,), ((9.0, delay),), 1, 1, recovers=True, rest_s=20.0)


def _all(random: Random, nodes: Sequence[int]) -> Plan:
    return Plan(tuple(nodes), ((9.0, random.choice(_DELAYS_S)),))


def _second(random: Random, nodes: Sequence[int]) -> Plan:
    node, delay = random.choice(nodes), random.choice(_DELAYS_S)
    return Plan((node,), ((1.0, delay), (4.0, 0.0)))


def _alternating(random: Random, nodes: Sequence[int]) -> Plan:
    """It is slow again as soon as it has come back, and twice as long out then."""
    node, delay = random.choice(nodes), random.choice(_DELAYS_S)
    times = ((4.0, delay), (12.0, 0.0))
    return Plan((node,), 3 * times, 1, 2, rest_s=30.0)


PLANS: Mapping[str, Callable[[Random, Sequence[int]], Plan]] = MappingProxyType(
    {"one": _one, "all": _all, "second": _second, "alternating": _alternating}
)
STORMS: Mapping[str, Storm] = MappingProxyType(
    {name: Storm(name, {}, seconds=1.0) for name in PLANS}
)
