"""Finds out what listens where nothing was said to a `Hello`.

A server of TLS closes the connection of whoever does not begin with it, without a word,
and one of HTTP waits for the end of a line. Both would look like a node that hangs, and
be tried until the deadline. So they are spoken to in their own way, once.
"""

from __future__ import annotations

import asyncio
from typing import Final

from braidlog.errors import ForeignPeerError
from braidlog.wire.foreign import FIRST_BYTES, foreign

NO_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}
)
"""What OpenSSL says when the answer is no TLS; newer ones say the second."""

_PATIENCE_S: Final = 1.0
_REQUEST: Final = b"HEAD / HTTP/1.0\r\n\r\n"


def _vector(content: bytes, length_bytes: int) -> bytes:
    return len(content).to_bytes(length_bytes, "big") + content


def _extension(number: int, content: bytes) -> bytes:
    return number.to_bytes(2, "big") + _vector(content, 2)


def _client_hello() -> bytes:
    """Return a `ClientHello` that every server of TLS 1.2 or 1.3 answers.

    The handshake is never finished, so nothing in it has to be random.
    """
    ciphers = "1301 1302 1303 c02b c02f c02c c030 cca9 cca8 009c 009d 002f 0035"
    signatures = "0403 0503 0603 0807 0804 0805 0806 0401 0501 0601"
    share = bytes.fromhex("001d") + _vector(b"\x09" + bytes(31), 2)
    extensions = (
        _extension(10, _vector(bytes.fromhex("001d 0017 0018"), 2))  # groups
        + _extension(11, _vector(b"\0", 1))  # formats of points
        + _extension(13, _vector(bytes.fromhex(signatures), 2))
        + _extension(43, _vector(bytes.fromhex("0304 0303"), 1))  # versions
        + _extension(51, _vector(share, 2))  # of X25519; any 32 bytes are one
    )
    hello = (
        bytes.fromhex("0303")
        + bytes(range(32))
        + _vector(b"", 1)  # no session
        + _vector(bytes.fromhex(ciphers), 2)
        + _vector(b"\0", 1)  # no compression
        + _vector(extensions, 2)
    )
    # RFC 8446, 4 and 5.1: one handshake message in one record.
    return bytes.fromhex("16 0301") + _vector(b"\x01" + _vector(hello, 3), 2)


CLIENT_HELLO: Final = _client_hello()
"""The first bytes of a client of TLS."""


async def check_listener(address: str) -> None:
    """Return if it may be a node all the same.

    Raises:
        ForeignPeerError: it answers to TLS or HTTP.
    """
    host, _, port = address.rpartition(":")
    where = host.strip("[]"), int(port)
    found = await asyncio.gather(
        _answer(*where, CLIENT_HELLO), _answer(*where, _REQUEST)
    )
    if "TLS" in found:
        msg = (
            f"{address} uses TLS: pass ssl= to the client (--tls-ca on the "
            "command line)"
        )
        raise ForeignPeerError(msg, speaks="TLS")
    speaks = found[0] or found[1]
    if speaks:
        msg = (
            f"{address} speaks {speaks} and is not a Braidlog node: check host and port"
        )
        raise ForeignPeerError(msg, speaks=speaks)


async def _answer(host: str, port: int, greeting: bytes) -> str:
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(greeting)
            return foreign(await reader.readexactly(FIRST_BYTES))
    except (OSError, asyncio.IncompleteReadError):
        return ""
    finally:
        if writer is not None:
            writer.transport.abort()
