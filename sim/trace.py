"""What happened, in order: one hash of everything and the last lines in words.

Steps of the loop are hashed as numbers, events as the line that is shown. Both carry
the virtual time and the node, so two runs that differ anywhere differ in the digest.
"""

from __future__ import annotations

import hashlib
import struct
from collections import deque
from typing import TextIO

__all__ = ["Trace"]

_STEP = struct.Struct("<dI")


class Trace:
    """Hash and memory of one run."""

    def __init__(self, lines_max: int = 200, out: TextIO | None = None) -> None:
        """Keep the last `lines_max` lines, and write all of them to `out`."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._last: deque[str] = deque(maxlen=lines_max)
        self._out = out
        self.steps = 0
        self.events = 0

    def step(self, time: float, number: int) -> None:
        """Note that the process with this number runs one callback."""
        self.steps += 1
        self._hash.update(_STEP.pack(time, number))

    def event(self, time: float, node: str, what: str) -> None:
        """Note what happened to a node."""
        self.events += 1
        line = f"{time:12.6f} {node:<10} {what}"
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self._last.append(line)
        if self._out is not None:
            self._out.write(line + "\n")

    def digest(self) -> str:
        """Return the hash of everything so far, with the counts."""
        return f"{self._hash.hexdigest()}-{self.steps}-{self.events}"

    def tail(self, count: int | None = None) -> list[str]:
        """Return the last lines."""
        lines = list(self._last)
        return lines if count is None else lines[max(0, len(lines) - count) :]
