"""Connections that say nothing, end nothing or are too many cost a node little.

One node in this process. What a process without descriptors does is in
tests/cluster/test_exhaustion.py.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import pytest

import braidlog
from braidlog.client import AsyncClient, ClientSettings
from braidlog.errors import LogError
from braidlog.node import node
from braidlog.node.config import NodeConfig
from braidlog.node.server import NodeServer
from braidlog.serving import http, intake, sessions
from braidlog.serving.admission import Capacity
from braidlog.wire.codec import encode
from braidlog.wire.connection import VERSION_MAX, VERSION_MIN
from braidlog.wire.messages import Execute, Hello, Ping
from unit.node.test_bounds import connected
from unit.node.test_server import client, config, serving
from unit.serving.test_security import certificate, needs_openssl
from unit.wire.frames import encode_frame

FEW = Capacity(strangers=8, clients=3, peers=4)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "places", lambda *_: FEW)


@contextmanager
def silent(address: str, count: int) -> Iterator[list[socket.socket]]:
    host, _, port = address.rpartition(":")
    held: list[socket.socket] = []
    try:
        for _ in range(count):
            held.append(socket.create_connection((host, int(port))))  # noqa: PERF401, RUF100
        yield held
    finally:
        for each in held:
            each.close()


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


@pytest.mark.usefixtures("few")
async def test_silent_connections_keep_nobody_out(tmp_path: Path) -> None:
    settings = config(tmp_path)
    async with serving(settings) as server, client(settings) as there:
        log = await there.create_log("orders")
        at, counters = server.node.sessions, server.node.sessions.admission.counters
        with silent(settings.node.listen, 40):
            await _until(lambda: counters.strangers_dropped >= 40 - most(server))
            assert at.admission.strangers <= most(server)
            assert await log.append(b"x") == 1
            async with connected(settings) as raw:
                raw.connection.ping(1.0)
                assert await raw.events()
        await _until(lambda: at.admission.strangers == 0)


@asynccontextmanager
async def over_tls(directory: Path) -> AsyncIterator[tuple[NodeServer, AsyncClient]]:
    crt, key = certificate(directory, "localhost")
    found = config(directory, f'[security]\ncertificate = "{crt}"\nkey = "{key}"\n')
    trusts = ssl.create_default_context(cafile=crt)
    trusts.check_hostname = False
    there = braidlog.connect_async(found.advertise, ssl=trusts)
    async with serving(found) as server, there:
        yield server, there


def most(server: NodeServer) -> int:
    """Return how many strangers there may be."""
    return FEW.strangers + FEW.clients - server.node.sessions.admission.clients


def address(server: NodeServer) -> str:
    return server.node.config.node.listen


@needs_openssl
@pytest.mark.usefixtures("few")
async def test_connections_are_counted_before_tls(tmp_path: Path) -> None:
    async with over_tls(tmp_path) as (server, there):
        log = await there.create_log("orders")
        at = server.node.sessions
        with silent(address(server), 40) as held:
            # Some have begun: a record of a handshake that does not come.
            for each in held[::2]:
                each.sendall(b"\x16\x03\x01\x02\x00\x01")
            counters = at.admission.counters
            await _until(lambda: counters.strangers_dropped >= 40 - most(server))
            assert at.admission.strangers <= most(server)
            assert len(at) <= FEW.strangers + FEW.clients + FEW.peers
            assert await log.append(b"x") == 1
        await _until(lambda: at.admission.strangers == 0)
        assert await log.append(b"y") == 2


@needs_openssl
async def test_tls_and_the_greeting_have_one_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "GREETING_S", 0.3)
    async with over_tls(tmp_path) as (server, _):
        trusts = ssl.create_default_context()
        trusts.check_hostname, trusts.verify_mode = False, ssl.CERT_NONE
        host, _, port = address(server).rpartition(":")
        # One never begins TLS, one goes through it and says nothing.
        opened = asyncio.open_connection(host, int(port), ssl=trusts)
        with silent(address(server), 1) as held:
            reader, writer = await opened
            async with asyncio.timeout(20):
                assert await reader.read() == b""
            assert await asyncio.to_thread(_ends, held[0])
        with closing(writer):
            await _until(lambda: server.node.sessions.admission.strangers == 0)


def _ends(held: socket.socket) -> bool:
    held.settimeout(20)
    try:
        return held.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.usefixtures("few")
async def test_a_client_that_finds_no_place_is_told_why(tmp_path: Path) -> None:
    settings = config(tmp_path)
    async with serving(settings) as server:
        async with (
            connected(settings),
            connected(settings),
            connected(settings),
        ):
            with pytest.raises(LogError) as caught:
                async with client(settings, settings=ClientSettings(timeout_s=1)) as it:
                    await it.logs()
            assert "all 3 client connections of this node are in use" in str(
                caught.value
            )
            # A node of the cluster gets in all the same.
            raw = await _hello(settings, 2)
            assert raw[8] == 2, "a Welcome"
        await _until(lambda: server.node.sessions.admission.clients == 0)
        async with client(settings) as it:
            await it.logs()


async def _hello(settings: NodeConfig, number: int) -> bytes:
    host, _, port = settings.node.listen.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    name = settings.cluster.name
    hello = encode(Hello(VERSION_MIN, VERSION_MAX, name, number, "", "test"))
    writer.write(encode_frame(Hello.KIND, 0, hello))
    async with asyncio.timeout(20):
        answer = await reader.read(1 << 16)
    writer.close()
    await writer.wait_closed()
    return answer


def header(size: int) -> bytes:
    """Return the beginning of a frame of so many bytes."""
    whole = encode_frame(Ping.KIND, 0, b"\x91\x00", [bytes(size - 22)])
    return whole[:22]


SMALL_BUDGET = "incoming_bytes_max = 4194304\n"


async def test_unfinished_frames_share_a_bound_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_HURRIED_S", 0.2)
    settings = config(tmp_path, SMALL_BUDGET)
    frame = header(1 << 20) + bytes(300_000)
    async with serving(settings) as server, client(settings) as there:
        log = await there.create_log("orders")
        at = server.node.sessions
        raws = [connected(settings) for _ in range(12)]
        opened = [await each.__aenter__() for each in raws]
        most = 0
        for raw in opened:
            raw.writer.write(frame)
            most = max(most, at.intake.held_bytes)
        await _until(lambda: bool(at.intake.waiting))
        seen = list(at._sessions)
        assert await log.append(b"x") == 1
        # Those that had a place do not end, and lose it to those that wait.
        async with asyncio.timeout(20):
            while at.admission.counters.frames_overdue < 8:
                most = max(most, at.intake.held_bytes)
                await asyncio.sleep(0.01)
        assert most <= 4 << 20
        assert await log.append_many([b"y" * 100_000] * 2) == range(2, 4)
        for each in opened:
            each.writer.transport.abort()
        await _until(lambda: at.intake.held_bytes == 0)
        # Whoever still knows the connection does not keep what it had read.
        assert not any(each.connection.unfinished_bytes for each in seen if each.gone)
        assert not server.node.failed.done()


async def test_a_frame_that_waited_comes_in_when_there_is_room(tmp_path: Path) -> None:
    settings = config(tmp_path, "incoming_bytes_max = 1048576\n")
    whole = encode_frame(Execute.KIND, 1, encode(Execute()), [bytes(900_000)])
    async with serving(settings) as server:
        at = server.node.sessions
        async with connected(settings) as first, connected(settings) as second:
            first.writer.write(header(900_000) + bytes(100_000))
            await _until(lambda: at.intake.held_bytes == 900_000)
            second.writer.write(whole)
            await _until(lambda: bool(at.intake.waiting))
            first.writer.transport.abort()
            async with asyncio.timeout(20):
                assert await second.reader.read(1 << 16)
        assert at.admission.counters.frames_overdue == 0


async def test_http_serves_whoever_asks_among_those_that_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "_PATIENCE_S", 0.5)
    settings = config(tmp_path)

    def health() -> int:
        url = f"http://{settings.node.http}/health"
        with urllib.request.urlopen(url, timeout=20) as answer:
            return int(answer.status)

    async with serving(settings):
        with silent(settings.node.http, 100) as held:
            # One sends its header a little at a time.
            held[-1].sendall(b"GET /health HTTP/1.1\r\nX: ")
            assert await asyncio.to_thread(health) == 200
            for each in held:
                assert await asyncio.to_thread(_ends, each)
        assert await asyncio.to_thread(health) == 200
