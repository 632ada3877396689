"""Links to other nodes."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from braidlog.node.peers import links as module
from braidlog.node.peers.links import LinkSettings, Peers
from braidlog.serving.transport import Outbox
from braidlog.wire.messages import Consensus, Hello, Replicate


def make(lost: asyncio.Event, unsent_bytes_max: int = 1 << 20) -> Peers:
    settings = LinkSettings(
        hello=Hello(1, 1, "test", 1, "", ""),
        frame_bytes_max=1 << 20,
        unsent_bytes_max=unsent_bytes_max,
    )
    return Peers(
        settings,
        seed=1,
        on_message=lambda node, event: None,
        on_connected=lambda node: None,
        on_lost=lambda node: lost.set(),
        outbox=Outbox(),
    )


async def test_a_node_that_speaks_is_connected_to_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_RETRY_MIN_S", 1e6)
    lost, connected = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    links = make(lost)
    links.know({2: f"127.0.0.1:{port}"})
    links.send(2, Replicate(1, 1, 1, ()))
    await lost.wait()

    class Accepts(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connected.set()
            transport.close()

    async with await loop.create_server(Accepts, "127.0.0.1", port):
        links.heard(2)
        await asyncio.wait_for(connected.wait(), 10)
        links.close()


async def test_a_greeting_that_is_never_answered_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_CONNECT_S", 0.05)
    monkeypatch.setattr(module, "_RETRY_MIN_S", 0.0)
    lost = asyncio.Event()
    loop = asyncio.get_running_loop()
    silent: list[asyncio.BaseTransport] = []

    class Silent(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            silent.append(transport)

    async with await loop.create_server(Silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        links = make(lost)
        links.know({2: f"127.0.0.1:{port}"})
        links.send(2, Replicate(1, 1, 1, ()))
        await lost.wait()
        while len(silent) < 2:
            links.send(2, Replicate(1, 1, 1, ()))
            await asyncio.sleep(0.01)
        links.close()
        for transport in silent:
            transport.close()


async def test_what_is_lost_because_too_much_waits_is_said() -> None:
    links = make(asyncio.Event())
    links.know({2: "127.0.0.1:1"})
    half = [bytes(600_000)]
    message = Replicate(1, 1, 1, (600_000,))
    assert [links.send(2, message, half) for _ in range(2)] == [True, False]
    assert links.send(2, Replicate(1, 1, 1, ()))
    assert links.dropped == 1
    assert not links.has_room(2)
    assert links.has_room(3)
    links.close()


async def test_what_is_larger_than_the_bound_goes_alone() -> None:
    """Such as a snapshot for a member that is behind: sent again, it is as large."""
    links = make(asyncio.Event(), unsent_bytes_max=10)
    links.know({2: "127.0.0.1:1"})
    links.send(2, Consensus(1), (b"x" * 100,))
    assert links.dropped == 0
    links.send(2, Consensus(1), (b"x",))
    assert links.dropped == 1

    sent: list[object] = []
    core = SimpleNamespace(writable=True, queue=lambda *each: sent.append(each))
    connection = SimpleNamespace(core=core)
    link = SimpleNamespace(unsent_bytes=lambda: 0, connection=connection)
    links.known[2].link = cast("Any", link)
    links.outbox = cast("Any", SimpleNamespace(held=False, add=lambda link: None))
    links.send(2, Consensus(1), (b"x" * 100,))
    assert (len(sent), links.dropped) == (1, 1)
    link.unsent_bytes = lambda: 1
    links.send(2, Consensus(1), (b"x" * 100,))
    assert (len(sent), links.dropped) == (1, 2)
    # A link that said goodbye breaks soon: a message is lost, as on a broken one.
    core.writable, link.unsent_bytes = False, lambda: 0
    assert links.send(2, Consensus(1), (b"x",))
    assert (len(sent), links.dropped) == (1, 2)
    links.known[2].link = None
    links.close()
