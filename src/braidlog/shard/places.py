"""Where the records of a shard are in the log of its group.

*Theory of operation.* Entries that are no appends take an index and no position, so the
index of a position is not a sum. Of entries that were applied since the start the pair
is kept every so often; whoever looks for a position searches between two of them, or
between the begin of the log and the first of them, by reading entries.

*Invariants.* Positions and indexes both rise. At most `_PAIRS_MAX` pairs are kept: when
there are more, every other one goes, and from then on they are twice as far apart.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

__all__ = ["Places"]

_EVERY: Final = 32
"""Entries between two pairs, at first."""
_PAIRS_MAX: Final = 16_384


class Places:
    """Pairs of a position and the index of the entry that begins with it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._positions: list[int] = []
        self._indexes: list[int] = []
        self._every = _EVERY

    def note(self, position: int, index: int) -> None:
        """Note the entry that begins with a position."""
        if self._indexes and index < self._indexes[-1] + self._every:
            return
        self._positions.append(position)
        self._indexes.append(index)
        if len(self._indexes) > _PAIRS_MAX:
            del self._positions[1::2], self._indexes[1::2]
            self._every *= 2

    def around(self, position: int) -> tuple[int, int]:
        """Return indexes between which the entry of a position is: not below, below.

        0 says that nothing is known on that side.
        """
        at = bisect_right(self._positions, position)
        low = self._indexes[at - 1] if at else 0
        high = self._indexes[at] if at < len(self._indexes) else 0
        return low, high

    def drop(self, index: int) -> None:
        """Forget all before an index."""
        at = bisect_right(self._indexes, index - 1)
        del self._positions[:at], self._indexes[:at]
