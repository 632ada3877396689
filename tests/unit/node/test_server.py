"""One node in this process: it serves clients, answers HTTP, and stops gracefully."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.client import AsyncClient, ClientSettings
from braidlog.errors import (
    ForeignPeerError,
    InvalidArgumentError,
    NotFoundError,
    UnauthorizedError,
    UnavailableError,
)
from braidlog.node.config import NodeConfig, parse
from braidlog.node.node import ClusterNode
from braidlog.node.peers.links import LinkSettings, Peers
from braidlog.node.server import NodeServer
from braidlog.serving.shares import ShareBounds
from braidlog.serving.transport import Outbox
from braidlog.wire.connection import ONE_WAY, VERSION_MAX, VERSION_MIN
from braidlog.wire.messages import Hello
from braidlog.wire.roles import Role
from braidlog.wire.tokens import make_token, token_entry
from cluster.hosts import free_ports
from unit.node.loops import poll_of_loop
from unit.node.metrics.test_alerts import EXPRESSIONS
from unit.node.promql import names


def free_port() -> int:
    [port] = free_ports(1)
    return port


def config(directory: Path, extra: str = "") -> NodeConfig:
    address = f"127.0.0.1:{free_port()}"
    return parse(
        f"""
        [node]
        id = 1
        data = "{directory / "data"}"
        listen = "{address}"
        http = "127.0.0.1:{free_port()}"
        [cluster]
        name = "here"
        voters = {{ 1 = "{address}" }}
        [timing]
        tick_ms = 10
        [limits]
        segment_bytes = 1048576
        wal_bytes_max = 16777216
        {extra}
        """,
        {},
    )


@asynccontextmanager
async def serving(
    settings: NodeConfig, shares: ShareBounds | None = None
) -> AsyncIterator[NodeServer]:
    stop = asyncio.Event()
    poll = poll_of_loop()
    async with NodeServer(settings, shares=shares, poll=poll) as server:
        task = asyncio.create_task(server.serve(stop))
        yield server
        stop.set()
        await task


def client(settings: NodeConfig, /, **options: Any) -> AsyncClient:
    return braidlog.connect_async(settings.advertise, **options)


async def test_every_message_of_a_peer_has_a_part(tmp_path: Path) -> None:
    """A kind without one would end the node."""
    async with serving(config(tmp_path)) as server:
        assert server.node._parts.keys() == ONE_WAY


async def page(settings: NodeConfig, path: str) -> tuple[int, str]:
    def get() -> tuple[int, str]:
        url = f"http://{settings.node.http}{path}"
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    return await asyncio.to_thread(get)


async def test_what_was_acknowledged_is_there_after_a_restart(tmp_path: Path) -> None:
    settings = config(tmp_path)
    async with serving(settings), client(settings) as there:
        log = await there.create_log("orders", streams=2)
        positions = await asyncio.gather(*(log.append(b"%d" % i) for i in range(50)))
        assert sorted(positions) == list(range(1, 51))
    async with serving(settings) as server, client(settings) as there:
        assert server.node.incarnation == 2
        log = await there.log("orders")
        assert await log.append(b"more") == 51
        found = [(record.position, record.value) async for record in log.read()]
        expected = {p: b"%d" % i for i, p in enumerate(positions)} | {51: b"more"}
        assert found == sorted(expected.items())


async def test_files_of_the_log_are_made_before_the_node_serves(
    tmp_path: Path,
) -> None:
    made: list[int] = []
    for extra in ("", "wal_ready_bytes = 8388608"):
        settings = config(tmp_path / str(len(made)), extra)
        async with NodeServer(settings):
            made.append(len(list((Path(settings.node.data) / "wal").glob("slot-*"))))
    assert made[1] == 8 + 1 > made[0] + 1


async def test_pages(tmp_path: Path) -> None:
    settings = config(tmp_path)
    async with serving(settings), client(settings) as there:
        log = await there.create_log("orders")
        await log.append(b"x")
        assert (await page(settings, "/health"))[0] == 200
        assert (await page(settings, "/ready"))[0] == 200
        status = json.loads((await page(settings, "/status"))[1])
        assert status["leader"] == status["node"] == 1
        (replica,) = status["replicas"]
        assert (replica["log"], replica["role"], replica["committed"]) == (
            "orders",
            "primary",
            2,
        )
        metrics = (await page(settings, "/metrics"))[1]
        assert "braidlog_up 1.0" in metrics
        assert 'braidlog_log_committed_position{log="orders"} 1.0' in metrics
        assert 'braidlog_replicas{role="primary",state="running"} 1.0' in metrics
        assert 'braidlog_cluster_streams{state="ok"} 1.0' in metrics
        exported = set(re.findall(r"^(?:# TYPE )?(braidlog_\w+)", metrics, re.M))
        for expression in EXPRESSIONS:
            assert names(expression) <= exported
        for name in ("append", "sync", "cut"):
            assert f"braidlog_{name}_duration_seconds_count 0.0" not in metrics
            assert f'braidlog_{name}_duration_seconds_bucket{{le="30.0"}}' in metrics
        assert (await page(settings, "/other"))[0] == 404


async def test_whoever_asks_sees_all_that_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cuts are applied with the next tick, or when somebody asks."""
    settings = config(tmp_path)
    async with serving(settings) as server, client(settings) as there:
        log = await there.create_log("orders")
        await log.append(b"first")
        monkeypatch.setattr(server.node, "_let_pass", lambda now: None)
        lane, member = server.node.lane, server.node.member
        assert member is not None

        end = await log.append(b"next")
        while not lane.behind:
            # The client's own question for news came right behind it.
            end = await log.append(b"next")
        await there.describe("orders")
        [state] = member.group.repository.state.logs.values()
        assert (state.high_watermark, lane.behind) == (end, False)
        assert await log.append(b"next") == end + 1
        metrics = (await page(settings, "/metrics"))[1]
        position = f'braidlog_log_committed_position{{log="orders"}} {end + 1}.0'
        assert position in metrics
        assert await log.append(b"next") == end + 2
        status = json.loads((await page(settings, "/status"))[1])
        assert status["group"]["applied"] == status["group"]["commit"]
        # Nobody asks, but there are many.
        for _ in range(100):
            await log.append(b"next")
        assert end + 2 < state.high_watermark < end + 102


