"""Frames in Python: what goes in, what comes out, what is refused, and how."""

from typing import Any

import pytest

from braidlog.errors import InvalidArgumentError, RemoteProtocolError
from braidlog.wire.connection import Frame
from unit.wire.frames import conn, encode_frame, feed

HEAD = b"\x92\x03\x02"


def frame(kind: int, request: int, head: bytes, *payload: bytes) -> bytes:
    return encode_frame(kind, request, head, payload)


def test_large_payloads_are_not_copied() -> None:
    large = memoryview(bytes(20_000))
    parts: list[Any] = [bytearray(b"ab"), large, memoryview(b"c"), b""]
    end = conn()
    end.queue(18, 7, b"\x90", parts)
    assert end.queued_bytes == 20_024
    first, second, third = end.take()
    assert second is large
    assert (bytes(first)[-2:], bytes(third)) == (b"ab", b"c")
    whole = b"".join([first, second, third])
    (found,) = feed(conn(), whole)
    assert found == Frame(18, 7, b"\x90", memoryview(b"ab" + large + b"c"))


def test_the_size_is_that_of_the_bytes() -> None:
    data = frame(18, 7, b"\x90", b"abc")
    (found,) = feed(conn(), data)
    assert found.size == len(data)


def test_appends_of_a_read_come_as_one() -> None:
    appends = [frame(16, n, HEAD, b"%d" % n) for n in (1, 2, 3)]
    end = conn()
    end.hot = True
    data = b"".join(appends)
    assert end.feed(data, 0) == (
        [(3, 2, [1, 2, 3], [b"1", b"2", b"3"])],
        [],
        None,
        len(data),
        (0, 0, 0, False),
    )
    assert end.open_numbers == [1, 2, 3]


def test_a_cold_frame_is_the_last_of_a_call() -> None:
    first, ping, last = (
        frame(16, 1, HEAD, b"1"),
        frame(4, 0, b"\x90"),
        frame(16, 2, HEAD, b"2"),
    )
    end = conn()
    end.hot = True
    data = first + ping + last
    appends, _, cold, at, _ = end.feed(data, 0)
    assert (appends, cold) == ([(3, 2, [1], [b"1"])], (4, 0, b"\x90", b""))
    assert at == len(first + ping)
    appends, _, cold, at, _ = end.feed(data, at)
    assert (appends, cold, at) == ([(3, 2, [2], [b"2"])], None, len(data))


def test_a_frame_over_the_limit_is_refused_at_its_header() -> None:
    data = frame(18, 7, b"\x90", bytes(1000))
    end = conn(1020)
    with pytest.raises(RemoteProtocolError, match="1021 bytes, the limit is 1020"):
        end.feed(data[:20], 0)
    assert end.buffered == 0
    assert feed(conn(1021), data)


def test_the_limit_can_be_raised_between_frames() -> None:
    end = conn(100)
    small, large = frame(18, 1, b"\x90"), frame(18, 2, b"\x90", bytes(100))
    assert end.missing == 20
    assert feed(end, small[:20]) == []
    assert (end.missing, end.buffered) == (1, 20)
    assert len(feed(end, small[20:])) == 1
    end.limit(1000, 1000)
    assert len(feed(end, large)) == 1


def test_the_error_says_where() -> None:
    data = bytearray(frame(18, 1, b"\x90") + frame(18, 2, b"\x90"))
    data[-1] ^= 1
    end = conn(100)
    with pytest.raises(RemoteProtocolError, match="frame at byte 21: checksum"):
        feed(end, data)
    with pytest.raises(RemoteProtocolError, match="an earlier frame"):
        feed(end, frame(18, 1, b"\x90"))


def test_what_is_no_frame_is_not_encoded() -> None:
    with pytest.raises(InvalidArgumentError):
        encode_frame(18, 1, b"")
    with pytest.raises(InvalidArgumentError):
        encode_frame(0, 1, b"\x90")
    with pytest.raises(OverflowError):
        encode_frame(256, 1, b"\x90")
    with pytest.raises(InvalidArgumentError, match="contiguous"):
        encode_frame(18, 1, b"\x90", [memoryview(b"abcd")[::2]])
