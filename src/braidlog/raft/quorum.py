"""Majorities, also joint ones: a decision needs a majority of each half.

A half without members decides nothing and stands in the way of nothing, so a
membership that is not joint is one with an empty second half (Ongaro, "Consensus:
Bridging Theory and Practice", 4.3; etcd raft, `quorum`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from enum import Enum

__all__ = ["Halves", "Vote", "agreed", "holds", "majority", "tally"]

Halves = tuple[tuple[int, ...], tuple[int, ...]]


class Vote(Enum):
    """Outcome of an election so far."""

    PENDING = 0
    WON = 1
    LOST = 2


def majority(size: int) -> int:
    """Return how many of `size` voters decide."""
    return size // 2 + 1


def agreed(halves: Halves, reached: Callable[[int], int]) -> int:
    """Return the greatest number that a quorum has reached.

    Without any voter the answer is 0: nothing can be decided.
    """
    numbers = []
    for half in halves:
        if half:
            # As many as a majority have this one, or a greater one.
            ordered = sorted(map(reached, half))
            numbers.append(ordered[(len(half) - 1) // 2])
    return min(numbers, default=0)


def holds(halves: Halves, nodes: Collection[int]) -> bool:
    """Tell whether `nodes` contain a quorum."""
    return agreed(halves, lambda node: int(node in nodes)) == 1


def tally(halves: Halves, votes: dict[int, bool]) -> Vote:
    """Return what the votes received so far decide; votes of others do not count."""
    if holds(halves, {node for node, granted in votes.items() if granted}):
        return Vote.WON
    possible = {n for half in halves for n in half if votes.get(n, True)}
    return Vote.PENDING if holds(halves, possible) else Vote.LOST
