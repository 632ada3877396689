"""Values round trip; any other bytes raise a typed error."""

from typing import get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.raft import codec, messages
from braidlog.raft.errors import RaftMessageError
from braidlog.raft.membership import Membership
from braidlog.raft.messages import Message
from braidlog.raft.state import Base, Entry, EntryKind, HardState

U64 = st.integers(0, 2**64 - 1)
ENTRIES = st.builds(Entry, U64, U64, st.sampled_from(EntryKind), st.binary(max_size=40))
MEMBERSHIPS = st.builds(
    lambda voters, learners, old, epoch: Membership(
        voters=tuple(sorted(voters)),
        learners=tuple(sorted(learners - voters - old)) if voters else (),
        outgoing=tuple(sorted(old)) if voters else (),
        learners_next=tuple(sorted(old - voters)) if voters else (),
        auto_leave=bool(voters and old),
        epoch=epoch,
    ),
    st.frozensets(st.integers(1, 9), max_size=4),
    st.frozensets(st.integers(1, 9), max_size=4),
    st.frozensets(st.integers(1, 9), max_size=4),
    U64,
)
BASES = st.builds(Base, U64, U64, MEMBERSHIPS, st.binary(max_size=40))
VALUES = {
    int: U64,
    bool: st.booleans(),
    tuple[Entry, ...]: st.lists(ENTRIES, max_size=4).map(tuple),
    Base: BASES,
}
KINDS = [getattr(messages, n) for n in messages.__all__ if n != "Message"]
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    [
        st.builds(k, **{n: VALUES[t] for n, t in get_type_hints(k).items()})
        for k in KINDS
    ]
)
STATES = st.builds(HardState, U64, U64, U64, st.booleans())
DECODERS = [
    (codec.decode_message, MESSAGES),
    (codec.decode_entry, ENTRIES),
    (codec.decode_hard_state, STATES),
    (codec.decode_base, BASES),
    (codec.decode_membership, MEMBERSHIPS),
]


@pytest.mark.parametrize(("decode", "values"), DECODERS)
@settings(max_examples=60)
@given(data=st.data())
def test_round_trip(decode, values, data) -> None:  # type: ignore[no-untyped-def]
    value = data.draw(values)
    encoded = codec.encode(value)
    assert decode(encoded) == value
    assert codec.encode(decode(encoded)) == encoded


@settings(max_examples=100)
@given(MESSAGES, st.data())
def test_a_flipped_bit_or_a_lost_end_is_found(
    message: Message, data: st.DataObject
) -> None:
    encoded = bytearray(codec.encode(message))
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(RaftMessageError):
        codec.decode_message(bytes(encoded[:cut]))
    encoded[cut] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(RaftMessageError):
        codec.decode_message(bytes(encoded))


@given(st.binary(max_size=80), st.sampled_from(sorted(codec._TYPES)))
def test_any_bytes_with_a_valid_checksum(body: bytes, kind: int) -> None:
    """The body is believed by the checksum, and still has to be a value."""
    data = bytearray(codec._HEADER.pack(codec.VERSION, kind, 0, 0)) + body
    data[4:8] = codec._U32.pack(codec._checksum(bytes(data)))
    for decode, _ in DECODERS:
        try:
            value = decode(bytes(data))
        except RaftMessageError:
            continue
        assert codec.encode(value) == bytes(data)  # type: ignore[arg-type]


def test_a_huge_count_allocates_nothing() -> None:
    data = bytearray(codec.encode(messages.Append(1, 2, 3, 0, 0, 0, 0, ())))
    data[-4:] = b"\xff\xff\xff\xff"
    data[4:8] = codec._U32.pack(codec._checksum(bytes(data)))
    with pytest.raises(RaftMessageError, match="end too early"):
        codec.decode_message(bytes(data))


def test_another_version_is_named() -> None:
    data = bytearray(codec.encode(HardState()))
    data[0] = 2
    with pytest.raises(RaftMessageError, match="version 2"):
        codec.decode_hard_state(bytes(data))


def test_the_bytes_of_version_1() -> None:
    """What is written down here is never to change."""
    assert codec.encode(HardState(5, 2, 4, removed=True)).hex() == (
        "01210000" + "1769b8ff" + "0500000000000000"
        "02000000000000000400000000000000" + "01"
    )
    assert codec.encode(Entry(1, 2, EntryKind.DATA, b"abc")).hex() == (
        "01200000" + "c91e8e0c" + "01000000000000000200000000000000"
        "01" + "03000000" + "616263"
    )
