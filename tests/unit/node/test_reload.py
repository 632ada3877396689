"""A node reads its files again: what it takes over, refuses, and whom it lets go."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path

import pytest

from braidlog.errors import InvalidArgumentError, LogError, UnauthorizedError
from braidlog.node.config import NodeConfig
from braidlog.node.reload import compare
from braidlog.node.server import NodeServer
from braidlog.wire.messages import Reloaded
from braidlog.wire.roles import Role
from braidlog.wire.tokens import make_token, token_entry
from unit.node.loops import poll_of_loop
from unit.node.test_server import client, config, page

needs_openssl = pytest.mark.skipif(
    not shutil.which("openssl"), reason="openssl makes the certificates"
)
ROLES = {"ops": Role.ADMIN, "writer": Role.APPEND, "reader": Role.READ}
MADE = {
    name: make_token(name, role, bytes([number]) * 32)
    for number, (name, role) in enumerate(ROLES.items())
}
TEXTS = {name: text for name, (text, _) in MADE.items()}


class Files:
    """The files of one node, which a test changes."""

    def __init__(self, directory: Path, extra: str = "") -> None:
        self.tokens = directory / "tokens.toml"
        self.write(**ROLES)
        text = f'[security]\ntokens = "{self.tokens}"\n{extra}'
        self.config = self.said = config(directory, text)
        self.levels: list[str] = []

    def write(self, **roles: Role) -> None:
        tokens = (replace(MADE[name][1], role=role) for name, role in roles.items())
        self.tokens.write_text("\n".join(map(token_entry, tokens)))

    def reread(self) -> NodeConfig:
        return self.said


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@asynccontextmanager
async def serving(files: Files) -> AsyncIterator[NodeServer]:
    stop = asyncio.Event()
    async with NodeServer(
        files.config,
        poll=poll_of_loop(),
        reread=files.reread,
        set_level=files.levels.append,
    ) as server:
        task = asyncio.create_task(server.serve(stop))
        yield server
        stop.set()
        await task


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[logging.LogRecord]:
    return [r for r in caplog.records if getattr(r, "event", "") == name]


async def test_tokens_come_and_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    files = Files(tmp_path)
    files.write(ops=Role.ADMIN, writer=Role.APPEND)
    async with serving(files) as server:
        async with (
            client(files.config, token=TEXTS["ops"]) as ops,
            client(files.config, token=TEXTS["writer"]) as writer,
        ):
            await ops.create_log("orders")
            log = await writer.log("orders")
            await log.append(b"x")
            with pytest.raises(UnauthorizedError, match="does not know this token"):
                async with client(files.config, token=TEXTS["reader"]):
                    pass
            here = len(server.node.sessions)
            files.write(ops=Role.ADMIN, writer=Role.APPEND, reader=Role.READ)
            done = await server.reload()
            assert done == Reloaded(("[security] tokens: added reader",))
            # Nobody lost a connection.
            assert len(server.node.sessions) == here
            assert await log.append(b"y") == 2
            async with client(files.config, token=TEXTS["reader"]) as reader:
                assert await reader.logs() == ["orders"]
            files.write(ops=Role.ADMIN)
            done = await server.reload()
            assert done.changed == ("[security] tokens: removed writer, reader",)
            assert done.closed >= 1
            with pytest.raises(UnauthorizedError, match="does not know this token"):
                await log.append(b"z")
            assert await ops.logs() == ["orders"]
        _, text = await page(files.config, "/metrics")
        assert "braidlog_reloads_total 2.0" in text
        assert "braidlog_reloads_refused_total 0.0" in text
        assert f"braidlog_connections_revoked_total {done.closed}.0" in text
    first, second = events(caplog, "settings_reloaded")
    assert vars(first)["changed"] == "[security] tokens: added reader"
    assert vars(second)["closed"] == done.closed
    assert second.levelno == logging.INFO


async def test_a_role_that_shrank_ends_connections_and_one_that_grew_does_not(
    tmp_path: Path,
) -> None:
    files = Files(tmp_path)
    async with (
        serving(files) as server,
        client(files.config, token=TEXTS["ops"]) as ops,
        client(files.config, token=TEXTS["writer"]) as writer,
        client(files.config, token=TEXTS["reader"]) as reader,
    ):
        await ops.create_log("orders")
        log = await writer.log("orders")
        assert await log.append(b"x") == 1
        seen = await reader.log("orders")
        files.write(ops=Role.ADMIN, writer=Role.READ, reader=Role.APPEND)
        done = await server.reload()
        assert done.changed == ("[security] tokens: changed writer, reader",)
        assert done.closed >= 1
        with pytest.raises(UnauthorizedError, match="has role read"):
            await log.append(b"y")
        assert [record.value async for record in log.read()] == [b"x"]
        assert [record.value async for record in seen.read()] == [b"x"]
        # More is allowed to connections that begin from now on.
        async with client(files.config, token=TEXTS["reader"]) as again:
            assert await (await again.log("orders")).append(b"y") == 2


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[[token]]\nname = 5\n", "entry 1"),
        ("[[token]", "token file: "),
        ("x = 1", "only [[token]] entries"),
        (None, "No such file"),
    ],
)
async def test_a_broken_file_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str | None, says: str
) -> None:
    files = Files(tmp_path)
    async with serving(files) as server:
        async with client(files.config, token=TEXTS["ops"]) as ops:
            log = await ops.create_log("orders")
            before = server._keyring.credentials
            files.tokens.unlink()
            if text is not None:
                files.tokens.write_text(text)
            # What came with it is not taken over either.
            files.said = replace(files.said, log=replace(files.said.log, level="debug"))
            with pytest.raises(InvalidArgumentError) as caught:
                await server.reload()
            assert says in caught.value.message
            assert "[security] tokens" in caught.value.message
            assert server._keyring.credentials is before
            assert files.levels == []
            assert await log.append(b"x") == 1
            async with client(files.config, token=TEXTS["reader"]):
                pass
            answer = (await ops.reload())[1]
            assert isinstance(answer, InvalidArgumentError)
            assert says in answer.message
        _, metrics = await page(files.config, "/metrics")
        assert "braidlog_reloads_refused_total 2.0" in metrics
    refused = events(caplog, "reload_refused")
    assert len(refused) == 2
    assert says in vars(refused[0])["reason"]


async def test_a_client_has_nodes_reload(tmp_path: Path) -> None:
    files = Files(tmp_path)
    async with (
        serving(files),
        client(files.config, token=TEXTS["ops"]) as ops,
        client(files.config, token=TEXTS["writer"]) as writer,
    ):
        await ops.create_log("orders")  # The node is registered by then.
        assert await ops.reload() == {1: Reloaded(())}
        refused = (await writer.reload())[1]
        assert isinstance(refused, UnauthorizedError)
        assert "Reload needs a token of role admin" in refused.message
        found = await ops.reload([9])
        assert isinstance(found[9], LogError)
        files.said = replace(
            files.said,
            log=replace(files.said.log, level="debug"),
            node=replace(files.said.node, http=""),
            limits=replace(files.said.limits, connections_max=7),
        )
        ignored = ("[node] http", "[limits] connections_max")
        done = (await ops.reload())[1]
        assert done == Reloaded(("[log] level: debug",), ignored)
        assert files.levels[-1] == "debug"
        # It is said again as long as it is so; what was taken over is not.
        assert (await ops.reload())[1] == Reloaded((), ignored)
        # Who removes his own token is answered before he is let go.
        files.write(reader=Role.READ)
        last = (await ops.reload())[1]
        assert isinstance(last, Reloaded)
        assert last.changed == ("[security] tokens: removed ops, writer",)
        assert last.closed >= 2


async def test_what_a_reload_names_covers_every_setting(tmp_path: Path) -> None:
    running = Files(tmp_path).config
    assert compare(running, running).ignored == []
    for section in ("timing", "limits"):
        old = getattr(running, section)
        for each in fields(old):
            said = replace(old)
            # Whether it could serve does not matter here.
            object.__setattr__(said, each.name, -1)
            found = compare(running, replace(running, **{section: said}))
            assert found.ignored == [f"[{section}] {each.name}"]
            assert found.config == running
    security = replace(running.security, tokens="", peer_token="p", peer_proof=False)
    found = compare(running, replace(running, security=security))
    assert found.ignored == [
        "[security] tokens",
        "[security] peer_token",
        "[security] peer_proof",
    ]
    assert found.config == running
    moved = replace(running, security=replace(running.security, tokens="elsewhere"))
    assert compare(running, moved).config == moved


def make_certificate(directory: Path, name: str) -> tuple[Path, Path]:
    """Make a certificate that is its own authority."""
    certificate, key = directory / f"{name}.crt", directory / f"{name}.key"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"]
    command += ["-pkeyopt", "ec_paramgen_curve:P-256", "-subj", f"/CN={name}"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


@needs_openssl
async def test_a_certificate_is_replaced(tmp_path: Path) -> None:
    one = make_certificate(tmp_path, "one")
    two = make_certificate(tmp_path, "two")
    crt, key = tmp_path / "node.crt", tmp_path / "node.key"
    shutil.copy(one[0], crt)
    shutil.copy(one[1], key)
    lines = f'certificate = "{crt}"\nkey = "{key}"\nauthority = "{crt}"\n'
    files = Files(tmp_path, lines)
    old, new = (ssl.create_default_context(cafile=str(c)) for c, _ in (one, two))
    async with serving(files) as server:
        token = TEXTS["ops"]
        async with client(files.config, ssl=old, token=token) as before:
            log = await before.create_log("orders")
            shutil.copy(two[0], crt)
            with pytest.raises(InvalidArgumentError, match="does not belong to"):
                await server.reload()
            async with client(files.config, ssl=old, token=token):
                pass
            shutil.copy(two[1], key)
            done = await server.reload()
            told = ("[security] certificate", "[security] key", "[security] authority")
            assert done.changed == told
            # The open connection stays, the next one sees the new certificate.
            assert await log.append(b"x") == 1
            async with client(files.config, ssl=new, token=token) as after:
                assert await after.logs() == ["orders"]
            with pytest.raises(UnauthorizedError, match="certificate"):
                async with client(files.config, ssl=old, token=token):
                    pass


async def test_reloads_beside_traffic(tmp_path: Path) -> None:
    """Each append is stored once, whatever is reloaded meanwhile."""
    files = Files(tmp_path)
    async with (
        serving(files) as server,
        client(files.config, token=TEXTS["ops"]) as ops,
    ):
        log = await ops.create_log("orders")
        over = asyncio.Event()

        async def reloads() -> int:
            count = 0
            while not over.is_set():
                count += 1
                files.write(**ROLES if count % 2 else {"ops": Role.ADMIN})
                await server.reload()
                await asyncio.sleep(0)
            return count

        async def comes_and_goes() -> None:
            while not over.is_set():
                try:
                    async with client(files.config, token=TEXTS["writer"]) as one:
                        await (await one.log("orders")).append(b"from a writer")
                except UnauthorizedError:
                    await asyncio.sleep(0.005)

        reloading = asyncio.create_task(reloads())
        coming = asyncio.create_task(comes_and_goes())
        appended = [await log.append(b"%d" % n) for n in range(300)]
        over.set()
        assert await reloading > 3
        await coming
        assert appended == sorted(set(appended))
        values = [record.value async for record in log.read()]
        own = [value for value in values if value != b"from a writer"]
        assert own == [b"%d" % n for n in range(300)]


@needs_openssl
async def test_many_reloads_keep_no_descriptor(tmp_path: Path) -> None:
    crt, key = make_certificate(tmp_path, "node")
    lines = f'certificate = "{crt}"\nkey = "{key}"\nauthority = "{crt}"\n'
    files = Files(tmp_path, lines)
    async with serving(files) as server:
        for _ in range(10):
            await server.reload()
        before = descriptors()
        for number in range(1000):
            files.write(**ROLES if number % 2 else {"ops": Role.ADMIN})
            await server.reload()
        assert descriptors() <= before
