"""When what was sent is written to its socket."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from braidlog.errors import ProtocolError
from braidlog.serving.transport import Outbox, Wire
from braidlog.wire.connection import Connection
from braidlog.wire.events import Event


class Words:
    """As much of a connection as a wire sees: words to be written."""

    def __init__(self) -> None:
        self.words: list[bytes] = []
        self.closed = False

    def outgoing(self) -> list[bytes]:
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

    def writelines(self, parts: Sequence[memoryview]) -> None:
        self._calls.append((self._name, b"".join(parts)))


class Line(Wire):
    """A wire on which words can be said."""

    def __init__(
        self, outbox: Outbox, calls: list[tuple[str, bytes]], name: str
    ) -> None:
        self.spoken = Words()
        super().__init__(cast("Connection", cast("Any", self.spoken)), outbox)
        self.connection_made(cast("Any", Socket(calls, name)))

    def say(self, word: bytes) -> None:
        self.spoken.words.append(word)
        self.flush_soon()

    def took(self, event: Event) -> None: ...

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
