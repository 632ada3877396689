"""Frames in Python: what goes in, what comes out, what is refused, and how."""

from typing import Any

import pytest

from braidlog.errors import InvalidArgumentError, RemoteProtocolError
from braidlog.wire.frames import AppendFrames, Frame, FrameDecoder, encode_frame

HEAD = b"\x92\x03\x02"


def frame(kind: int, request: int, head: bytes, *payload: bytes) -> bytes:
    return b"".join(encode_frame(kind, request, head, payload))


def test_the_buffers_of_the_payload_are_not_copied() -> None:
    parts: list[Any] = [bytearray(b"ab"), memoryview(b"c"), b""]
    buffers = encode_frame(18, 7, b"\x90", parts)
    assert len(buffers) == 4
    assert all(given is sent for given, sent in zip(parts, buffers[1:], strict=True))
    (found,) = FrameDecoder(100).feed(b"".join(buffers))
    assert found == Frame(18, 7, b"\x90", memoryview(b"abc"))


def test_the_size_is_that_of_the_bytes() -> None:
    data = frame(18, 7, b"\x90", b"abc")
    (found,) = FrameDecoder(100).feed(data)
    assert isinstance(found, Frame)
    assert found.size == len(data)


def test_appends_of_a_read_come_as_one() -> None:
    appends = [frame(16, n, HEAD, b"%d" % n) for n in (1, 2, 3)]
    found = FrameDecoder(100).feed(b"".join(appends))
    sizes = [len(data) for data in appends]
    assert found == [AppendFrames(3, 2, [1, 2, 3], [b"1", b"2", b"3"], sizes)]


def test_another_frame_ends_the_group() -> None:
    data = frame(16, 1, HEAD, b"1") + frame(4, 0, b"\x90") + frame(16, 2, HEAD, b"2")
    found = FrameDecoder(100).feed(data)
    assert [type(one) for one in found] == [AppendFrames, Frame, AppendFrames]


def test_a_frame_over_the_limit_is_refused_at_its_header() -> None:
    data = frame(18, 7, b"\x90", bytes(1000))
    decoder = FrameDecoder(1020)
    with pytest.raises(RemoteProtocolError, match="1021 bytes, the limit is 1020"):
        decoder.feed(data[:20])
    assert decoder.buffered == 0
    assert FrameDecoder(1021).feed(data)


def test_the_limit_can_be_raised_between_frames() -> None:
    decoder = FrameDecoder(100)
    small, large = frame(18, 1, b"\x90"), frame(18, 2, b"\x90", bytes(100))
    assert decoder.missing == 20
    decoder.feed(small[:20])
    assert (decoder.missing, decoder.buffered) == (1, 20)
    assert len(decoder.feed(small[20:])) == 1
    decoder.limit(1000)
    assert len(decoder.feed(large)) == 1


def test_the_error_says_where() -> None:
    data = bytearray(frame(18, 1, b"\x90") + frame(18, 2, b"\x90"))
    data[-1] ^= 1
    decoder = FrameDecoder(100)
    with pytest.raises(RemoteProtocolError, match="frame at byte 21: checksum"):
        decoder.feed(data)
    with pytest.raises(RemoteProtocolError, match="an earlier frame"):
        decoder.feed(frame(18, 1, b"\x90"))


def test_what_is_no_frame_is_not_encoded() -> None:
    with pytest.raises(InvalidArgumentError):
        encode_frame(18, 1, b"")
    with pytest.raises(InvalidArgumentError):
        encode_frame(0, 1, b"\x90")
    with pytest.raises(OverflowError):
        encode_frame(256, 1, b"\x90")
    with pytest.raises(InvalidArgumentError, match="contiguous"):
        encode_frame(18, 1, b"\x90", [memoryview(b"abcd")[::2]])
