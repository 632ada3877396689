"""Who is not of this protocol is known by its first bytes, however they come."""

from __future__ import annotations

import ssl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.errors import ForeignPeerError
from braidlog.wire.client import ClientConnection
from braidlog.wire.connection import HANDSHAKE_BYTES_MAX, Connection
from braidlog.wire.foreign import FIRST_BYTES, foreign
from braidlog.wire.messages import Hello
from braidlog.wire.server import ServerConnection, ServerSettings, allow_all


def client_hello() -> bytes:
    out = ssl.MemoryBIO()
    context = ssl.create_default_context()
    there = context.wrap_bio(ssl.MemoryBIO(), out, server_hostname="node")
    with pytest.raises(ssl.SSLWantReadError):
        there.do_handshake()
    return out.read()


ALERT = bytes([0x15, 3, 3, 0, 2, 2, 40])


@pytest.mark.parametrize(
    ("data", "speaks"),
    [
        (client_hello(), "TLS"),
        (ALERT, "TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n", "HTTP"),
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "SSH"),
    ],
)
@pytest.mark.parametrize("step", [1, 3, 1 << 16])
def test_both_ends_say_what_it_is(data: bytes, speaks: str, step: int) -> None:
    settings = ServerSettings("c", 1, allow_all)
    for end in (ServerConnection(settings), ClientConnection(Hello(1, 1, "c"))):
        with pytest.raises(ForeignPeerError) as caught:
            feed(end, data, step)
        assert caught.value.speaks == speaks
        assert end.closed


def feed(end: Connection, data: bytes, step: int) -> None:
    for at in range(0, len(data), step):
        end.receive(data[at : at + step])


@given(st.integers(0, HANDSHAKE_BYTES_MAX))
def test_no_frame_of_a_handshake_is_taken_for_it(length: int) -> None:
    assert foreign(length.to_bytes(FIRST_BYTES, "little")) == ""
