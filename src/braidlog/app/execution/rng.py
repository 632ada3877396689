"""The random numbers of a procedure: defined here, for ever.

Numbers come from BLAKE2b in counter mode: block ``i`` is ``blake2b(i as 8 bytes,
little-endian, key=seed)``, its 64 bytes are eight numbers of 64 bits, little-endian.
Nothing here may change: it would change what old commands do. `docs/formats.md` says
how each method draws; there is none that needs the C library, as gauss would.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import MutableSequence, Sequence
from hashlib import blake2b
from typing import Final, TypeVar

from braidlog.app.errors import StepBudgetError

T = TypeVar("T")

_BLOCK: Final = struct.Struct("<8Q")
_BITS: Final = 64

DRAWS_MAX: Final = 1 << 20
"""Numbers of 64 bits that one command may draw. Part of what a command is: fixed for
ever."""


class Draws:
    """A generator that gives the same numbers for the same seed, everywhere."""

    __slots__ = ("_blocks", "_numbers", "_seed", "count")

    def __init__(self, seed: bytes) -> None:
        """Start at the seed: 1 to 64 bytes."""
        self._seed = seed
        self._blocks = 0
        self._numbers: list[int] = []
        self.count = 0

    def _next(self) -> int:
        if not self._numbers:
            if self.count >= DRAWS_MAX:
                msg = f"a command may draw at most {DRAWS_MAX} random numbers"
                raise StepBudgetError(msg)
            block = self._blocks.to_bytes(8, "little")
            self._blocks += 1
            self._numbers = [*_BLOCK.unpack(blake2b(block, key=self._seed).digest())]
            self._numbers.reverse()
        self.count += 1
        return self._numbers.pop()

    def _below(self, bound: int) -> int:
        """Return a number below ``bound``; none is likelier than another."""
        words = max(1, (bound.bit_length() + _BITS - 1) // _BITS)
        limit = (1 << (_BITS * words)) // bound * bound
        while True:
            number = 0
            for _ in range(words):
                number = number << _BITS | self._next()
            if number < limit:
                return number % bound

    def random(self) -> float:
        """Return a float from 0.0 to below 1.0, of 53 random bits."""
        return (self._next() >> 11) / (1 << 53)

    def randint(self, lowest: int, highest: int) -> int:
        """Return an integer from ``lowest`` to ``highest``, both included."""
        if highest < lowest:
            raise ValueError(f"there is no integer from {lowest} to {highest}")
        return lowest + self._below(highest - lowest + 1)

    def randrange(self, begin: int, end: int | None = None, step: int = 1) -> int:
        """Return one of ``range(begin, end, step)``, or of ``range(begin)``."""
        if end is None:
            begin, end = 0, begin
        count = -((begin - end) // step)
        if count <= 0:
            raise ValueError(f"range({begin}, {end}, {step}) is empty")
        return begin + step * self._below(count)

    def choice(self, items: Sequence[T]) -> T:
        """Return one of ``items``."""
        if not items:
            raise ValueError("cannot choose from an empty sequence")
        return items[self._below(len(items))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Put ``items`` in a random order, in place."""
        for i in range(len(items) - 1, 0, -1):
            j = self._below(i + 1)
            items[i], items[j] = items[j], items[i]

    def sample(self, items: Sequence[T], count: int) -> list[T]:
        """Return ``count`` of ``items`` in a random order, no place of them twice."""
        left = list(items)
        if not 0 <= count <= len(left):
            raise ValueError(f"cannot draw {count} of {len(left)} items")
        for i in range(count):
            j = i + self._below(len(left) - i)
            left[i], left[j] = left[j], left[i]
        return left[:count]

    def bytes(self, count: int) -> bytes:
        """Return ``count`` random bytes."""
        words = (self._next() for _ in range((count + 7) // 8))
        return b"".join(word.to_bytes(8, "little") for word in words)[:count]

    def uuid(self) -> uuid.UUID:
        """Return a random UUID (version 4)."""
        return uuid.UUID(bytes=self.bytes(16), version=4)
