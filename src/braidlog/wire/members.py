"""A member of a shard is a node, and which of its memberships.

*Theory of operation.* A group never takes a member back that it removed: that member
may have forgotten what it promised. A node may come back all the same, as another
member: its number says the node, and how many were placed before. The first members of
a shard have the numbers of their nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

__all__ = ["NODE_END", "generation_of", "member_of", "node_of", "nodes_of"]

_BITS: Final = 32
NODE_END: Final = 1 << _BITS
"""Nodes from here on take no members of shards."""


def member_of(node: int, generation: int) -> int:
    """Return the number of a member; generations count from 0, for each shard."""
    return node | generation << _BITS


def node_of(member: int) -> int:
    """Return the node of a member."""
    return member & (NODE_END - 1)


def generation_of(member: int) -> int:
    """Return how many members of the shard were placed before, but for the first."""
    return member >> _BITS


def nodes_of(members: Iterable[int]) -> tuple[int, ...]:
    """Return the nodes of members, each once, in their order."""
    return tuple(dict.fromkeys(map(node_of, members)))
