"""When a table is flushed: a decision without effects.

*Theory of operation.* A flush bounds three things: the memory of a table, how much of
its log the next open has to read again, and how much of the log it holds. The last one
counts where the log is near its bound, or has a retention that waits for the table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Pressure", "flush_is_due"]

# Above this share of the bound in use a table lets go of what it can. Half of what is
# left until the cleaner begins to copy, which costs more than a flush.
_FLUSH_ABOVE: Final = 0.5

# Records that a table holds although its memory is far from full: without keys, or of
# few keys again and again. An open reads so many in well under a second.
_HELD_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Pressure:
    """What speaks for a flush."""

    memory_bytes: int
    memory_bytes_max: int
    held: int
    """Records of the log that are in no file of the table."""
    segments: int
    segments_max: int
    retention_waits: bool = False
    """Whether retention would trim beyond what the table needs."""


def flush_is_due(pressure: Pressure) -> bool:
    """Whether the memory level is to be written now."""
    if not pressure.held:
        return False
    if pressure.memory_bytes >= pressure.memory_bytes_max or pressure.retention_waits:
        return True
    full = pressure.segments > _FLUSH_ABOVE * pressure.segments_max
    return full or pressure.held > _HELD_MAX
