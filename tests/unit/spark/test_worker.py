"""Workers of Spark that lack what the driver has: directories, files, packages.

Readers are pickled to other processes, as Spark does it, some of them in a mount
namespace in which a path leads to an empty directory.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import (
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)

import braidlog
from braidlog.errors import NotSharedError
from braidlog.handover import here
from braidlog.pipelines import Origin
from braidlog.pipelines.archive_job import archive
from braidlog.spark.source.data_source import BraidlogDataSource
from braidlog.spark.source.options import ReadOptions
from braidlog.spark.source.reader import LogReader
from braidlog.spark.source.tasks import Task
from unit.pipelines.elsewhere import Namespaces, namespaces_or_skip

COUNT = 50
POSITIONS = StructType([StructField("position", LongType())])
Hide = Callable[[Path], Namespaces]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with braidlog.open(tmp_path / "data") as node:
        node.create_log("orders").append_many([b"x"] * COUNT)
    return tmp_path / "data"


@pytest.fixture
def hide() -> Iterator[Hide]:
    """Two workers; to the second one a path is an empty directory."""
    namespaces_or_skip()
    started: list[Namespaces] = []

    def start(path: Path) -> Namespaces:
        started.append(Namespaces(path))
        return started[-1]

    yield start
    for workers in started:
        workers.close()


def positions(reader: Any, partition: Any) -> list[int]:
    found: list[int] = []
    for batch in reader.read(partition):
        found += batch["position"].to_pylist()
    return found


def batch_query(options: dict[str, str]) -> tuple[Any, Any]:
    reader = BraidlogDataSource(options).reader(POSITIONS)
    [partition] = reader.partitions()
    return reader, partition


def streaming_query(options: dict[str, str]) -> tuple[Any, Any]:
    reader: Any = BraidlogDataSource(options).streamReader(POSITIONS)
    start = reader.initialOffset()
    [partition] = reader.partitions(
        start, reader.latestOffset(start, ReadAllAvailable())
    )
    reader.stop()
    return reader, partition


@pytest.mark.timeout(120)
def test_a_worker_that_does_not_see_the_directory_is_named(
    data: Path, hide: Hide
) -> None:
    workers = hide(data)
    at_path = {"path": str(data), "log": "orders"}
    raw = {"raw": str(data), "log": "orders"}
    asked = [batch_query(at_path), streaming_query(at_path), batch_query(raw)]
    for query in asked:
        assert workers.call(0, positions, *query) == [*range(1, COUNT + 1)]
        with pytest.raises(NotSharedError, match="does not see") as caught:
            workers.call(1, positions, *query)
        assert caught.value.path == str(data)
        assert f"worker on {here()}" in str(caught.value)
        assert "mount the same storage" in str(caught.value)
        assert "`cluster=`" in str(caught.value)


@pytest.mark.timeout(120)
def test_a_worker_that_does_not_see_the_archive_is_named(
    data: Path, tmp_path: Path, hide: Hide
) -> None:
    home = tmp_path / "archive"
    archive(Origin("orders", path=str(data)), home, workers=1)
    workers = hide(home)
    query = batch_query({"path": str(data), "log": "orders", "includeArchive": "true"})
    assert workers.call(0, positions, *query) == [*range(1, COUNT + 1)]
    with pytest.raises(NotSharedError, match="has no archive") as caught:
        workers.call(1, positions, *query)
    assert f"worker on {here()}" in str(caught.value)


def test_a_record_without_headers_has_an_empty_map(data: Path) -> None:
    with braidlog.open(data) as node:
        node.log("orders").append(b"y", headers=[("a", b"b")])
    headers = StructField("headers", MapType(StringType(), BinaryType()), False)
    source = BraidlogDataSource({"path": str(data), "log": "orders"})
    reader: Any = source.reader(StructType([headers]))
    [partition] = reader.partitions()
    [batch] = reader.read(partition)
    assert not batch.schema.field("headers").nullable
    assert batch["headers"].null_count == 0
    assert batch["headers"].to_pylist() == [[]] * COUNT + [[("a", b"b")]]


def test_another_directory_at_the_same_path_is_not_taken_for_it(data: Path) -> None:
    reader, partition = batch_query({"path": str(data), "log": "orders"})
    data.rename(data.with_name("moved"))
    with braidlog.open(data) as node:
        node.create_log("orders").append(b"of another")
    with pytest.raises(NotSharedError, match="sees another directory as"):
        positions(reader, partition)


def test_a_missing_file_of_authorities_names_the_worker(tmp_path: Path) -> None:
    ca = tmp_path / "ca.pem"
    options = ReadOptions(Origin("orders", cluster="127.0.0.1:1", ca=str(ca)))
    reader = LogReader(options, ())
    with pytest.raises(NotSharedError, match="does not see") as caught:
        positions(reader, partition_of(Task("", 1, 1, 2)))
    assert str(ca) in str(caught.value)


def test_a_missing_package_names_the_worker(tmp_path: Path) -> None:
    reader = LogReader(ReadOptions(Origin("orders", cluster="127.0.0.1:1")), ())
    without = (
        "import pickle, sys\n"
        "sys.modules['msgspec'] = None\n"
        "reader, partition = pickle.load(sys.stdin.buffer)\n"
        "list(reader.read(partition))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", without],
        input=pickle.dumps((reader, partition_of(Task("", 1, 1, 2)))),
        capture_output=True,
        check=False,
        timeout=60,
    )
    last = done.stderr.decode().strip().splitlines()[-1]
    assert last.startswith(f"ModuleNotFoundError: the worker on {here()}")
    assert "msgspec" in last
    assert "Install Braidlog on every worker" in last


def partition_of(task: Task) -> Any:
    from pyspark.sql.datasource import InputPartition

    return InputPartition(task)
