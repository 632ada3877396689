"""Slices of a log: views that read when they are iterated."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from braidlog import Log
from braidlog.errors import InvalidArgumentError, PositionError, TrimmedError
from braidlog.store.slices import LogSlice, span_of
from unit.store.conftest import Opener


def positions(records: Any) -> list[int]:
    return [record.position for record in records]


BOUNDS = [None, -9, -4, -1, 0, 1, 2, 4, 5, 9]


@pytest.mark.parametrize("step", [1, -1])
def test_a_slice_is_a_sequence_as_a_list_is_one(ten: Log, step: int) -> None:
    view = ten[3:8:step] if step > 0 else ten[7:2:-1]
    alike = list(range(3, 8))[::step]
    assert isinstance(view, Sequence)
    assert (len(view), view.begin, view.end) == (5, 3, 8)
    assert positions(view) == positions(view) == alike
    assert positions(reversed(view)) == alike[::-1]
    assert [view[i].position for i in range(-5, 5)] == alike * 2
    for index in (5, -6):
        with pytest.raises(IndexError, match="begin at 0"):
            view[index]
    for start, stop, by in itertools.product(BOUNDS, BOUNDS, (None, 1, -1)):
        part = slice(start, stop, by)
        assert positions(view[part]) == alike[part], part
        assert len(view[part]) == len(alike[part]), part


def test_a_slice_stays_where_it_was_made(ten: Log) -> None:
    view, empty = ten[-3:], ten[10:5]
    ten.append(b"new")
    assert positions(view) == [8, 9, 10]
    ten.trim(9)
    with pytest.raises(TrimmedError):
        next(iter(view))
    assert list(empty) == list(reversed(empty)) == []
    assert positions(ten[-3:]) == [9, 10, 11]


def test_a_slice_shows_what_it_is(ten: Log) -> None:
    assert repr(ten[2:5]) == "<LogSlice 'orders' 2..5>"
    assert repr(ten[::-1]) == "<LogSlice 'orders' 1..11, the last one first>"


def test_a_slice_reads_nothing_before_it_is_iterated() -> None:
    there = range(1, 1 << 62)
    span = span_of(slice(None, None, -1), there)
    assert len(LogSlice(None, span)) == (1 << 62) - 1  # type: ignore[arg-type]


@pytest.mark.parametrize("step", [0, 2, -2])
def test_other_steps_are_refused(ten: Log, step: int) -> None:
    with pytest.raises(InvalidArgumentError, match=f"must be 1 or -1, got {step}"):
        ten[::step]


def test_position_zero_is_told_from_a_trimmed_one(ten: Log) -> None:
    ten.trim(4)
    with pytest.raises(PositionError):
        ten[0:3]
    with pytest.raises(TrimmedError):
        ten[1:3]


def test_the_way_back_begins_at_the_end(opener: Opener, tmp_path: Path) -> None:
    """What is not asked for is not read: it may be damaged."""
    node = opener(segment_bytes=1 << 20, recent_bytes_max=0)
    log = node.create_log("log")
    for i in range(40):
        log.append_many([bytes([i]) * 1000] * 200)
    first = min(path for path in Path(node.path, "wal").glob("slot-*"))
    size = first.stat().st_size
    with first.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"\xff" * (size // 4))
    assert positions(log.read(limit=500, reverse=True)) == list(range(8000, 7500, -1))
    assert positions(log[-3:]) == [7998, 7999, 8000]
    with pytest.raises(Exception, match="corrupt"):
        list(log)
