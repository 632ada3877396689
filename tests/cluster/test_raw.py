"""A cluster dies under load: its directories hold what clients were given."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

import pyarrow as pa
import pytest

from braidlog.client import connect
from braidlog.errors import LogError, NotReadyError
from braidlog.faultlog.raw import open_raw
from braidlog.testing.cluster import LocalCluster

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

SETTINGS = {"limits": {"segment_bytes": 1 << 20, "wal_bytes_max": 64 << 20}}
RECORDS = 6000


async def load(cluster: LocalCluster) -> tuple[dict[int, bytes], dict[int, bytes]]:
    """Append and read until the nodes are killed: what was acknowledged, what read."""
    acknowledged: dict[int, bytes] = {}
    seen: dict[int, bytes] = {}
    async with connect(cluster.seeds) as client:
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
        for node in (1, 2, 3):
            cluster.kill(node)
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, LogError | asyncio.CancelledError), result
    return acknowledged, seen


def test_the_directories_of_killed_nodes_hold_what_clients_read(
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
    # The last cuts may be on no disk: their frames go with the next sync.
    assert len(found) > RECORDS / 2
    for told in (acknowledged, seen):
        common = told.keys() & found.keys()
        assert len(common) > RECORDS / 2
        assert all(found[position] == told[position] for position in common)
    assert figures.duplicates > len(found)
    assert all(source.late_bytes == 0 for source in figures.sources)
    # Whoever is left out may know more.
    with pytest.raises(NotReadyError):
        open_raw(paths[:2], "bank")
