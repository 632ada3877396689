"""Durability of what replicas say: what one reported is on its disk after any crash."""

from __future__ import annotations

from sim.errors import ViolationError

__all__ = ["ClaimChecker"]


class ClaimChecker:
    """Checker of reports against what the next life of the node finds.

    A cut counts what replicas say, so a record that is only said to be durable may be
    lost on all of them at once. This looks at each replica by itself: it needs no such
    accident to tell.
    """

    def __init__(self) -> None:
        """Begin with nothing said."""
        self._claims: dict[tuple[str, int], tuple[int, int]] = {}

    def claimed(self, node: str, stream: int, epoch: int, end: int) -> None:
        """Note that a node says: durable up to `end`, durably in this epoch."""
        claim = self._claims.get((node, stream), (0, 0))
        self._claims[node, stream] = max(claim, (epoch, end))

    def found(self, node: str, stream: int, epoch: int, end: int) -> None:
        """Note what a node has when it starts. A later epoch may have cut the tail."""
        claim = self._claims.get((node, stream), (0, 0))
        if (epoch, end) < claim:
            has = f"{node} has stream {stream} up to {end} in epoch {epoch}"
            raise ViolationError(f"{has}, reported were {claim[1]} in {claim[0]}")

    def cut(self, node: str, stream: int, end: int) -> None:
        """Note that a node takes back what lies behind `end`, before it may say so."""
        epoch, claimed = self._claims.get((node, stream), (0, 0))
        self._claims[node, stream] = (epoch, min(claimed, end))

    def dropped(self, node: str, stream: int) -> None:
        """Note that a node gives its replica up: what it said binds it no more."""
        self._claims.pop((node, stream), None)
