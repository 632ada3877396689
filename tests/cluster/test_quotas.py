"""Quotas of tokens in a cluster of real processes, whoever reads the sockets.

What passes is judged by what nodes have counted. That is at most the rate times the
time that the test took, and a second's worth: on a slow machine less passes.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.client import AsyncClient
from braidlog.client.settings import ClientSettings
from braidlog.errors import QuotaExceededError
from braidlog.testing.cluster import LocalCluster
from braidlog.wire.messages import Reloaded
from braidlog.wire.quotas import Quotas
from braidlog.wire.roles import Role
from braidlog.wire.tokens import make_token, token_entry

pytestmark = [pytest.mark.process, pytest.mark.timeout(90)]

ROLES = {
    "nodes": Role.PEER,
    "ops": Role.ADMIN,
    "often": Role.APPEND,
    "much": Role.APPEND,
    "few": Role.APPEND,
}
TEXTS = {
    name: make_token(name, role, bytes([number]) * 32)[0]
    for number, (name, role) in enumerate(ROLES.items())
}
REQUESTS, BYTES, VALUE = 20, 100_000, 10_000


@dataclass
class Secured:
    """A cluster whose nodes ask for tokens, and its file of them."""

    cluster: LocalCluster
    tokens: Path

    def client(self, name: str, seeds: str = "", **options: Any) -> AsyncClient:
        seeds = seeds or self.cluster.seeds
        return braidlog.connect_async(seeds, token=TEXTS[name], **options)

    async def allow(self, ops: AsyncClient, **quotas: Quotas) -> None:
        """Change the file, and have all nodes read it; no connection may end."""
        write(self.tokens, quotas)
        for done in (await ops.reload()).values():
            assert isinstance(done, Reloaded), done
            assert done.closed == 0

    def used(self, name: str) -> list[dict[str, Any]]:
        """Return what nodes have counted of a token."""
        return [
            use
            for node in self.cluster.nodes
            for use in status(self.cluster.http(node))["quotas"]
            if use["token"] == name
        ]

    def refused(self, name: str, quota: str) -> int:
        return sum(use["refused"][quota] for use in self.used(name))


def status(address: str) -> Any:
    with urllib.request.urlopen(f"{address}/status", timeout=10) as answer:
        return json.load(answer)


def write(path: Path, quotas: dict[str, Quotas]) -> None:
    entries = []
    for number, (name, role) in enumerate(ROLES.items()):
        given = quotas.get(name, Quotas())
        token = make_token(name, role, bytes([number]) * 32, quotas=given)[1]
        entries.append(token_entry(token))
    path.write_text("\n".join(entries))


@pytest.fixture(params=["braidlog", "cluster.loop_node"], ids=["core", "loop"])
def secured(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Secured]:
    # The program of one of them is among the tests.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    tokens, peer = tmp_path / "tokens.toml", tmp_path / "peer.token"
    write(
        tokens,
        {
            "often": Quotas(requests_per_s=REQUESTS),
            "much": Quotas(bytes_per_s=BYTES),
            "few": Quotas(connections=2),
        },
    )
    peer.write_text(TEXTS["nodes"])
    settings: dict[str, dict[str, object]] = {
        "limits": {"segment_bytes": 4 << 20, "wal_bytes_max": 256 << 20},
        "security": {"tokens": str(tokens), "peer_token": str(peer)},
    }
    directory = tmp_path / "cluster"
    program = request.param
    with LocalCluster(3, directory=directory, settings=settings, program=program) as it:
        sockets = "core" if program == "braidlog" else "loop"
        assert status(it.http(1))["sockets"] == sockets
        yield Secured(it, tokens)


def test_a_client_over_its_quota_is_slowed_and_others_are_not(secured: Secured) -> None:
    asyncio.run(slowed(secured))


async def slowed(secured: Secured) -> None:
    counts = {"ops": 300, "often": 80, "much": 40}
    begun = time.monotonic()
    async with AsyncExitStack() as stack:
        there = {
            name: await stack.enter_async_context(secured.client(name))
            for name in counts
        }
        ops = there["ops"]
        log = await ops.create_log("orders", replication=3)
        await log.append(b"first")

        async def append(name: str) -> None:
            mine = await there[name].log("orders")
            size = VALUE if name == "much" else 10
            for number in range(counts[name]):
                value = (b"%06d" % number).ljust(size, b".")
                await mine.append(value, key=name.encode())

        await asyncio.gather(*map(append, counts))
        mine = await there["much"].log("orders")
        seen = [record async for record in mine.read()]
        took = time.monotonic() - begun
        # All were stored, once and in order, whatever was refused.
        assert len(seen) == 1 + sum(counts.values())
        for name, count in counts.items():
            values = [record.value for record in seen if record.key == name.encode()]
            assert [int((each or b"")[:6]) for each in values] == list(range(count))
        assert secured.refused("often", "requests_per_s") > 0
        assert secured.refused("much", "bytes_per_s") > 0
        assert secured.used("ops") == []
        for use in secured.used("often"):
            assert use["requests"] <= REQUESTS * (took + 1)
        # What passes last may be of any size; nothing here has more than a read.
        largest = 2 * VALUE * counts["much"]
        assert sum(use["bytes"] for use in secured.used("much")) > largest
        for use in secured.used("much"):
            assert use["bytes"] <= BYTES * (took + 1) + largest
        await raised(secured, there)


async def raised(secured: Secured, there: dict[str, AsyncClient]) -> None:
    """Open connections get a quota that was raised, and are refused nothing more."""
    await secured.allow(
        there["ops"],
        often=Quotas(requests_per_s=10**6),
        much=Quotas(bytes_per_s=10**9),
    )
    before = secured.refused("often", "requests_per_s")
    connections = [use["connections"] for use in secured.used("often")]
    log = await there["often"].log("orders")
    for _ in range(200):
        await log.append(b"more")
    assert secured.refused("often", "requests_per_s") == before
    assert [use["connections"] for use in secured.used("often")] == connections


def test_connections_over_the_quota_are_refused(secured: Secured) -> None:
    asyncio.run(crowded(secured))


async def crowded(secured: Secured) -> None:
    seeds = secured.cluster.address(1)
    soon = ClientSettings(timeout_s=1.5)

    @asynccontextmanager
    async def one() -> AsyncIterator[AsyncClient]:
        async with secured.client("few", seeds, settings=soon) as client:
            yield client

    async def is_refused() -> None:
        with pytest.raises(QuotaExceededError) as caught:
            async with one():
                pass
        assert caught.value.quota == "connections"
        assert caught.value.retryable

    async with secured.client("ops") as ops, one() as first, one() as second:
        await is_refused()
        assert secured.refused("few", "connections") > 0
        # A lower quota ends nobody, and lets nobody in.
        await secured.allow(ops, few=Quotas(connections=1))
        for client in (first, second):
            assert await client.logs() == []
        await is_refused()
        await secured.allow(ops, few=Quotas(connections=3))
        async with one() as third:
            assert await third.logs() == []
