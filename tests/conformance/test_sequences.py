"""Logs as Python has sequences: indices, slices, backwards; times and headers too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

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
from unit.archive.made import archive_table


def places(records: list[Any]) -> list[int]:
    return [record.position for record in records]


async def test_an_index_is_a_position_or_counts_from_the_end(log: AnyLog) -> None:
    await log.append_many([b"%d" % i for i in range(1, 8)])
    assert [(await log.at(i)).value for i in (1, 7, -1, -7)] == [b"1", b"7", b"7", b"1"]
    for index in (0, -8):
        with pytest.raises(IndexError) as caught:
            await log.at(index)
        assert isinstance(caught.value, PositionError)
        assert "Positions begin at 1" in str(caught.value)
    with pytest.raises(BeyondEndError):
        await log.at(8)
    await log.trim(4)
    assert (await log.at(-4)).position == 4
    with pytest.raises(TrimmedError):
        await log.at(3)
    with pytest.raises(PositionError, match="4 records"):
        await log.at(-5)


# What a list of these records, with an item before them so that the first is [1], says.
SLICES = [
    slice(*bounds)
    for bounds in (
        (None, None),
        (2, 4),
        (3, None),
        (None, 3),
        (-3, None),
        (None, -3),
        (-100, None),
        (-3, -1),
        (4, 2),
        (5, 100),
        (100, None),
        (None, None, 1),
        (None, None, -1),
        (4, 1, -1),
        (4, 0, -1),
        (-1, -4, -1),
        (2, None, -1),
        (None, -3, -1),
        (-100, None, -1),
    )
]


async def test_slices_are_those_of_a_list(log: AnyLog) -> None:
    await log.append_many([b"x"] * 7)
    alike = list(range(8))
    for wanted in SLICES:
        expected = [position for position in alike[wanted] if position]
        assert places(await log.part(wanted)) == expected, wanted
        assert places(await log.back(wanted)) == expected[::-1], wanted


async def test_a_slice_of_what_was_trimmed(log: AnyLog) -> None:
    await log.append_many([b"x"] * 7)
    await log.trim(4)
    assert places(await log.part(slice(None, None))) == [4, 5, 6, 7]
    assert places(await log.part(slice(-100, None))) == [4, 5, 6, 7]
    assert places(await log.part(slice(-100, None, -1))) == []
    for wanted in (slice(3, 5), slice(1, 3), slice(6, 2, -1), slice(5, 0, -1)):
        if wanted == slice(5, 0, -1):
            assert wanted.stop == 0
        with pytest.raises(TrimmedError) as caught:
            await log.part(wanted)
        assert caught.value.first == 4
    await log.trim(8)
    assert await log.part(slice(None, None)) == await log.back() == []


BAD_SLICES: list[tuple[type[Exception], Any]] = [
    (InvalidArgumentError, slice(None, None, 2)),
    (InvalidArgumentError, slice(None, None, 0)),
    (PositionError, slice(0, 3)),
    (TypeError, slice("a", None)),
    (TypeError, slice(1.5, None)),
]


async def test_a_slice_that_is_none(log: AnyLog) -> None:
    await log.append_many([b"x"] * 5)
    for error, wanted in BAD_SLICES:
        with pytest.raises(error):
            await log.part(wanted)
    for index in ("a", 1.0, None):
        with pytest.raises(TypeError, match="log index must be an int"):
            await log.at(index)


async def test_backwards(log: AnyLog) -> None:
    for i in range(1, 11):
        await log.append(b"%d" % i, key=b"%d" % (i % 2), timestamp=10 * i)

    async def found(*bounds: int | None, **filters: Any) -> list[int]:
        return places(await log.read(*bounds, reverse=True, **filters))

    forwards = await log.read()
    assert await log.back() == await log.read(reverse=True) == forwards[::-1]
    assert await found(3, 6) == [5, 4, 3]
    assert await found(9) == [10, 9]
    assert await found(None, 3) == [2, 1]
    assert await found(11) == await found(5, 5) == await found(limit=0) == []
    assert await found(limit=3) == [10, 9, 8]
    assert await found(key=b"0", limit=2) == [10, 8]
    assert await found(since=30, until=50) == [4, 3]
    assert await found(2, 9, key=b"1", since=30, limit=2) == [7, 5]
    with pytest.raises(BeyondEndError):
        await found(12)
    await log.trim(5)
    assert await found() == [10, 9, 8, 7, 6, 5]
    with pytest.raises(TrimmedError) as caught:
        await found(4)
    assert caught.value.first == 5


async def test_backwards_over_batches_of_all_sizes(log: AnyLog) -> None:
    sizes = [1, 70, 1, 3000, 1, 1, 500]
    for i, size in enumerate(sizes):
        await log.append_many([b"%d" % i * 9] * size, keys=[b"k"] * size)
    for i in range(12):
        await log.append(bytes([i]) * 200_000)
    forwards = await log.read()
    assert await log.back() == forwards[::-1]
    assert await log.read(2, 900, reverse=True) == forwards[1:899][::-1]
    assert await log.read(key=b"k", limit=1, reverse=True) == [forwards[-13]]


async def test_backwards_into_the_archive(log: AnyLog, tmp_path: Path) -> None:
    for i in range(1, 11):
        await log.append(b"%d" % i, key=b"%d" % (i % 2), timestamp=10 * i)
    before = await log.read()
    archive_table((await log.to_arrow()).slice(0, 6), log.id, tmp_path)
    await log.set_archive(tmp_path)
    await log.trim(5)
    options: dict[str, Any] = {"include_archive": True, "reverse": True}
    assert await log.read(**options) == before[::-1]
    assert await log.read(2, 9, **options) == before[1:8][::-1]
    found = await log.read(2, 9, key=b"0", until=70, limit=2, **options)
    assert places(found) == [6, 4]
    await log.trim(7)
    assert await log.read(2, 5, **options) == before[1:4][::-1]
    await log.trim(9)
    with pytest.raises(TrimmedError):
        await log.read(**options)


async def test_times_may_be_datetimes(log: AnyLog) -> None:
    zone = timezone(timedelta(hours=2))
    when = datetime(2024, 5, 1, 12, 0, 0, 7, tzinfo=zone)
    us = 1_714_557_600_000_007
    await log.append(b"a", timestamp=when)
    await log.append_many([b"b", b"c"], timestamps=[when, None])
    await log.append_many([b"d", b"e"], timestamps=when + timedelta(microseconds=1))
    times = [record.timestamp for record in await log.read()]
    assert (times[:2], times[3:]) == ([us, us], [us + 1, us + 1])
    assert await log.find(when.astimezone(UTC)) == 1
    late = when + timedelta(microseconds=1)
    assert places(await log.read(since=late, until=when + timedelta(days=1))) == [4, 5]
    naive: list[Callable[[], Awaitable[Any]]] = [
        lambda: log.append(b"", timestamp=when.replace(tzinfo=None)),
        lambda: log.append_many([b""], timestamps=[when.replace(tzinfo=None)]),
        lambda: log.read(since=when.replace(tzinfo=None)),
    ]
    for call in naive:
        with pytest.raises(InvalidArgumentError, match="has no time zone"):
            await call()


async def test_durations_may_be_timedeltas(log: AnyLog, node: AnyNode) -> None:
    assert not await log.wait(1, timeout=timedelta(milliseconds=1))
    assert [r async for r in log.subscribe(timeout=timedelta(0))] == []
    cursor = await log.cursor("c", lease=timedelta(minutes=1))
    assert cursor.lease == 60.0
    assert (await log.set_cursor("c", 1, lease=timedelta(seconds=2))).lease == 2.0
    await log.set_options(retention_ms=timedelta(days=1))
    assert (await node.log("log")).options.retention_ms == 86_400_000
    kept = await node.create_log("kept", retention_ms=timedelta(hours=1))
    assert kept.options.retention_ms == 3_600_000


async def test_headers_may_be_a_dict(log: AnyLog) -> None:
    await log.append(b"a", headers={"x": b"1", "y": bytearray(b"2")})
    await log.append_many([b"b", b"c"], headers=[{"z": b"3"}, None])
    headers = [record.headers for record in await log.read()]
    assert headers == [(("x", b"1"), ("y", b"2")), (("z", b"3"),), ()]


async def test_a_large_record_is_shown_in_short(log: AnyLog) -> None:
    names = {"n" * 300: bytes(300), **{f"h{i}": b"" for i in range(50)}}
    await log.append(b"v" * 200_000, key=b"k" * 9000, headers=names)
    shown = repr(await log.at(1))
    assert len(shown) < 3000
    assert "(200000 bytes)" in shown
    assert "51 in all" in shown
    await log.append(b"v", key=b"k", timestamp=5, headers={"h": b"1"})
    assert repr(await log.at(2)) == (
        "Record(position=2, timestamp=5, key=b'k', value=b'v', headers=(('h', b'1'),))"
    )


WRONG_TYPES: dict[str, tuple[str, Callable[[AnyLog], Awaitable[Any]]]] = {
    "get": ("position", lambda log: log.get("x")),  # type: ignore[arg-type]
    "read": ("begin", lambda log: log.read("x")),  # type: ignore[arg-type]
    "end": ("end", lambda log: log.read(1, "x")),  # type: ignore[arg-type]
    "limit": ("limit", lambda log: log.read(limit="x")),
    "since": ("timestamp", lambda log: log.read(since="x")),
    "wait": ("position", lambda log: log.wait("x")),  # type: ignore[arg-type]
    "timeout": ("timeout", lambda log: log.wait(1, timeout="x")),
    "trim": ("before", lambda log: log.trim("x")),  # type: ignore[arg-type]
    "lease": ("lease", lambda log: log.cursor("c", lease="x")),
    "cursor": ("position", lambda log: log.set_cursor("c", "x")),  # type: ignore[arg-type]
    "pin": ("pin", lambda log: log.cursor("c", pin=1)),
    "set pin": ("pin", lambda log: log.set_cursor("c", 1, pin="no")),
    "ignore": ("ignore_pins", lambda log: log.trim(1, ignore_pins="no")),
    "reverse": ("reverse", lambda log: log.read(reverse="no")),
    "columns": ("columns", lambda log: log.to_arrow(columns="key")),
    "values": ("value", lambda log: log.append_many(range(1 << 40))),  # type: ignore[arg-type]
    "value": ("value", lambda log: log.append("x")),  # type: ignore[arg-type]
    "key": ("key", lambda log: log.append(b"", key="x")),
    "producer": ("producer", lambda log: log.append(b"", producer=5, sequence=1)),
    "sequence": (
        "sequence",
        lambda log: log.append(b"", producer=Producer(1), sequence="x"),
    ),
}


@pytest.mark.parametrize("case", WRONG_TYPES)
async def test_a_wrong_type_is_told_with_the_name_of_the_argument(
    log: AnyLog, case: str
) -> None:
    argument, call = WRONG_TYPES[case]
    with pytest.raises(TypeError, match=rf"{argument}\b.* must be .*, not (str|int)"):
        await call(log)


class Claims(Sequence[bytes]):
    """Has two items, and says that they are more than there can be."""

    def __len__(self) -> int:
        return 1 << 60

    def __getitem__(self, index: Any) -> Any:
        return [b"a", b"b"][index]


async def test_a_length_that_lies_reserves_nothing(log: AnyLog) -> None:
    assert await log.append_many(Claims()) == range(1, 3)
    assert [record.value for record in await log.read()] == [b"a", b"b"]


BAD_NAMES = ["..", ".", "x\ny", "a\x00b", "-x", "a/b", "/", "\x7f", "a\u202eb", ""]


async def test_a_name_that_none_may_have(node: AnyNode, log: AnyLog) -> None:
    for name in BAD_NAMES:
        with pytest.raises(InvalidArgumentError):
            await node.create_log(name)
        with pytest.raises(InvalidArgumentError):
            await node.create_log(name, exist_ok=True)
        with pytest.raises(InvalidArgumentError):
            await log.cursor(name)
        with pytest.raises(InvalidArgumentError):
            await log.set_cursor(name, 1)
        with pytest.raises(NotFoundError):
            await node.log(name)
    with pytest.raises(InvalidArgumentError, match="without '/'"):
        await node.create_log("a/b")
    assert await node.logs() == ["log"]
    assert await log.cursors() == []
