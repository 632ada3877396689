"""Sinks into Delta and Iceberg tables: each record once, without jars."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructField, StructType

from braidlog.errors import InvalidArgumentError, NotSharedError
from braidlog.spark import register
from braidlog.spark.lake.delta import DeltaSink, DeltaTarget
from braidlog.spark.lake.iceberg import IcebergSink, IcebergTarget
from braidlog.spark.lake.writers import DataFile, FileMessage, JobWriter, seen

deltalake = pytest.importorskip("deltalake")
pyiceberg_table = pytest.importorskip("pyiceberg.table")
pytest.importorskip("sqlalchemy")

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(180),
    # Sockets between Spark's processes are closed by the garbage collector, and so are
    # connections of the catalog to its database.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

SCHEMA = pa.schema([("number", pa.int64())])


class Delta:
    FORMAT = "braidlog_delta"
    LOOKS = deltalake.DeltaTable, "transaction_version"

    def __init__(self, folder: Path) -> None:
        self.options = {"path": str(folder / "table")}
        self.target: Any = DeltaTarget((folder / "table").as_uri())

    def numbers(self) -> list[int]:
        files = deltalake.DeltaTable(self.target.uri).file_uris()
        tables = [pq.read_table(path.removeprefix("file://")) for path in files]
        return sorted(n for table in tables for n in table["number"].to_pylist())


class Iceberg:
    FORMAT = "braidlog_iceberg"
    LOOKS = pyiceberg_table.Table, "transaction"

    def __init__(self, folder: Path) -> None:
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/catalog.db",
            "warehouse": folder.as_uri(),
        }
        self.options = {f"catalog.{name}": value for name, value in properties.items()}
        self.options |= {"table": "sales.orders", "catalog": "here"}
        self.target: Any = IcebergTarget("sales.orders", "here", properties)
        self.target._catalog().create_namespace("sales")

    def numbers(self) -> list[int]:
        table = self.target._catalog().load_table("sales.orders")
        found: list[int] = table.scan().to_arrow()["number"].to_pylist()
        return sorted(found)


@pytest.fixture(params=[Delta, Iceberg])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return request.param(tmp_path)


def put(target: Any, name: str, *numbers: int) -> DataFile:
    root = Path(target.location(SCHEMA).removeprefix("file://"))
    path = root / "data" / name
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"number": numbers}, schema=SCHEMA), path)
    return DataFile(f"data/{name}", path.stat().st_size, len(numbers))


def test_a_batch_is_committed_once(table: Any) -> None:
    commit = table.target.commit
    assert commit("q", 0, [put(table.target, "a", 1, 2)])
    assert commit("q", 0, [put(table.target, "b", 1, 2)])
    assert commit("other", 0, [put(table.target, "c", 3)])
    assert commit("q", 1, [put(table.target, "d", 4), put(table.target, "e", 5)])
    assert commit("q", 0, [put(table.target, "f", 1, 2)])
    assert table.numbers() == [1, 2, 3, 4, 5]


def test_two_drivers_commit_a_batch_once(
    table: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is done while this one has looked and not committed."""
    assert table.target.commit("q", 0, [put(table.target, "a", 1)])
    owner, name = table.LOOKS
    look: Callable[..., Any] = getattr(owner, name)

    def late(self: Any, *arguments: Any) -> Any:
        monkeypatch.undo()
        seen = look(self, *arguments)
        assert table.target.commit("q", 1, [put(table.target, "b", 2)])
        return seen

    monkeypatch.setattr(owner, name, late)
    assert not table.target.commit("q", 1, [put(table.target, "c", 2)])
    assert table.target.commit("q", 1, [put(table.target, "d", 2)])
    assert table.numbers() == [1, 2]


@pytest.mark.parametrize("harm", ["gone", "shorter", "another"])
def test_nothing_is_listed_that_the_driver_does_not_see(
    table: Any, tmp_path: Path, harm: str
) -> None:
    """A worker in a container of its own writes where nobody else looks."""
    schema = StructType([StructField("number", LongType())])
    writer = JobWriter(table.target, schema, overwrite=False)
    written = put(table.target, "a", 1, 2)
    root = Path(table.target.location(SCHEMA).removeprefix("file://"))
    file = root / written.path
    system = pa.fs.LocalFileSystem()
    size, footer = seen(system, str(file))
    said = replace(written, bytes=size, footer=footer, machine="worker-7")
    match harm:
        case "gone":
            file.unlink()
        case "shorter":
            file.write_bytes(file.read_bytes()[:-1])
        case _:
            put(table.target, "a", 2, 1)
    with pytest.raises(NotSharedError, match="worker-7"):
        writer.commit([FileMessage("q", said)])
    assert table.numbers() == []
    put(table.target, "a", 1, 2)
    writer.commit([FileMessage("q", said)])
    assert table.numbers() == [1, 2]


@pytest.mark.parametrize(
    ("sink", "options"),
    [(DeltaSink, {"path": "p"}), (IcebergSink, {"table": "a.b", "catalog": "here"})],
)
def test_an_option_that_it_does_not_have_is_refused(
    sink: Any, options: dict[str, str]
) -> None:
    with pytest.raises(InvalidArgumentError, match="unknown option 'jub'"):
        sink(options | {"jub": "load"}).writer(StructType(), overwrite=False)
    with pytest.raises(InvalidArgumentError, match="identified by its checkpoint"):
        sink(options | {"job": "load"}).streamWriter(StructType(), overwrite=False)


def test_spark_writes_it(spark: Any, table: Any, tmp_path: Path) -> None:
    """A named job twice, and a query whose last batch is committed twice."""
    register(spark)
    frame = spark.range(0, 100, 1, 2).select(f.col("id").alias("number"))
    for _ in range(2):
        writer = frame.write.format(table.FORMAT).mode("append")
        writer.options(**table.options, job="load").save()
    assert table.numbers() == list(range(100))

    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()
    more = pa.table({"number": range(100, 110)}, schema=SCHEMA)
    pq.write_table(more, source / "more.parquet")
    for _ in range(2):
        stream = spark.readStream.schema(frame.schema).parquet(str(source))
        stream.writeStream.format(table.FORMAT).options(**table.options).option(
            "checkpointLocation", str(checkpoint)
        ).trigger(availableNow=True).start().awaitTermination()
        for path in (checkpoint / "commits").glob("*0*"):
            path.unlink()
    assert table.numbers() == list(range(110))
