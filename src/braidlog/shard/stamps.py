"""Timestamps of a shard: numbers that rise, over all clients, leaders and restarts.

*Theory of operation.* The group reserves a range in its log, and its leader gives out
what is in it from memory. The next leader begins behind all that was ever reserved.
What was reserved and not given out is left out. A leader gives only once a majority has
said that it still led after it was asked: else one that was replaced and does not know
it could give a number that is less than one that was given since. Source: the TSO of
MatrixOne, and of Percolator.

*Invariants.* No number is given twice. Whoever asks after an answer gets more than it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec import Struct

from braidlog.errors import InvalidArgumentError

__all__ = ["COUNT_MAX", "STAMP_END", "Asked", "Stamped", "Stamps"]

COUNT_MAX: Final = 1 << 20
"""Of one request: the numbers last for ever, whoever asks how often."""
STAMP_END: Final = (1 << 63) - 1
"""No timestamp is greater."""
_WINDOW: Final = 4_000_000
"""Timestamps that are reserved at once: of a clock in microseconds four seconds."""

Request: TypeAlias = object


class Stamped(Struct, frozen=True):
    """The timestamps from this one on, as many as were asked for."""

    first: int


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants."""

    request: Request
    count: int
    floor: int
    """The first one must not be less."""


class Stamps:
    """What a leader gives out; it begins with each lead."""

    def __init__(self, reserved: int) -> None:
        """Begin behind all that was ever reserved."""
        self._next = reserved
        self._waiting: list[tuple[int, Request, Stamped]] = []
        """Who gets timestamps that are not reserved for good yet, and their end."""

    def __len__(self) -> int:
        """Return how many wait for a reservation."""
        return len(self._waiting)

    def assign(self, asked: Asked) -> None:
        """Decide which timestamps somebody gets.

        Raises:
            InvalidArgumentError: so many are not left.
        """
        first = max(self._next, asked.floor, 1)
        if first > STAMP_END - asked.count:
            msg = f"{asked.count} timestamps from {first} on are more than there are"
            raise InvalidArgumentError(msg)
        self._next = first + asked.count
        self._waiting.append((self._next, asked.request, Stamped(first)))

    def lacking(self, reserved: int) -> int:
        """Return up to where should be reserved; 0 if what there is suffices."""
        if self._next <= reserved:
            return 0
        return min(self._next + _WINDOW, STAMP_END)

    def ready(self, reserved: int) -> Iterator[tuple[Request, Stamped]]:
        """Yield, once, who has what is reserved by now."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if each[0] <= reserved:
                yield each[1], each[2]
            else:
                self._waiting.append(each)

    def abandon(self) -> list[Request]:
        """Give nothing any more; return who waited."""
        waiting, self._waiting = self._waiting, []
        return [request for _, request, _ in waiting]
