"""What a command comes to, and the bytes of that.

A refusal is a result like any other: every node comes to the same one, and it is
remembered for a repeated call.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from braidlog.errors import (
    AlreadyExistsError,
    FencedError,
    FormatError,
    InvalidArgumentError,
    LogError,
    NodeIdentityError,
    NotFoundError,
    NotReadyError,
    TooLargeError,
    UnavailableError,
)

__all__ = [
    "Committed",
    "Created",
    "CursorRow",
    "Cursors",
    "Done",
    "Epoch",
    "Refused",
    "Result",
    "Trimmed",
    "decode_result",
    "encode_result",
]


class _Result(msgspec.Struct, frozen=True, array_like=True):
    """What all results have."""


class Done(_Result, frozen=True, array_like=True, tag=1):
    """It is so now."""

    at: int = 0
    """When, if that is kept: microseconds since the Unix epoch."""


class Refused(_Result, frozen=True, array_like=True, tag=2):
    """Nothing was changed."""

    code: int
    message: str

    def error(self) -> LogError:
        """Return the error to raise."""
        return _ERRORS.get(self.code, InvalidArgumentError)(self.message)


class Created(_Result, frozen=True, array_like=True, tag=3):
    """A log is there, with these streams."""

    log: bytes
    streams: tuple[int, ...]


class Epoch(_Result, frozen=True, array_like=True, tag=4):
    """A stream is in this epoch, and where it began."""

    stream: int
    epoch: int
    start: int


class Committed(_Result, frozen=True, array_like=True, tag=5):
    """The cuts are committed."""


class Trimmed(_Result, frozen=True, array_like=True, tag=6):
    """The first GLSN that is kept."""

    first: int


class CursorRow(msgspec.Struct, frozen=True, array_like=True):
    """One cursor; times in microseconds."""

    name: str
    position: int
    pin: bool
    touched: int
    lease: int


class Cursors(_Result, frozen=True, array_like=True, tag=8):
    """The cursors of a log, by name."""

    rows: tuple[CursorRow, ...]


Result: TypeAlias = Done | Refused | Created | Epoch | Committed | Trimmed | Cursors

_ERRORS: Final[dict[int, type[LogError]]] = {
    each.code: each
    for each in (
        AlreadyExistsError,
        FencedError,
        InvalidArgumentError,
        NodeIdentityError,
        NotFoundError,
        NotReadyError,
        TooLargeError,
        UnavailableError,
    )
}
_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Result]] = msgspec.msgpack.Decoder(Result)


def encode_result(result: Result) -> bytes:
    """Return the bytes of a result."""
    return _encoder.encode(result)


def decode_result(data: bytes) -> Result:
    """Read a result.

    Raises:
        FormatError: the bytes are no result.
    """
    try:
        return _decoder.decode(data)
    # Arrays in arrays without end have an error of their own.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        msg = f"not a result: {error}"
        raise FormatError(msg) from error
