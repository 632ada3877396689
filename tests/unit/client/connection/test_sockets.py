"""Connections over real sockets, against the server's half of the rules."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

import braidlog
from braidlog.client import AsyncClient, ClientSettings
from braidlog.client.connection.sockets import socket_connector
from braidlog.errors import (
    ForeignPeerError,
    LogError,
    ProtocolError,
    TooLargeError,
    UnauthorizedError,
)
from braidlog.wire.events import Appends, Requested
from braidlog.wire.messages import Append, Hello, Message
from braidlog.wire.rights import Rights
from braidlog.wire.roles import Role
from braidlog.wire.server import ServerConnection, ServerSettings
from unit.client.batches import FakeCodec
from unit.client.fake import FakeCluster
from unit.serving.test_security import certificate, needs_openssl

# So small that requests have to wait for credit.
WINDOW = 1 << 17


def authorize(hello: Hello) -> Rights:
    if hello.token != "t":
        raise UnauthorizedError("this token is not known")
    return Rights(Role.ADMIN)


class Served(asyncio.Protocol):
    """A connection to a node of the fake."""

    def __init__(self, cluster: FakeCluster, node: int) -> None:
        self.cluster = cluster
        self.node = node
        self.rules = ServerConnection(
            ServerSettings("fake", node, authorize, WINDOW, WINDOW)
        )
        self.tasks: set[asyncio.Task[None]] = set()
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        for event in self.rules.receive(data):
            if isinstance(event, Requested):
                self.start(event.request, event.message, bytes(event.payload))
            elif isinstance(event, Appends):
                for request, batch in zip(event.requests, event.payloads, strict=True):
                    message = Append(event.stream, event.epoch)
                    self.start(request, message, bytes(batch))
        self.flush()

    def start(self, request: int, message: Message, payload: bytes) -> None:
        task = asyncio.ensure_future(self.serve(request, message, payload))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def serve(self, request: int, message: Message, payload: bytes) -> None:
        if self.cluster.fault(self.node, message):
            self.transport.abort()
            return
        try:
            answer, body = await self.cluster.answer(self.node, message, payload)
            self.rules.answer(request, answer, (body,) if len(body) else ())
        except LogError as error:
            if self.rules.closed:
                return
            self.rules.fail(request, error)
        self.flush()

    def flush(self) -> None:
        out = self.rules.outgoing()
        if out and not self.transport.is_closing():
            self.transport.writelines([memoryview(part) for part in out])
        if self.rules.closed:
            self.transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        for task in self.tasks:
            task.cancel()


@asynccontextmanager
async def serving() -> AsyncIterator[FakeCluster]:
    fake = FakeCluster()
    loop = asyncio.get_running_loop()
    servers = []
    for node in list(fake.nodes):
        server = await loop.create_server(
            lambda node=node: Served(fake, node),  # type: ignore[misc]
            "127.0.0.1",
            0,
        )
        servers.append(server)
        port = server.sockets[0].getsockname()[1]
        fake.nodes[node] = f"127.0.0.1:{port}"
    yield fake
    for server in servers:
        server.close()


@pytest.fixture
async def cluster() -> AsyncIterator[FakeCluster]:
    async with serving() as fake:
        yield fake


def connect_async(
    cluster: FakeCluster, token: str = "t", seeds: str = ""
) -> AsyncClient:
    settings = ClientSettings(
        batch_bytes_max=50_000, prefetch_bytes=60_000, poll_s=1.0, timeout_s=5.0
    )
    return AsyncClient(
        seeds or cluster.nodes.values(),
        connector=socket_connector(token=token),
        settings=settings,
        codec=FakeCodec(),
    )


async def test_appends_and_reads_within_a_small_window(cluster: FakeCluster) -> None:
    async with connect_async(cluster) as client:
        log = await client.create_log("log", streams=3)
        await asyncio.gather(*(log.append(b"%d" % i) for i in range(500)))
        large = await asyncio.gather(*(log.append(bytes(20_000)) for _ in range(50)))
        assert len(set(large)) == 50
        positions = [record.position async for record in log.subscribe(timeout=0.05)]
        assert positions == list(range(1, 551))


def test_a_loop_whose_transports_are_its_own() -> None:
    async def main() -> None:
        async with serving() as cluster, connect_async(cluster) as client:
            log = await client.create_log("log")
            assert await log.append(b"x") == 1

    uvloop.run(main())


async def test_a_token_that_is_refused(cluster: FakeCluster) -> None:
    with pytest.raises(UnauthorizedError):
        async with connect_async(cluster, token="x"):
            pass


@needs_openssl
@pytest.mark.parametrize(
    ("trusted", "name", "expected"),
    [("other", "localhost", "--tls-ca"), ("here", "127.0.0.1", "that the certificate")],
)
async def test_a_certificate_that_is_refused_says_what_to_do(
    tmp_path: Path, trusted: str, name: str, expected: str
) -> None:
    certificate(tmp_path, "other")
    crt, key = certificate(tmp_path, "here", "-addext", "subjectAltName=DNS:localhost")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(crt, key)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Greets, "127.0.0.1", 0, ssl=context)
    trust = ssl.create_default_context(cafile=tmp_path / f"{trusted}.crt")
    port = server.sockets[0].getsockname()[1]
    async with server:
        with pytest.raises(UnauthorizedError, match="is not trusted") as caught:
            await socket_connector(context=trust)(f"{name}:{port}")
    assert expected in caught.value.hint


class Waits(asyncio.Protocol):
    """A server of HTTP, which says nothing before a line is over."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        if b"\r\n\r\n" in data:
            self.transport.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            self.transport.close()


