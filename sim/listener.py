"""Ports that are listened on, and the server object asyncio's users hold."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from sim.process import Process
from sim.transport import SimSocket, SimTransport

if TYPE_CHECKING:
    from sim.network import Host, Network

__all__ = ["SimServer"]


class SimServer(asyncio.AbstractServer):
    """A listener on one port of a host."""

    def __init__(
        self,
        network: Network,
        host: Host,
        process: Process,
        factory: Callable[[], asyncio.BaseProtocol],
        name: tuple[str, int],
    ) -> None:
        """Take connections in the context this is called in."""
        self._network = network
        self._host = host
        self.process = process
        self._factory = factory
        self._name = name
        self._context: Context = copy_context()
        self._open = True
        self._accepted: dict[SimTransport, None] = {}
        self._waiters: list[asyncio.Future[Any]] = []
        self._forever: asyncio.Future[Any] | None = None

    @property
    def sockets(self) -> tuple[SimSocket, ...]:
        """Return one object that knows the address, none once closed."""
        return (SimSocket(self._name),) if self._open else ()

    def accept(self, transport: SimTransport) -> None:
        """Give a connection to a new protocol, when the process runs."""
        self._accepted[transport] = None
        loop = self._network.loop
        loop.call_soon(self._begin, transport, context=self._context)

    def _begin(self, transport: SimTransport) -> None:
        transport.begin(self._factory())

    def ended(self, transport: SimTransport) -> None:
        """Learn that a connection is over."""
        self._accepted.pop(transport, None)
        if not self._open and not self._accepted:
            self._wake()

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def close(self) -> None:
        """Refuse new connections; those that exist stay."""
        if not self._open:
            return
        self._open = False
        self._host.listeners.pop(self._name[1], None)
        self._network.note(self._host, f"{self._host.name}:{self._name[1]} closed")
        if self._forever is not None and not self._forever.done():
            self._forever.cancel()
        if not self._accepted:
            self._wake()

    def close_clients(self) -> None:
        """Close the connections that exist."""
        for transport in list(self._accepted):
            transport.close()

    def abort_clients(self) -> None:
        """Abort the connections that exist."""
        for transport in list(self._accepted):
            transport.abort()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop."""
        return self._network.loop

    def is_serving(self) -> bool:
        """Return whether connections are taken."""
        return self._open

    async def start_serving(self) -> None:
        """Do nothing: it began when it was made."""

    async def serve_forever(self) -> None:
        """Wait until cancelled or closed, then close."""
        self._forever = self._network.loop.create_future()
        try:
            await self._forever
        finally:
            self.close()

    async def wait_closed(self) -> None:
        """Wait until closed and the last connection is over."""
        if self._open or self._accepted:
            waiter = self._network.loop.create_future()
            self._waiters.append(waiter)
            await waiter

    async def __aexit__(self, *_: object) -> None:
        """Close and wait."""
        self.close()
        await self.wait_closed()
