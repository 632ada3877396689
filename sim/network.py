"""A network in memory: hosts, links that can be cut, connections that can break.

*Theory of operation.* A host has a name and an address; a process without one of its
own (the world's) gets one when it first uses the network. A link is one direction
between two hosts. What crosses it takes a random delay plus the time its bytes need,
and nothing crosses while it is cut. Connections are two `Pipe`s between two
`SimTransport`s; what a kernel does runs as the world's process, so it goes on while a
node is paused and after it is dead.

*Invariants.* Within a connection, bytes arrive in order and whole, unless its port is
one of `framed_ports`. Loopback is never cut. Every draw comes from `random`.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable, Iterable
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any, TypeVarTuple, Unpack

from sim.connect import Attempt
from sim.errors import MisuseError
from sim.frames import FrameFaults, FrameFilter
from sim.listener import SimServer
from sim.pipe import Pipe
from sim.process import Process
from sim.transport import SimTransport

if TYPE_CHECKING:
    from sim.loop import VirtualLoop

__all__ = ["Host", "LinkSettings", "Network"]

Ts = TypeVarTuple("Ts")

_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANY = ("0.0.0.0", "::", "")
_FIRST_EPHEMERAL = 32768


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """How the network behaves when nothing is broken, and how long faults last."""

    delay_min_s: float = 0.0001
    delay_max_s: float = 0.002
    # Share of chunks and packets that are late, and by how much at most.
    late: float = 0.01
    late_max_s: float = 0.05
    bytes_per_s: float = 100e6
    window_bytes: int = 256 * 1024
    # What the kernel takes before a transport counts bytes as its own.
    socket_bytes: int = 64 * 1024
    connect_timeout_s: float = 10.0
    connect_retry_s: float = 1.0
    # After how long a connection on a cut link breaks: drawn between the two.
    stall_s: tuple[float, float] = (5.0, 30.0)
    # How long after a cut is healed data is sent again, at most.
    resend_s: float = 0.4


@dataclass(eq=False, slots=True)
class Host:
    """One address; its process may come and go."""

    name: str
    address: str
    listeners: dict[int, SimServer] = field(default_factory=dict)
    # False: without power. It answers nothing, not even with a reset.
    up: bool = True
    # True: whoever connects is refused, although somebody listens.
    refusing: bool = False
    port_next: int = _FIRST_EPHEMERAL


class Network:
    """All hosts, links and connections; see the module."""

    def __init__(
        self, loop: VirtualLoop, random: Random, settings: LinkSettings | None = None
    ) -> None:
        """Become the network of the loop."""
        self.loop = loop
        self.random = random
        self.settings = settings or LinkSettings()
        # Listening ports whose connections speak frames, and what happens to these now.
        self.framed_ports: dict[int, None] = {}
        self.frame_faults = FrameFaults()
        # Hosts that do not speak frames, or not whole ones.
        self.unframed_hosts: dict[str, None] = {}
        # Hosts that other faults hold for, on what is sent to them.
        self.deaf: dict[str, FrameFaults] = {}
        self.hosts: dict[str, Host] = {}
        self._cut: dict[tuple[str, str], None] = {}
        self._free: dict[tuple[str, str], float] = {}
        self._ends: dict[SimTransport, None] = {}
        self._servers: dict[SimTransport, SimServer] = {}
        self._kernel = Context()
        loop.network = self

    # What a kernel and a wire do.

    def after(
        self,
        seconds: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
    ) -> None:
        """Call as the kernel, `seconds` from now."""
        self.at(self.loop.true_time + seconds, callback, *args)

    def at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts
    ) -> None:
        """Call as the kernel at a true time."""
        self.loop.call_kernel(when, callback, args, self._kernel)

    def note(self, host: Host, what: str) -> None:
        """Put an event into the trace."""
        self.loop.trace.event(self.loop.true_time, host.name, what)

    def arrived(self, host: Host, way: str, data: bytes) -> None:
        """Put bytes that a host got into the trace."""
        self.loop.trace.arrival(self.loop.true_time, host.name, way, data)

    def delay(self, source: Host, target: Host) -> float:
        """Draw how long a packet travels."""
        settings = self.settings
        if source is target:
            return settings.delay_min_s / 10
        span = settings.delay_max_s - settings.delay_min_s
        seconds = settings.delay_min_s + span * self.random.random() ** 3
        if self.random.random() < settings.late:
            seconds += settings.late_max_s * self.random.random()
        return seconds

    def arrival(self, source: Host, target: Host, size: int) -> float:
        """Return when bytes that are sent now arrive; till then the link is taken."""
        link = (source.name, target.name)
        begin = max(self.loop.true_time, self._free.get(link, 0.0))
        self._free[link] = begin + size / self.settings.bytes_per_s
        return self._free[link] + self.delay(source, target)

    def send_reset(self, source: Host, target: SimTransport) -> None:
        """Tell an end that its connection is no more, if the link lets it through."""
        self.after(self.delay(source, target.host), self._reset_arrives, source, target)

    def _reset_arrives(self, source: Host, target: SimTransport) -> None:
        if not self.blocked(source, target.host):
            target.lose(
                ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            )

    # Hosts.

    def host(self, name: str) -> Host:
        """Return the host of that name, made if there is none."""
        if name not in self.hosts:
            number = len(self.hosts) + 1
            address = f"10.0.{number // 250}.{number % 250 + 1}"
            self.hosts[name] = Host(name, address)
        return self.hosts[name]

    def resolve(self, name: str | None, source: Host) -> Host:
        """Return the host that a name or address means on `source`.

        Raises:
            socket.gaierror: there is none.
        """
        if name is None or name in _LOOPBACK or name in _ANY:
            return source
        found = self.hosts.get(name)
        if found is None:
            hosts = [host for host in self.hosts.values() if host.address == name]
            if not hosts:
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
            found = hosts[0]
        return found

    def look_up(self, name: str | None) -> str:
        """Return the address that a name means on the host of the running process.

        Raises:
            socket.gaierror: there is none.
        """
        return self.resolve(name, self.host(self.loop.process().name)).address

    # Faults.

    def blocked(self, source: Host, target: Host) -> bool:
        """Return whether nothing gets from one host to the other."""
        if source is target:
            return not target.up
        return not target.up or (source.name, target.name) in self._cut

    def cut(self, source: str, target: str) -> None:
        """Let everything vanish that goes from one host to the other."""
        self._cut[self.host(source).name, self.host(target).name] = None
        self.note(self.host(source), f"cut off from {target}")

    def partition(self, *groups: Iterable[str]) -> None:
        """Cut both ways between hosts of different groups."""
        sides = [list(group) for group in groups]
        for side in sides:
            for other in sides:
                if side is not other:
                    for source in side:
                        for target in other:
                            self.cut(source, target)

    def heal(self, source: str | None = None, target: str | None = None) -> None:
        """Let everything through again, or only between the hosts that are named."""
        healed = [
            (a, b) for a, b in self._cut if source in (None, a) and target in (None, b)
        ]
        for link in healed:
            del self._cut[link]
            self.note(self.host(link[0]), f"reaches {link[1]} again")
        self._links_changed()

    def _links_changed(self) -> None:
        for end in list(self._ends):
            end.outgoing.link_changed()

    def between(self, one: str, other: str) -> list[SimTransport]:
        """Return the ends on the host `one` of connections with `other`."""
        return [
            end
            for end in self._ends
            if end.host.name == one and end.outgoing.target.name == other
        ]

    def reset(self, one: str, other: str) -> int:
        """Break all connections between two hosts; both sides learn it."""
        ends = [*self.between(one, other), *self.between(other, one)]
        for end in dict.fromkeys(ends):
            end.lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        return len(ends)

    def forget_side(self, one: str, other: str) -> int:
        """Make connections half-open: the side of `one` is gone, `other` not told."""
        ends = self.between(one, other)
        for end in ends:
            end.lose(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))
        return len(ends)

    def process_died(self, process: Process, *, power: bool) -> None:
        """Take a dead process's listeners and connections away.

        With power, the kernel resets its connections. Without, nobody says anything
        until the host is up again and gets data of connections it does not know.
        """
        host = self.host(process.name)
        host.listeners.clear()
        for end in [end for end in self._ends if end.process is process]:
            end.vanish()
            if power:
                self.send_reset(host, end.outgoing.receiver)
        host.up = power

    def power_up(self, name: str) -> None:
        """Let a host answer again."""
        self.host(name).up = True
        self._links_changed()

    # Connections.

    def listen(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        name: str | None,
        port: int | None,
        options: dict[str, Any],
    ) -> SimServer:
        """Listen on a port of the running process's host; 0 and None choose one."""
        _refuse_options(options)
        process = self.loop.process()
        host = self.host(process.name)
        if self.resolve(name, host) is not host:
            raise OSError(errno.EADDRNOTAVAIL, f"{name} is no address of {host.name}")
        port = port or self._port(host)
        if port in host.listeners:
            raise OSError(errno.EADDRINUSE, f"port {port} of {host.name} is in use")
        server = SimServer(self, host, process, factory, (host.address, port))
        host.listeners[port] = server
        self.note(host, f"{host.name}:{port} listens")
        return server

    async def connect(
        self,
        factory: Callable[[], asyncio.BaseProtocol],
        name: str | None,
        port: int | None,
        options: dict[str, Any],
    ) -> tuple[SimTransport, asyncio.BaseProtocol]:
        """Connect the running process.

        Raises:
            ConnectionRefusedError: nobody listens there.
            TimeoutError: nothing came back for too long.
            socket.gaierror: there is no such host.
        """
        _refuse_options(options)
        process = self.loop.process()
        source = self.host(process.name)
        if port is None:
            raise ValueError("host and port was not specified and no sock specified")
        target = self.resolve(name, source)
        attempt = Attempt(self, process, source, target, port)
        transport = await attempt.transport()
        protocol = factory()
        transport.begin(protocol)
        return transport, protocol

    def establish(
        self, process: Process, source: Host, target: Host, port: int
    ) -> SimTransport:
        """Make both ends and give one to the listener."""
        server = target.listeners[port]
        near, far = (source.address, self._port(source)), (target.address, port)
        client = SimTransport(self, source, process, near, far)
        accepted = SimTransport(self, target, server.process, far, near)
        client.outgoing = accepted.incoming = Pipe(self, client, accepted)
        client.incoming = accepted.outgoing = Pipe(self, accepted, client)
        if port in self.framed_ports and source.name not in self.unframed_hosts:
            for pipe in (client.outgoing, accepted.outgoing):
                faults = partial(self._faults, pipe.target.name)
                pipe.filter = FrameFilter(faults, self.random)
        self._ends[client] = None
        self._ends[accepted] = None
        self._servers[accepted] = server
        self.note(target, f"{client.label}>{accepted.label} connected")
        server.accept(accepted)
        return client

    def _faults(self, target: str) -> FrameFaults:
        return self.deaf.get(target, self.frame_faults)

    def _port(self, host: Host) -> int:
        host.port_next += 1
        return host.port_next

    def forget(self, end: SimTransport) -> None:
        """Take an end out of the lists."""
        self._ends.pop(end, None)
        server = self._servers.pop(end, None)
        if server is not None:
            server.ended(end)

    def close(self) -> None:
        """Take all connections away without a word."""
        for end in list(self._ends):
            end.vanish()


def _refuse_options(options: dict[str, Any]) -> None:
    for name in ("ssl", "sock"):
        if options.get(name) is not None:
            raise MisuseError(f"the simulated network has no {name}")
