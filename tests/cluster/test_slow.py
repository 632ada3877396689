"""A node whose syncs are slow leaves its streams, and returns when they are fast."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from braidlog.client import connect_async
from braidlog.client.client import AsyncClient
from braidlog.client.log import AsyncClusterLog
from braidlog.testing.cluster import LocalCluster
from cluster.slow import PROGRAM, delay, whole

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

SETTINGS = {"timing": {"slow_after_ms": 1000, "slow_back_ms": 1000}}
DELAY_MS = 150
WARM_S = 4.0
WAIT_S = 60.0


@asynccontextmanager
async def fed(log: AsyncClusterLog) -> AsyncIterator[list[tuple[float, float]]]:
    """Append one record after the other; yield when each began and ended."""
    times: list[tuple[float, float]] = []
    stopping = asyncio.Event()

    async def feed() -> None:
        while not stopping.is_set():
            begun = time.monotonic()
            await log.append(b"%d" % len(times))
            times.append((begun, time.monotonic()))
            await asyncio.sleep(0.005)

    async with asyncio.TaskGroup() as group:
        group.create_task(feed())
        yield times
        stopping.set()


async def until(client: AsyncClient, node: int, *, there: bool) -> None:
    async with asyncio.timeout(WAIT_S):
        while True:
            complete, held = await whole(client, "a", 3)
            if (complete, node in held) == (there, there):
                return
            await asyncio.sleep(0.05)


async def play(cluster: LocalCluster) -> None:
    async with connect_async(cluster.seeds) as client:
        log = await client.create_log("a", replication=3, min_replicas=2)
        await log.append(b"first")
        (stream,) = await client.streams("a")
        # A primary, and the leader if it is the same one.
        node = stream.replicas[0]
        async with fed(log) as times:
            await asyncio.sleep(WARM_S)
            delay(cluster, node, DELAY_MS)
            await until(client, node, there=False)
            out = time.monotonic()
            await asyncio.sleep(1.0)
            # Whatever waits for a sync of that node takes at least so long.
            behind = sorted(end - begin for begin, end in times if begin > out)
            assert behind[len(behind) // 2] < DELAY_MS / 1000
            delay(cluster, node, 0)
            await until(client, node, there=True)
        assert log.end == 2 + len(times) or await log.refresh()
        values = [bytes(each.value or b"") async for each in log.read()]
        assert values == [b"first", *(b"%d" % number for number in range(len(times)))]


def test_a_node_with_slow_syncs_leaves_and_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", f"{tests.parent / 'src'}:{tests}")
    with LocalCluster(
        3, directory=tmp_path, settings=SETTINGS, program=PROGRAM
    ) as cluster:
        asyncio.run(play(cluster))
        told = [
            json.loads(line)
            for node in cluster.nodes
            for line in cluster.output(node).read_text().splitlines()
            if "node_slow" in line or "node_fast" in line
        ]
    names = [each["event"] for each in told]
    assert "node_slow" in names
    assert "node_fast" in names
