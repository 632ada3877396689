"""The decoder against a dumb model: any cut, any damage, any bytes."""

from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.errors import RemoteProtocolError
from property.wire import model
from property.wire.model import Plain
from unit.wire.frames import conn, encode_frame, feed

LIMIT = 300

others = st.tuples(
    st.integers(1, 255).filter(lambda kind: kind != 16),
    st.integers(0, 2**32 - 1),
    st.binary(min_size=1, max_size=30),
    st.binary(max_size=60),
)
appends = st.tuples(
    st.just(16),
    st.integers(1, 2**32 - 1),
    st.builds(lambda s, e: bytes([0x92, s, e]), st.integers(0, 2), st.integers(0, 1)),
    st.binary(min_size=1, max_size=20),
)
frames = st.lists(others | appends, max_size=8)


def fed(pieces: list[bytes]) -> tuple[list[Plain], bool]:
    """Return the frames of each piece, and whether one was refused."""
    end = conn(LIMIT)
    found: list[Plain] = []
    try:
        for piece in pieces:
            found += map(model.plain, feed(end, piece))
            assert end.buffered <= LIMIT
    except RemoteProtocolError:
        return found, True
    return found, False


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(ends)]


def singles(data: bytes) -> list[bytes]:
    return [data[at : at + 1] for at in range(len(data))]


def expected(data: bytes) -> tuple[list[Plain], bool]:
    found = list(model.decode(data, LIMIT))
    return [frame for frame in found if frame], None in found


@settings(deadline=None)
@given(frames)
def test_frames_are_encoded_as_in_the_model(given_: list[Plain]) -> None:
    for kind, request, head, payload in given_:
        parts: list[Any] = [payload[:3], memoryview(payload)[3:]]
        data = encode_frame(kind, request, head, parts)
        assert data == model.encode(kind, request, head, payload)


@settings(deadline=None)
@given(frames, st.lists(st.integers(0, 1000), max_size=6))
def test_any_cut_gives_the_same_frames(sent: list[Plain], places: list[int]) -> None:
    data = b"".join(model.encode(*frame) for frame in sent)
    found, refused = fed(cut(data, places))
    assert (found, refused) == (sent, False)
    assert fed(singles(data)) == (sent, False)


@settings(deadline=None)
@given(frames.filter(bool), st.integers(0), st.integers(0, 7))
def test_no_flipped_bit_gets_through(sent: list[Plain], at: int, bit: int) -> None:
    data = bytearray(b"".join(model.encode(*frame) for frame in sent))
    data[at % len(data)] ^= 1 << bit
    found, refused = fed(singles(bytes(data)))
    assert found == sent[: len(found)]
    # A greater length waits for bytes that do not come.
    assert refused or len(found) < len(sent)
    assert (found, refused) == expected(bytes(data))


@settings(deadline=None)
@given(st.binary(max_size=200), frames)
def test_any_bytes_are_judged_as_in_the_model(junk: bytes, sent: list[Plain]) -> None:
    data = b"".join(model.encode(*frame) for frame in sent) + junk
    assert fed(singles(data)) == expected(data)
