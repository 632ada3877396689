"""The end of a simulated connection: an asyncio transport over two pipes.

Callbacks into the protocol run as those of a process do: not while it is paused, and
never again once it is dead. What the kernel would do goes on meanwhile: bytes arrive in
the inbox until the window is full.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Iterable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any

from sim.pipe import Pipe
from sim.process import Process

if TYPE_CHECKING:
    from sim.network import Host, Network

__all__ = ["SimSocket", "SimTransport"]

_RECEIVE_BYTES_MAX = 256 * 1024


class SimSocket:
    """What `get_extra_info("socket")` and `Server.sockets` give: addresses only."""

    def __init__(
        self, name: tuple[str, int], peer: tuple[str, int] | None = None
    ) -> None:
        """Hold the addresses."""
        self._name = name
        self._peer = peer

    def getsockname(self) -> tuple[str, int]:
        """Return the own address."""
        return self._name

    def getpeername(self) -> tuple[str, int]:
        """Return the other's address."""
        if self._peer is None:
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return self._peer

    def setsockopt(self, *_: object) -> None:
        """Take any option; none changes what is simulated."""

    def fileno(self) -> int:
        """Return that there is no descriptor."""
        return -1


class SimTransport(asyncio.Transport):
    """One end of a connection; see the module."""

    outgoing: Pipe
    incoming: Pipe

    def __init__(
        self,
        network: Network,
        host: Host,
        process: Process,
        name: tuple[str, int],
        peer: tuple[str, int],
    ) -> None:
        """Begin as a connection the kernel knows and no protocol has."""
        socket = SimSocket(name, peer)
        super().__init__({"sockname": name, "peername": peer, "socket": socket})
        self._network = network
        self._serial = network.loop.serial()
        self.host = host
        self.process = process
        self.label = f"{host.name}:{name[1]}"
        # True once the kernel would answer to data with a reset.
        self.gone = False
        # Gone without an end of the stream: even that is answered with a reset.
        self.broken = False
        self._protocol: asyncio.BaseProtocol | None = None
        self._context: Context | None = None
        self._inbox = bytearray()
        self._end_arrived = False
        self._end_told = False
        self._error: Exception | None = None
        self._reading = True
        self._receiving = False
        self._closing = False
        self._ended = False
        self._told_lost = False
        self._writing_paused = False
        self._low, self._high = 16 * 1024, 64 * 1024

    def __hash__(self) -> int:
        """Return the serial number, so that sets of transports have one order."""
        return self._serial

    def __repr__(self) -> str:
        """Return the address and the state."""
        return f"<SimTransport {self.label}{' closing' if self._closing else ''}>"

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Give the connection to a protocol, in the context it is called in."""
        self._protocol = protocol
        self._context = copy_context()
        protocol.connection_made(self)
        if self._error is not None:
            self._end(self._error)
        else:
            self._receive_soon()

    def _soon(self, callback: Any, *args: object) -> None:
        if self._context is not None:
            self._network.loop.call_soon(callback, *args, context=self._context)

    # Reading.

    def arrive(self, data: bytes) -> None:
        """Take bytes off the wire."""
        self._inbox += data
        self._receive_soon()

    def arrive_end(self) -> None:
        """Take the end of the stream off the wire."""
        self._end_arrived = True
        self._receive_soon()

    def _receive_soon(self) -> None:
        ready = self._inbox or (self._end_arrived and not self._end_told)
        if ready and self._reading and not self._receiving and not self._closing:
            self._receiving = self._context is not None
            self._soon(self._receive)

    def _receive(self) -> None:
        self._receiving = False
        if not self._reading or self._closing:
            return
        if self._inbox:
            data = bytes(self._inbox[:_RECEIVE_BYTES_MAX])
            del self._inbox[: len(data)]
            self.incoming.consumed(len(data))
            self._hand_over(data)
            self._receive_soon()
        elif self._end_arrived and not self._end_told:
            self._end_told = True
            protocol: Any = self._protocol
            if not protocol.eof_received():
                self.close()

    def _hand_over(self, data: bytes) -> None:
        protocol: Any = self._protocol
        if not isinstance(protocol, asyncio.BufferedProtocol):
            protocol.data_received(data)
            return
        rest = memoryview(data)
        while rest:
            buffer = memoryview(protocol.get_buffer(len(rest))).cast("B")
            size = min(len(buffer), len(rest))
            buffer[:size] = rest[:size]
            protocol.buffer_updated(size)
            rest = rest[size:]

    def pause_reading(self) -> None:
        """Leave what arrives in the inbox."""
        self._reading = False

    def resume_reading(self) -> None:
        """Hand on what arrived."""
        self._reading = True
        self._receive_soon()

    def is_reading(self) -> bool:
        """Return whether data is handed on."""
        return self._reading and not self._closing

    # Writing.

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """Send bytes; nothing happens on a connection that is closing."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise TypeError(f"data: expecting bytes, got {type(data).__name__}")
        if self._ended:
            raise RuntimeError("Cannot call write() after write_eof()")
        if data and not self._closing:
            self.outgoing.write(bytes(data))
            self._pause_writing_if_full()

    def writelines(
        self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]
    ) -> None:
        """Send the pieces as one."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """End the own direction; the other one stays."""
        if not self._ended and not self._closing:
            self._ended = True
            self.outgoing.finish()

    def can_write_eof(self) -> bool:
        """Return that a direction can be ended alone."""
        return True

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the kernel did not take yet."""
        taken = self._network.settings.socket_bytes
        return max(0, self.outgoing.waiting() - taken)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return at how many bytes writing goes on and stops."""
        return self._low, self._high

    def set_write_buffer_limits(
        self, high: int | None = None, low: int | None = None
    ) -> None:
        """Set at how many bytes writing stops and goes on."""
        if high is None:
            high = 64 * 1024 if low is None else 4 * low
        low = high // 4 if low is None else low
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._pause_writing_if_full()

    def _pause_writing_if_full(self) -> None:
        full = self.get_write_buffer_size() > self._high
        if full and not self._writing_paused and self._protocol is not None:
            self._writing_paused = True
            self._protocol.pause_writing()

    def drained(self) -> None:
        """Learn that the pipe took more."""
        size = self.get_write_buffer_size()
        if self._writing_paused and size <= self._low:
            self._writing_paused = False
            self._soon(self._resume_writing)
        if self._closing and size == 0:
            self._soon(self._tell_lost, None)

    def _resume_writing(self) -> None:
        if self._protocol is not None and not self._told_lost:
            self._protocol.resume_writing()

    # Ending.

    def is_closing(self) -> bool:
        """Return whether the connection ends or has ended."""
        return self._closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Call another protocol from now on."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the protocol that is called."""
        assert self._protocol is not None
        return self._protocol

    def close(self) -> None:
        """Send what was written, then end; unread data makes it a reset."""
        if self._closing:
            return
        self._closing = self.gone = True
        if self._inbox:
            self._network.send_reset(self.host, self.outgoing.receiver)
            self.outgoing.drop()
        elif not self._ended:
            self.outgoing.finish()
        if self.get_write_buffer_size() == 0:
            self._soon(self._tell_lost, None)

    def abort(self) -> None:
        """End at once with a reset."""
        if not self._told_lost:
            self._network.send_reset(self.host, self.outgoing.receiver)
            self._end(None)

    def lose(self, error: Exception) -> None:
        """Learn from the kernel that the connection is broken."""
        if self._context is None:
            self._error = error
            self.gone = self.broken = True
        elif not self._told_lost:
            self._network.note(self.host, f"{self.label} lost: {error}")
            self._end(error)

    def vanish(self) -> None:
        """Be gone with the process, without a word to the other side."""
        self._closing = self.gone = self.broken = True
        self.outgoing.drop()
        self._network.forget(self)

    def _end(self, error: Exception | None) -> None:
        self._closing = self.gone = self.broken = True
        self._inbox.clear()
        self.outgoing.drop()
        self._soon(self._tell_lost, error)

    def _tell_lost(self, error: Exception | None) -> None:
        if not self._told_lost:
            self._told_lost = True
            self._network.forget(self)
            assert self._protocol is not None
            self._protocol.connection_lost(error)
