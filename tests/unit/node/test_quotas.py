"""Quotas of tokens, through a real node: what is refused, what it costs, who waits.

The clock of the quotas is the test's, so what passes is known; clients wait for real.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from braidlog.client import AsyncClient, ClientSettings
from braidlog.client.connection.link import Answer
from braidlog.errors import QuotaExceededError
from braidlog.node.server import NodeServer
from braidlog.serving.sessions import Session
from braidlog.wire.client import ClientConnection
from braidlog.wire.codec import encode
from braidlog.wire.connection import VERSION_MAX, VERSION_MIN
from braidlog.wire.messages import Append, GetMetadata, Hello, Message
from braidlog.wire.quotas import Quotas
from braidlog.wire.roles import Role
from braidlog.wire.tokens import make_token, token_entry
from unit.node.test_reload import TEXTS, Files, serving
from unit.node.test_server import client, page
from unit.wire.frames import encode_frame

TEXT, TOKEN = make_token("bounded", Role.APPEND, bytes([78]) * 32)
SOON = ClientSettings(timeout_s=0.3)


class Bounded(Files):
    """A node that knows a token with quotas."""

    def allow(self, **quotas: int) -> None:
        self.write(ops=Role.ADMIN)
        with self.tokens.open("a") as file:
            file.write("\n" + token_entry(replace(TOKEN, quotas=Quotas(**quotas))))


class Clock:
    """What the quotas of a node take for the time."""

    def __init__(self, server: NodeServer) -> None:
        self.now = 1000.0
        server.node.sessions.now = lambda: self.now

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let a second pass in each hundredth of one."""

        async def run() -> None:
            while True:
                await asyncio.sleep(0.01)
                self.now += 1.0

        task = asyncio.create_task(run())
        try:
            yield
        finally:
            task.cancel()


def sessions_of(server: NodeServer) -> list[Session]:
    """Return the sessions of the token with quotas."""
    there = server.node.sessions._sessions
    return [each for each in there if each.rights.token == "bounded"]


def is_hot(session: Session) -> bool:
    """Tell whether the core takes appends of a session by itself."""
    return session.core.hot


async def ask_once(there: AsyncClient) -> Answer:
    """Ask without the patience of a client."""
    cluster = there._cluster
    return await cluster._links._ask_once(cluster.seeds[0], GetMetadata(), b"", 5.0)


async def passing(there: AsyncClient, most: int = 500) -> int:
    """Return how many requests pass before one is refused."""
    for count in range(most):
        if (refused := await _refusal(there)) is not None:
            assert (refused.quota, refused.retryable) == ("requests_per_s", True)
            assert refused.retry_after_ms > 0
            assert refused.outcome == "not_stored"
            return count
    return most


async def _refusal(there: AsyncClient) -> QuotaExceededError | None:
    try:
        await ask_once(there)
    except QuotaExceededError as error:
        return error
    return None


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def used(server: NodeServer) -> tuple[int, int, dict[str, int]]:
    [use] = server.node.status().quotas
    assert use.token == "bounded"
    return use.requests, use.bytes, use.refused


async def test_requests_beyond_the_quota_are_refused(tmp_path: Path) -> None:
    files = Bounded(tmp_path)
    files.allow(requests_per_s=40)
    async with (
        serving(files) as server,
        client(files.config, token=TEXTS["ops"]) as ops,
    ):
        clock = Clock(server)
        async with client(files.config, token=TEXT) as there:
            await passing(there)
            assert used(server)[0] == 40
            clock.now += 0.25
            await passing(there)
            assert used(server)[0] == 50
            # However long nobody asks, no more than one second's worth passes at once.
            clock.now += 100
            await passing(there)
            assert used(server)[0] == 90
            # Another token is not concerned, and not counted.
            for _ in range(200):
                await ask_once(ops)
            # Connecting again gains nothing.
            before = used(server)[2]["requests_per_s"]
            with pytest.raises(QuotaExceededError) as caught:
                async with client(files.config, token=TEXT, settings=SOON):
                    pass
            assert caught.value.quota == "requests_per_s"
            assert caught.value.limit == 40
            assert "no node carried out the request" in caught.value.message
            assert used(server)[0] == 90
            assert used(server)[2]["requests_per_s"] > before
        _, text = await page(files.config, "/metrics")
        assert 'braidlog_token_requests_total{token="bounded"} 90.0' in text
        assert 'braidlog_token_quota{quota="requests_per_s",token="bounded"} 40' in text
        assert 'quota="requests_per_s",token="bounded"} 0.0' not in text
        assert "ops" not in text
        for secret in (TEXT, TOKEN.sha256):
            assert secret not in text


