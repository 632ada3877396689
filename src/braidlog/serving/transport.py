"""A socket and the sans-IO connection on it: bytes in, bytes out, nothing decided."""

from __future__ import annotations

import asyncio
import socket
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias, cast

from braidlog.errors import ProtocolError, RemoteProtocolError
from braidlog.wire.connection import Connection, Fed, Poll, State
from braidlog.wire.events import Event

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Outbox:
    """The sockets of a node that have something to write, in the order they got it.

    All are written at the end of the turn, or earlier by who has sent all it will and
    goes on with something that takes time.
    """

    def __init__(self, poll: Poll | None = None) -> None:
        """Begin with none; `poll` reads and writes open connections itself."""
        self.poll = poll
        # Asked for each message, it would be a system call each time.
        self._loop = asyncio.get_running_loop()
        # A dict, for its order.
        self.wires: dict[Wire, None] = {}
        self._turn: asyncio.Handle | None = None
        self.held = False
        """Whether somebody flushes it within this turn, so that it need not itself."""

    def add(self, wire: Wire) -> None:
        """Write what a socket has at the end of this turn of the loop."""
        self.wires[wire] = None
        if self._turn is None and not self.held:
            self._turn = self._loop.call_soon(self._end)

    def flush(self) -> None:
        """Write everything now."""
        # A socket that breaks while it is written may give others something to write.
        while self.wires:
            wires, self.wires = self.wires, {}
            for wire in wires:
                wire.flush()

    def _end(self) -> None:
        self._turn = None
        self.flush()


_KEEPALIVE: Final = (
    ("TCP_KEEPIDLE", 30),
    ("TCP_KEEPINTVL", 10),
    ("TCP_KEEPCNT", 3),
)
"""Whoever vanished without a word, with its machine or its network, is gone after about
a minute of silence: a connection that waits for nothing would never find out."""


def watch(
    transport: asyncio.Transport, options: Sequence[tuple[str, int]] = ()
) -> None:
    """Let TCP look after the other side; `options` are further ones of its level."""
    held = transport.get_extra_info("socket")
    if held is None:
        return
    held.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_KEEPALIVE, *options):
        # Not every system has all of them.
        if (option := getattr(socket, name, None)) is not None:
            held.setsockopt(socket.IPPROTO_TCP, option, value)


_RECEIVE_BYTES_MAX: Final = 256 << 10
"""What one read of a socket takes at most."""

_of_thread = threading.local()


def _buffer() -> memoryview:
    """Return the memory that the sockets of this thread are read into.

    One is enough: a loop fills it and hands it on in one step, and nobody keeps it.
    """
    buffer: memoryview | None = getattr(_of_thread, "buffer", None)
    if buffer is None:
        buffer = _of_thread.buffer = memoryview(bytearray(_RECEIVE_BYTES_MAX))
    return buffer


_PUSH_BYTES: Final = 256 << 10
"""What a transport gets at once of what its socket has no room for."""

# The type of `memoryview` itself is too wide for `map`.
_view: Callable[[Buffer], memoryview] = memoryview


Takers: TypeAlias = Mapping[type[Event], Callable[[Any, Any], None]]
"""Who takes an event of a wire, by its type; an event that nobody takes is dropped."""


