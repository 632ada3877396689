"""Make the syncs of one of three nodes slow, and measure what becomes of appends.

    PYTHONPATH=src:tests python -m tests.cluster.slow [--delay 20] [--leader]

Four streams with three replicas get one append after the other. After some seconds each
sync of one node takes longer, later it takes as long as before. JSON on stdout: the
median of the appends in each second, before, meanwhile and behind that, and when the
node left and returned.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import braidlog
from braidlog.client.client import AsyncClient
from braidlog.testing.cluster import LocalCluster
from cluster.failover import Feeder, feeders
from cluster.slow_node import FILE

__all__ = ["PROGRAM", "delay", "whole"]

PROGRAM: Final = "cluster.slow_node"
LOG: Final = "slow"
STREAMS: Final = 4
BEFORE_S: Final = 8.0
SLOW_S: Final = 15.0
AFTER_S: Final = 15.0
LOOK_S: Final = 0.05


def delay(cluster: LocalCluster, node: int, sync_ms: float) -> None:
    """Let each sync of a node take so much longer."""
    cluster.settings_file(node).with_name(FILE).write_text(str(sync_ms))


async def whole(client: AsyncClient, log: str, replicas: int) -> tuple[bool, set[int]]:
    """Return whether no stream lacks a replica, and which nodes have one."""
    streams = await client.streams(log)
    held = [set(each.replicas) for each in streams]
    complete = all(len(each) == replicas for each in held)
    return complete, set[int]().union(*held)


async def measure(cluster: LocalCluster, sync_ms: float, *, leader: bool) -> Any:
    """Return medians by second, and when the node left and returned."""
    async with braidlog.connect_async(cluster.seeds) as client:
        log = await client.create_log(LOG, streams=STREAMS, replication=3)
        await log.append(b"first")
        lead = client._cluster.routes.metadata.leader
        others = [node for node in cluster.nodes if node != lead]
        node = lead if leader else others[0]
        stopping = asyncio.Event()
        fed = feeders(log, await client.streams(LOG))
        left, back = 0.0, 0.0
        async with asyncio.TaskGroup() as group:
            for each in fed:
                group.create_task(each.run(log, stopping))
            await asyncio.sleep(BEFORE_S)
            at = time.monotonic()
            delay(cluster, node, sync_ms)
            while time.monotonic() < at + SLOW_S:
                _, held = await whole(client, LOG, 3)
                left = left or (time.monotonic() - at if node not in held else 0.0)
                await asyncio.sleep(LOOK_S)
            delay(cluster, node, 0)
            while time.monotonic() < at + SLOW_S + AFTER_S:
                complete, _ = await whole(client, LOG, 3)
                back = back or (time.monotonic() - at if complete else 0.0)
                await asyncio.sleep(LOOK_S)
            stopping.set()
        return {
            "node": node,
            "led": leader,
            "left_s": round(left, 2),
            "whole_again_s": round(back - SLOW_S, 2),
            "before_p50_ms": _median(fed, at - BEFORE_S / 2, at),
            "p50_ms_by_second": [
                _median(fed, at + second, at + second + 1)
                for second in range(int(SLOW_S + AFTER_S))
            ],
        }


def _median(fed: list[Feeder], begin: float, end: float) -> float | None:
    took = [e - b for each in fed for b, e in each.times if begin <= b < end]
    return round(statistics.median(took) * 1e3, 2) if took else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--delay", type=float, default=20.0, metavar="MS")
    parser.add_argument("--leader", action="store_true", help="of the repository")
    parser.add_argument("--data", type=Path)
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="braid-", dir=options.data) as data,
        LocalCluster(3, directory=Path(data), program=PROGRAM) as cluster,
    ):
        result = asyncio.run(measure(cluster, options.delay, leader=options.leader))
    machine = f"{platform.machine()}, {os.cpu_count()} cores"
    row = {"machine": machine, "delay_ms": options.delay} | result
    sys.stdout.write(json.dumps(row, indent=2) + "\n")


if __name__ == "__main__":
    main()