async def test_a_client_waits_and_goes_on(tmp_path: Path) -> None:
    files = Bounded(tmp_path)
    files.allow(requests_per_s=20)
    async with serving(files) as server:
        clock = Clock(server)
        async with client(files.config, token=TEXTS["ops"]) as ops:
            await ops.create_log("orders")
        async with client(files.config, token=TEXT) as there:
            await there.log("orders")
            asked = [there._cluster.linearize() for _ in range(60)]
            waiting = asyncio.gather(*asked)
            await until(lambda: used(server)[2]["requests_per_s"] > 0)
            async with clock.running():
                await waiting
        assert used(server)[0] >= 60


async def test_pipelined_appends_are_stored_once_and_in_order(tmp_path: Path) -> None:
    """Some of a series are refused, and those behind them may pass."""
    files = Bounded(tmp_path)
    files.allow(bytes_per_s=2500, requests_per_s=30)
    settings = ClientSettings(batch_records_max=3, in_flight_max=7)
    keys, count = [b"a", b"b", b"c"], 120
    async with (
        serving(files) as server,
        client(files.config, token=TEXTS["ops"]) as ops,
    ):
        clock = Clock(server)
        seen = await ops.create_log("orders", streams=2)
        async with (
            client(files.config, token=TEXT, settings=settings) as there,
            clock.running(),
        ):
            log = await there.log("orders")
            appended = [
                log.append(b"%05d" % number * 20, key=keys[number % 3])
                for number in range(count)
            ]
            positions = await asyncio.gather(*appended)
        assert sorted(positions) == list(range(1, count + 1))
        found = [record async for record in seen.read()]
        for key in keys:
            values = [record.value for record in found if record.key == key]
            assert len(values) == count // 3
            assert values == sorted(values)
        refused = used(server)[2]
        assert refused["bytes_per_s"] > 0
        assert refused["requests_per_s"] >= 0
        assert not server.node.failed.done()


async def test_reads_are_charged_for_what_they_bring(tmp_path: Path) -> None:
    files = Bounded(tmp_path)
    files.allow(bytes_per_s=10_000)
    async with (
        serving(files) as server,
        client(files.config, token=TEXTS["ops"]) as ops,
    ):
        clock = Clock(server)
        log = await ops.create_log("orders")
        await log.append_many([b"x" * 1000] * 50)
        async with client(files.config, token=TEXT) as there:
            mine = await there.log("orders")
            assert used(server)[1] == 0
            assert (await anext(aiter(mine.read()))).value == b"x" * 1000
            size = used(server)[1]
            assert size >= 50_000
            # A debt of four seconds: nothing passes before it is paid.
            clock.now += 3.9
            with pytest.raises(QuotaExceededError) as caught:
                await ask_once(there)
            assert caught.value.quota == "bytes_per_s"
            async with clock.running():
                assert await mine.append(b"y" * 2000) == 51
            assert used(server)[1] >= size + 2000


async def test_a_deadline_raises_the_error_of_the_quota(tmp_path: Path) -> None:
    files = Bounded(tmp_path)
    files.allow(bytes_per_s=1000)
    async with (
        serving(files) as server,
        client(files.config, token=TEXTS["ops"]) as ops,
    ):
        clock = Clock(server)
        seen = await ops.create_log("orders")
        assert await seen.append(b"w") == 1
        async with client(files.config, token=TEXT) as there:
            log = await there.log("orders")
            assert await log.append(b"x" * 1500) == 2
            with pytest.raises(QuotaExceededError) as caught:
                await log.append(b"y", timeout=0.2)
            assert caught.value.quota == "bytes_per_s"
            assert "did not store the append in time" in caught.value.message
            # It is in line: what is behind it must not overtake it.
            assert caught.value.outcome == "unknown"
            # The client waited as long as it was told to.
            assert used(server)[2]["bytes_per_s"] <= 3
            clock.now += 100
            assert await log.append(b"z") == 4
        found = [record.value async for record in seen.read()]
        assert found[2:] == [b"y", b"z"]


