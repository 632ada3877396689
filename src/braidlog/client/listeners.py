"""Finds out what listens where nothing was said to a `Hello`.

A server of TLS closes the connection of whoever does not begin with it, without a word,
and one of HTTP waits for the end of a line. Both would look like a node that hangs, and
be tried until the deadline. So they are spoken to in their own way, once.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from braidlog.errors import ForeignPeerError
from braidlog.wire.foreign import FIRST_BYTES, foreign

__all__ = ["NO_TLS", "check_listener"]

NO_TLS: Final = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"}
)
"""What OpenSSL says when the answer is no TLS; newer ones say the second."""

_PATIENCE_S: Final = 1.0
_REQUEST: Final = b"HEAD / HTTP/1.0\r\n\r\n"


async def check_listener(address: str) -> None:
    """Return if it may be a node all the same.

    Raises:
        ForeignPeerError: it answers to TLS or HTTP.
    """
    host, _, port = address.rpartition(":")
    where = host.strip("[]"), int(port)
    takes_tls, speaks = await asyncio.gather(_takes_tls(*where), _answer(*where))
    if takes_tls:
        msg = f"{address} uses TLS: pass `ssl=` to the client, --tls-ca to commands"
        raise ForeignPeerError(msg, speaks="TLS")
    if speaks:
        msg = f"{address} speaks {speaks}, it is no node: check host and port"
        raise ForeignPeerError(msg, speaks=speaks)


async def _takes_tls(host: str, port: int) -> bool:
    # Nothing is sent to it, so it does not matter who it is.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_PATIENCE_S):
            transport, _ = await loop.create_connection(
                asyncio.Protocol, host, port, ssl=context
            )
    except OSError:  # a timeout and what TLS says are such
        return False
    transport.abort()
    return True


async def _answer(host: str, port: int) -> str:
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(_REQUEST)
            return foreign(await reader.readexactly(FIRST_BYTES))
    except (OSError, asyncio.IncompleteReadError):
        return ""
    finally:
        if writer is not None:
            writer.transport.abort()