async def test_a_node_that_waits_for_others_is_not_ready(tmp_path: Path) -> None:
    settings = config(tmp_path, "[security]")
    lonely = parse(
        f"""
        [node]
        id = 1
        data = "{tmp_path / "data"}"
        listen = "{settings.node.listen}"
        http = "{settings.node.http}"
        [cluster]
        voters = {{ 1 = "{settings.node.listen}", 2 = "127.0.0.1:1" }}
        """,
        {},
    )
    async with serving(lonely):
        assert (await page(lonely, "/health"))[0] == 200
        code, text = await page(lonely, "/ready")
        assert code == 503
        assert (
            json.loads(text)["why"]
            == "the node knows no leader of the metadata repository"
        )


async def test_another_cluster_is_refused(tmp_path: Path) -> None:
    settings = config(tmp_path)
    async with serving(settings):
        with pytest.raises((NotFoundError, UnavailableError), match="here"):
            async with client(settings, cluster="there"):
                pass


async def test_tokens_say_what_is_allowed(tmp_path: Path) -> None:
    texts, entries = {}, []
    for number, role in enumerate((Role.READ, Role.APPEND, Role.ADMIN)):
        text, token = make_token(role.word, role, bytes([number]) * 32)
        texts[role] = text
        entries.append(token_entry(token))
    (tmp_path / "tokens.toml").write_text("".join(entries))
    file = tmp_path / "tokens.toml"
    settings = config(tmp_path, f'[security]\ntokens = "{file}"\n')
    async with serving(settings):
        with pytest.raises((UnauthorizedError, UnavailableError), match="token"):
            async with client(settings):
                pass
        async with client(settings, token=texts[Role.ADMIN]) as admin:
            await (await admin.create_log("orders")).append(b"x")
        async with client(settings, token=texts[Role.READ]) as reader:
            log = await reader.log("orders")
            assert [record.value async for record in log.read()] == [b"x"]
            with pytest.raises(UnauthorizedError, match="append"):
                await log.append(b"y")
            with pytest.raises(UnauthorizedError, match="admin"):
                await reader.create_log("more")
        async with client(settings, token=texts[Role.APPEND]) as writer:
            assert await (await writer.log("orders")).append(b"y") == 2
            with pytest.raises(UnauthorizedError, match="admin"):
                await writer.delete_log("orders")