class Wire(asyncio.BufferedProtocol, ABC):
    """One socket. Its takers get the events, subclasses what happens to the socket.

    What is sent within one turn of the loop goes out with one system call. While the
    other side does not read, nothing is read from it either: its requests cannot pile
    up answers here.
    """

    tcp_options: ClassVar[Sequence[tuple[str, int]]] = ()
    """Options of TCP beside those of everybody."""

    def __init__(
        self, connection: Connection, outbox: Outbox, takers: Takers, node: int = 0
    ) -> None:
        """Serve a connection; the loop gives the socket later."""
        self.connection = connection
        self.outbox = outbox
        self.core = connection.core
        self._takers = takers
        self._descriptor = -1
        """Of the socket, while the poll reads and writes it."""
        self._to_adopt = False
        """Whether the poll may have it once the connection is open."""
        self.node = node
        """The node at the other end; 0 if there is none, or it is not known yet."""
        self._transport: asyncio.Transport | None = None
        self._incoming = _buffer()
        self.unsent_bytes: Callable[[], int] = int
        """Gives the bytes that the socket has not taken yet; none without a socket."""
        self._unread = self._held = self._lacks_memory = False
        self._rest: deque[memoryview] = deque()
        """What is written when the transport has room again."""
        self._rest_bytes = 0
        self._full = self._pushes = False
        """Whether the transport has no room; whether it is being given something."""
        self.backlog: deque[Any] = deque()
        """What was read and waits for its turn, which may come when bytes have gone."""
        self.reads = True
        """Whether the socket is read, as far as this side decides."""

    @abstractmethod
    def lost(self) -> None:
        """Note that the socket is gone."""

    @abstractmethod
    def broken(self, error: ProtocolError) -> None:
        """Note that the other side does not speak the protocol."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Get the socket."""
        # The transports of other loops do not inherit from that class.
        self._transport = cast("asyncio.Transport", transport)
        self.unsent_bytes = self._transport.get_write_buffer_size
        watch(self._transport, self.tcp_options)
        if self.outbox.poll is not None:
            self._to_adopt = transport.get_extra_info("ssl_object") is None
        self.flush()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002, RUF100
        """Return where the next bytes go."""
        return self._incoming

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what the bytes mean."""
        self.take(self._incoming[:nbytes])
        if self._to_adopt and self.connection.state is State.OPEN:
            self._adopt()

    def take(self, data: Buffer, said: Fed | None = None) -> None:
        """Hand on what bytes mean; `said` is what the core has said of the first."""
        connection = self.connection
        try:
            for event in connection.receive(data, said):
                # They may change with an event before this one.
                if (take := self._takers.get(type(event))) is not None:
                    take(self, event)
        except ProtocolError as error:
            self.broken(error)
        core = self.core
        if core.queued_bytes or connection.closed:
            self.outbox.add(self)
        if core.buffered or core.unfinished:
            self.look_at_frame()

    # --- what the poll leaves

    def _adopt(self) -> None:
        self._to_adopt = False
        poll, transport = self.outbox.poll, self._transport
        if poll is None or transport is None or transport.is_closing():
            return
        self._descriptor = transport.get_extra_info("socket").fileno()
        poll.adopt(self._descriptor, self.core, self, self.node)
        self.unsent_bytes = self._count_unsent

    def refuse(self, error: RemoteProtocolError) -> None:
        """Close the connection: the other side broke a rule."""
        self.connection.refuse(error)
        self.broken(error)
        self.outbox.add(self)

    def write_soon(self) -> None:
        """Write what is outgoing at the end of this turn of the loop."""
        self.outbox.add(self)

    def write_rest(self, parts: list[Buffer]) -> None:
        """Write what the socket did not take at once."""
        for part in parts:
            view = memoryview(part).cast("B")
            self._rest_bytes += len(view)
            self._rest.append(view)
        self._push()

    def _push(self) -> None:
        """Give the transport as much as it has room for.

        It copies what the socket does not take, and moves the rest of that with each
        write: so it gets little at a time.
        """
        transport = self._transport
        if transport is None:
            return
        self._pushes = True
        # It may break with each write, and must not get anything from then on.
        while self._rest and not self._full and not transport.is_closing():
            size, parts = 0, []
            while self._rest and size < _PUSH_BYTES:
                part = self._rest.popleft()
                if size + len(part) > _PUSH_BYTES:
                    left = _PUSH_BYTES - size
                    self._rest.appendleft(part[left:])
                    part = part[:left]
                size += len(part)
                parts.append(part)
            self._rest_bytes -= size
            transport.writelines(parts)
        self._pushes = False
        if transport.is_closing():
            self._rest.clear()
            self._rest_bytes = 0
        self._note_room()

    def _count_unsent(self) -> int:
        held = self._transport
        return self._rest_bytes + (held.get_write_buffer_size() if held else 0)

    def crashed(self, error: Exception) -> None:
        """Close the connection after a bug, as the transports of loops do."""
        context = {
            "message": "an error that is a bug ended a connection",
            "exception": error,
            "protocol": self,
        }
        asyncio.get_running_loop().call_exception_handler(context)
        self.abort()

    def look_at_frame(self) -> None:
        """Note how large the frame is that is not whole, or that it is whole now."""

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand on that it is over."""
        if self._descriptor >= 0 and self.outbox.poll is not None:
            self.outbox.poll.abandon(self._descriptor)
            self._descriptor = -1
        self._transport, self.unsent_bytes = None, int
        self._rest.clear()
        self._rest_bytes = 0
        self.lost()

    def pause_writing(self) -> None:
        """Note that the transport has no room: stop reading from who does not read."""
        self._full = True
        if not self._pushes:
            self._note_room()

    def resume_writing(self) -> None:
        """Note that the transport has room."""
        self._full = False
        self._push()

    def _note_room(self) -> None:
        unread = self._full or bool(self._rest)
        if unread != self._unread:
            self._unread = unread
            self._regulate()
            self.room_changed(full=unread)

    def room_changed(self, *, full: bool) -> None:
        """Note that the other side takes nothing more, or does again."""

    def hold(self, *, held: bool) -> None:
        """Stop reading as long as there is no room for more, or read on."""
        self._held = held
        self._regulate()

    def wait_for_memory(self, *, waits: bool) -> None:
        """Stop reading until there is memory for a frame, or read on."""
        self._lacks_memory = waits
        self._regulate()

    def _regulate(self) -> None:
        reads = not (self._unread or self._held or self._lacks_memory)
        if reads == self.reads or self._transport is None:
            return
        self.reads = reads
        if reads:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def flush(self) -> None:
        """Write what is outgoing now; close the socket if the connection is."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if self._descriptor >= 0:
            if rest := self.core.flush():
                self.write_rest(rest)
        elif buffers := self.core.take():
            # Small frames are one buffer, so mostly there is one.
            transport.writelines(list(map(_view, buffers)))
        if self.connection.closed:
            if self._rest and not transport.is_closing():
                transport.writelines(list(self._rest))
            transport.close()
        if self.backlog:
            self.written()

    def written(self) -> None:
        """Note that bytes have gone while something waits for its turn."""

    def abort(self) -> None:
        """Close the socket now, whatever is unsent."""
        if self._transport is not None:
            self._transport.abort()
