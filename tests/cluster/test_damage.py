"""A flipped byte on one node of a real cluster: reads go on, and it is repaired."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from braidlog.client import connect_async
from braidlog.errors import UnavailableError
from braidlog.testing.cluster import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]

RECORDS = 3000
SIZE = 2000
SETTINGS = {"limits": {"segment_bytes": 1 << 20, "wal_bytes_max": 64 << 20}}

# What the node itself says; a leader tells of the stream as well.
DAMAGED = b"is damaged, and the other replicas repair it"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(3, directory=tmp_path, settings=SETTINGS) as cluster:
        yield cluster


def record(number: int) -> bytes:
    return b"%08d" % number + b"." * SIZE


async def fill(seeds: str) -> None:
    async with connect_async(seeds) as client:
        log = await client.create_log("a", streams=1)
        for begin in range(0, RECORDS, 100):
            await log.append_many([record(n) for n in range(begin, begin + 100)])


async def read(seeds: str) -> list[bytes]:
    async with connect_async(seeds) as client:
        log = await client.log("a")
        found = []
        async for each in log.read():
            found.append(bytes(each.value))
            if len(found) == RECORDS:
                break
        return found


def status(cluster: LocalCluster, node: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"{cluster.http(node)}/status", timeout=5) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def wait_until_whole(cluster: LocalCluster, *nodes: int) -> None:
    deadline = time.monotonic() + 60
    while not all(is_whole(cluster, node) for node in nodes):
        if time.monotonic() > deadline:
            msg = str([status(cluster, node)["replicas"] for node in nodes])
            raise AssertionError(msg)
        time.sleep(0.1)


def flip(path: Path, offset: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 1]))


def segment_with(cluster: LocalCluster, node: int, text: bytes) -> tuple[Path, int]:
    """Return where the last copy is: one before it was taken back with its epoch."""
    for path in sorted(cluster.data(node).glob("wal/*.wal"), reverse=True):
        offset = path.read_bytes().rfind(text)
        if offset >= 0:
            return path, offset
    msg = "no segment has it"
    raise AssertionError(msg)


def is_whole(cluster: LocalCluster, node: int) -> bool:
    replicas = status(cluster, node)["replicas"]
    return any(
        each["state"] == "running" and each["committed"] == RECORDS + 1
        for each in replicas
    )


def counter(cluster: LocalCluster, node: int, name: str) -> int:
    return int(status(cluster, node)["counters"][name])


def damages(cluster: LocalCluster, node: int) -> int:
    return counter(cluster, node, "scrub_damages")


def epoch(cluster: LocalCluster, node: int) -> int:
    [replica] = status(cluster, node)["replicas"]
    return int(replica["epoch"])


def primary(cluster: LocalCluster) -> int:
    while True:
        for node in filter(cluster.is_running, cluster.nodes):
            for each in status(cluster, node)["replicas"]:
                if each["role"] == "primary":
                    return node
        time.sleep(0.05)


def test_a_damaged_replica_is_repaired_by_the_others(cluster: LocalCluster) -> None:
    asyncio.run(fill(cluster.seeds))
    wait_until_whole(cluster, *cluster.nodes)
    expected = [record(n) for n in range(RECORDS)]
    first = primary(cluster)
    node, other = (each for each in cluster.nodes if each != first)
    cluster.kill(node)
    place = segment_with(cluster, node, expected[10][:40])
    flip(*place)
    cluster.start(node)
    cluster.wait_ready(node)
    wait_until_whole(cluster, node)
    # Readers ask backups first, and now there is no other one: the stream goes on with
    # two replicas, of which the damage leaves one.
    before = epoch(cluster, first)
    cluster.kill(other)
    while epoch(cluster, first) == before:
        time.sleep(0.05)
    while DAMAGED not in cluster.output(node).read_bytes():
        if primary(cluster) == node:
            # A busy machine gave the old primary up, and readers ask that one now.
            cluster.kill(node)
            cluster.restart(node)
            cluster.wait_ready(node)
        assert asyncio.run(read(cluster.seeds)) == expected
    cluster.start(other)
    cluster.wait_ready(other)
    wait_until_whole(cluster, *cluster.nodes)
    cluster.kill(other)
    assert asyncio.run(read(cluster.seeds)) == expected
    assert cluster.output(node).read_bytes().count(DAMAGED) == 1


def test_what_nobody_reads_is_repaired_too(tmp_path: Path) -> None:
    """Two nodes rot at once, each in other records; the pass of each finds its own."""
    settings = {
        "limits": SETTINGS["limits"] | {"scrub_bytes": 64 << 20},
        "timing": {"scrub_ms": 1000},
    }
    with LocalCluster(3, directory=tmp_path, settings=settings) as cluster:
        asyncio.run(fill(cluster.seeds))
        wait_until_whole(cluster, *cluster.nodes)
        first = primary(cluster)
        one, other = (each for each in cluster.nodes if each != first)
        expected = [record(n) for n in range(RECORDS)]
        for node, number in ((one, 10), (other, 700)):
            flip(*segment_with(cluster, node, expected[number][:40]))
            while damages(cluster, node) == 0:
                time.sleep(0.05)
            wait_until_whole(cluster, *cluster.nodes)
            assert cluster.output(node).read_bytes().count(DAMAGED) == 1
        passes = counter(cluster, one, "scrub_passes")
        while counter(cluster, one, "scrub_passes") < passes + 2:
            time.sleep(0.05)
        cluster.kill(first)
        assert asyncio.run(read(cluster.seeds)) == expected
        assert cluster.output(one).read_bytes().count(DAMAGED) == 1


def test_a_node_that_cannot_open_its_directory_says_what_to_do(
    cluster: LocalCluster,
) -> None:
    asyncio.run(fill(cluster.seeds))
    node = 3
    cluster.kill(node)
    # A slot that was made in advance may be newer, and holds nothing.
    slots = cluster.data(node).glob("wal/*.wal")
    written = [slot for slot in slots if slot.read_bytes()[4096:8192].strip(b"\0")]
    flip(max(written, key=lambda slot: slot.stat().st_mtime), 4096 + 100)
    cluster.start(node)
    with pytest.raises(UnavailableError, match="new id and an empty directory"):
        cluster.wait_ready(node)
    node = 2
    cluster.kill(node)
    (cluster.data(node) / "FAULTS").unlink()
    cluster.start(node)
    with pytest.raises(UnavailableError, match=r"fault log of node \d is missing"):
        cluster.wait_ready(node)
