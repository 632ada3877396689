"""How long something usually takes: a value that follows what is measured slowly.

*Theory of operation.* It begins with the median of the first few times. Each time after
that moves it by a fixed share, up or down, whatever the time is: one outlier counts no
more than any other time. Down it moves four times as far as up, so it comes to rest
where a fifth of the times are shorter. It doubles after about 1,400 longer times and
halves after about 350 shorter ones: what was slow for a minute is not usual yet, and
what was slow at the start does not stay usual for long.
"""

from __future__ import annotations

import statistics
from typing import Final

__all__ = ["Usual"]

_FIRST: Final = 8
_UP: Final = 1.0005
_DOWN: Final = 0.998
_LEAST_S: Final = 1e-5
"""Less is too short to be measured."""


class Usual:
    """Follows times, in seconds."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._first: list[float] = []
        self._value = 0.0

    @property
    def seconds(self) -> float:
        """Return what is usual, 0 if that is not known yet."""
        return self._value

    def note(self, seconds: float) -> None:
        """Take another time."""
        if not self._value:
            self._first.append(seconds)
            if len(self._first) == _FIRST:
                self._value = max(_LEAST_S, statistics.median(self._first))
                self._first.clear()
        elif seconds > self._value:
            self._value *= _UP
        elif seconds < self._value:
            self._value = max(_LEAST_S, self._value * _DOWN)
