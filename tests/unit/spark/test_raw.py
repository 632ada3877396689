"""The Spark reader over directories of nodes that do not run, without Spark."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StructField,
    StructType,
)

import braidlog
from braidlog.errors import LockedError, NotFoundError, NotReadyError
from braidlog.spark.source.data_source import BraidlogDataSource
from unit.node.rescue.test_raw import killed, read, write

SCHEMA = StructType(
    [
        StructField("stream", IntegerType()),
        StructField("llsn", LongType()),
        StructField("position", LongType()),
        StructField("value", BinaryType()),
    ]
)
COUNT = 60


@pytest.fixture(scope="module")
def directories(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Node 1 was dropped and went on alone; nodes 2 and 3 are the log."""
    root = tmp_path_factory.mktemp("raw")
    return [
        write(root / "1", 1, COUNT + 9),
        write(root / "2", 2, COUNT, failed=(1,)),
        write(root / "3", 3, COUNT - 5, failed=(1,)),
    ]


def source(directories: list[Path], **options: str) -> BraidlogDataSource:
    raw = ",".join(map(str, directories))
    return BraidlogDataSource({"raw": raw, "log": "bank"} | options)


def rows(reader: Any, partitions: Any) -> list[tuple[Any, ...]]:
    found: list[tuple[Any, ...]] = []
    for partition in pickle.loads(pickle.dumps(partitions)):
        for batch in pickle.loads(pickle.dumps(reader)).read(partition):
            found += [tuple(row.values()) for row in batch.to_pylist()]
    return found


@pytest.mark.parametrize("order", ["stream", "global"])
def test_what_the_fault_logs_call_valid(directories: list[Path], order: str) -> None:
    source(directories).schema()
    small = source(directories, order=order, bytesPerPartition="500")
    reader: Any = small.reader(SCHEMA)
    partitions = reader.partitions()
    assert len(partitions) > 3
    expected = [(4, n, n, b"%d" % n) for n in range(1, COUNT + 1)]
    assert rows(reader, partitions) == expected
    some = source(directories, order=order, **{"from": "7"}, to="9")
    reader = some.reader(SCHEMA)
    assert [n for _, _, n, _ in rows(reader, reader.partitions())] == [7, 8]


@pytest.fixture(scope="module")
def killed_at_once(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """12 records stored, 10 acknowledged; the commits of the last are on no disk."""
    root = tmp_path_factory.mktemp("killed")
    return [
        killed(root / "1", 1, stored=12, committed=4, cuts=10),
        killed(root / "2", 2, stored=12, committed=7, cuts=10),
        killed(root / "3", 3, stored=12, committed=0, cuts=6),
    ]


@pytest.mark.parametrize("order", ["stream", "global"])
def test_what_only_the_repository_knows_is_read(
    killed_at_once: list[Path], order: str
) -> None:
    """As a batch and as a stream: what the merge gives."""
    merged, _ = read(killed_at_once)
    assert len(merged) == 10
    given = source(killed_at_once, order=order, bytesPerPartition="100")
    batch: Any = given.reader(SCHEMA)
    found = rows(batch, batch.partitions())
    assert [(position, value) for _, _, position, value in found] == merged
    stream: Any = given.streamReader(SCHEMA)
    at, seen = stream.initialOffset(), []
    while (end := stream.latestOffset(at, ReadMaxRows(3))) != at:
        seen += [row[2:] for row in rows(stream, stream.partitions(at, end))]
        at = end
    assert seen == merged


def test_what_may_be_missing_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    paths = [
        killed(tmp_path / str(n), n, stored=5, committed=3, cuts=4 if n == 2 else None)
        for n in (1, 2, 3)
    ]
    reader: Any = source(paths).reader(SCHEMA)
    assert len(rows(reader, reader.partitions())) == 4
    assert "1 of 3 voters of the metadata repository" in caplog.text


def test_as_a_stream(directories: list[Path]) -> None:
    reader: Any = source(directories).streamReader(SCHEMA)
    at, seen = reader.initialOffset(), []
    while (end := reader.latestOffset(at, ReadMaxRows(25))) != at:
        seen.append(len(rows(reader, reader.partitions(at, end))))
        at = end
    assert seen == [25, 25, 10]


def test_what_cannot_be_read(directories: list[Path], tmp_path: Path) -> None:
    with pytest.raises(NotReadyError, match="3"):
        source(directories[1:2]).schema()
    with pytest.raises(NotFoundError, match="shop"):
        source(directories, log="shop").schema()
    data = [tmp_path / "data"]
    with braidlog.open(data[0]) as node:
        node.create_log("bank").append(b"a")
        with pytest.raises(
            LockedError, match="read a running one with 'cluster' or 'path'"
        ):
            source(data).schema()
    reader: Any = source(data).reader(SCHEMA)
    assert len(rows(reader, reader.partitions())) == 1
