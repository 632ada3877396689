"""The streaming source without Spark: offsets, admission, trimming, restarts."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadMaxBytes,
    ReadMaxRows,
)
from pyspark.sql.types import LongType, StructField, StructType

import braidlog
from braidlog.errors import (
    InvalidArgumentError,
    NewerFormatError,
    NotFoundError,
    TrimmedError,
)
from braidlog.sources.source import ALL_STREAMS
from braidlog.spark.source.data_source import BraidlogDataSource
from braidlog.spark.source.selection import Range
from braidlog.spark.streaming.admission import admit
from braidlog.spark.streaming.offset import Offset, lag, tasks_between

COUNT = 100
POSITIONS = StructType([StructField("position", LongType())])

Query = Callable[..., Any]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    with braidlog.open(tmp_path / "data") as node:
        append(node.create_log("orders"), COUNT)
    return tmp_path / "data"


def append(log: Any, count: int) -> None:
    for _ in range(count):
        log.append(b"x" * 100)


@pytest.fixture
def query(directory: Path) -> Query:
    def make(**options: str) -> Any:
        source = BraidlogDataSource({"path": str(directory), "log": "orders"} | options)
        return source.streamReader(POSITIONS)

    return make


def stored(offset: dict[str, Any]) -> dict[str, Any]:
    """Return an offset as it comes back from the checkpoint."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def rows(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Do what Spark does: each task has a copy of the reader."""
    found: list[int] = []
    for partition in reader.partitions(stored(start), stored(end)):
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            found += batch.column("position").to_pylist()
    return found


def run(reader: Any, limit: Any = None) -> list[list[int]]:
    """Run batches until nothing is new."""
    at, batches = reader.initialOffset(), []
    while (end := reader.latestOffset(at, limit or ReadAllAvailable())) != at:
        batches.append(rows(reader, at, end))
        at = stored(end)
    reader.stop()
    return batches


def test_one_batch_without_limits(query: Query) -> None:
    assert run(query()) == [list(range(1, COUNT + 1))]
    assert run(query(**{"from": "41", "to": "61"})) == [list(range(41, 61))]
    assert run(query(order="global")) == [list(range(1, COUNT + 1))]


def test_a_limit_on_records_is_exact(query: Query) -> None:
    reader = query(maxRecordsPerTrigger="30")
    assert reader.getDefaultReadLimit() == ReadMaxRows(30)
    batches = run(reader, ReadMaxRows(30))
    assert [len(batch) for batch in batches] == [30, 30, 30, 10]
    assert list(chain.from_iterable(batches)) == list(range(1, COUNT + 1))


def test_a_limit_on_bytes_is_near(query: Query) -> None:
    reader = query(maxBytesPerTrigger="3k")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(3 << 10)
    batches = run(reader, ReadMaxBytes(3 << 10))
    assert list(chain.from_iterable(batches)) == list(range(1, COUNT + 1))
    assert all(10 <= len(batch) <= 30 for batch in batches[:-1])


def test_both_limits_hold(query: Query) -> None:
    reader = query(maxBytesPerTrigger="3k", maxRecordsPerTrigger="5")
    assert {len(batch) for batch in run(reader, reader.getDefaultReadLimit())} == {5}


@pytest.mark.parametrize("order", ["stream", "global"])
def test_a_batch_is_planned_again_as_it_was(
    query: Query, directory: Path, order: str
) -> None:
    """After a crash: another process, more records, another size of tasks."""
    reader = query(bytesPerPartition="1k", order=order)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    planned = [partition.value for partition in reader.partitions(start, end)]
    assert len(planned) > 5
    with braidlog.open(directory) as node:
        append(node.log("orders"), 50)
    again = query(bytesPerPartition="9k")
    assert again.initialOffset() == start
    assert [p.value for p in again.partitions(stored(start), stored(end))] == planned
    later = again.latestOffset(stored(end), ReadAllAvailable())
    assert rows(again, end, later) == list(range(COUNT + 1, COUNT + 51))
    # Before a batch is committed Spark has no offset that it began at: it asks again.
    for begin in ("1", "30"):
        moved = query(**{"from": begin})
        began = stored(moved.initialOffset())
        planned_now = moved.partitions(began, stored(end))
        assert [partition.value for partition in planned_now] == planned
    # What Spark says is done may be asked for again, from an older checkpoint.
    again.commit(stored(later))
    assert sorted(rows(again, start, end)) == list(range(1, COUNT + 1))


def test_available_now_ends_at_what_was_there(query: Query, directory: Path) -> None:
    reader = query()
    reader.prepareForTriggerAvailableNow()
    with braidlog.open(directory) as node:
        append(node.log("orders"), 50)
    assert [len(batch) for batch in run(reader, ReadMaxRows(60))] == [60, 40]


