"""Memory of all tables of a node: a bound, and shares of it."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import pytest

from braidlog.errors import UnavailableError
from braidlog.node.tables.counters import TableCounters
from braidlog.node.tables.memory import TableMemory
from unit.node.tables.cluster import Nodes, running, serving
from unit.node.tables.test_upkeep import LAZY

BOUND = 256 << 10
OPEN = ExitStack()


@dataclass
class Table:
    memory_bytes: int = 0
    reliefs: int = 0
    least: int = 1 << 60
    full: bool = False

    async def relieve(self) -> None:
        if self.full:
            raise UnavailableError("the disk is full")
        await asyncio.sleep(0)
        self.least = min(self.least, self.memory_bytes)
        self.reliefs += 1
        self.memory_bytes = 0


def memory_of(*tables: Table, bound: int = 100) -> tuple[TableMemory, TableCounters]:
    counters = TableCounters()
    memory = TableMemory(bound, counters)
    for table in tables:
        OPEN.enter_context(memory.counted(table))
    return memory, counters


async def test_the_largest_is_flushed_and_those_below_their_share_never() -> None:
    tables = [Table() for _ in range(5)]
    memory, counters = memory_of(*tables)
    assert memory.share == 20
    random = Random(5)
    tables[0].memory_bytes = 9  # Nobody writes to it.
    for _ in range(500):
        table, size = random.choice(tables[1:]), random.randrange(1, 15)
        while memory.is_full:
            assert await memory.relieve()
        with memory.applying(size):
            assert memory.used < 100 + size
        table.memory_bytes += size
    assert tables[0].reliefs == 0
    assert min(table.least for table in tables[1:]) >= memory.share
    assert counters.table_reliefs == sum(table.reliefs for table in tables) > 10


async def test_what_is_being_applied_counts() -> None:
    table = Table(60)
    memory, _ = memory_of(table, Table())
    with memory.applying(30):
        assert memory.used == 90
        with memory.applying(10):
            assert memory.used == 100
            assert await memory.relieve()
            assert (table.memory_bytes, memory.used) == (0, 40)
    assert memory.used == 0
    # Another one was faster.
    assert await memory.relieve()
    assert table.reliefs == 1
    table.memory_bytes = 49
    with memory.applying(60):
        assert not await memory.relieve()
    assert table.memory_bytes == 49


async def test_where_nothing_can_be_flushed_it_is_said() -> None:
    table = Table(200, full=True)
    memory, _ = memory_of(table)
    with pytest.raises(UnavailableError):
        await memory.relieve()
    table.memory_bytes = 0
    with memory.applying(200):
        assert not await memory.relieve()


async def test_tables_of_a_node_stay_within_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = TableMemory.applying

    def applying(memory: TableMemory, size: int) -> object:
        seen.append(memory.used)
        return real(memory, size)

    monkeypatch.setattr(TableMemory, "applying", applying)
    settings = replace(LAZY, memory_bytes_max=BOUND)
    async with running(tmp_path, 1, settings, native=True) as nodes:
        quiet = await nodes.client.create_log("quiet")
        table = await nodes.client.create_table("quiet", log="quiet")
        await table.stats()  # A host that joins flushes what it has.
        last = await quiet.append(b"x" * 100, key=b"k")
        await nodes.client.create_log("log")
        tables = [await nodes.client.create_table(f"t{n}", log="log") for n in range(5)]
        position = await fill(nodes)
        for table in tables:
            assert await table.wait(position, timeout=60)
            assert len([r async for r in table.scan()]) == 40
        counters = nodes.nodes[1].tables.counters
        assert counters.table_reliefs > 10
        # Workers go on between the look that let a table go on and this one, and what
        # they are applying counts twice until they are done.
        assert BOUND // 2 < max(seen) < 3 * BOUND // 2
        status = await (await nodes.client.table("quiet")).stats()
        assert (status.applied, status.flushed) == (last, 0)


async def fill(nodes: Nodes) -> int:
    """Append four times the bound, in batches that are much smaller."""
    log = await nodes.client.log("log")
    position = 0
    for number in range(BOUND * 4 // 20_000):
        keys = [b"k%02d" % (n % 40) for n in range(number, number + 10)]
        position = max(await log.append_many([b"v" * 2000] * 10, keys=keys))
    return position


async def test_a_full_disk_of_others_holds_a_table_up_and_no_longer(
    tmp_path: Path,
) -> None:
    settings = replace(LAZY, memory_bytes_max=64 * 100)
    async with running(tmp_path, 1, settings) as nodes:
        log = await nodes.client.create_log("log")
        tables = [await nodes.create(log, f"t{n}", 1) for n in range(3)]
        for table in tables:
            await serving(nodes, table, 1)
        nodes.nodes[1].disk.full = True
        for _ in range(10):
            keys = [b"k%02d" % n for n in range(10)]
            last = max(await log.append_many([b"v"] * 10, keys=keys))
        await asyncio.sleep(0.3)
        statuses = nodes.nodes[1].tables.status()
        assert min(each.applied for each in statuses) < last
        assert any("the disk is full" in each.why for each in statuses)
        nodes.nodes[1].disk.full = False
        for table in tables:
            assert await nodes.get(1, table, b"k01", after=last) == {b"k01": b"v"}
