"""How many bytes a shard has from where on, and how old they are: what retention asks.

*Theory of operation.* Every so many bytes a point is noted: a position, the bytes that
came before it, and the latest timestamp of them. All members note the same points, as
they are part of the state. There are at most `_POINTS_MAX`: when there are more, every
other one goes, and from then on they are twice as far apart. So what retention lets go
of is right up to about a sixtieth of the log.

*Invariants.* Positions, bytes and timestamps of points rise.
"""

from __future__ import annotations

import struct
from typing import Final

import msgspec

__all__ = ["Extent"]

_POINTS_MAX: Final = 64
_STEP: Final = 64 << 10
"""Bytes between two points, at first."""
_TIMESTAMP: Final = struct.Struct("<q")
_TIMESTAMP_AT: Final = 48
"""Where the head of a batch has the latest timestamp in it."""


class Extent(msgspec.Struct, array_like=True):
    """See the module; times in microseconds since the epoch."""

    size: int = 0
    """Bytes of all batches that were ever appended."""
    latest: int = 0
    """Latest timestamp of them."""
    step: int = _STEP
    points: list[tuple[int, int, int]] = msgspec.field(default_factory=list)

    def note(self, position: int, batch: bytes) -> None:
        """Take a batch that begins at a position."""
        if not self.points or self.size >= self.points[-1][1] + self.step:
            self.points.append((position, self.size, self.latest))
            if len(self.points) > _POINTS_MAX:
                del self.points[1::2]
                self.step *= 2
        self.size += len(batch)
        (timestamp,) = _TIMESTAMP.unpack_from(batch, _TIMESTAMP_AT)
        self.latest = max(self.latest, timestamp)

    def truncate(self, first: int) -> None:
        """Forget what is before a position."""
        self.points = [point for point in self.points if point[0] >= first]

    def copy(self) -> Extent:
        """Return one that goes on by itself."""
        return Extent(self.size, self.latest, self.step, list(self.points))

    def young(self, timestamp: int, following: int) -> int:
        """Return a position before which all is older; 0 if none is known.

        That is ``following``, where the next record comes, if everything is.
        """
        if self.size and self.latest < timestamp:
            return following
        older = [at for at, _, latest in self.points if latest < timestamp]
        return max(older, default=0)

    def sizes(self, points_max: int) -> tuple[tuple[int, int], ...]:
        """Return (position, bytes from there on), positions rising."""
        step = -(-len(self.points) // points_max) or 1
        return tuple((at, self.size - before) for at, before, _ in self.points[::step])
