"""The logs of real nodes tell a failover: each change of state once, with fields."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.client import AsyncClient
from braidlog.testing.cluster import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(90)]

SMALL = {
    "limits": {"segment_bytes": 4 << 20, "wal_bytes_max": 256 << 20},
    # A killed node is lost at once, because its connections break. One that is only
    # slow, on a busy machine, should not be.
    "timing": {"failure_ms": 10_000},
}
SETTLES_S = 30.0
STREAM = ("stream_degraded", "stream_whole", "learner_begun", "epoch_begun")


def events(cluster: LocalCluster) -> list[dict[str, Any]]:
    lines = (
        json.loads(line)
        for node in cluster.nodes
        for line in cluster.output(node).read_text().splitlines()
    )
    return [line for line in lines if "event" in line]


def told(cluster: LocalCluster, *names: str) -> list[tuple[str, int]]:
    """Return which of these events there are, in which node's log."""
    return sorted(
        (e["event"], e["node"]) for e in events(cluster) if e["event"] in names
    )


async def in_sync(client: AsyncClient, replicas: int) -> None:
    async with asyncio.timeout(SETTLES_S):
        while True:
            (stream,) = await client.streams("orders")
            if stream.in_sync == stream.replicas and len(stream.replicas) == replicas:
                return
            await asyncio.sleep(0.05)


async def fail_over(cluster: LocalCluster) -> tuple[int, int, int]:
    """Kill a node and start it again; return it, the primary then, and the leader."""
    async with braidlog.connect_async(cluster.seeds) as client:
        await client.create_log("orders", replication=3)
        await in_sync(client, 3)
        leader = (await client.metadata()).leader
        (stream,) = await client.streams("orders")
        # One that does not lead, so that nobody has to be elected.
        primary = next(node for node in stream.replicas if node != leader)
        cluster.kill(primary)
        await in_sync(client, 2)
        (stream,) = await client.streams("orders")
        cluster.restart(primary)
        await in_sync(client, 3)
        return primary, stream.replicas[0], leader


def test_a_failover_is_told_once(tmp_path: Path) -> None:
    with LocalCluster(3, directory=tmp_path, settings=SMALL) as cluster:
        # Else the log may be created before the leader has heard all of them.
        cluster.wait_ready()
        node, primary, leader = asyncio.run(fail_over(cluster))
        cluster.wait_ready()
        for name in ("node_lost", "node_started"):
            assert told(cluster, name) == [(name, leader)]
        assert told(cluster, "leader_elected", "leader_lost") == [
            ("leader_elected", leader)
        ]
        # A new log may begin without a node that the leader has not heard of yet.
        changes = [e for e in events(cluster) if e["event"] in STREAM]
        assert {e["node"] for e in changes} == {leader}
        told_of = [e["event"] for e in changes if e["event"].startswith("stream_")]
        assert told_of[-2:] == ["stream_degraded", "stream_whole"]
        assert all(one != other for one, other in pairwise(told_of))
        begun = [e["learner"] for e in changes if e["event"] == "learner_begun"]
        epochs = [e for e in changes if e["event"] == "epoch_begun"]
        assert len(begun) == sum(len(e["joined"]) for e in epochs)
        left, joined = epochs[-2:]
        assert (left["node"], left["level"]) == (leader, "info")
        assert (left["log"], left["stream"]) == ("orders", 1)
        assert [e["epoch"] for e in epochs] == list(range(2, 2 + len(epochs)))
        assert (left["left"], left["primary"]) == ([node], primary)
        assert left["reason"] == f"node {node} is down"
        assert (begun[-1], joined["joined"]) == (node, [node])
        [lost] = (e for e in events(cluster) if e["event"] == "node_lost")
        assert (lost["level"], lost["peer"]) == ("warning", node)
        roles = [e for e in events(cluster) if e["event"] == "replica_role"]
        assert [e["role"] for e in roles if e["node"] == node][-2:] == [
            "learner",
            "backup",
        ]
        # Each node says which part it has, once as long as it has it.
        for each in cluster.nodes:
            mine = [e["role"] for e in roles if e["node"] == each]
            assert all(a != b for a, b in pairwise(mine)), mine


def test_a_level_leaves_the_rest_out(tmp_path: Path) -> None:
    quiet = SMALL | {"log": {"level": "warning"}}
    with LocalCluster(1, directory=tmp_path, settings=quiet) as cluster:
        assert cluster.stop(1) == 0
        assert cluster.output(1).read_text() == ""
