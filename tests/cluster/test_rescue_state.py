"""A rescue keeps what the metadata repository knew, and can give nodes up."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.client.settings import ClientSettings
from braidlog.testing.cluster import LocalCluster
from commands import call

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

FIRST = (1, 2, 3)
SETTINGS = {"limits": {"segment_bytes": 4 << 20, "wal_bytes_max": 256 << 20}}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    # Nodes 4 and 5 join later.
    cluster = LocalCluster(5, directory=tmp_path, voters=3, settings=SETTINGS)
    try:
        for node in FIRST:
            cluster.start(node)
        cluster.wait_ready(*FIRST)
        yield cluster
    finally:
        cluster.close()


def first(cluster: LocalCluster) -> str:
    return ",".join(cluster.address(node) for node in FIRST)


def rescue(
    cluster: LocalCluster, nodes: tuple[int, ...], *options: str, code: int = 0
) -> dict[str, Any]:
    paths = [str(cluster.data(node)) for node in nodes]
    done = call("rescue", "--json", *paths, *options)
    assert done.exit_code == code, done.stdout + done.stderr
    return dict(json.loads(done.stdout)) if done.stdout else {"said": done.stderr}


def wait(what: Any, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


async def fill(seeds: str, count: int = 60) -> dict[int, bytes]:
    """Leave something of everything that only the repository knows."""
    async with braidlog.connect_async(seeds) as client:
        log = await client.create_log("a", streams=2, retention_ms=86_400_000)
        places = {}
        for n in range(count):
            places[await log.append(b"%d" % n)] = b"%d" % n
        await log.set_cursor("reader", 17, pin=True)
        await log.trim(5)
        await client.create_log("empty", streams=1)
        await client.delete_log((await client.create_log("gone")).name)
        return {at: value for at, value in places.items() if at >= 5}


async def known(seeds: str) -> dict[str, Any]:
    async with braidlog.connect_async(seeds) as client:
        log = await client.log("a")
        cursors = await log.cursors()
        await log.refresh()
        return {
            "logs": sorted(await client.logs()),
            "options": log.options,
            "cursors": [(c.name, c.position, c.pin) for c in cursors],
            "first": log.first,
        }


async def read(seeds: str, count: int, node: int = 0) -> dict[int, bytes]:
    settings = ClientSettings(read_node=node)
    async with braidlog.connect_async(seeds, settings=settings) as client:
        found: dict[int, bytes] = {}
        async for each in (await client.log("a")).read():
            found[each.position] = bytes(each.value)
            if len(found) == count:
                break
        return found


async def append(seeds: str, begin: int, end: int) -> dict[int, bytes]:
    async with braidlog.connect_async(seeds) as client:
        log = await client.log("a")
        values = [b"%d" % n for n in range(begin, end)]
        return {await log.append(value): value for value in values}


def test_what_only_the_repository_knew_survives(cluster: LocalCluster) -> None:
    places = asyncio.run(fill(first(cluster)))
    before = asyncio.run(known(first(cluster)))
    for node in FIRST:
        cluster.kill(node)
    shutil.rmtree(cluster.data(1))
    # Node 1 was not listed, so it is waited for, whatever the copies say.
    assert rescue(cluster, (2, 3), code=8)["missing"] == [1]
    said = rescue(cluster, (2, 3), "--lost", "1", "--write", "--yes", "--accept-loss")
    repository = said["repository"]
    assert (repository["complete"], repository["cursors"]) == (True, 1)
    assert (repository["logs"], repository["streams"]) == (2, 3)
    for node in (2, 3):
        cluster.start(node)
    cluster.wait_ready(2, 3)
    seeds = f"{cluster.address(2)},{cluster.address(3)}"
    wait(lambda: asyncio.run(logs(seeds)) == ["a", "empty"])
    assert asyncio.run(known(seeds)) == before
    # Also the positions of which no commit was on a disk yet.
    assert asyncio.run(read(seeds, len(places))) == places


def test_two_disks_are_lost_at_once_and_given_up(cluster: LocalCluster) -> None:
    places = asyncio.run(fill(first(cluster)))
    before = asyncio.run(known(first(cluster)))
    for node in FIRST:
        cluster.kill(node)
    kept = cluster.data(1).with_name("kept")
    cluster.data(1).rename(kept)
    shutil.rmtree(cluster.data(2))
    assert rescue(cluster, (3,), "--write", "--yes", code=8)["missing"] == [1, 2]
    lost = ("--lost", "1", "--lost", "2")
    said = rescue(cluster, (3,), *lost)
    assert (said["verdict"], said["valid"], said["lost"]) == ("decided", [3], [1, 2])
    assert "nodes 1, 2 may have gone on alone" in said["losses"][0]
    assert said["repository"]["complete"] is False
    refused = rescue(cluster, (3,), *lost, "--write", "--yes", code=2)["said"]
    assert "pass --accept-loss" in refused
    rescue(cluster, (3,), *lost, "--write", "--yes", "--accept-loss")
    cluster.start(3)
    cluster.wait_ready(3)
    seeds = cluster.address(3)
    wait(lambda: asyncio.run(logs(seeds)) == ["a", "empty"])
    assert asyncio.run(known(seeds)) == before
    assert asyncio.run(read(seeds, len(places))) == places
    places |= asyncio.run(append(seeds, 60, 80))
    # Alone it is less than the log asks for, and goes on after a start all the same.
    cluster.kill(3)
    cluster.start(3)
    cluster.wait_ready(3)
    places |= asyncio.run(append(seeds, 80, 90))
    # Who was given up and comes back after all is refused.
    kept.rename(cluster.data(1))
    cluster.start(1)
    wait(lambda: not cluster.is_running(1))
    words = cluster.output(1).read_text()
    assert "the cluster was rescued without node 1 (epoch 2)" in words
    assert asyncio.run(read(seeds, len(places))) == places
    # Fresh nodes take their places.
    for node in (4, 5):
        cluster.start(node)
    cluster.wait_ready(4, 5)
    wait(lambda: asyncio.run(replicas(seeds)) == [{3, 4, 5}, {3, 4, 5}])
    for node in (3, 4, 5):
        assert asyncio.run(read(seeds, len(places), node)) == places


async def logs(seeds: str) -> list[str]:
    async with braidlog.connect_async(seeds) as client:
        return sorted(await client.logs())


async def replicas(seeds: str) -> list[set[int]]:
    async with braidlog.connect_async(seeds) as client:
        return [set(each.replicas) for each in await client.streams("a")]
