"""What happened, in order: one hash of everything and the last lines in words.

Steps of the loop and arrivals of bytes are most of what happens, so they are hashed as
numbers and become words only where somebody reads them; events are hashed as the line
that is shown. All carry the virtual time and the node, so two runs that differ anywhere
differ in the digest.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections import deque
from typing import TextIO

__all__ = ["Trace"]

_STEP = struct.Struct("<dI")
_ARRIVAL = struct.Struct("<dII")
# Bytes that are gathered for one call of the hash.
_HASHED_BYTES = 1 << 16

# An event with its words, or bytes that arrived: on which way, how many, their CRC-32.
_Event = tuple[float, str, str]
_Arrival = tuple[float, str, str, int, int]


class Trace:
    """Hash and memory of one run."""

    def __init__(self, lines_max: int = 200, out: TextIO | None = None) -> None:
        """Keep the last `lines_max` lines, and write all of them to `out`."""
        self._hash = hashlib.blake2b(digest_size=16)
        self._unhashed = bytearray()
        self._last: deque[_Event | _Arrival] = deque(maxlen=lines_max)
        self._out = out
        self.steps = 0
        self.events = 0

    def step(self, time: float, number: int) -> None:
        """Note that the process with this number runs one callback."""
        self.steps += 1
        self._unhashed += _STEP.pack(time, number)

    def event(self, time: float, node: str, what: str) -> None:
        """Note what happened to a node."""
        event = (time, node, what)
        self._unhashed += _line(event).encode() + b"\n"
        self._keep(event)

    def arrival(self, time: float, node: str, way: str, data: bytes) -> None:
        """Note that bytes arrived at a node on a connection."""
        arrival = (time, node, way, len(data), zlib.crc32(data))
        self._unhashed += _ARRIVAL.pack(time, *arrival[3:]) + way.encode()
        self._keep(arrival)

    def _keep(self, event: _Event | _Arrival) -> None:
        self.events += 1
        self._last.append(event)
        if self._out is not None:
            self._out.write(_line(event) + "\n")
        if len(self._unhashed) > _HASHED_BYTES:
            self._flush()

    def _flush(self) -> None:
        self._hash.update(self._unhashed)
        self._unhashed.clear()

    def digest(self) -> str:
        """Return the hash of everything so far, with the counts."""
        self._flush()
        return f"{self._hash.hexdigest()}-{self.steps}-{self.events}"

    def tail(self, count: int | None = None) -> list[str]:
        """Return the last lines."""
        lines = [_line(event) for event in self._last]
        return lines if count is None else lines[max(0, len(lines) - count) :]


def _line(event: _Event | _Arrival) -> str:
    time, node = event[:2]
    what = event[2] if len(event) == 3 else f"{event[2]} {event[3]} B {event[4]:08x}"
    return f"{time:12.6f} {node:<10} {what}"
