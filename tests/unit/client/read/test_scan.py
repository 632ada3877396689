"""Reading streams on their own: every position once, whatever fails."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from braidlog.client import AsyncClient, AsyncClusterLog
from braidlog.client.read.scan import AsyncScan
from braidlog.errors import BeyondEndError, DeadlineError, TrimmedError
from braidlog.wire.messages import Message, Read
from unit.client.fake import FakeCluster

COLUMNS = ["llsn", "value", "stream", "position"]


@pytest.fixture
async def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
async def client(cluster: FakeCluster) -> AsyncIterator[AsyncClient]:
    async with cluster.client(prefetch_bytes=200, timeout_s=0.5) as client:
        yield client


@pytest.fixture
async def log(client: AsyncClient) -> AsyncClusterLog:
    """Batches of 1, 2, ... 9 records over three streams, a second apart."""
    log = await client.create_log("log", streams=3)
    at = 1
    for count in range(1, 10):
        times = range(at, at + count)
        await log.append_many([b"%d" % t for t in times], timestamps=times)
        at += count
    return log


async def rows(scan: AsyncScan, begin: int, end: int, **options: Any) -> list[Any]:
    found = []
    for extent in await scan.extents(begin, end):
        batches = scan.batches(
            extent.stream, extent.begin, extent.end, columns=COLUMNS, **options
        )
        async for batch in batches:
            assert batch.schema.names == COLUMNS
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


async def test_every_position_is_in_one_extent(
    client: AsyncClient, log: AsyncClusterLog
) -> None:
    scan = await client.scan("log")
    assert scan.positions == range(1, 46)
    for begin in range(1, 46, 4):
        for end in range(begin, 47, 5):
            if end > 46:
                continue
            found = sorted(row[3] for row in await rows(scan, begin, end))
            assert found == list(range(begin, end))
    everything = await rows(scan, 1, 46)
    assert all(value == b"%d" % position for _, value, _, position in everything)
    for stream in {row[2] for row in everything}:
        llsns = [row[0] for row in everything if row[2] == stream]
        assert llsns == list(range(1, len(llsns) + 1))


async def test_streams_are_merged_into_the_order(
    client: AsyncClient, log: AsyncClusterLog
) -> None:
    scan = await client.scan("log")
    for begin, end in ((1, 46), (7, 8), (13, 40), (9, 9)):
        batches = scan.merged(begin, end, columns=COLUMNS, turn=1)
        found = [tuple(r.values()) async for b in batches for r in b.to_pylist()]
        expected = sorted(await rows(scan, begin, end), key=lambda row: row[3])
        assert found == expected


async def test_a_cut_is_where_a_position_lies(
    client: AsyncClient, log: AsyncClusterLog
) -> None:
    scan = await client.scan("log")
    assert len(scan.log) == 32
    everything = await rows(scan, 1, 46)
    for position in (1, 2, 9, 45, 46):
        cut = await scan.cut(position)
        for stream, llsn in cut.items():
            before = [r for r in everything if r[2] == stream and r[3] < position]
            assert llsn == len(before) + 1


async def test_the_end_stays_where_it_was(
    client: AsyncClient, log: AsyncClusterLog
) -> None:
    scan = await client.scan("log")
    await log.append_many([b"late"] * 20)
    assert len(await rows(scan, 1, 46)) == 45
    with pytest.raises(BeyondEndError):
        await scan.extents(1, 47)


async def test_a_range_goes_on_with_another_replica(
    cluster: FakeCluster, client: AsyncClient, log: AsyncClusterLog
) -> None:
    """Each node answers one read and then no more."""
    scan = await client.scan("log")
    extents = await scan.extents(1, 46)
    asked: list[int] = []

    def fault(node: int, message: Message) -> str:
        if not isinstance(message, Read):
            return ""
        asked.append(node)
        return "before" if asked.count(node) % 2 == 0 else ""

    cluster.fault = fault
    for extent in extents:
        llsns: list[int] = []
        for turn in (0, 1):
            batches = scan.batches(
                extent.stream, extent.begin, extent.end, columns=["llsn"], turn=turn
            )
            llsns += [n async for b in batches for n in b["llsn"].to_pylist()]
        assert llsns == 2 * list(range(extent.begin, extent.end))
    assert len(set(asked)) == 3


async def test_it_gives_up_when_nobody_answers(
    cluster: FakeCluster, client: AsyncClient, log: AsyncClusterLog
) -> None:
    scan = await client.scan("log")
    extents = await scan.extents(1, 46)
    cluster.fault = lambda node, message: "before" if isinstance(message, Read) else ""
    # On a busy machine the time may be over while the client looks for other replicas.
    with pytest.raises(DeadlineError, match=r"no replica of stream|no node answered"):
        await anext(scan.batches(extents[0].stream, 1, 2, columns=["value"]))


async def test_batches_of_other_times_are_left_out(
    client: AsyncClient, log: AsyncClusterLog
) -> None:
    scan = await client.scan("log")
    found = {row[3] for row in await rows(scan, 1, 46, since=12, until=15)}
    assert found == set(range(11, 16)), "the batch that has them, as a whole"


async def test_what_is_trimmed_says_so(
    client: AsyncClient, log: AsyncClusterLog
) -> None:
    scan = await client.scan("log")
    extents = await scan.extents(1, 46)
    await log.trim(30)
    with pytest.raises(TrimmedError, match="to position 30 during the read") as caught:
        await anext(scan.batches(extents[0].stream, 1, 2, columns=["value"]))
    assert caught.value.first == 30
    with pytest.raises(TrimmedError):
        await (await client.scan("log")).extents(29, 46)
