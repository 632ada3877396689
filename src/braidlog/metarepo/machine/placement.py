"""Where replicas go: to the nodes that have the fewest, the same on every node.

*Invariants.* The replicas of a stream are on distinct nodes. Primaries are spread by
their own count, so that a node with few replicas does not lead all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from braidlog.errors import InvalidArgumentError, UnavailableError
from braidlog.metarepo.machine.state import State


class Loads:
    """How many replicas and primaries each node has."""

    def __init__(self, state: State) -> None:
        """Count what is there, and what is on its way."""
        self.replicas: Counter[int] = Counter()
        self.primaries: Counter[int] = Counter()
        for stream in state.streams.values():
            self.replicas.update({*stream.replicas, *stream.learners})
            self.primaries[stream.replicas[0]] += 1
        for shard in state.shards.values():
            self.replicas.update(shard.nodes)
            self.primaries[shard.leader or shard.nodes[0]] += 1

    def lightest(self, nodes: Iterable[int]) -> list[int]:
        """Return the nodes, those with the fewest replicas first."""
        return sorted(nodes, key=lambda node: (self.replicas[node], node))

    def primary(self, nodes: Iterable[int]) -> int:
        """Return the node that leads the fewest streams."""
        return min(nodes, key=lambda node: (self.primaries[node], node))


def require_nodes(
    nodes: Collection[int], replication: int, fewest: int, *, allow_missing: bool
) -> None:
    """Refuse more replicas than a cluster of these nodes can ever have.

    With ``allow_missing`` it only needs the nodes for ``fewest`` replicas.

    Raises:
        InvalidArgumentError: there are too few nodes.
    """
    count = len(nodes)
    have = f"the cluster has {count} node{'s' if count != 1 else ''}"
    if fewest > count:
        raise InvalidArgumentError(
            f"{have}, but replication is {replication} and min_replicas {fewest}: the "
            f"log could not take appends. Start {fewest - count} more, or ask for at "
            f"most {count}"
        )
    if replication > count and not allow_missing:
        raise InvalidArgumentError(
            f"{have}, but replication is {replication}. Start "
            f"{replication - count} more, ask for at most {count}, or pass "
            "allow_missing=True (--allow-missing): the log then gets its other "
            "replicas when nodes join"
        )


def place(
    state: State, nodes: Iterable[int], streams: int, replication: int, fewest: int
) -> tuple[tuple[int, ...], ...]:
    """Return replicas for new streams, at least `fewest` for each.

    Raises:
        UnavailableError: there are not so many nodes.
    """
    candidates = [
        node for node in nodes if node in state.nodes and not state.nodes[node].draining
    ]
    if len(candidates) < fewest:
        raise UnavailableError(
            f"{len(candidates)} nodes can take replicas, but {fewest} are "
            "needed: start more nodes, or ask for fewer replicas"
        )
    loads = Loads(state)
    placed = []
    for _ in range(streams):
        chosen = loads.lightest(candidates)[:replication]
        first = loads.primary(chosen)
        loads.replicas.update(chosen)
        loads.primaries[first] += 1
        placed.append((first, *(node for node in chosen if node != first)))
    return tuple(placed)
