"""Appends stream by stream: as often as one likes, stored once, found again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from braidlog import Producer
from braidlog.client import AsyncClient
from braidlog.client.connection.routing import stream_index
from braidlog.client.ingest import AsyncIngest
from braidlog.errors import SequenceGapError, TrimmedError
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
