"""What waits to become part of a batch takes plain records by itself, and no others."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from braidlog import _native
from braidlog._native import Budget, Entry, Line, settle
from braidlog.client.batches import Columns

_PLAIN = 64
"""Bytes that a record counts beyond its value."""


@dataclass
class Bench:
    """A line, and what it asked for."""

    room: int = 10_000
    now: float = 1.0
    scheduled: int = 0
    deadlines: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.budget = Budget(self.room)
        self.line: Line[asyncio.Future[int]] = Line(1000, 4)
        self.line.serve(
            budget=self.budget,
            clock=lambda: 77,
            time=lambda: self.now,
            waiter=asyncio.get_running_loop().create_future,
            record_bytes_max=500,
            timeout_s=5.0,
            schedule=self._schedule,
            expire_at=self._expire_at,
        )

    def _schedule(self) -> None:
        self.scheduled += 1
        self.line.scheduled = True

    def _expire_at(self, deadline: float) -> None:
        self.deadlines.append(deadline)
        self.line.expires = deadline


async def test_a_plain_record_waits_with_its_time_and_deadline() -> None:
    bench = Bench()
    entry = bench.line.append(b"abc")
    assert entry is not None
    assert tuple(entry.records) == ([b"abc"], None, 77, None)
    assert (entry.count, entry.size, entry.deadline) == (1, _PLAIN + 3, 6.0)
    assert (len(bench.line), bench.line.oldest) == (1, 1.0)


async def test_a_key_is_counted_and_kept() -> None:
    bench = Bench()
    entry = bench.line.append(b"abc", b"key")
    assert entry is not None
    assert tuple(entry.records) == ([b"abc"], [b"key"], 77, None)
    assert entry.size == _PLAIN + 6
    assert bench.line.append(b"abc", bytearray(b"key")) is None
    assert bench.line.append(b"abc", b"k" * 500) is None


async def test_it_is_looked_at_once_and_for_the_first_deadline() -> None:
    bench = Bench()
    for bench.now in (1.0, 2.0, 3.0):
        assert bench.line.append(b"v") is not None
    assert (bench.scheduled, bench.deadlines) == (1, [6.0])


@pytest.mark.parametrize(
    "value", [None, bytearray(b"v"), memoryview(b"v"), "v", 1, b"v" * 500]
)
async def test_anything_else_is_left_to_the_caller(value: Any) -> None:
    bench = Bench()
    assert bench.line.append(value) is None
    assert len(bench.line) == 0
    assert bench.budget.take_now(bench.room)


async def test_nothing_is_taken_without_room() -> None:
    bench = Bench(room=2 * _PLAIN)
    assert bench.line.append(b"v" * 10) is not None
    assert bench.line.append(b"v" * _PLAIN) is None
    assert bench.line.append(b"") is None
    bench.budget.shut = True
    bench.budget.give(_PLAIN + 10)
    assert bench.line.append(b"") is None
    bench.budget.shut = False
    assert bench.line.append(b"") is not None


async def test_many_are_taken_as_they_are_now() -> None:
    bench = Bench()
    values = [b"a", b"bc"]
    entry = bench.line.append_many(values)
    values.append(b"d")
    assert entry is not None
    assert tuple(entry.records) == ([b"a", b"bc"], None, 77, None)
    assert (entry.count, entry.size) == (2, 2 * _PLAIN + 3)


@pytest.mark.parametrize(
    "values",
    [[], (b"v",), b"v", [b"v", None], [b"v"] * 5, [b"v" * 437], [b"v" * 300] * 3],
)
async def test_many_that_do_not_fit_or_are_not_plain_are_left(values: Any) -> None:
    bench = Bench()
    assert bench.line.append_many(values) is None
    assert len(bench.line) == 0
    assert bench.budget.take_now(bench.room)


async def test_a_clock_that_fails_leaves_nothing_behind() -> None:
    def fails() -> int:
        raise OSError("no time")

    bench = Bench()
    line: Line[asyncio.Future[int]] = Line(1000, 4)
    line.serve(
        budget=bench.budget,
        clock=fails,
        time=lambda: 1.0,
        waiter=asyncio.get_running_loop().create_future,
        record_bytes_max=500,
        timeout_s=5.0,
        schedule=lambda: None,
        expire_at=lambda _: None,
    )
    with pytest.raises(OSError, match="no time"):
        line.append(b"v")
    assert len(line) == 0
    assert bench.budget.take_now(bench.room)


async def test_a_batch_of_entries_is_that_of_their_columns() -> None:
    bench = Bench()
    one, many = bench.line.append(b"a"), bench.line.append_many([b"b", b"c"])
    named = bench.line.append(b"n", b"x")
    assert one is not None
    assert many is not None
    assert named is not None
    keyed: Entry[int] = Entry(1, Columns((b"d",), (b"k",), 5, None), 1, 1, 1.0)
    columns = [
        Columns((b"a", b"b", b"c", b"n"), (None, None, None, b"x"), 77, None),
        Columns((b"d",), (b"k",), 5, None),
    ]
    batch = _native.encode_pieces([one, many, named, keyed], (9, 1), 4)
    assert batch == _native.encode_pieces(columns, (9, 1), 4)


async def test_those_who_wait_get_their_positions_and_room_comes_back() -> None:
    bench = Bench(room=4 * _PLAIN)
    first, gone = bench.line.append(b""), bench.line.append(b"")
    many = bench.line.append_many([b"", b""])
    assert first is not None
    assert gone is not None
    assert many is not None
    assert bench.line.append(b"") is None
    gone.waiter.cancel()
    entries, count = bench.line.close()
    assert (entries, count) == ([first, gone, many], 4)
    settle(entries, 10, bench.budget)
    assert (first.waiter.result(), many.waiter.result()) == (10, 12)
    assert gone.waiter.cancelled()
    assert bench.budget.take_now(bench.room)
