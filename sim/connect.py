"""Setting up a connection: a request that is sent until it is answered or given up."""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Any

from sim.process import Process

if TYPE_CHECKING:
    from sim.network import Host, Network
    from sim.transport import SimTransport

__all__ = ["Attempt"]


class Attempt:
    """One attempt to connect; what it does runs as the kernel."""

    def __init__(
        self, network: Network, process: Process, source: Host, target: Host, port: int
    ) -> None:
        """Begin with nothing sent."""
        self._network = network
        self._process = process
        self._source = source
        self._target = target
        self._port = port
        self._future: asyncio.Future[Any] = network.loop.create_future()
        self._connected: SimTransport | None = None

    async def transport(self) -> SimTransport:
        """Send until there is an answer, and return the own end."""
        network = self._network
        network.after(network.settings.connect_timeout_s, self._give_up)
        self._send()
        try:
            found: SimTransport = await self._future
        except asyncio.CancelledError:
            if self._connected is not None:
                self._connected.vanish()
                network.send_reset(self._source, self._connected.outgoing.receiver)
            raise
        return found

    def _send(self) -> None:
        if self._over() or self._connected is not None:
            return
        network = self._network
        delay = network.delay(self._source, self._target)
        network.after(delay, self._request_arrives)
        network.after(network.settings.connect_retry_s, self._send)

    def _over(self) -> bool:
        return self._future.done() or not self._process.alive

    def _request_arrives(self) -> None:
        network, target = self._network, self._target
        blocked = network.blocked(self._source, target)
        if self._over() or self._connected is not None or blocked:
            return
        back = network.delay(target, self._source)
        if network.blocked(target, self._source):
            return
        if target.refusing or self._port not in target.listeners:
            network.after(back, self._refused)
            return
        self._connected = network.establish(
            self._process, self._source, target, self._port
        )
        network.after(back, self._answered)

    def _answered(self) -> None:
        assert self._connected is not None
        if not self._over():
            self._future.set_result(self._connected)
        elif self._process.alive:
            self._connected.vanish()
            self._network.send_reset(self._source, self._connected.outgoing.receiver)

    def _refused(self) -> None:
        if not self._over():
            where = f"Connect call failed ('{self._target.address}', {self._port})"
            self._future.set_exception(
                ConnectionRefusedError(errno.ECONNREFUSED, where)
            )

    def _give_up(self) -> None:
        if not self._over() and self._connected is None:
            what = f"Connect call failed ('{self._target.address}', {self._port})"
            self._future.set_exception(TimeoutError(errno.ETIMEDOUT, what))
