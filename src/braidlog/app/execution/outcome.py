"""What executing a command gave, and the digest by which hosts compare it.

A digest has 21 bytes: BLAKE2b-128 over all components, then one check byte for each
component. The hash tells that two outcomes differ, the check bytes tell in what.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from braidlog.app.determinism.codec import encode

COMPONENTS: Final = ("status", "changes", "result", "draws", "times asked for")

_HASH_BYTES: Final = 16
_HEAD: Final = struct.Struct("<BQQQ")
_CHECKS: Final = struct.Struct("5B")
# Nobody decodes what is only hashed, and this takes a thirtieth of the time of CBOR.
_ROWS: Final = msgspec.msgpack.Encoder(order="deterministic").encode


class Status(IntEnum):
    """How a command ended. Stored: numbers are never given to another ending."""

    OK = 0
    ABORTED = 1  # The procedure raised `Abort`.
    FAILED = 2  # It raised something else.
    VOID = 3  # Effects whose base had moved; the call may come again.
    EXPIRED = 4  # Its result may be forgotten, so it was not executed.
    GIVEN_UP = 5  # An ABORT entry says so.
    STOPPED = 6  # A partition of it has diverged; not an outcome of the command.
    MOVED = 7  # It was routed before a RESIZE entry; its host appends it again.


class Outcome(NamedTuple):
    """The outcome of one command; ``repeated`` if it was executed before."""

    position: int
    call: bytes
    procedure: str
    status: Status
    body: bytes
    digest: bytes
    repeated: bool = False
    error: BaseException | None = None


def bytes_of_changes(changes: list[list[Any]]) -> bytes:
    """Return what stands for the changes of a command in its digest.

    MessagePack in its shortest form; CBOR where that has no place for a value, such as
    an integer of more than 64 bits in a state that is not SQLite.
    """
    try:
        return _ROWS(changes)
    except (OverflowError, TypeError):
        return encode(changes)


def digest_of(
    status: int, changes: bytes, result: bytes, draws: int, nows: int
) -> bytes:
    """Return the 21 bytes that stand for an outcome."""
    head = _HEAD.pack(status, len(changes), draws, nows)
    whole = blake2b(head + changes + result, digest_size=_HASH_BYTES).digest()
    return whole + _CHECKS.pack(
        status,
        zlib.crc32(changes) & 0xFF,
        zlib.crc32(result) & 0xFF,
        draws & 0xFF,
        nows & 0xFF,
    )


def status_of(digest: bytes) -> int:
    """Return the status that a digest stands for."""
    return digest[_HASH_BYTES]


def difference(one: bytes, other: bytes) -> str | None:
    """Return the first component in which two digests differ; None if in none."""
    if one == other:
        return None
    for name, a, b in zip(
        COMPONENTS, one[_HASH_BYTES:], other[_HASH_BYTES:], strict=False
    ):
        if a != b:
            return name
    return "a component whose check byte is the same"
