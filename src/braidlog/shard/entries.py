"""What an entry in the log of a shard says; the layout is in `docs/formats.md`.

    append    u8 1, u8[3] 0, u32 records, u64 position, u64 writer epoch, batch
    others    u8 kind, MessagePack array of the fields

*Invariants.* An entry decides nothing: who logged it has decided, with everything
before it known. So the same entries give the same state on every member.
"""

from __future__ import annotations

import struct
from typing import Final, TypeAlias

import msgspec

from braidlog.errors import CorruptionError

__all__ = [
    "Append",
    "Control",
    "Entry",
    "Grant",
    "Plan",
    "Release",
    "Reserve",
    "Truncate",
    "decode",
    "encode",
    "encode_append",
]

_HEAD: Final = struct.Struct("<B3xIQQ")
APPEND: Final = 1
"""First byte of an append."""
HEAD_BYTES: Final = _HEAD.size


class Append(msgspec.Struct, frozen=True):
    """A batch of records, and the position of the first one."""

    count: int
    position: int
    writer: int
    """Epoch of the writer that owned the log; 0: nobody did."""
    batch: bytes


class Grant(msgspec.Struct, frozen=True, array_like=True):
    """The log belongs to this writer from here on."""

    KIND = 2
    epoch: int
    owner: str
    ttl_ms: int


class Release(msgspec.Struct, frozen=True, array_like=True):
    """The log belongs to nobody from here on; the epoch is over."""

    KIND = 3
    epoch: int


class Truncate(msgspec.Struct, frozen=True, array_like=True):
    """Records before this position are gone."""

    KIND = 4
    position: int


class Plan(msgspec.Struct, frozen=True, array_like=True):
    """These members should vote from here on, as the repository has decided."""

    KIND = 5
    plan: int
    wanted: tuple[int, ...]


class Reserve(msgspec.Struct, frozen=True, array_like=True):
    """Timestamps below this one may be given out from here on."""

    KIND = 6
    until: int


Entry: TypeAlias = Append | Grant | Release | Truncate | Plan | Reserve
Control: TypeAlias = Grant | Release | Truncate | Plan | Reserve

_KINDS: Final[dict[int, msgspec.msgpack.Decoder[Control]]] = {
    each.KIND: msgspec.msgpack.Decoder(each)
    for each in (Grant, Release, Truncate, Plan, Reserve)
}
_encoder: Final = msgspec.msgpack.Encoder()


def encode_append(count: int, position: int, writer: int, batch: bytes) -> bytes:
    """Return the bytes of an append."""
    return _HEAD.pack(APPEND, count, position, writer) + batch


def encode(entry: Control) -> bytes:
    """Return the bytes of any other entry."""
    return bytes((entry.KIND,)) + _encoder.encode(entry)


def decode(data: bytes) -> Entry:
    """Read an entry.

    Raises:
        CorruptionError: it is none that this version knows.
    """
    kind = data[0] if data else 0
    if kind == APPEND and len(data) > HEAD_BYTES:
        _, count, position, writer = _HEAD.unpack_from(data)
        return Append(count, position, writer, data[HEAD_BYTES:])
    if kind in _KINDS:
        try:
            return _KINDS[kind].decode(memoryview(data)[1:])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            msg = f"an entry of kind {kind} in the log of a shard: {error}"
            raise CorruptionError(msg) from error
    msg = f"an entry of {len(data)} bytes and kind {kind} in the log of a shard"
    raise CorruptionError(msg)


def place_of(data: bytes) -> tuple[int, int] | None:
    """Return position and number of the records in an entry, None if it has none."""
    if len(data) <= HEAD_BYTES or data[0] != APPEND:
        return None
    _, count, position, _ = _HEAD.unpack_from(data)
    return position, count
