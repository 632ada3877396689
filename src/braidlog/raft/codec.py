"""Bytes of messages, entries, hard states and bases.

    0   u8   version (1)
    1   u8   kind: a message, or 32 entry, 33 hard state, 34 base, 35 membership
    2   u16  zero
    4   u32  CRC-32 of bytes 0..4 and of everything behind byte 8
    8   ..   the fields of the class, in its order

Little-endian. Integers are u64, booleans a byte (0 or 1), the kind of an entry a byte,
bytes a u32 length and the data, tuples a u32 count and the elements; a value within
another one has no header. The end is the end of the bytes: the carrier frames.

*Invariants.* There is one encoding of each value. Any other bytes, of any length, raise
`RaftMessageError`; what a decoder allocates is bounded by the length of its input.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any, Final, TypeVar

from braidlog.raft import messages
from braidlog.raft.errors import MembershipError, RaftMessageError
from braidlog.raft.membership import Membership
from braidlog.raft.messages import Message
from braidlog.raft.state import Base, Entry, EntryKind, HardState

__all__ = [
    "VERSION",
    "decode_base",
    "decode_entry",
    "decode_hard_state",
    "decode_membership",
    "decode_message",
    "encode",
]

VERSION: Final = 1

# Numbers are on the wire and on disk: never reused.
_KINDS: Final[dict[type[Any], int]] = {
    messages.PreVoteRequest: 1,
    messages.PreVoteResponse: 2,
    messages.VoteRequest: 3,
    messages.VoteResponse: 4,
    messages.Append: 5,
    messages.AppendResponse: 6,
    messages.Heartbeat: 7,
    messages.HeartbeatResponse: 8,
    messages.InstallBase: 9,
    messages.ReadRequest: 10,
    messages.ReadResponse: 11,
    messages.TimeoutNow: 12,
    messages.Removed: 13,
    Entry: 32,
    HardState: 33,
    Base: 34,
    Membership: 35,
}
_TYPES: Final = {kind: cls for cls, kind in _KINDS.items()}
_HEADER: Final = struct.Struct("<BBHI")
_U64: Final = struct.Struct("<Q")
_U32: Final = struct.Struct("<I")

_BOOLS: Final = range(2)
_ENTRY_KINDS: Final = {kind.value: kind for kind in EntryKind}
_ENTRY_NUMBERS: Final = range(1, len(EntryKind) + 1)

T = TypeVar("T")


class _Reader:
    """Takes values off the front of the bytes."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, size: int) -> bytes:
        at = self._pass(size)
        return self.data[at : at + size]

    def numbers(self, layout: struct.Struct) -> tuple[int, ...]:
        return layout.unpack_from(self.data, self._pass(layout.size))

    def _pass(self, size: int) -> int:
        """Go behind the next bytes; return where they begin."""
        at = self.at
        if size > len(self.data) - at:
            msg = "the bytes end too early"
            raise RaftMessageError(msg)
        self.at = at + size
        return at

    def byte(self, allowed: range) -> int:
        value = self.data[self._pass(1)]
        if value not in allowed:
            msg = f"{value} is not in {allowed}"
            raise RaftMessageError(msg)
        return value

    def u64(self) -> int:
        return self.numbers(_U64)[0]

    def count(self) -> int:
        return self.numbers(_U32)[0]

    def many(self, read: Callable[[_Reader], T]) -> tuple[T, ...]:
        # A count that the bytes cannot hold ends at the first missing element.
        return tuple([read(self) for _ in range(self.count())])

    def value(self, cls: type[T]) -> T:
        found: list[Any] = []
        for numbers, _, read, _ in _PLANS[cls]:
            if numbers is None:
                found.append(read(self))
            else:
                found += self.numbers(numbers)
        return cls(*found)


def _write_bytes(out: bytearray, data: bytes) -> None:
    out += _U32.pack(len(data))
    out += data


def _write_value(out: bytearray, value: Any) -> None:
    for numbers, write, _, names in _PLANS[type(value)]:
        if numbers is None:
            write(out, getattr(value, names[0]))
        else:
            out += numbers.pack(*[getattr(value, name) for name in names])


def _write_numbers(out: bytearray, values: tuple[int, ...]) -> None:
    out += _U32.pack(len(values))
    for value in values:
        out += _U64.pack(value)


def _write_entries(out: bytearray, entries: tuple[Entry, ...]) -> None:
    out += _U32.pack(len(entries))
    for entry in entries:
        _write_value(out, entry)


