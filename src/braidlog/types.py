"""Words of the log as types.

Positions count from 1, so 0 means "none". Ranges are half-open: ``begin`` is in,
``end`` is not. Timestamps are microseconds since the Unix epoch, UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, NewType, TypeAlias

__all__ = [
    "GLSN",
    "INVALID",
    "LLSN",
    "Compression",
    "Headers",
    "Producer",
    "StreamId",
    "Timestamp",
]

INVALID: Final = 0
"""The number that no position, stream, producer or sequence ever has."""

GLSN = NewType("GLSN", int)
"""Global log sequence number: position in a log, dense."""

LLSN = NewType("LLSN", int)
"""Local log sequence number: position in one log stream, dense."""

StreamId = NewType("StreamId", int)
"""Number of a log stream within its node."""

Timestamp: TypeAlias = int
"""Microseconds since the Unix epoch, UTC."""

Compression: TypeAlias = Literal["none", "zstd", "lz4"]
"""How the bodies of record batches are stored."""

Headers: TypeAlias = tuple[tuple[str, bytes], ...]
"""Named values beside a record; a name may repeat, the order is kept."""


@dataclass(frozen=True, slots=True)
class Producer:
    """Identity under which appends are stored exactly once.

    Sequences are dense from 1 in each log stream. A repeat of a stored sequence
    returns the position of the first time; a gap is refused. A producer that comes
    back with a higher epoch fences the one before it.
    """

    id: int
    epoch: int = 1

    def __post_init__(self) -> None:
        """Refuse numbers that the format cannot hold."""
        if not 0 < self.id < 1 << 64:
            msg = f"producer id {self.id} is not in 1..2**64"
            raise ValueError(msg)
        if not 0 <= self.epoch < 1 << 32:
            msg = f"producer epoch {self.epoch} is not in 0..2**32"
            raise ValueError(msg)
