"""The metadata repository is lost for good: what is left goes on after a rescue."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from braidlog.client import connect_async
from braidlog.testing.cluster import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

SETTINGS = {"limits": {"segment_bytes": 4 << 20, "wal_bytes_max": 256 << 20}}
WAITS = 8


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with LocalCluster(3, directory=tmp_path, settings=SETTINGS) as cluster:
        yield cluster


def wait(what: Callable[[], object], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


def rescue(cluster: LocalCluster, *nodes: int, write: bool = False) -> tuple[int, str]:
    command = [sys.executable, "-m", "braidlog", "rescue"]
    command += ["--write", "--yes"] if write else []
    done = subprocess.run(
        [*command, *(str(cluster.data(node)) for node in nodes)],
        capture_output=True,
        check=False,
        text=True,
    )
    return done.returncode, done.stdout + done.stderr


async def append(seeds: str, begin: int, end: int) -> dict[int, bytes]:
    async with connect_async(seeds) as client:
        names = await client.logs()
        log = await (
            client.log("a") if "a" in names else client.create_log("a", streams=2)
        )
        values = [b"%d" % n for n in range(begin, end)]
        places = [await log.append(value) for value in values]
        return dict(zip(places, values, strict=True))


async def read(seeds: str, count: int) -> dict[int, bytes]:
    async with connect_async(seeds) as client:
        log = await client.log("a")
        found: dict[int, bytes] = {}
        async for each in log.read():
            found[each.position] = bytes(each.value)
            if len(found) == count:
                break
        return found


def test_what_is_left_goes_on_with_a_new_repository(cluster: LocalCluster) -> None:
    places = asyncio.run(append(cluster.seeds, 0, 100))
    cluster.kill(1)
    shutil.rmtree(cluster.data(1))
    places |= asyncio.run(append(cluster.seeds, 100, 200))
    # Positions are kept as far as one of those that are left has stored the commits.
    time.sleep(1)
    cluster.kill(2)
    cluster.kill(3)
    code, text = rescue(cluster, 3)
    assert code == WAITS, text
    assert "node 2 is absent" in text
    assert "nodes 2, 3 go on" in rescue(cluster, 2, 3)[1]
    code, text = rescue(cluster, 2, 3, write=True)
    assert code == 0, text
    cluster.start(2)
    time.sleep(1)
    assert not cluster.is_ready(2), "it goes on without the other one"
    cluster.start(3)
    cluster.wait_ready(2, 3)
    seeds = f"{cluster.address(2)},{cluster.address(3)}"
    wait(lambda: asyncio.run(names(seeds)) == ["a"])
    assert asyncio.run(read(seeds, len(places))) == places
    places |= asyncio.run(append(seeds, 200, 250))
    assert asyncio.run(read(seeds, len(places))) == places
    # It is a cluster as any other: it survives a restart, and has a record of its own.
    cluster.kill(2)
    cluster.kill(3)
    cluster.start(2)
    cluster.start(3)
    cluster.wait_ready(2, 3)
    assert asyncio.run(read(seeds, len(places))) == places


async def names(seeds: str) -> list[str]:
    async with connect_async(seeds) as client:
        return await client.logs()


def test_a_node_that_comes_back_is_listed_until_it_has_everything(
    cluster: LocalCluster,
) -> None:
    asyncio.run(append(cluster.seeds, 0, 20))
    cluster.kill(1)
    asyncio.run(append(cluster.seeds, 20, 40))
    wait(lambda: row(cluster, 2, 2)[3:5] == ["1", "yes"])
    cluster.start(1)
    cluster.wait_ready(1)
    # Nobody lists it, all say that they are complete, and all have the same record.
    wait(lambda: all(row(cluster, n, n)[3:5] == ["-", "yes"] for n in (1, 2, 3)))
    numbers = {tuple(row(cluster, node, node)[1:3]) for node in (1, 2, 3)}
    assert len(numbers) == 1


def row(cluster: LocalCluster, directory: int, node: int) -> list[str]:
    """Return epoch, sequence, failed, viable as one directory has them."""
    text = rescue(cluster, directory)[1]
    lines = [line.split() for line in text.splitlines()]
    line = next(each for each in lines if each[:1] == [str(node)])
    return [line[0], *line[2:]]