_Writer = Callable[[bytearray, Any], None]
_Taker = Callable[[_Reader], Any]
_Field = tuple[_Writer, _Taker]
# By the type that the class gives the field.
_FIELDS: Final[dict[str, _Field]] = {
    "int": (lambda out, v: out.extend(_U64.pack(v)), _Reader.u64),
    "bool": (lambda out, v: out.append(v), lambda r: bool(r.byte(_BOOLS))),
    "bytes": (_write_bytes, lambda r: r.take(r.count())),
    "EntryKind": (
        lambda out, v: out.append(v),
        lambda r: _ENTRY_KINDS[r.byte(_ENTRY_NUMBERS)],
    ),
    "tuple[int, ...]": (_write_numbers, lambda r: r.many(_Reader.u64)),
    "tuple[Entry, ...]": (
        _write_entries,
        lambda r: r.many(lambda inner: inner.value(Entry)),
    ),
    "Membership": (_write_value, lambda r: r.value(Membership)),
    "Base": (_write_value, lambda r: r.value(Base)),
}


_Step = tuple[struct.Struct | None, _Writer, _Taker, tuple[str, ...]]


def _fields(cls: type) -> dict[str, str]:
    """Return the fields of a class and their types as they are written there."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        found |= vars(each).get("__annotations__", {})
    return found


def _plan(cls: type) -> tuple[_Step, ...]:
    """Return how a class is written: numbers that follow one another go together."""
    steps: list[_Step] = []
    for name, kind in _fields(cls).items():
        names: tuple[str, ...] = (name,)
        if kind == "int":
            if steps and steps[-1][0] is not None:
                names = steps.pop()[3] + names
            steps.append((struct.Struct(f"<{len(names)}Q"), *_FIELDS[kind], names))
        else:
            steps.append((None, *_FIELDS[kind], names))
    return tuple(steps)


# To look at the fields of a class costs more than to write them.
_PLANS: Final = {cls: _plan(cls) for cls in _KINDS}


def encode(value: Message | Entry | HardState | Base | Membership) -> bytes:
    """Return the bytes of a value."""
    out = bytearray(_HEADER.pack(VERSION, _KINDS[type(value)], 0, 0))
    _write_value(out, value)
    _U32.pack_into(out, 4, _checksum(bytes(out)))
    return bytes(out)


def decode_message(data: bytes) -> Message:
    """Return the message in `data`.

    Raises:
        RaftMessageError: these are not the bytes of a message.
    """
    return _decode(data, Message)


def decode_entry(data: bytes) -> Entry:
    """Return the entry in `data`.

    Raises:
        RaftMessageError: these are not the bytes of an entry.
    """
    return _decode(data, Entry)


def decode_hard_state(data: bytes) -> HardState:
    """Return the hard state in `data`.

    Raises:
        RaftMessageError: these are not the bytes of a hard state.
    """
    return _decode(data, HardState)


def decode_base(data: bytes) -> Base:
    """Return the base in `data`.

    Raises:
        RaftMessageError: these are not the bytes of a base.
    """
    return _decode(data, Base)


def decode_membership(data: bytes) -> Membership:
    """Return the membership in `data`.

    Raises:
        RaftMessageError: these are not the bytes of a membership.
    """
    return _decode(data, Membership)


def _checksum(data: bytes) -> int:
    return zlib.crc32(memoryview(data)[8:], zlib.crc32(data[:4]))


def _decode(data: bytes, wanted: type[T]) -> T:
    reader = _Reader(data, 0)
    version, kind, zero, checksum = reader.numbers(_HEADER)
    if (version, zero) != (VERSION, 0):
        msg = f"version {version}, flags {zero}: this build reads version {VERSION}"
        raise RaftMessageError(msg)
    if checksum != _checksum(data):
        msg = "the checksum is wrong"
        raise RaftMessageError(msg)
    cls = _TYPES.get(kind)
    if cls is None or not issubclass(cls, wanted):
        msg = f"kind {kind} is not a {wanted.__name__.lower()}"
        raise RaftMessageError(msg)
    try:
        value = reader.value(cls)
    except MembershipError as error:
        raise RaftMessageError(str(error)) from error
    if reader.at != len(data):
        msg = f"{len(data) - reader.at} bytes too many"
        raise RaftMessageError(msg)
    return value
