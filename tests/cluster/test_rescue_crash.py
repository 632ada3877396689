"""A rescue that is killed between two of its writes, and is then run again."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.testing.cluster import LocalCluster
from commands import said

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

SETTINGS = {"limits": {"segment_bytes": 1 << 20, "wal_bytes_max": 64 << 20}}
NODES = (1, 2, 3)
WRITES = 9
"""For each of three nodes what is carried over, then two copies of the record."""

# Every write is made durable by one of these, and what dies behind it is the next.
KILLED = """
import os, sys
from braidlog.cli import main
left = [int(sys.argv.pop(1))]
def counted(call):
    def wrapped(*arguments):
        if left[0] == 0:
            os.kill(os.getpid(), 9)
        left[0] -= 1
        return call(*arguments)
    return wrapped
os.pwrite = counted(os.pwrite)
os.replace = counted(os.replace)
main()
"""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(3, directory=tmp_path, settings=SETTINGS) as cluster:
        asyncio.run(fill(cluster.seeds))
        for node in NODES:
            cluster.kill(node)
        yield cluster


async def fill(seeds: str) -> None:
    async with braidlog.connect_async(seeds) as client:
        log = await client.create_log("a", replication=3)
        # A node is given a replica when its fault log has a record, and not before.
        while any(len(each.replicas) < 3 for each in await client.streams("a")):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        await log.append_many([b"%d" % n for n in range(100)])
        await log.set_cursor("reader", 17)


def rescue(paths: list[Path], *options: str) -> Any:
    return json.loads(said("rescue", "--json", *paths, *options))


def killed_rescue(paths: list[Path], writes: int) -> int:
    """Return how a rescue ends that is killed after so many writes."""
    command = [sys.executable, "-c", KILLED, str(writes)]
    command += ["rescue", "--json", *map(str, paths), "--write", "--yes"]
    return subprocess.run(command, capture_output=True, check=False).returncode


def test_wherever_it_is_killed_the_next_one_comes_to_the_same(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    paths = [cluster.data(node) for node in NODES]
    expected = rescue(paths)
    ends = []
    for writes in range(WRITES + 1):
        copies = [tmp_path / f"{writes}-{node}" for node in NODES]
        for path, copy in zip(paths, copies, strict=True):
            shutil.copytree(path, copy)
        ends.append(killed_rescue(copies, writes))
        second = rescue(copies, "--write", "--yes")
        assert (second["valid"], second["lost"]) == ([1, 2, 3], [])
        assert second["repository"] == expected["repository"]
        carried = {(copy / "RESCUED").read_bytes() for copy in copies}
        assert len(carried) == 1
        for copy in copies:
            shutil.rmtree(copy)
    assert ends == [-signal.SIGKILL] * WRITES + [0]


def test_a_node_that_it_did_not_reach_asks_for_the_rest(cluster: LocalCluster) -> None:
    paths = [cluster.data(node) for node in NODES]
    # All that is carried over, and the record of node 1.
    assert killed_rescue(paths, 5) == -signal.SIGKILL
    for node in NODES:
        cluster.start(node)
    for node in (2, 3):
        wait(lambda node=node: not cluster.is_running(node))
        words = cluster.output(node).read_text()
        assert f"a rescue (epoch 2) includes node {node} but stopped before it" in words
    assert not cluster.is_ready(1)
    cluster.kill(1)
    second = rescue(paths, "--write", "--yes")
    assert (second["valid"], second["configuration"]["epoch"]) == ([1, 2, 3], 3)
    for node in NODES:
        cluster.start(node)
    cluster.wait_ready()
    wait(lambda: asyncio.run(found(cluster.seeds)))
    assert asyncio.run(found(cluster.seeds)) == [(100, 17)]


async def found(seeds: str) -> list[tuple[int, int]]:
    async with braidlog.connect_async(seeds) as client:
        if "a" not in await client.logs():
            return []
        log = await client.log("a")
        [cursor] = await log.cursors()
        return [(len([each async for each in log.read()]), cursor.position)]


def wait(what: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)
