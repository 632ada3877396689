"""Listening for connections: each is handed on when it is accepted.

The listeners of event loops say nothing of a connection before its TLS handshake is
over, and until then nobody could count it, or send it away. That of asyncio also leaves
the socket of a connection open that it accepted in the turn in which it is closed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

_BACKLOG: Final = 1024
_AT_ONCE: Final = 64
"""Connections accepted in one turn of the loop, which has other things to do."""
_PAUSE_S: Final = 0.1
"""Until the next attempt, if the system has no descriptor or memory for another one."""
_GONE: Final = {errno.ECONNABORTED, errno.EPROTO, errno.EPERM, errno.EINTR}
"""Only the connection that was to be accepted is lost."""


def has_descriptors(loop: asyncio.AbstractEventLoop) -> bool:
    """Return whether a loop watches sockets of the system; a simulation has its own."""
    return type(loop).add_reader is not asyncio.AbstractEventLoop.add_reader


async def bind(host: str, port: int) -> list[socket.socket]:
    """Listen at every address of a host.

    Raises:
        OSError: one of them cannot be listened at.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            each = socket.socket(family, kind, protocol)
            sockets.append(each)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind(address)
            each.listen(_BACKLOG)
            each.setblocking(False)
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


class Listener:
    """Accepts until it is closed."""

    def __init__(
        self, sockets: list[socket.socket], took: Callable[[socket.socket, str], None]
    ) -> None:
        """Hand each connection to `took`, with the host it comes from."""
        self._loop = asyncio.get_running_loop()
        self._sockets = sockets
        self._took = took
        self._pauses: dict[socket.socket, asyncio.TimerHandle] = {}
        self._lacks = False
        for each in sockets:
            self._loop.add_reader(each, self._accept, each)

    def close(self) -> None:
        """Listen no more; what was accepted goes on."""
        for each in self._sockets:
            if (pause := self._pauses.pop(each, None)) is not None:
                pause.cancel()
            self._loop.remove_reader(each)
            each.close()
        self._sockets = []

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(_AT_ONCE):
            if listening.fileno() < 0:
                return
            try:
                accepted, address = listening.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _GONE:
                    continue
                self._pause(listening, error)
                return
            self._lacks = False
            accepted.setblocking(False)
            self._took(accepted, str(address[0]))

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        if not self._lacks:
            _log.warning("new connections cannot be accepted for now: %s", error)
        self._lacks = True
        self._loop.remove_reader(listening)
        self._pauses[listening] = self._loop.call_later(
            _PAUSE_S, self._resume, listening
        )

    def _resume(self, listening: socket.socket) -> None:
        del self._pauses[listening]
        self._loop.add_reader(listening, self._accept, listening)
