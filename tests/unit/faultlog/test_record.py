"""Records and their slots: what fits, and that no flipped bit passes."""

import hashlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.errors import (
    CorruptionError,
    ForeignFormatError,
    InvalidArgumentError,
    NewerFormatError,
    TooLargeError,
)
from braidlog.faultlog.configuration import MEMBERS_MAX, Configuration
from braidlog.faultlog.record import (
    SLOT_BYTES,
    FaultRecord,
    decode,
    digest_of,
    encode,
)
from unit.faultlog.worlds import record

LARGEST = record(
    MEMBERS_MAX,
    (1 << 64) - 1,
    tuple(range(1, MEMBERS_MAX)),
    epoch=(1 << 64) - 1,
    members=tuple(range(1, MEMBERS_MAX + 1)),
    cluster="c" * 255,
    serial=(1 << 64) - 1,
    previous=b"\xff" * 32,
)


def sealed(body: bytes) -> bytes:
    """Give forged bytes a digest that matches."""
    return body[:4064] + hashlib.blake2b(body[:4064], digest_size=32).digest()


@st.composite
def any_record(draw: st.DrawFn) -> FaultRecord:
    ids = st.integers(1, (1 << 64) - 1)
    members = draw(st.lists(ids, min_size=1, max_size=MEMBERS_MAX, unique=True))
    members.sort()
    listed = draw(st.sets(st.sampled_from(members), max_size=len(members) - 1))
    node = draw(st.sampled_from(members))
    return FaultRecord(
        cluster=draw(
            st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=60)
        ),
        node=node,
        configuration=Configuration(
            draw(ids),
            draw(st.integers(0, (1 << 64) - 1)),
            tuple(members),
            tuple(sorted(listed)),
        ),
        viable=node not in listed and draw(st.booleans()),
        serial=draw(ids),
        previous=draw(st.binary(min_size=32, max_size=32)),
    )


@given(any_record())
def test_what_is_encoded_is_decoded(given_record: FaultRecord) -> None:
    slot = encode(given_record)
    assert len(slot) == SLOT_BYTES
    assert decode(slot) == given_record
    assert digest_of(given_record) == slot[-32:]


def test_the_largest_record_fits() -> None:
    assert decode(encode(LARGEST)) == LARGEST


@pytest.mark.parametrize("bit", [0, 3, 7])
def test_a_flip_in_any_byte_is_refused(bit: int) -> None:
    slot = bytearray(encode(record(2, 7, (1,), serial=9)))
    for at in range(len(slot)):
        slot[at] ^= 1 << bit
        with pytest.raises(CorruptionError) as caught:
            decode(bytes(slot), path="FAULTS", offset=8192)
        assert (caught.value.path, caught.value.offset) == ("FAULTS", 8192)
        slot[at] ^= 1 << bit


def test_every_truncation_is_refused() -> None:
    slot = encode(record())
    for length in (0, 1, 79, 80, 4063, 4095):
        with pytest.raises(CorruptionError, match="has 4096 bytes"):
            decode(slot[:length])


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (8, struct.pack("<Q", 0)),  # serial
        (16, struct.pack("<Q", 9)),  # a node that is no member
        (24, struct.pack("<Q", 0)),  # epoch
        (40, b"\x03"),  # an unknown flag
        (41, b"\x01"),  # reserved
        (42, struct.pack("<H", 0)),  # no name
        (42, struct.pack("<H", 4000)),
        (44, struct.pack("<H", 0)),  # no members
        (44, struct.pack("<H", 65535)),
        (46, struct.pack("<H", 3)),  # everybody failed
        (46, struct.pack("<H", 65535)),
        (80, struct.pack("<Q", 5)),  # members do not rise
        (104, struct.pack("<Q", 2)),  # a failed node that calls itself viable
        (104, struct.pack("<Q", 8)),  # a failed node that is no member
        (112, b"\xff"),  # not UTF-8
        (300, b"\x01"),  # behind the end
    ],
)
def test_forged_slots_are_refused(at: int, value: bytes) -> None:
    slot = bytearray(encode(record(2, 7, (1,))))
    slot[at : at + len(value)] = value
    with pytest.raises(CorruptionError):
        decode(sealed(bytes(slot)))


def test_other_formats_are_told_apart() -> None:
    slot = encode(record())
    with pytest.raises(ForeignFormatError):
        decode(sealed(b"BRID" + slot[4:]))
    with pytest.raises(NewerFormatError) as caught:
        decode(sealed(slot[:4] + struct.pack("<I", 3) + slot[8:]))
    assert (caught.value.found, caught.value.supported) == (3, 2)
    # A record that says nothing of a rescue has the format that says nothing of one.
    with pytest.raises(CorruptionError):
        decode(sealed(slot[:4] + struct.pack("<I", 2) + slot[8:]))


def test_configurations_that_cannot_be_are_refused() -> None:
    for epoch, sequence, members, failed in [
        (0, 0, (1,), ()),
        (1, -1, (1,), ()),
        (1 << 64, 0, (1,), ()),
        (1, 0, (), ()),
        (1, 0, (0, 1), ()),
        (1, 0, (2, 1), ()),
        (1, 0, (1, 1), ()),
        (1, 0, (1, 2), (3,)),
        (1, 0, (1, 2), (1, 2)),
    ]:
        with pytest.raises(InvalidArgumentError):
            Configuration(epoch, sequence, members, failed)
    with pytest.raises(TooLargeError):
        Configuration(1, 0, tuple(range(1, MEMBERS_MAX + 2)))


def test_records_that_cannot_be_are_refused() -> None:
    for change in [
        {"node": 4},
        {"node": 1, "failed": (1,)},
        {"cluster": ""},
        {"cluster": "a\nb"},
        {"serial": 0},
        {"previous": b""},
    ]:
        with pytest.raises(InvalidArgumentError):
            record(**change)  # type: ignore[arg-type]
    with pytest.raises(TooLargeError):
        record(cluster="é" * 128)


def test_failing_and_coming_back() -> None:
    first = Configuration(3, 0, (1, 2, 3))
    failed = first.without([2])
    assert failed == Configuration(3, 1, (1, 2, 3), (2,))
    assert failed.without([2, 3]).failed == (2, 3)
    assert failed.without([3]).number == (3, 2)
    with pytest.raises(InvalidArgumentError):
        failed.without([1, 3])
    with pytest.raises(InvalidArgumentError):
        failed.without([4])
    known = FaultRecord("green", 2, failed, viable=False)
    assert known.with_back(failed) == Configuration(3, 2, (1, 2, 3))


def test_nobody_is_unlisted_who_does_not_know_that_it_was_listed() -> None:
    failed = Configuration(3, 1, (1, 2, 3), (2,))
    unaware = FaultRecord("green", 2, Configuration(3, 0, (1, 2, 3)), viable=True)
    with pytest.raises(InvalidArgumentError, match="has not recorded"):
        unaware.with_back(failed)
    later = failed.without([3])
    with pytest.raises(InvalidArgumentError, match="has not recorded"):
        FaultRecord("green", 2, failed, viable=False).with_back(later)
    with pytest.raises(InvalidArgumentError, match="is not listed"):
        FaultRecord("green", 1, failed, viable=True).with_back(failed)
