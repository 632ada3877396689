"""How big a cluster is, who votes in it, and where its log lies."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

__all__ = ["Shape", "draw_shape"]

_APART = 0.3
_FIVE = 0.15


@dataclass(frozen=True, slots=True)
class Shape:
    """One cluster with one log."""

    nodes: tuple[int, ...]
    voters: tuple[int, ...]
    streams: int
    replication: int
    min_replicas: int
    # Clients of the log, beside whoever runs the cluster.
    clients: int
    # Whether the replicas begin on nodes that do not vote.
    apart: bool
    kind: str = "streams"


def draw_shape(random: Random, *, apart: bool | None = None) -> Shape:
    """Draw a cluster; `apart` decides what is drawn otherwise.

    Where voters hold the replicas, a cut lies in the same log on the disk as the
    records it commits: the sync of the one is that of the others, and hides whoever
    forgot to wait for it. Apart from one another they show what each promises alone.
    """
    drawn = random.random()
    if apart is None:
        apart = drawn < _APART
    many = apart or drawn < _APART + _FIVE
    nodes = tuple(range(1, 6 if many else 4))
    voters = nodes if not apart and random.random() < 0.5 else (1, 2, 3)
    replication = 2 if apart else random.choice([2, 3, 3, 3])
    return Shape(
        nodes=nodes,
        voters=voters,
        streams=random.randint(1, 2 if apart else 3),
        replication=replication,
        min_replicas=random.choice([1, 2, 2]),
        clients=random.choice([1, 2, 2, 3]),
        apart=apart,
    )
