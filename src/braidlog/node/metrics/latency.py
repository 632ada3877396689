"""How long things take, counted in buckets as Prometheus has them.

What is counted is what the node waits for once: a request of many records, a turn that
wrote, a cut of many streams. So a record costs nothing, however small it is.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

BOUNDS_S: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
    1.0, 2.5, 5.0, 10.0, 30.0,
)  # fmt: skip
"""From a sync of a fast device to the time after which clients give up."""


class Histogram:
    """Counts of durations by the first bound that is not smaller, and their sum."""

    def __init__(self, bounds: tuple[float, ...] = BOUNDS_S) -> None:
        """Begin with nothing counted."""
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float, count: int = 1) -> None:
        """Count `count` things that took so long each."""
        self.counts[bisect_left(self.bounds, seconds)] += count
        self.sum += seconds * count

    def copy(self) -> Histogram:
        """Return what is counted now; it does not change any more."""
        copied = Histogram(self.bounds)
        copied.counts, copied.sum = self.counts.copy(), self.sum
        return copied

    def buckets(self) -> list[tuple[str, float]]:
        """Return (bound, how many took no longer), as Prometheus wants them."""
        total, found = 0, []
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            total += count
            found.append((str(bound), float(total)))
        return found


class Latencies:
    """All that a node measures."""

    def __init__(self) -> None:
        """Begin with nothing counted."""
        self.append = Histogram()
        self.read = Histogram()
        self.sync = Histogram()
