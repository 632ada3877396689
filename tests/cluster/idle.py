"""Measure what nodes cost that have nothing to do.

    PYTHONPATH=tests python -m tests.cluster.idle [--seconds 10] [--streams 16]

CPU time as a share of one core, and bytes that went to the disk, of each node: of a
cluster that was just started and has a log with some records. JSON on stdout. The data
must lie on a real disk: what goes to a tmpfs is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import braidlog
from braidlog.testing.cluster import LocalCluster

SETTLE_S: Final = 3.0
_TICKS: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, in user and system mode."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def written_bytes(pid: int) -> int:
    """Return the bytes that a process had written to disks."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(dict(line.split(": ") for line in lines)["write_bytes"])


async def _fill(cluster: LocalCluster, streams: int) -> None:
    async with braidlog.connect_async(cluster.seeds) as client:
        log = await client.create_log("idle", streams=streams, replication=3)
        await asyncio.gather(*(log.append(b"%d" % i) for i in range(100)))


def measure(cluster: LocalCluster, seconds: float) -> list[dict[str, float]]:
    """Return what each node used."""
    pids = [cluster.pid(node) for node in cluster.nodes]
    before = [(cpu_seconds(pid), written_bytes(pid)) for pid in pids]
    time.sleep(seconds)
    after = [(cpu_seconds(pid), written_bytes(pid)) for pid in pids]
    return [
        {
            "node": node,
            "core_percent": round(100 * (a[0] - b[0]) / seconds, 2),
            "written_bytes": a[1] - b[1],
        }
        for node, b, a in zip(cluster.nodes, before, after, strict=True)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--data", type=Path, help="directory on a real disk")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="braid-", dir=options.data) as data,
        LocalCluster(3, directory=Path(data)) as cluster,
    ):
        asyncio.run(_fill(cluster, options.streams))
        time.sleep(SETTLE_S)
        used = measure(cluster, options.seconds)
    result = {"streams": options.streams, "seconds": options.seconds, "nodes": used}
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
