"""Appends stream by stream: as often as one likes, stored once, found again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from braidlog import Producer
from braidlog.client import AsyncClient
from braidlog.client.connection.routing import stream_index
from braidlog.client.ingest import AsyncIngest
from braidlog.errors import NotFoundError, SequenceGapError, TrimmedError
from unit.client.fake import FakeCluster

FIRST, SECOND = Producer(5), Producer(5, epoch=2)


@pytest.fixture
async def client() -> AsyncIterator[AsyncClient]:
    async with FakeCluster().client(timeout_s=0.5) as client:
        await client.create_log("log", streams=3)
        yield client


@pytest.fixture
async def ingest(client: AsyncClient) -> AsyncIngest:
    return await client.ingest("log")


def rows(*values: bytes) -> list[Any]:
    return [pa.record_batch({"value": [value]}) for value in values]


async def test_keys_are_spread_over_its_streams(
    client: AsyncClient, ingest: AsyncIngest
) -> None:
    log = await client.log("log")
    for key in (b"a", b"b", b"c"):
        stream = ingest.streams[stream_index(key, 3)]
        assert log._appender.stream_of(key) == stream
    assert ingest.log == log.id


async def test_what_is_repeated_is_stored_once(
    client: AsyncClient, ingest: AsyncIngest
) -> None:
    one, two, _ = ingest.streams
    for _ in range(2):
        found = await ingest.append_all(
            {one: (rows(b"a", b"b"), FIRST, 1), two: (rows(b"c"), FIRST, 1)}
        )
        assert found == {one: None, two: None}
    found = await ingest.append_all({one: (rows(b"d"), FIRST, 3)})
    assert await ingest.next_sequence({one: FIRST, two: FIRST}) == {one: 4, two: 2}
    log = await client.log("log")
    values = [record.value async for record in log.read()]
    assert sorted(values) == [b"a", b"b", b"c", b"d"]
    assert values.index(b"a") < values.index(b"b") < values.index(b"d")


async def test_what_a_stream_refuses_is_told(ingest: AsyncIngest) -> None:
    one, two, three = ingest.streams
    found = await ingest.append_all(
        {one: (rows(b"a", b"b"), FIRST, 7), two: (rows(b"c"), SECOND, 1)}
    )
    assert isinstance(found[one], SequenceGapError)
    assert found[two] is None
    asked = await ingest.next_sequence({one: FIRST, two: FIRST, three: FIRST})
    assert asked == {one: 1, two: None, three: 1}


async def test_what_a_producer_stored_is_found(
    ingest: AsyncIngest, client: AsyncClient
) -> None:
    one, two, _ = ingest.streams
    await ingest.append_all({one: (rows(b"a", b"b"), FIRST, 1)})
    since = (await ingest.refresh()).stop
    assert await ingest.stored(one, FIRST, since) == 1
    await ingest.append_all({one: (rows(b"c", b"d"), FIRST, 3)})
    assert await ingest.stored(one, FIRST, since) == 5
    assert await ingest.stored(one, SECOND, since) == 1
    assert await ingest.stored(two, FIRST, 1) == 1
    await (await client.log("log")).trim(since)
    with pytest.raises(TrimmedError):
        await ingest.stored(one, FIRST, since - 1)


async def test_a_removed_stream_says_so(
    client: AsyncClient, ingest: AsyncIngest
) -> None:
    log = await client.log("log")
    *_, added = await log.set_streams(4)
    assert await ingest.append_all({added: (rows(b"a"), FIRST, 1)}) == {added: None}
    await log.set_streams(1)
    first, *others = (1, 2, 3)
    assert ingest.streams == (first,)
    asked = dict.fromkeys((first, *others, added), FIRST)
    assert await ingest.next_sequence(asked) == {1: 1, 2: 1, 3: 1, added: 0}
    found = await ingest.append_all({added: (rows(b"b"), FIRST, 2)})
    assert isinstance(found[added], NotFoundError)
    # What it has stays, and the streams of producers take appends.
    assert await ingest.stored(added, FIRST, 1) == 2
    assert await ingest.append_all({2: (rows(b"c"), FIRST, 1)}) == {2: None}
    home = await ingest.home(FIRST)
    assert home == log._appender.stream_of_producer(FIRST)
    assert [r.value async for r in log.read()] == [b"a", b"c"]


async def test_bulk_appends_go_on_over_a_change(
    client: AsyncClient, ingest: AsyncIngest
) -> None:
    log = await client.log("log")
    values = [b"%d" % number for number in range(40)]
    loading = asyncio.create_task(ingest.append_all({2: (rows(*values), FIRST, 1)}))
    for count in (5, 2, 4):
        await asyncio.sleep(0)
        await log.set_streams(count)
    assert await loading == {2: None}
    assert [r.value async for r in log.read()] == values
