"""Where the records of a shard are in the log of its group.

*Theory of operation.* Entries that are no appends take an index and no position, so the
index of a position is not a sum. Every so often the pair is kept; the entries between
two of them are read and passed over.

*Invariants.* Positions and indexes both rise.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

__all__ = ["Places"]

_EVERY: Final = 32
"""Entries between two pairs."""


class Places:
    """Pairs of a position and the index of the entry that begins with it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._positions: list[int] = []
        self._indexes: list[int] = []

    def note(self, position: int, index: int) -> None:
        """Note the entry that begins with a position."""
        if not self._indexes or index >= self._indexes[-1] + _EVERY:
            self._positions.append(position)
            self._indexes.append(index)

    def floor(self, position: int) -> int:
        """Return an index at or before the entry of a position; 0: the first kept."""
        at = bisect_right(self._positions, position)
        return self._indexes[at - 1] if at else 0

    def drop(self, index: int) -> None:
        """Forget all before an index."""
        at = bisect_right(self._indexes, index - 1)
        del self._positions[:at], self._indexes[:at]
