"""Compares the replicas of a log with one another and with what clients were told."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final

import braidlog
from braidlog.client.client import AsyncClient
from braidlog.client.settings import ClientSettings
from braidlog.errors import LogError
from cluster.load import Promises

__all__ = ["contents", "verify", "wait_complete"]

_SETTLE_S: Final = 45.0
_SHOWN: Final = 5


async def wait_complete(seeds: str, log: str, replicas: int) -> None:
    """Wait until every stream of a log has all its replicas, alive, and no learner."""
    deadline = time.monotonic() + _SETTLE_S
    async with braidlog.connect_async(seeds) as client:
        while why := await _incomplete(client, log, replicas):
            assert time.monotonic() < deadline, why
            await asyncio.sleep(0.05)


async def _incomplete(client: AsyncClient, log: str, replicas: int) -> str:
    alive = {info.node for info in await client.nodes() if info.alive}
    for info in await client.streams(log):
        if len(info.replicas) < replicas or info.learners:
            return f"stream {info.stream} is not complete: {info}"
        if not alive.issuperset(info.replicas):
            return f"stream {info.stream} has replicas that are down: {info}, {alive}"
    return ""


async def contents(seeds: str, log: str, node: int, begin: int = 1) -> list[str]:
    """Return the values from a position on, as this node has them."""
    settings = ClientSettings(read_node=node, poll_s=1.0)
    async with braidlog.connect_async(seeds, settings=settings) as client:
        source = await client.log(log)
        return [bytes(each.value).decode() async for each in source.read(begin)]


async def verify(
    seeds: str,
    log: str,
    promises: Promises,
    nodes: Iterable[int],
    *,
    replicas: int = 3,
    begin: int = 1,
) -> list[str]:
    """Check every replica from `begin` on; return the values, which all of them have.

    Every record that was acknowledged is there once, at its position, on every node;
    nothing is there that nobody sent, and nothing twice. All nodes hold the same.
    """
    await wait_complete(seeds, log, replicas)
    first: list[str] | None = None
    for node in nodes:
        try:
            async with asyncio.timeout(_SETTLE_S):
                found = await contents(seeds, log, node, begin)
        except (TimeoutError, LogError) as error:
            raise AssertionError(f"node {node} cannot be read: {error!r}") from error
        if first is None:
            first = found
            _judge(found, begin, promises)
        assert found == first, f"node {node}: {_difference(first, found, begin)}"
    return first or []


def _judge(found: list[str], begin: int, promises: Promises) -> None:
    positions = {value: begin + index for index, value in enumerate(found)}
    twice = [value for value, times in Counter(found).items() if times > 1]
    assert not twice, f"stored twice: {twice[:_SHOWN]}"
    strange = positions.keys() - promises.submitted
    assert not strange, f"nobody sent {sorted(strange)[:_SHOWN]}"
    wrong = [
        (value, told, positions.get(value))
        for value, told in promises.acknowledged.items()
        if told >= begin and positions.get(value) != told
    ]
    assert not wrong, f"{len(wrong)} are not where they were: {wrong[:_SHOWN]}"


def _difference(one: list[str], other: list[str], begin: int) -> str:
    if len(one) != len(other):
        return f"{len(other)} records instead of {len(one)}"
    pairs = enumerate(zip(one, other, strict=True), begin)
    return next(f"{at}: {a} and {b}" for at, (a, b) in pairs if a != b)
