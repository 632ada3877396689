"""How many places of a bounded number one connection may have. Pure."""

from __future__ import annotations

__all__ = ["share_of_one"]


def share_of_one(taken: int, most: int, of_one: int, connections: int) -> int:
    """Return how many places one connection may have, of ``most`` places.

    While half of them are free, one may have ``of_one``. The other half is divided
    among the connections, so that one that takes what it can leaves something to each.
    """
    if 2 * taken < most:
        return of_one
    return max(1, most // 2 // max(1, connections))
