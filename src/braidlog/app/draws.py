"""The random numbers of a procedure: defined here, for ever.

Numbers come from BLAKE2b in counter mode: block ``i`` is ``blake2b(i as 8 bytes,
little-endian, key=seed)``, its 64 bytes are eight numbers of 64 bits, little-endian.
Nothing here may change: it would change what old commands do.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import MutableSequence, Sequence
from hashlib import blake2b
from typing import Final, TypeVar

__all__ = ["Draws"]

T = TypeVar("T")

_BLOCK: Final = struct.Struct("<8Q")
_BITS: Final = 64


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
            msg = f"there is no integer from {lowest} to {highest}"
            raise ValueError(msg)
        return lowest + self._below(highest - lowest + 1)

    def choice(self, items: Sequence[T]) -> T:
        """Return one of ``items``."""
        if not items:
            msg = "there is nothing to choose from"
            raise ValueError(msg)
        return items[self._below(len(items))]

    def shuffle(self, items: MutableSequence[T]) -> None:
        """Put ``items`` in a random order, in place."""
        for i in range(len(items) - 1, 0, -1):
            j = self._below(i + 1)
            items[i], items[j] = items[j], items[i]

    def bytes(self, count: int) -> bytes:
        """Return ``count`` random bytes."""
        words = (self._next() for _ in range((count + 7) // 8))
        return b"".join(word.to_bytes(8, "little") for word in words)[:count]

    def uuid(self) -> uuid.UUID:
        """Return a random UUID (version 4)."""
        return uuid.UUID(bytes=self.bytes(16), version=4)
