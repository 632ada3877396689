"""When what was sent is written to its socket."""

import asyncio
import random
import socket
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
import uvloop

from braidlog.errors import ProtocolError
from braidlog.serving.transport import Outbox, Wire
from braidlog.wire.connection import Connection
from braidlog.wire.events import Closing, Event, Ponged


class Words:
    """As much of a connection as a wire sees: words to be written."""

    def __init__(self) -> None:
        self.words: list[bytes] = []
        self.closed = False
        self.core = self
        self.queued_bytes = self.buffered = 0
        self.unfinished = False
        self.receive: Callable[..., list[Event]] = lambda *_: []

    def take(self) -> list[bytes]:
        words, self.words = self.words, []
        return words


class Socket:
    """As much of a transport as a wire sees; each write is one system call."""

    def __init__(self, calls: list[tuple[str, bytes]], name: str) -> None:
        self._calls = calls
        self._name = name

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> None:
        """Have no socket."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None: ...

    def writelines(self, parts: Sequence[memoryview]) -> None:
        self._calls.append((self._name, b"".join(parts)))


class Line(Wire):
    """A wire on which words can be said."""

    def __init__(
        self, outbox: Outbox, calls: list[tuple[str, bytes]], name: str = ""
    ) -> None:
        self.spoken = Words()
        super().__init__(cast("Connection", cast("Any", self.spoken)), outbox, {})
        if name:
            self.connection_made(cast("Any", Socket(calls, name)))

    def say(self, word: bytes) -> None:
        self.spoken.words.append(word)
        self.outbox.add(self)

    def lost(self) -> None: ...

    def broken(self, error: ProtocolError) -> None: ...


async def test_a_turn_writes_each_socket_once_in_the_order_they_spoke() -> None:
    calls: list[tuple[str, bytes]] = []
    outbox = Outbox()
    one, two = Line(outbox, calls, "one"), Line(outbox, calls, "two")
    two.say(b"a")
    one.say(b"b")
    two.say(b"c")
    assert calls == []
    await asyncio.sleep(0)
    assert calls == [("two", b"ac"), ("one", b"b")]


async def test_an_event_goes_to_who_takes_it_and_others_are_dropped() -> None:
    """Such as a `Pong` that nobody asked for."""
    one = Line(Outbox(), [])
    said: list[tuple[Line, Event]] = []
    one._takers = {Closing: lambda wire, event: said.append((wire, event))}
    events: list[Event] = [Ponged(1.0), Closing("enough"), Closing("")]
    one.spoken.receive = lambda *_: events
    one.buffer_updated(0)
    assert said == [(one, Closing("enough")), (one, Closing(""))]


async def test_who_cannot_wait_for_the_end_of_the_turn_writes_before() -> None:
    calls: list[tuple[str, bytes]] = []
    outbox = Outbox()
    one = Line(outbox, calls, "one")
    one.say(b"a")
    outbox.flush()
    assert calls == [("one", b"a")]
    one.say(b"b")
    await asyncio.sleep(0)
    assert calls == [("one", b"a"), ("one", b"b")], "what came later is not forgotten"
    await asyncio.sleep(0)
    one.say(b"c")
    await asyncio.sleep(0)
    assert calls[-1] == ("one", b"c")


@pytest.mark.parametrize("loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop])
def test_what_is_written_has_left_when_flush_returns(loop: Any) -> None:
    """A node syncs next, and the others should work meanwhile."""

    async def main() -> bytes:
        with socket.create_server(("127.0.0.1", 0)) as server:
            near = socket.create_connection(server.getsockname())
            far, _ = server.accept()
        _, line = await asyncio.get_running_loop().create_connection(
            lambda: Line(Outbox(), []), sock=near
        )
        line.say(b"now")
        line.flush()
        far.setblocking(False)
        with far:
            got = far.recv(10)
        line.abort()
        return got

    with asyncio.Runner(loop_factory=loop) as runner:
        assert runner.run(main()) == b"now"


class Narrow(Socket):
    """A transport that has room for one write at a time, or breaks with it."""

    def __init__(self, calls: list[tuple[str, bytes]], *, breaks: bool) -> None:
        super().__init__(calls, "narrow")
        self._breaks, self._broken = breaks, False
        self.line: Line

    def is_closing(self) -> bool:
        return self._broken

    def writelines(self, parts: Sequence[memoryview]) -> None:
        super().writelines(parts)
        self._broken = self._breaks
        self.line.pause_writing()


def _narrow(*, breaks: bool) -> tuple[Line, list[tuple[str, bytes]]]:
    calls: list[tuple[str, bytes]] = []
    line, narrow = Line(Outbox(), calls), Narrow(calls, breaks=breaks)
    narrow.line = line
    line.connection_made(cast("Any", narrow))
    return line, calls


async def test_a_transport_gets_as_much_as_it_has_room_for() -> None:
    line, calls = _narrow(breaks=False)
    data = random.Random(1).randbytes(1_000_000)
    line.write_rest([data[:10], memoryview(data)[10:900_000], data[900_000:]])
    read = [line.reads]
    while line._count_unsent():
        line.resume_writing()
    line.resume_writing()
    assert [*read, line.reads] == [False, True]
    assert b"".join(each for _, each in calls) == data
    assert max(len(each) for _, each in calls) <= 256 << 10


async def test_a_transport_that_broke_gets_nothing_more() -> None:
    """It would wait for a socket that is closed."""
    line, calls = _narrow(breaks=True)
    line.write_rest([bytes(1_000_000)])
    line.resume_writing()
    assert len(calls) == 1
    assert line._count_unsent() == 0
    line.spoken.closed = True
    line.flush()
    assert len(calls) == 1