async def test_a_reload_changes_the_quotas_of_open_sessions(tmp_path: Path) -> None:
    files = Bounded(tmp_path)
    files.allow(requests_per_s=30)
    async with serving(files) as server:
        clock = Clock(server)
        async with client(files.config, token=TEXTS["ops"]) as ops:
            await ops.create_log("orders")
        async with client(files.config, token=TEXT) as there:
            log = await there.log("orders")
            [session] = sessions_of(server)
            await passing(there)
            assert not is_hot(session)
            files.allow(requests_per_s=300)
            done = await server.reload()
            assert done.changed == ("[security] tokens: changed bounded",)
            assert done.closed == 0
            clock.now += 0.5
            assert await passing(there) > 100
            # Without a quota the core has it again.
            files.allow(connections=7)
            assert (await server.reload()).closed == 0
            assert is_hot(session)
            for number in range(1, 50):
                assert await log.append(b"x") == number
            requests = used(server)[0]
            for _ in range(50):
                await ask_once(there)
            assert used(server)[0] == requests
            # And an open session gets one that it had not.
            files.allow(requests_per_s=5)
            await server.reload()
            assert not is_hot(session)
            assert await passing(there) <= 5
            with pytest.raises(QuotaExceededError):
                await log.append(b"x", timeout=0.2)
            assert sessions_of(server) == [session]
            files.allow()
            await server.reload()
            assert server.node.status().quotas == ()
            assert await log.append(b"x") in {50, 51}


async def test_connections_beyond_the_quota_are_refused(tmp_path: Path) -> None:
    files = Bounded(tmp_path)
    files.allow(connections=2)
    async with (
        serving(files) as server,
        client(files.config, token=TEXTS["ops"]),
        client(files.config, token=TEXT),
    ):
        async with client(files.config, token=TEXT):
            with pytest.raises(QuotaExceededError) as caught:
                async with client(files.config, token=TEXT, settings=SOON):
                    pass
            assert (caught.value.quota, caught.value.limit) == ("connections", 2)
            assert server.node.status().quotas[0].connections == 2
            # Others are let in.
            async with client(files.config, token=TEXTS["ops"]):
                pass
            # A lower quota ends nobody.
            files.allow(connections=1)
            assert (await server.reload()).closed == 0
            assert len(sessions_of(server)) == 2
        # One has left, and one is as many as there may be.
        await until(lambda: server.node.status().quotas[0].connections == 1)
        with pytest.raises(QuotaExceededError):
            async with client(files.config, token=TEXT, settings=SOON):
                pass
        assert used(server)[2]["connections"] > 1
        files.allow(connections=2)
        await server.reload()
        async with client(files.config, token=TEXT):
            pass


async def test_a_client_waits_for_a_connection(tmp_path: Path) -> None:
    files = Bounded(tmp_path)
    files.allow(connections=1)
    async with serving(files) as server, contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(client(files.config, token=TEXT))
        second = client(files.config, token=TEXT)
        entering = asyncio.create_task(second.__aenter__())
        await until(lambda: used(server)[2]["connections"] > 0)
        await stack.aclose()
        await entering
        await second.__aexit__(None, None, None)


@pytest.mark.parametrize("message", [GetMetadata(), Append(1, 1)])
async def test_what_follows_a_greeting_in_one_read_is_counted(
    tmp_path: Path, message: Message
) -> None:
    files = Bounded(tmp_path)
    files.allow(requests_per_s=5)
    hello = Hello(VERSION_MIN, VERSION_MAX, "", 0, TEXT, "test")
    payload = b"batch" if isinstance(message, Append) else b""
    head = encode(message)
    asked = [encode_frame(message.KIND, n, head, [payload]) for n in range(1, 31)]
    async with serving(files) as server:
        Clock(server)
        host, _, port = files.config.node.listen.rpartition(":")
        _, writer = await asyncio.open_connection(host, int(port))
        ours = ClientConnection(hello, 17 << 20)
        [greeting] = ours.outgoing()
        writer.write(bytes(greeting) + b"".join(asked))
        await until(lambda: bool(sessions_of(server)) and sum(used(server)[:1]) >= 5)
        await until(lambda: sum(used(server)[2].values()) == 25)
        assert used(server)[0] == 5
        writer.close()
        await writer.wait_closed()
        assert not server.node.failed.done()


async def test_many_clients_of_one_token_share_it(tmp_path: Path) -> None:
    files = Bounded(tmp_path)
    files.allow(requests_per_s=50)
    async with serving(files) as server:
        Clock(server)
        async with contextlib.AsyncExitStack() as stack:
            there = [
                await stack.enter_async_context(client(files.config, token=TEXT))
                for _ in range(5)
            ]

            async def ask(one: AsyncClient) -> int:
                refused = [await _refusal(one) for _ in range(40)]
                return refused.count(None)

            passed = sum(await asyncio.gather(*map(ask, there)))
            assert used(server)[0] == 50
            assert passed < 50