async def test_a_node_with_a_wrong_token_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text, token = make_token("node", Role.PEER, bytes(32))
    file = tmp_path / "tokens.toml"
    file.write_text(token_entry(token))
    settings = config(tmp_path, f'[security]\ntokens = "{file}"\n')
    lost: asyncio.Queue[int] = asyncio.Queue()
    links = Peers(
        LinkSettings(
            hello=Hello(VERSION_MIN, VERSION_MAX, "here", 2, text[:-1] + "?", ""),
            frame_bytes_max=1 << 20,
            unsent_bytes_max=1 << 20,
        ),
        seed=1,
        on_message=lambda node, event: None,
        on_connected=lambda node: None,
        on_lost=lost.put_nowait,
        outbox=Outbox(),
    )
    async with serving(settings):
        links.know({1: settings.advertise})
        for _ in range(4):
            links.heard(1)
            await lost.get()
        links.close()
    for logger in ("braidlog.node.peers.links", "braidlog.serving.sessions"):
        warned = [r for r in caplog.records if r.name == logger and r.levelno >= 30]
        [said] = warned
        assert "token" in said.getMessage()
        assert "127.0.0.1" in said.getMessage()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
async def test_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "node.crt", tmp_path / "node.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]
    command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=node"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    files = f'certificate = "{certificate}"\nkey = "{key}"\n'
    settings = config(tmp_path, f'[security]\n{files}authority = "{certificate}"\n')
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with serving(settings):
        async with client(settings, ssl=trusting) as there:
            assert await (await there.create_log("orders")).append(b"x") == 1
        # Not after the timeout, which nobody would wait for here.
        patient = ClientSettings(timeout_s=1e6)
        with pytest.raises(ForeignPeerError, match="uses TLS: pass ssl="):
            async with client(settings, settings=patient):
                pass
        with pytest.raises(UnauthorizedError, match="certificate"):
            async with client(settings, ssl=ssl.create_default_context()):
                pass


async def test_a_node_without_tls_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = config(tmp_path)
    patient = ClientSettings(timeout_s=1e6)
    async with serving(settings):
        with pytest.raises(ForeignPeerError, match="does not use TLS"):
            async with client(
                settings, ssl=ssl.create_default_context(), settings=patient
            ):
                pass
    assert "the other side uses TLS, but this side does not" in caplog.text


async def test_an_address_in_use_is_named(tmp_path: Path) -> None:
    settings = config(tmp_path)
    with socket.socket() as held:
        host, _, port = settings.node.listen.rpartition(":")
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind((host, int(port)))
        held.listen()
        with pytest.raises(UnavailableError, match=settings.node.listen):
            async with NodeServer(settings):
                pass


async def test_settings_that_name_no_file(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    for key in ("tokens", "peer_token"):
        settings = config(tmp_path, f'[security]\n{key} = "{missing}"\n')
        with pytest.raises(InvalidArgumentError, match="missing"):
            async with NodeServer(settings):
                pass


async def test_garbage_closes_the_connection_and_nothing_else(tmp_path: Path) -> None:
    settings = config(tmp_path)
    async with serving(settings), client(settings) as there:
        host, _, port = settings.node.listen.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET / HTTP/1.1\r\n\r\n" * 10)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        log = await there.create_log("orders")
        assert await log.append(b"x") == 1


async def test_a_second_signal_ends_the_graceful_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config(tmp_path)
    settings = replace(settings, timing=replace(settings.timing, drain_ms=60_000))
    stop, hurry = asyncio.Event(), asyncio.Event()
    async with NodeServer(settings) as server:
        monkeypatch.setattr(ClusterNode, "unanswered", 1)
        serving_ = asyncio.create_task(server.serve(stop, hurry))
        stop.set()
        await asyncio.sleep(0.1)
        assert not serving_.done()
        hurry.set()
        await serving_


async def test_an_address_for_http_that_is_taken_is_named(tmp_path: Path) -> None:
    settings = config(tmp_path)
    host, _, port = settings.node.http.rpartition(":")
    with (
        socket.create_server((host, int(port))),
        pytest.raises(UnavailableError) as caught,
    ):
        async with NodeServer(settings):
            pass
    assert f"HTTP on {settings.node.http} ([node] http): " in str(caught.value)


async def test_pages_over_ipv6(tmp_path: Path) -> None:
    settings = config(tmp_path)
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    there = replace(settings.node, http=f"[::1]:{free_port()}")
    settings = replace(settings, node=there)
    async with serving(settings):
        assert (await page(settings, "/health"))[0] == 200


async def test_an_append_is_synced_in_its_turn_behind_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the sync of a commit; an append that joins its group does."""
    settings = config(tmp_path)
    async with serving(settings) as server, client(settings) as there:
        log = await there.create_log("orders")
        await log.append(b"first")
        # Ticks would sync it later.
        monkeypatch.setattr(server.node, "_let_pass", lambda now: None)
        async with asyncio.timeout(10):
            assert [await log.append(b"next") for _ in range(5)] == [2, 3, 4, 5, 6]
