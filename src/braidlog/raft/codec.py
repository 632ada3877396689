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
from itertools import groupby
from operator import attrgetter
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
    "receiver_of",
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

_ENTRY_KINDS: Final = {kind.value: kind for kind in EntryKind}

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

    def u64(self) -> int:
        return self.numbers(_U64)[0]

    def count(self) -> int:
        return self.numbers(_U32)[0]

    def many(self, read: Callable[[_Reader], T]) -> tuple[T, ...]:
        # A count that the bytes cannot hold ends at the first missing element.
        return tuple([read(self) for _ in range(self.count())])

    def value(self, cls: type[T]) -> T:
        found: list[Any] = []
        for layout, _, odd, take in _PLANS[cls]:
            if layout is None:
                found.append(take(self))
                continue
            begin = len(found)
            found += layout.unpack_from(self.data, self._pass(layout.size))
            for at, meaning in odd:
                found[begin + at] = meaning(found[begin + at])
        return cls(*found)


def _bool(value: int) -> bool:
    if value > 1:
        msg = f"{value} is not a boolean"
        raise RaftMessageError(msg)
    return bool(value)


def _entry_kind(value: int) -> EntryKind:
    kind = _ENTRY_KINDS.get(value)
    if kind is None:
        msg = f"{value} is no kind of an entry"
        raise RaftMessageError(msg)
    return kind


def _write_bytes(out: bytearray, data: bytes) -> None:
    out += _U32.pack(len(data))
    out += data


def _write_value(out: bytearray, value: Any) -> None:
    for layout, write, _, _ in _PLANS[type(value)]:
        if layout is None:
            write(out, value)
        else:
            out += layout.pack(*write(value))


def _write_numbers(out: bytearray, values: tuple[int, ...]) -> None:
    out += _U32.pack(len(values))
    for value in values:
        out += _U64.pack(value)


def _write_entries(out: bytearray, entries: tuple[Entry, ...]) -> None:
    out += _U32.pack(len(entries))
    for entry in entries:
        _write_value(out, entry)


# By the type that the class gives the field. Those of a fixed size have a letter for
# `struct`, and what their number means if it is more than a number.
_FIXED: Final[dict[str, tuple[str, Callable[[int], Any] | None]]] = {
    "int": ("Q", None),
    "bool": ("B", _bool),
    "EntryKind": ("B", _entry_kind),
}
_Writer = Callable[[bytearray, Any], None]
_Taker = Callable[[_Reader], Any]
_OPEN: Final[dict[str, tuple[_Writer, _Taker]]] = {
    "bytes": (_write_bytes, lambda r: r.take(r.count())),
    "tuple[int, ...]": (_write_numbers, lambda r: r.many(_Reader.u64)),
    "tuple[Entry, ...]": (
        _write_entries,
        lambda r: r.many(lambda inner: inner.value(Entry)),
    ),
    "Membership": (_write_value, lambda r: r.value(Membership)),
    "Base": (_write_value, lambda r: r.value(Base)),
}

_Odd = tuple[int, Callable[[int], Any]]
_Step = tuple[struct.Struct | None, Callable[..., Any], tuple[_Odd, ...], _Taker]


def _fields(cls: type) -> dict[str, str]:
    """Return the fields of a class and their types as they are written there."""
    found: dict[str, str] = {}
    for each in reversed(cls.__mro__):
        found |= vars(each).get("__annotations__", {})
    return found


def _plan(cls: type) -> tuple[_Step, ...]:
    """Return how a class is written: what has a fixed size goes together."""
    fields = _fields(cls)
    steps: list[_Step] = []
    for fixed, group in groupby(fields, lambda name: fields[name] in _FIXED):
        if fixed:
            steps.append(_together({name: fields[name] for name in group}))
        else:
            steps += [_alone(name, *_OPEN[fields[name]]) for name in group]
    return tuple(steps)


def _together(fields: dict[str, str]) -> _Step:
    known = [_FIXED[kind] for kind in fields.values()]
    layout = struct.Struct("<" + "".join(letter for letter, _ in known))
    odd = [(at, meaning) for at, (_, meaning) in enumerate(known) if meaning]
    names = tuple(fields)
    # One name alone would come without its tuple.
    get = attrgetter(*names) if len(names) > 1 else lambda v: (getattr(v, names[0]),)
    return layout, get, tuple(odd), _nothing


def _alone(name: str, write: _Writer, take: _Taker) -> _Step:
    return None, lambda out, value: write(out, getattr(value, name)), (), take


def _nothing(_: _Reader) -> None:
    """Take nothing: a layout does."""


# To look at the fields of a class costs more than to write them.
_PLANS: Final = {cls: _plan(cls) for cls in _KINDS}


def encode(value: Message | Entry | HardState | Base | Membership) -> bytes:
    """Return the bytes of a value."""
    out = bytearray(_HEADER.pack(VERSION, _KINDS[type(value)], 0, 0))
    _write_value(out, value)
    _U32.pack_into(out, 4, _checksum(bytes(out)))
    return bytes(out)


def receiver_of(data: bytes) -> int:
    """Return whom a message is for, without a look at the rest; 0: it is none."""
    at = _HEADER.size + _U64.size
    return _U64.unpack_from(data, at)[0] if len(data) >= at + _U64.size else 0


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