class Greets(asyncio.Protocol):
    """A server of SSH, which speaks first."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.write(b"SSH-2.0-OpenSSH_9.2\r\n")  # type: ignore[attr-defined]


@pytest.mark.parametrize(("server", "speaks"), [(Waits, "HTTP"), (Greets, "SSH")])
async def test_who_is_no_node_is_found_out(
    server: type[asyncio.Protocol], speaks: str
) -> None:
    loop = asyncio.get_running_loop()
    async with await loop.create_server(server, "127.0.0.1", 0) as listening:
        host, port = listening.sockets[0].getsockname()
        with pytest.raises(ForeignPeerError) as caught:
            async with AsyncClient(
                [f"{host}:{port}"],
                connector=socket_connector(),
                settings=ClientSettings(timeout_s=1e6),
                codec=FakeCodec(),
            ):
                pass
        assert caught.value.speaks == speaks


class Late(Served):
    """A node that reads its first connection when others come, and never those."""

    def __init__(self, cluster: FakeCluster, made: list[Late]) -> None:
        super().__init__(cluster, 1)
        self.made = made
        self.held = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.made.append(self)
        if len(self.made) > 1:
            self.made[0].read(b"")

    def data_received(self, data: bytes) -> None:
        self.read(data)

    def read(self, data: bytes) -> None:
        self.held += data
        if self is self.made[0] and len(self.made) > 1:
            held, self.held = self.held, b""
            super().data_received(held)


async def test_a_node_that_greets_late_is_taken_at_once(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long one could still look for what else listens there."""
    monkeypatch.setattr("braidlog.client.connection.sockets._SILENCE_S", 0.0)
    monkeypatch.setattr("braidlog.client.connection.probe._PATIENCE_S", 1e6)
    made: list[Late] = []
    loop = asyncio.get_running_loop()
    async with await loop.create_server(
        lambda: Late(cluster, made), "127.0.0.1", 0
    ) as listening:
        host, port = listening.sockets[0].getsockname()
        link = await socket_connector(token="t")(f"{host}:{port}")
        assert not link.closed
        await link.close()
    assert len(made) > 1


async def test_another_version_of_the_protocol(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braidlog.client.connection.sockets.VERSION_MIN", 7)
    monkeypatch.setattr("braidlog.client.connection.sockets.VERSION_MAX", 9)
    with pytest.raises(ProtocolError, match="speaks 7 to 9, this node 1 to 1"):
        async with connect_async(cluster):
            pass


async def test_what_fits_no_frame(cluster: FakeCluster) -> None:
    async with connect_async(cluster) as client:
        log = await client.create_log("log")
        with pytest.raises(TooLargeError):
            await log.append(bytes(1 << 18))
        assert await log.append(b"x") == 1


async def test_a_connection_that_breaks(cluster: FakeCluster) -> None:
    faults = ["break"] * 3
    cluster.fault = lambda node, message: (
        faults.pop() if isinstance(message, Append) and faults else ""
    )
    async with connect_async(cluster) as client:
        log = await client.create_log("log")
        assert [await log.append(b"%d" % i) for i in range(5)] == [1, 2, 3, 4, 5]
    assert faults == []


async def test_a_seed_where_nobody_is(cluster: FakeCluster) -> None:
    there = cluster.nodes[1]
    async with connect_async(cluster, seeds=f"127.0.0.1:1,{there}") as client:
        assert client.cluster == "fake"


@pytest.mark.parametrize("name", ["token", "cluster"])
@pytest.mark.parametrize("wrong", [b"bytes of a file", None])
def test_texts_are_checked_before_a_node_is_asked(name: str, wrong: Any) -> None:
    kind = type(wrong).__name__
    with pytest.raises(TypeError, match=f"{name} must be a str, not {kind}"):
        braidlog.connect("127.0.0.1:1", **{name: wrong})
