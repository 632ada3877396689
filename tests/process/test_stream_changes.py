"""Streams are added and removed on nodes that are processes, under load."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator

import pytest

import braidlog
from braidlog import Producer
from braidlog.client import AsyncClusterLog, ClientSettings
from braidlog.errors import InvalidArgumentError, SequenceGapError
from braidlog.testing.cluster import LocalCluster
from braidlog.wire.messages import StreamStatus

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]

KEYS = 40
CHANGES = [8, 3, 5, 1]


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("cluster")
    with LocalCluster(3, directory=directory) as cluster:
        yield cluster.seeds


class Load:
    """Appends of one client: some in a row, some together; all have to succeed."""

    def __init__(self, log: AsyncClusterLog, name: int) -> None:
        self.log = log
        self.name = name
        self.sent: dict[bytes, list[bytes]] = defaultdict(list)
        self.got: dict[bytes, int] = {}
        self.ended = False

    async def run(self) -> None:
        pending: set[asyncio.Task[None]] = set()
        number = 0
        while not self.ended:
            for _ in range(8):
                number += 1
                if number % 5 == 0:
                    pending.add(asyncio.create_task(self._many(number)))
                else:
                    pending.add(asyncio.create_task(self._one(number)))
            if len(pending) > 64:
                done, pending = await asyncio.wait(
                    pending, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    task.result()
            await asyncio.sleep(0.002)
        await asyncio.gather(*pending)

    def _record(self, number: int) -> tuple[bytes, bytes]:
        key = b"%d/%d" % (self.name, number % KEYS)
        value = b"%d/%d" % (self.name, number)
        self.sent[key].append(value)
        return key, value

    async def _one(self, number: int) -> None:
        key, value = self._record(number)
        self.got[value] = await self.log.append(value, key=key)

    async def _many(self, number: int) -> None:
        records = [self._record(number * 1_000_000 + n) for n in range(7)]
        keys, values = zip(*records, strict=True)
        found = await self.log.append_many(values, keys=keys)
        self.got.update(zip(values, found, strict=True))


async def test_streams_are_added_and_removed_under_load(seeds: str) -> None:
    settings = ClientSettings(batch_records_max=16)
    async with (
        braidlog.connect_async(seeds, settings=settings) as one,
        braidlog.connect_async(seeds) as two,
    ):
        log = await one.create_log("orders", streams=1)
        loads = [Load(log, 1), Load(await two.log("orders"), 2)]
        seen: list[tuple[int, bytes | None, bytes | None]] = []

        async def follow() -> None:
            async for record in (await two.log("orders")).subscribe(1):
                row = record.position, record.key, record.value
                seen.append(row)

        following = asyncio.create_task(follow())
        own = Producer(77)
        running = [asyncio.create_task(load.run()) for load in loads]
        sequence = 1
        for count in CHANGES:
            await asyncio.sleep(0.5)
            await log.append(b"own", producer=own, sequence=sequence)
            assert len(await log.set_streams(count)) == count
            # What was stored before the change is known after it.
            again = await log.append(b"own", producer=own, sequence=sequence)
            assert (await log.get(again)).value == b"own"
            assert await log.next_sequence(own) == sequence + 1
            sequence += 1
        await asyncio.sleep(0.5)
        for load in loads:
            load.ended = True
        await asyncio.gather(*running)
        end = (await log.refresh()).stop
        async with asyncio.timeout(30):
            while len(seen) < end - 1:
                assert not following.done(), following.exception()
                await asyncio.sleep(0.02)
        following.cancel()
        assert [position for position, _, _ in seen] == list(range(1, end))
        by_key: dict[bytes | None, list[bytes | None]] = defaultdict(list)
        for _, key, value in seen:
            by_key[key].append(value)
        for load in loads:
            assert load.got.keys() == {
                v for values in load.sent.values() for v in values
            }
            for key, values in load.sent.items():
                assert by_key[key] == values
            for value, position in load.got.items():
                assert seen[position - 1][2] == value
        assert by_key[None] == [b"own"] * len(CHANGES)
        described = await log.describe()
        sealed = [s for s in described.streams if s.status is StreamStatus.SEALED]
        assert len(described.streams) - len(sealed) == 1
        # Removed streams go with their last record.
        await log.trim(end)
        async with asyncio.timeout(30):
            while len((await log.describe()).streams) != 1:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        with pytest.raises(InvalidArgumentError, match="1 to 1024"):
            await log.set_streams(0)
        with pytest.raises(SequenceGapError):
            await log.append(b"own", producer=own, sequence=sequence + 5)