def test_what_was_trimmed_before_the_query_began(query: Query, directory: Path) -> None:
    with braidlog.open(directory) as node:
        first = node.log("orders").trim(before=41)
    reader = query(bytesPerPartition="500")  # Some tasks lose all that they read.
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    with braidlog.open(directory) as node:
        node.log("orders").trim(before=51)
    # The batch stays what it was, so what was trimmed meanwhile is missed.
    with pytest.raises(TrimmedError):
        rows(query(), start, end)
    assert rows(query(failOnTrimmed="false"), start, end) == list(range(51, 101))
    assert (first, end["first"], end["lost"]) == (41, 41, 0)
    with pytest.raises(TrimmedError, match="'from' asks for 3"):
        run(query(**{"from": "3"}))
    assert run(query(**{"from": "3"}, failOnTrimmed="false")) == [list(range(51, 101))]


def test_what_is_trimmed_under_a_query(query: Query, directory: Path) -> None:
    reader = query()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    with braidlog.open(directory) as node:
        node.log("orders").trim(before=31)
    with pytest.raises(TrimmedError, match=r"read only up to 11.*failOnTrimmed=false"):
        reader.latestOffset(end, ReadAllAvailable())
    going_on = query(failOnTrimmed="false")
    later = going_on.latestOffset(end, ReadMaxRows(10))
    assert rows(going_on, end, later) == list(range(31, 41))
    assert later["lost"] == 20
    last = going_on.latestOffset(later, ReadAllAvailable())
    assert rows(going_on, later, last) == list(range(41, 101))
    assert last["lost"] == 20


def test_a_log_made_anew_is_another(query: Query, directory: Path) -> None:
    reader = query()
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    with braidlog.open(directory) as node:
        node.delete_log("orders")
        append(node.create_log("orders"), 20)
    with pytest.raises(NotFoundError, match="a new log has its name"):
        query().latestOffset(end, ReadAllAvailable())
    with pytest.raises(NotFoundError, match="a new log has its name"):
        rows(query(), start, end)


def test_how_far_it_lags(query: Query) -> None:
    reader = query()
    assert reader.reportLatestOffset() is None
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    latest = reader.reportLatestOffset()
    assert lag({"endOffset": end, "latestOffset": json.dumps(latest)}) == {1: 90}
    assert lag({"endOffset": None, "latestOffset": latest}) == {1: 100}


class TestOffset:
    def test_goes_through_the_checkpoint(self) -> None:
        offset = Offset(9, "id", {2: 3, 1: 7}, 4, {1: 2}, {1: 5}, "global", 1)
        assert Offset.of(stored(offset.to_json())) == offset

    def test_refuses_what_it_does_not_know(self) -> None:
        newer = Offset(9).to_json() | {"version": 2}
        with pytest.raises(NewerFormatError, match="version 2"):
            Offset.of(newer)
        for wrong in ({}, {"version": 1}, {"position": 3}):
            with pytest.raises(
                InvalidArgumentError, match="not written by a Braidlog source"
            ):
                Offset.of(wrong)

    def test_a_stream_that_came_later_is_read_from_its_first(self) -> None:
        start = Offset(9, "id", {1: 9})
        end = Offset(15, "id", {1: 11, 2: 5}, rows={1: 10, 2: 10})
        found = {(t.stream, t.begin, t.end) for t in tasks_between(start, end, Range())}
        assert found == {(1, 9, 11), (2, 1, 5)}
        only = tasks_between(start, end, Range(among=frozenset((2,))))
        assert [task.stream for task in only] == [2]

    @given(
        st.lists(
            st.dictionaries(st.integers(1, 4), st.integers(0, 30)),
            min_size=1,
            max_size=6,
        ),
        st.dictionaries(st.integers(0, 4), st.integers(1, 12)),
        st.booleans(),
    )
    def test_batches_hold_every_position_once(
        self, growths: list[dict[int, int]], sizes: dict[int, int], ordered: bool
    ) -> None:
        order: Any = "global" if ordered else "stream"
        at, seen = Offset(1), []
        for growth in growths:
            streams = dict(at.streams)
            for stream, count in growth.items():
                streams[stream] = streams.get(stream, 1) + count
            position = at.position + sum(growth.values())
            end = Offset(position, "id", streams, rows=sizes, order=order)
            for task in tasks_between(at, end, Range()):
                assert task.begin < task.end
                seen += [(task.stream, n) for n in range(task.begin, task.end)]
            at = end
        if ordered:
            assert seen == [(ALL_STREAMS, n) for n in range(1, at.position)]
        else:
            every = {(s, n) for s, end in at.streams.items() for n in range(1, end)}
            assert len(seen) == len(set(seen))
            assert set(seen) == every


class TestAdmission:
    @given(
        st.lists(st.integers(1, 1000), min_size=1, max_size=50),
        st.integers(1, 60),
        st.integers(1, 5000),
    )
    def test_comes_on_and_keeps_limits(
        self, sizes: list[int], records_max: int, bytes_max: int
    ) -> None:
        def measure(begin: int, end: int) -> int:
            return sum(sizes[begin - 1 : end - 1])

        stop = len(sizes) + 1
        end = admit(
            1, stop, records_max=records_max, bytes_max=bytes_max, measure=measure
        )
        assert 1 < end <= min(stop, 1 + records_max)
        if len(set(sizes)) == 1:
            assert measure(1, end) <= bytes_max or end == 2

    def test_nothing_is_nothing(self) -> None:
        assert admit(5, 5, records_max=1, bytes_max=1, measure=lambda low, high: 0) == 5
