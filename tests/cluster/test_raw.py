"""A cluster dies under load: its directories hold what clients were given."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from pathlib import Path

import pyarrow as pa
import pytest

from braidlog.client import connect_async
from braidlog.errors import LogError, NotReadyError
from braidlog.node.rescue.raw import open_raw
from braidlog.testing.cluster import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

SETTINGS = {"limits": {"segment_bytes": 1 << 20, "wal_bytes_max": 64 << 20}}
RECORDS = 6000


async def load(cluster: LocalCluster) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Append and read until the nodes are killed: what was acknowledged, what read."""
    acknowledged: dict[int, bytes] = {}
    seen: dict[int, bytes] = {}
    async with connect_async(cluster.seeds) as client:
        log = await client.create_log("bank", streams=3)

        async def append(task: int) -> None:
            for n in itertools.count():
                value = b"%d/%d/" % (task, n) + bytes(500)
                acknowledged[await log.append(value, key=b"%d" % (n % 7))] = value

        async def read() -> None:
            async for record in log.subscribe(1):
                seen[record.position] = bytes(record.value)

        tasks = [asyncio.create_task(append(task)) for task in range(8)]
        tasks.append(asyncio.create_task(read()))
        while len(seen) < RECORDS:
            assert not any(task.done() for task in tasks), tasks
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        # Of this one the commit waits for a sync of which there is no need any more.
        acknowledged[await log.append(b"the last one")] = b"the last one"
        for node in (1, 2, 3):
            os.kill(cluster.pid(node), signal.SIGKILL)
        for node in (1, 2, 3):
            cluster.kill(node)
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, LogError | asyncio.CancelledError), result
    return acknowledged, seen


def damage(path: Path, value: bytes) -> None:
    [file] = [f for f in path.glob("wal/*.wal") if value in f.read_bytes()]
    data = bytearray(file.read_bytes())
    data[data.index(value)] ^= 1
    file.write_bytes(data)


def test_the_directories_of_killed_nodes_hold_all_that_was_acknowledged(
    tmp_path: Path,
) -> None:
    with LocalCluster(3, directory=tmp_path, settings=SETTINGS) as cluster:
        acknowledged, seen = asyncio.run(load(cluster))
        paths = [cluster.data(node) for node in (1, 2, 3)]
    with open_raw(paths, "bank") as merge:
        batches = [pa.record_batch(batch) for batch in merge]
        figures = merge.figures()
    table = pa.Table.from_batches(batches)
    found = dict(
        zip(table["position"].to_pylist(), table["value"].to_pylist(), strict=True)
    )
    assert list(found) == list(range(1, len(found) + 1))
    # All of it, although the last commits are on no disk: the cuts are.
    for told in (acknowledged, seen):
        assert len(told) > RECORDS / 2
        lost = {position: told[position] for position in told.keys() - found.keys()}
        assert not lost, f"of {len(told)}: {sorted(lost)}"
        assert all(found[position] == value for position, value in told.items())
    assert figures.duplicates > len(found)
    assert figures.notes == ()
    assert all(source.late_bytes == 0 for source in figures.sources)
    # Damage of an old segment, and of the newest one, where the others have it all.
    for path, at in ((paths[0], 3), (paths[1], len(found) - 3)):
        damage(path, found[at])
    with open_raw(paths, "bank") as merge:
        again = pa.Table.from_batches([pa.record_batch(batch) for batch in merge])
        damages = merge.figures().damages
    assert again.equals(table)
    assert {Path(each.path).parents[1] for each in damages} == set(paths[:2])
    # Whoever is left out may know more.
    with pytest.raises(NotReadyError):
        open_raw(paths[:2], "bank")
