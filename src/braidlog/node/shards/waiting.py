"""How much of what waits for the shards of a node one connection may have waiting.

Without a majority nothing of a shard is answered, and who asks often must leave others
their place. The bound is one of the node: all shards share its memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final

from braidlog.errors import NotReadyError
from braidlog.node.share import share_of_one
from braidlog.serving.sessions import Session

__all__ = ["Waiting"]

WAITING_MAX: Final = 65_536
"""Requests, of all connections."""
WAITING_OF_ONE_MAX: Final = 16_384


class Waiting:
    """Counts the requests that wait, by connection."""

    def __init__(self, connections: Callable[[], int]) -> None:
        """Begin with none; ``connections`` says how many there are."""
        self._connections = connections
        self._of: Counter[Session] = Counter()
        self._count = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return self._count

    def take(self, session: Session, count: int = 1) -> None:
        """Let requests of a connection wait.

        Raises:
            NotReadyError: it has its share of what may wait already.
        """
        mine = self._of[session]
        share = share_of_one(
            self._count, WAITING_MAX, WAITING_OF_ONE_MAX, self._connections()
        )
        if mine and (mine + count > share or self._count + count > WAITING_MAX):
            msg = (
                f"{mine} requests of this connection wait for shards of this node, "
                f"and at most {share} may"
            )
            raise NotReadyError(msg)
        self._of[session] += count
        self._count += count

    def give(self, session: Session) -> None:
        """Note that a request was answered."""
        self._count -= 1
        self._of[session] -= 1
        if not self._of[session]:
            del self._of[session]
