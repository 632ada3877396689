"""What a client of TLS meets on this network, where no host speaks it.

Its first bytes really travel, so whoever listens answers them as it would, late or
never. What the client is told then is what asyncio makes of such an answer.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

__all__ = ["HANDSHAKE_TIMEOUT_S", "ClientHello"]

HANDSHAKE_TIMEOUT_S = 60.0
"""As in asyncio."""

# A record of TLS 1.0 with 512 bytes. A real one has random ones, which would make two
# runs of a seed differ; no host here reads so far.
_CLIENT_HELLO = b"\x16\x03\x01\x02\x00" + bytes(512)


class ClientHello(asyncio.Protocol):
    """Begins a handshake, which fails one way or another."""

    def __init__(self) -> None:
        """Begin with nothing sent."""
        self._failed: asyncio.Future[Any]
        self._failed = asyncio.get_running_loop().create_future()

    async def failure(self) -> None:
        """Wait for the end of the handshake.

        Raises:
            ssl.SSLError: the answer is no TLS.
            OSError: the connection broke, or nothing came for too long.
        """
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S) as patience:
                await self._failed
        except TimeoutError as error:
            if not patience.expired():
                raise
            what = f"SSL handshake is taking longer than {HANDSHAKE_TIMEOUT_S} seconds"
            raise ConnectionAbortedError(what) from error

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send what a handshake begins with."""
        wire: Any = transport
        wire.write(_CLIENT_HELLO)

    def data_received(self, data: bytes) -> None:
        """Find that it is no TLS, whatever it is."""
        error = ssl.SSLError(ssl.SSL_ERROR_SSL, "wrong version number")
        error.reason = "WRONG_VERSION_NUMBER"
        self._fail(error)

    def eof_received(self) -> bool:
        """Give up, and close this side too."""
        self._fail(ConnectionResetError())
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Give up."""
        self._fail(error or ConnectionResetError())

    def _fail(self, error: Exception) -> None:
        if not self._failed.done():
            self._failed.set_exception(error)
            # Whoever waited may have been cancelled.
            self._failed.exception()
