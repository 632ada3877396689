"""Links between nodes with tokens: to nodes that know them, and to impostors."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from braidlog.node.config import NodeConfig
from braidlog.node.peers.links import LinkSettings, Peers
from braidlog.node.server import NodeServer
from braidlog.serving.security import certificate_channel
from braidlog.serving.settings import SecuritySettings
from braidlog.serving.transport import Outbox
from braidlog.wire.connection import VERSION_MAX, VERSION_MIN
from braidlog.wire.messages import Hello
from braidlog.wire.roles import Role
from braidlog.wire.tokens import make_token, token_entry
from unit.node.test_bounds import _until
from unit.node.test_server import config, serving

TEXT, TOKEN = make_token("nodes", Role.PEER, bytes(range(32)))


class Links:
    """Node 2 of a test, which knows node 1."""

    def __init__(
        self, address: str, *, tls: ssl.SSLContext | None = None, proof: bool = True
    ) -> None:
        self.connected, self.lost = asyncio.Event(), asyncio.Event()
        given = "" if proof else TEXT
        self.peers = Peers(
            LinkSettings(
                hello=Hello(VERSION_MIN, VERSION_MAX, "here", 2, given, "", b"i" * 16),
                frame_bytes_max=1 << 20,
                unsent_bytes_max=1 << 20,
                tls=tls,
                token=TEXT if proof else "",
            ),
            seed=1,
            on_message=lambda node, event: None,
            on_connected=lambda node: self.connected.set(),
            on_lost=lambda node: self.lost.set(),
            outbox=Outbox(),
        )
        self.peers.know({1: address})
        self.peers.heard(1)

    async def settle(self) -> bool:
        """Wait for what comes of the first attempt."""
        async with asyncio.timeout(20):
            waits = [asyncio.create_task(e.wait()) for e in (self.connected, self.lost)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for each in waits:
                each.cancel()
        self.peers.close()
        return self.connected.is_set()


def with_tokens(directory: Path, extra: str = "") -> NodeConfig:
    file = directory / "tokens.toml"
    file.write_text(token_entry(TOKEN))
    return config(directory, f'[security]\ntokens = "{file}"\n{extra}')


@pytest.mark.parametrize("proof", [True, False])
async def test_a_node_lets_in_who_proves_and_who_shows_its_token(
    tmp_path: Path, proof: bool
) -> None:
    """Nodes of an earlier version show it."""
    settings = with_tokens(tmp_path)
    async with serving(settings):
        assert await Links(settings.advertise, proof=proof).settle()


async def test_a_node_without_tokens_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = config(tmp_path)
    async with serving(settings):
        assert not await Links(settings.advertise).settle()
    assert "set [security] peer_proof = false" in caplog.text


async def test_an_impostor_sees_no_token() -> None:
    """It listens where a node was, or where an admin says that it is."""
    heard: list[bytes] = []

    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1 << 16))
        writer.write(heard[-1])  # It says what it heard.
        heard.append(await reader.read(1 << 16))
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        assert not await Links(f"127.0.0.1:{port}").settle()
    assert heard[0]
    assert TEXT.encode() not in b"".join(heard)


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
async def test_over_tls_the_certificate_is_proved_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = tmp_path / "node.crt", tmp_path / "node.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]
    command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", "/CN=node"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    files = f'certificate = "{certificate}"\nkey = "{key}"\n'
    settings = with_tokens(tmp_path, files)
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with serving(settings):
        assert await Links(settings.advertise, tls=trusting).settle()
        nobody = ssl.create_default_context()
        assert not await Links(settings.advertise, tls=nobody).settle()
    assert "its certificate is not trusted: self-signed certificate." in caplog.text
    without = SecuritySettings(tokens=settings.security.tokens)
    assert certificate_channel(without) == b""
    assert len(certificate_channel(settings.security)) == 32


@pytest.mark.parametrize("proof", [True, False])
async def test_nodes_form_a_cluster(tmp_path: Path, proof: bool) -> None:
    """With proofs, and as in the version before, which a rolling upgrade needs."""
    token = tmp_path / "peer.token"
    token.write_text(TEXT + "\n")
    said = f'peer_token = "{token}"\npeer_proof = {str(proof).lower()}\n'
    first, second = tmp_path / "1", tmp_path / "2"
    for each in (first, second):
        each.mkdir()
    one, other = with_tokens(first, said), with_tokens(second, said)
    voters = {1: one.advertise, 2: other.advertise}
    servers = []
    for number, settings in ((1, one), (2, other)):
        servers.append(NodeServer(_replaced(settings, number, voters)))
    async with servers[0], servers[1]:
        await _until(lambda: all(each.node.leader for each in servers))


async def test_the_token_of_nodes_is_changed_without_a_restart(tmp_path: Path) -> None:
    """Files know both, then nodes show the new one, then files forget the old one."""
    new_text, new = make_token("new", Role.PEER, bytes(range(1, 33)))
    nodes = []
    for number in (1, 2):
        directory = tmp_path / str(number)
        directory.mkdir()
        (directory / "peer.token").write_text(TEXT)
        nodes.append(with_tokens(directory, f'peer_token = "{directory}/peer.token"\n'))
    voters = {1: nodes[0].advertise, 2: nodes[1].advertise}
    servers = [
        NodeServer(_replaced(settings, number, voters))
        for number, settings in enumerate(nodes, 1)
    ]

    def connected() -> bool:
        links = [link for each in servers for link in each.node.peers.links()]
        return len(links) == 2 and all(link.connected for link in links)

    async with servers[0], servers[1]:
        await _until(connected)
        for tokens, text in (
            ([TOKEN, new], TEXT),
            ([TOKEN, new], new_text),
            ([new], new_text),
        ):
            for number, server in enumerate(servers, 1):
                directory = tmp_path / str(number)
                entries = "\n".join(map(token_entry, tokens))
                (directory / "tokens.toml").write_text(entries)
                (directory / "peer.token").write_text(text)
                closed = (await server.reload()).closed
                # The first to forget it closes what the other made with it.
                assert (closed > 0) == (tokens == [new])
            await _until(connected)
        await _until(lambda: all(each.node.leader for each in servers))


def _replaced(settings: NodeConfig, node: int, voters: dict[int, str]) -> NodeConfig:
    return replace(
        settings,
        node=replace(settings.node, id=node),
        cluster=replace(settings.cluster, voters=voters),
    )
