"""Words of the log as types.

Positions count from 1, so 0 means "none". Ranges are half-open: ``begin`` is in,
``end`` is not. Timestamps are microseconds since the Unix epoch, UTC.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, NewType, TypeAlias

from braidlog.errors import InvalidArgumentError

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = [
    "GLSN",
    "INVALID",
    "LLSN",
    "Compression",
    "Headers",
    "HeadersLike",
    "Producer",
    "StreamId",
    "Timestamp",
]

_IDS: Final = 1 << 64
_EPOCHS: Final = 1 << 32

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

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]
"""Named values beside a record; a name may repeat, the order is kept."""


HeadersLike: TypeAlias = (
    "Mapping[str, Buffer] | Mapping[str, Buffer | None]"
    " | Iterable[tuple[str, Buffer | None]]"
)
"""Headers as callers give them: a dict, or pairs where a name repeats."""


@dataclass(frozen=True, slots=True)
class Producer:
    """Identity under which appends are stored exactly once.

    Sequences are dense from 1 in each log stream. Repeating a stored sequence returns
    the first position; a gap is refused. A higher epoch fences the lower ones.
    """

    id: int
    epoch: int = 1

    def __post_init__(self) -> None:
        """Refuse numbers that the format cannot hold.

        Raises:
            TypeError: one is no int.
            InvalidArgumentError: one is too small or too large.
        """
        for name, low, high in (("id", 1, _IDS), ("epoch", 0, _EPOCHS)):
            number = getattr(self, name)
            if not isinstance(number, int) or isinstance(number, bool):
                kind = type(number).__name__
                raise TypeError(f"Producer: {name} must be an int, not {kind}")
            if not low <= number < high:
                msg = f"Producer: {name} must be from {low} to {high - 1}, got {number}"
                raise InvalidArgumentError(msg)
