"""Connections over TCP and TLS, by the rules of `braidlog.wire`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from typing import Any, Final, cast

from braidlog.client.connection.link import Answer, Connector, Link, Taker
from braidlog.client.connection.probe import NO_TLS, check_listener
from braidlog.errors import (
    ConnectionLostError,
    ForeignPeerError,
    LogError,
    RemoteProtocolError,
    UnauthorizedError,
)
from braidlog.store.threads import no_thread
from braidlog.wire.client import ClientConnection
from braidlog.wire.connection import VERSION_MAX, VERSION_MIN
from braidlog.wire.events import (
    Answered,
    Closing,
    Connected,
    Event,
    FailedRequest,
    Refused,
)
from braidlog.wire.messages import Hello, Message

_GOODBYE_S: Final = 1.0
_SILENCE_S: Final = 1.0
"""A node says something to a `Hello` much sooner."""
_RECEIVE_BYTES_MAX: Final = 256 << 10
"""What one read takes at most."""


class _Waiting(asyncio.Future[Answer]):
    """Somebody who waits for an answer."""

    @property
    def gone(self) -> bool:
        return self.done()

    def answered(self, message: Message, payload: memoryview) -> None:
        if not self.done():
            self.set_result((message, payload))

    def failed(self, error: LogError) -> None:
        if not self.done():
            self.set_exception(error)


class SocketLink(asyncio.BufferedProtocol):
    """One connection. Requests for which the window has no room wait in their order.

    How many bytes wait is bounded by what the callers may have outstanding.
    """

    def __init__(self, address: str, hello: Hello) -> None:
        """Begin before the handshake."""
        loop = asyncio.get_running_loop()
        self._address = address
        self._rules = ClientConnection(hello)
        self._transport: asyncio.Transport | None = None
        self._takers: dict[int, Taker] = {}
        self._line: deque[tuple[Message, bytes, Taker]] = deque()
        self._ready: asyncio.Future[None] = loop.create_future()
        self._lost: asyncio.Future[None] = loop.create_future()
        self._writing = False
        self._closed = False
        # Memory that is not touched is not there: small answers touch little.
        self._incoming = memoryview(bytearray(_RECEIVE_BYTES_MAX))

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._closed or self._rules.closed

    async def ready(self) -> None:
        """Wait for the handshake."""
        await self._ready

    async def check_silence(self, patience_s: float) -> None:
        """See what listens if it has said nothing until it closed, or for long.

        A node that is merely slow may still greet: then that is not waited for.

        Raises:
            ForeignPeerError: it is no node.
        """
        await asyncio.wait([self._ready], timeout=patience_s)
        if self._rules.heard:
            return
        checking = asyncio.create_task(check_listener(self._address))
        try:
            await asyncio.wait(
                [self._ready, checking], return_when=asyncio.FIRST_COMPLETED
            )
            if not self._rules.heard:
                await checking
        finally:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)

    def request(self, message: Message, payload: bytes = b"") -> asyncio.Future[Answer]:
        """Send a request behind all earlier ones; the future gives its answer."""
        loop = asyncio.get_running_loop()
        waiting = _Waiting(loop=loop)
        self.send(message, payload, waiting)
        # Requests of one turn of the loop leave in one write.
        if not self._writing:
            self._writing = True
            loop.call_soon(self._write_late)
        return waiting

    def send(self, message: Message, payload: bytes, taker: Taker) -> None:
        """Send a request behind all earlier ones at the next `flush`."""
        if self._closed or self._rules.closed:
            raise self._broken("was closed by this client")
        number = None if self._line else self._rules.request(message, (payload,))
        if number is None:
            self._line.append((message, payload, taker))
        else:
            self._takers[number] = taker

    def _write_late(self) -> None:
        self._writing = False
        self.flush()

    def flush(self) -> None:
        """Write what was sent."""
        # All of them are buffers, for which asyncio has no type of its own.
        out: Any = self._rules.outgoing()
        if out and self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(out)

    # -- asyncio.BufferedProtocol ------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the `Hello`."""
        # The transports of other loops do not inherit from that class.
        self._transport = cast("asyncio.Transport", transport)
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002, RUF100
        """Return where the next bytes go."""
        return self._incoming

    def buffer_updated(self, nbytes: int) -> None:
        """Take what one read gave."""
        data = self._incoming[:nbytes]
        try:
            events = [] if self._rules.closed else self._rules.receive(data)
        except RemoteProtocolError as error:
            self.flush()
            self._end(error)
            return
        for event in events:
            if type(event) is Answered:
                # Nearly all are, and each call of a function costs what this does.
                self._takers.pop(event.request).answered(event.message, event.payload)
            else:
                self._take(event)
        if self._line:
            self._serve_line()
        if self._rules.core.queued_bytes:
            self.flush()
        if self._rules.closed:
            self._end(self._broken("was closed by the node"))

    def eof_received(self) -> bool:
        """Close this side too."""
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what is under way."""
        self._end(self._broken(f"broke: {error}" if error else "was closed"))
        if not self._lost.done():
            self._lost.set_result(None)

    def _take(self, event: Event) -> None:
        match event:
            case FailedRequest(request, error):
                self._takers.pop(request).failed(error)
            case Connected():
                self._ready.set_result(None)
            case Refused(error):
                self._end(error)
            case Closing(reason):
                self._end(self._broken(f"was closed by the node: {reason}"))
            case _:
                pass  # A Pong: whoever sent a Ping for a sign of life has it.

    def _serve_line(self) -> None:
        while self._line and not self.closed:
            message, payload, taker = self._line[0]
            if not taker.gone:
                try:
                    number = self._rules.request(message, (payload,))
                    if number is None:
                        return
                    self._takers[number] = taker
                except LogError as error:
                    taker.failed(error)
            self._line.popleft()

    def _broken(self, what: str) -> ConnectionLostError:
        return ConnectionLostError(f"the connection to {self._address} {what}")

    def _end(self, error: LogError) -> None:
        if self._closed:
            return
        self._closed = True
        if not self._ready.done():
            self._ready.set_exception(error)
            # `ready` may have been cancelled, then nobody asks.
            self._ready.exception()
        waiting = [*self._takers.values(), *(taker for _, _, taker in self._line)]
        self._takers.clear()
        self._line.clear()
        for taker in waiting:
            taker.failed(self._broken(f"ended: {error.message}"))
        if self._transport is not None:
            self._transport.close()

    async def close(self) -> None:
        """Say goodbye and close; what is under way fails. Idempotent."""
        if not self.closed:
            self._rules.goodbye()
            self.flush()
        self._end(self._broken("was closed by this client"))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_GOODBYE_S):
                await asyncio.shield(self._lost)
        if self._transport is not None:
            self._transport.abort()


_UNTRUSTED: Final = (
    "Trust the authority that signed it: give the file of its certificate to "
    "`ssl.create_default_context(cafile=...)` (--tls-ca on the command line)"
)
_OTHER_NAME: Final = (
    "Connect to an address that the certificate names, or give the node a "
    "certificate for this one"
)
# By the numbers of OpenSSL; they are part of its interface.
_CERTIFICATE_HINTS: Final = {
    9: "Check the clocks of this machine and of the one that signed it",
    10: "Renew it and restart the node; check the clock of this machine",
    62: _OTHER_NAME,
    64: _OTHER_NAME,
}


def socket_connector(
    *, token: str = "", context: ssl.SSLContext | None = None, cluster: str = ""
) -> Connector:
    """Return what opens connections that present ``token``.

    Raises:
        TypeError: a text is none; the node would call the greeting malformed.
    """
    given: dict[str, object] = {"token": token, "cluster": cluster}
    for name, text in given.items():
        if not isinstance(text, str):
            raise TypeError(f"{name} must be a str, not {type(text).__name__}")
    hello = Hello(VERSION_MIN, VERSION_MAX, cluster, 0, token, "braidlog-python")

    async def connect(address: str) -> Link:
        try:
            transport, link = await _connected(address, hello, context)
        except ssl.SSLCertVerificationError as error:
            # Trying again does not make it trusted.
            msg = f"the certificate of {address} is not trusted: {error.verify_message}"
            hint = _CERTIFICATE_HINTS.get(error.verify_code, _UNTRUSTED)
            raise UnauthorizedError(msg).advising(hint) from error
        except ssl.SSLError as error:
            if error.reason not in NO_TLS:
                raise
            raise ForeignPeerError(
                f"{address} does not use TLS: connect without ssl= (without "
                "--tls-ca on the command line)"
            ) from error
        try:
            if context is None:
                await link.check_silence(_SILENCE_S)
            await link.ready()
        except BaseException:
            transport.abort()
            raise
        return link

    return connect


async def _connected(
    address: str, hello: Hello, context: ssl.SSLContext | None
) -> tuple[asyncio.Transport, SocketLink]:
    """Connect to one of the addresses that a host has, in their order."""
    name, _, port = address.rpartition(":")
    host = name.strip("[]")
    loop = asyncio.get_running_loop()
    # By itself: where a connection is given up, uvloop leaves the lookup that belongs
    # to it alone, and its error is printed as one that nobody wanted to know.
    try:
        found = await loop.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except RuntimeError as error:
        raise no_thread(f"to look {host} up", error) from error
    refused = OSError("the host has no address")
    for *_, (ip, *_) in found:
        try:
            return await loop.create_connection(
                lambda: SocketLink(address, hello),
                str(ip),
                int(port),
                ssl=context,
                server_hostname=host if context else None,
            )
        except ssl.SSLError:
            raise
        except OSError as error:
            refused = error
    raise refused
