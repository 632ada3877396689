"""Cursors, times, bounds and orders: where implementations like to differ."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pyarrow as pa
import pytest

from braidlog import Producer
from braidlog.errors import (
    BeyondEndError,
    InvalidArgumentError,
    NotFoundError,
    PositionError,
    TrimmedError,
)
from conformance.api import AnyLog, AnyNode

# -- cursors ---------------------------------------------------------------------


async def test_cursors(log: AnyLog, node: AnyNode) -> None:
    await log.append_many([b"x"] * 5)
    assert await log.cursors() == []
    cursor = await log.cursor("b")
    assert (cursor.name, cursor.position, cursor.pin, cursor.lease) == (
        "b",
        1,
        False,
        None,
    )
    await cursor.commit(6)
    await cursor.commit(3)
    assert cursor.position == 3
    assert abs(cursor.touched - time.time_ns() // 1000) < 60_000_000
    await log.set_cursor("a", 2, pin=True, lease=0.5)
    names = [(each.name, each.position, each.pin) for each in await log.cursors()]
    assert names == [("a", 2, True), ("b", 3, False)]
    again = await (await node.log("log")).cursor("b", pin=True)
    assert (again.position, again.pin) == (3, False)


@pytest.mark.parametrize("position", [0, 7, -1])
async def test_a_cursor_stays_in_the_log(log: AnyLog, position: int) -> None:
    await log.append_many([b"x"] * 5)
    cursor = await log.cursor("c")
    with pytest.raises(InvalidArgumentError):
        await cursor.commit(position)
    with pytest.raises(InvalidArgumentError):
        await log.set_cursor("d", position)
    assert (await log.cursor("c")).position == 1
    assert [each.name for each in await log.cursors()] == ["c"]


@pytest.mark.parametrize("lease", [0, -1.0, float("nan"), float("inf"), 1e10])
async def test_a_lease_that_makes_no_sense(log: AnyLog, lease: float) -> None:
    with pytest.raises(InvalidArgumentError, match="lease"):
        await log.cursor("c", lease=lease)
    assert await log.cursors() == []


async def test_a_trim_beyond_the_end_is_refused_also_under_a_pin(log: AnyLog) -> None:
    await log.append_many([b"a", b"b"])
    await log.cursor("c", pin=True)
    with pytest.raises(BeyondEndError):
        await log.trim(10**6)
    assert await log.trim(3) == 1


async def test_a_deleted_cursor_is_gone(log: AnyLog) -> None:
    await log.append_many([b"x"] * 3)
    cursor = await log.cursor("c", pin=True)
    await cursor.delete()
    with pytest.raises(NotFoundError):
        await cursor.commit(2)
    with pytest.raises(NotFoundError):
        await cursor.delete()
    assert await log.trim(4) == 4


async def test_pins_hold_what_is_not_read(log: AnyLog) -> None:
    await log.append_many([b"x"] * 9)
    await log.set_cursor("over", 2, pin=True, lease=1e-6)
    cursor = await log.set_cursor("c", 4, pin=True)
    assert await log.trim(8) == 4
    await cursor.commit(6)
    assert await log.trim(8) == 6
    assert await log.trim(8, ignore_pins=True) == 8


# -- times and bounds ------------------------------------------------------------


async def test_timestamps(log: AnyLog) -> None:
    before = time.time_ns() // 1000
    await log.append(b"now")
    now = (await log.get(1)).timestamp
    assert before <= now <= time.time_ns() // 1000
    await log.append_many([b"a", b"b"], timestamps=-5)
    await log.append_many([b"c", b"d"], timestamps=[-(1 << 63), (1 << 63) - 1])
    table = pa.table({"value": [b"e"], "timestamp": pa.array([1], pa.timestamp("s"))})
    await log.append_arrow(table)
    times = [record.timestamp for record in await log.read(2)]
    assert times == [-5, -5, -(1 << 63), (1 << 63) - 1, 1_000_000]


BAD_READS: dict[str, tuple[type[Exception], Callable[[AnyLog], Awaitable[Any]]]] = {
    "beyond": (BeyondEndError, lambda log: log.read(5)),
    "trimmed": (TrimmedError, lambda log: log.read(1)),
    "start": (InvalidArgumentError, lambda log: log.read(-1)),
    "end": (InvalidArgumentError, lambda log: log.read(2, -1)),
    "trim": (InvalidArgumentError, lambda log: log.trim(-1)),
    "column": (InvalidArgumentError, lambda log: log.to_arrow(columns=["colour"])),
    "twice": (
        InvalidArgumentError,
        lambda log: log.to_arrow(columns=["key", "key"]),
    ),
    "arrow beyond": (BeyondEndError, lambda log: log.to_arrow(9)),
    "wait": (InvalidArgumentError, lambda log: log.wait(-1, timeout=0)),
    "limit": (InvalidArgumentError, lambda log: log.read(limit=-1)),
    "key": (TypeError, lambda log: log.read(key="text")),
    "columns": (
        InvalidArgumentError,
        lambda log: log.append_many([b"a", b"b"], keys=[b"k"]),
    ),
    "no sequence": (
        InvalidArgumentError,
        lambda log: log.append(b"", producer=Producer(1)),
    ),
    "arrow position": (
        InvalidArgumentError,
        lambda log: log.append_arrow(pa.table({"value": [b"a"], "position": [1]})),
    ),
    "arrow other": (
        InvalidArgumentError,
        lambda log: log.append_arrow(pa.table({"value": [b"a"], "colour": [1]})),
    ),
    "arrow time": (
        InvalidArgumentError,
        lambda log: log.append_arrow(
            pa.table({"value": [b"a"], "timestamp": pa.array([None], pa.int64())})
        ),
    ),
    "no producer": (InvalidArgumentError, lambda log: log.append(b"", sequence=1)),
    "header": (TypeError, lambda log: log.append(b"", headers=[(b"h", b"")])),
    "producer type": (TypeError, lambda log: log.next_sequence(5)),  # type: ignore[arg-type]
    "time": (TypeError, lambda log: log.append(b"", timestamp=1.5)),
    "large time": (
        InvalidArgumentError,
        lambda log: log.append(b"", timestamp=1 << 63),
    ),
}


@pytest.mark.parametrize("case", BAD_READS)
async def test_a_bad_argument(log: AnyLog, case: str) -> None:
    await log.append_many([b"x"] * 3)
    await log.trim(2)
    error, call = BAD_READS[case]
    with pytest.raises(error):
        await call(log)
    assert (log.first, log.end) == (2, 4)


async def test_bounds_that_are_empty(log: AnyLog) -> None:
    await log.append_many([b"x"] * 5)
    assert await log.trim(0) == 1
    await log.trim(3)
    assert await log.read(5, 4) == []
    assert await log.read(6) == []
    assert await log.read(limit=0) == []
    assert (await log.to_arrow(6)).num_rows == 0
    assert (await log.to_arrow(6, columns=["key"])).column_names == ["key"]
    assert not await log.wait(6, timeout=-5)
    with pytest.raises(PositionError):
        await log.wait(0)
    with pytest.raises(PositionError):
        await log.read(0)


async def test_arrow(log: AnyLog) -> None:
    empty = await log.to_arrow()
    await log.append(b"v", key=b"k", timestamp=7, headers=[("h", b"1"), ("h", b"2")])
    await log.append(b"")
    table = await log.to_arrow()
    assert table.schema.equals(empty.schema)
    assert [(f.name, str(f.type)) for f in table.schema] == [
        ("position", "int64"),
        ("timestamp", "timestamp[us, tz=UTC]"),
        ("key", "binary"),
        ("value", "binary"),
        ("headers", "map<string, binary>"),
    ]
    assert table["key"].to_pylist() == [b"k", None]
    assert table["headers"][0].as_py() == [("h", b"1"), ("h", b"2")]
    chosen = await log.to_arrow(columns=["value", "position"])
    assert chosen.to_pydict() == {"value": [b"v", b""], "position": [1, 2]}
    assert await log.append_arrow(table.drop_columns("position")) == range(3, 5)
    copied = [record.as_tuple()[1:] for record in await log.read()]
    assert copied[:2] == copied[2:]


# -- order -----------------------------------------------------------------------


async def test_acknowledged_before_is_placed_before(log: AnyLog) -> None:
    """What began after another append was acknowledged comes behind it."""
    positions = []
    for i in range(20):
        key = b"%d" % (i % 3) if i % 2 else None
        positions.append(await log.append(b"%d" % i, key=key))
    assert positions == list(range(1, 21))


async def test_positions_say_where_a_record_is(log: AnyLog) -> None:
    placed = await asyncio.gather(*(log.append(b"%d" % i) for i in range(50)))
    assert sorted(placed) == list(range(1, 51))
    values = {position: b"%d" % i for i, position in enumerate(placed)}
    found = await log.read()
    assert {r.position: r.value for r in found} == values
    assert [r.position for r in found] == list(range(1, 51))


async def test_a_subscription_sees_what_comes(log: AnyLog) -> None:
    await log.append_many([b"1", b"2", b"3"], keys=[b"a", b"b", b"a"])
    await log.trim(2)
    seen: list[tuple[int, bytes]] = []
    async with aclosing(log.subscribe(timeout=20)) as following:  # type: ignore[type-var]
        async for record in following:
            seen.append((record.position, record.value))
            if record.position == 5:
                break
            if record.position == 3:
                await log.append(b"4", key=b"a")
                await log.append(b"5")
    assert seen == [(i, b"%d" % i) for i in range(2, 6)]
    keyed = [r.position async for r in log.subscribe(key=b"a", timeout=0)]
    assert keyed == [3, 4]
    with pytest.raises(TrimmedError):
        _ = [r async for r in log.subscribe(1, timeout=0)]


async def test_a_deleted_log_says_so(log: AnyLog, node: AnyNode) -> None:
    await log.append(b"x")
    await node.delete_log("log")
    for call in (log.append(b"y"), log.append_many([b"y"]), log.read(), log.get(1)):
        with pytest.raises(NotFoundError):
            await call
    new = await node.create_log("log")
    assert await new.append(b"z") == 1
    assert [record.value for record in await new.read()] == [b"z"]
