"""Faults of whole frames: what a connection that peers lose messages on may do to them.

The header is that of docs/design/0006, "Frames". Only one-way frames (request 0) behind
the first of a direction are touched: an answer that never comes on a connection that
lives is no fault that TCP has, and the first frame is the greeting. Who begins in
another language, as a client does to find out what listens, is let through as it is.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from random import Random

from braidlog.wire.foreign import FIRST_BYTES, foreign
from sim.errors import MisuseError

__all__ = ["Fate", "FrameFaults", "FrameFilter"]

_HEADER_BYTES = 20
_LENGTH = struct.Struct("<I")
_KIND_AT = 8
_REQUEST_AT = 12
# A length beyond any frame means that the port does not speak frames.
_FRAME_BYTES_MAX = 1 << 28


class Fate(Enum):
    """What happens to a frame."""

    PASS = "passed"
    LOSE = "lost"
    REPEAT = "repeated"
    DELAY = "delayed"


@dataclass(frozen=True, slots=True)
class FrameFaults:
    """How often a one-way frame is lost, repeated, or overtaken by later ones."""

    loss: float = 0.0
    repeat: float = 0.0
    delay: float = 0.0
    # Seconds that a repeated or delayed frame may be behind.
    delay_max: float = 0.5
    # Numbers of the messages that are touched; all, if empty.
    kinds: frozenset[int] = frozenset()


class FrameFilter:
    """Cuts one direction of a connection into frames and decides on each."""

    def __init__(self, faults: Callable[[], FrameFaults], random: Random) -> None:
        """Begin in front of the first frame; ask `faults` for each."""
        self._faults = faults
        self._random = random
        self._partial = bytearray()
        self._first = True
        self._foreign = False

    def lag(self) -> float:
        """Draw how many seconds a repeated or delayed frame is behind."""
        return self._random.random() * self._faults().delay_max

    def feed(self, data: bytes) -> list[tuple[Fate, bytes]]:
        """Take bytes and return the frames that are whole now.

        Raises:
            MisuseError: the bytes are no frames.
        """
        self._partial += data
        if self._speaks_otherwise():
            return [(Fate.PASS, self.rest())]
        frames = []
        while (size := self._size()) is not None and size <= len(self._partial):
            frame = bytes(self._partial[:size])
            del self._partial[:size]
            frames.append((self._fate(frame), frame))
        return frames

    def rest(self) -> bytes:
        """Return what is left of a frame that will never be whole."""
        rest = bytes(self._partial)
        self._partial.clear()
        return rest

    def _speaks_otherwise(self) -> bool:
        if self._first and not self._foreign:
            self._foreign = bool(foreign(bytes(self._partial[:FIRST_BYTES])))
        return self._foreign

    def _size(self) -> int | None:
        if len(self._partial) < _HEADER_BYTES:
            return None
        size = int(_LENGTH.unpack_from(self._partial, 0)[0]) + _HEADER_BYTES
        if size > _FRAME_BYTES_MAX:
            raise MisuseError(
                f"a frame of {size} bytes: the port does not speak frames"
            )
        return size

    def _fate(self, frame: bytes) -> Fate:
        first, self._first = self._first, False
        request = _LENGTH.unpack_from(frame, _REQUEST_AT)[0]
        faults = self._faults()
        kinds = faults.kinds
        if first or request or (kinds and frame[_KIND_AT] not in kinds):
            return Fate.PASS
        drawn = self._random.random()
        for fate, share in (
            (Fate.LOSE, faults.loss),
            (Fate.REPEAT, faults.repeat),
            (Fate.DELAY, faults.delay),
        ):
            if drawn < share:
                return fate
            drawn -= share
        return Fate.PASS
