"""Tables of a cluster of real processes, inside a real Spark."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import braidlog
from braidlog.client import Client
from braidlog.client.tables.blocking import ClusterTable
from braidlog.errors import (
    BeyondEndError,
    InvalidArgumentError,
    NotFoundError,
    TrimmedError,
)
from braidlog.spark import log_errors, register
from braidlog.spark.source import table_plan, table_reader
from braidlog.spark.source.options import parse
from braidlog.spark.source.schema import Column
from braidlog.store.tables.entry import TablePart
from braidlog.testing.cluster import LocalCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.timeout(180),
    # Sockets between Spark's processes are closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

KEYS = 8000
CITIES = 20
HISTORY = 40_000
SMALL = "64k"
"""Of a table of some 1,000 KiB, half of that when it is merged."""
JSON = {"valueFormat": "json", "valueSchema": "city string, n bigint"}


def put(client: Client, numbers: range, generation: int) -> int:
    values = [
        json.dumps({"city": f"c{n % CITIES:02d}", "n": n, "g": generation}).encode()
        for n in numbers
    ]
    keys = [b"key %05d" % (n * 7919 % KEYS) for n in numbers]
    return max(client.log("items").append_many(values, keys=keys))


@pytest.fixture(scope="module")
def stock(cluster: LocalCluster) -> Iterator[ClusterTable]:
    """A table of several files on two of three nodes, replaced in part."""
    with braidlog.connect(cluster.seeds) as client:
        client.create_log("items", streams=2)
        table = client.create_table(
            "stock",
            log="items",
            indexes={"by_city": "json:/city", "by_n": "json:/n:int"},
            replicas=2,
            history=HISTORY,
            memory_bytes=1 << 16,
        )
        for begin in range(0, KEYS, 2000):
            put(client, range(begin, begin + 2000), 1)
        last = put(client, range(0, KEYS, 10), 2)
        assert table.wait(last, timeout=60)
        while not all(each.state == "active" for each in table.describe().indexes):
            time.sleep(0.1)
        # Plans count what is in files, and a busy host may have none yet.
        table.flush()
        yield table
        client.drop_table("stock")
        client.delete_log("items")


def options_of(cluster: LocalCluster, **options: str) -> dict[str, str]:
    return {"cluster": cluster.seeds, "table": "stock"} | options


def load(
    spark: Any, cluster: LocalCluster, schema: str | None = None, **options: str
) -> Any:
    register(spark)
    reader = spark.read.format("braidlog").options(**options_of(cluster, **options))
    return (reader.schema(schema) if schema else reader).load()


def expected(reads: Any, *bounds: bytes) -> list[tuple[bytes, int]]:
    return [(row.key, row.position) for row in reads.scan(*bounds)]


def found(frame: Any) -> list[tuple[bytes, int]]:
    rows = frame.select("key", "position").collect()
    return sorted((bytes(row.key), row.position) for row in rows)


def test_several_tasks_read_one_position(
    spark: Any, cluster: LocalCluster, stock: ClusterTable
) -> None:
    frame = load(spark, cluster, bytesPerPartition=SMALL)
    assert frame.columns == ["position", "timestamp", "key", "value", "headers"]
    assert 2 < frame.rdd.getNumPartitions() < 40
    before = expected(stock)
    assert len(before) == KEYS
    assert found(frame) == before
    at = max(position for _, position in before)
    with braidlog.connect(cluster.seeds) as client:
        put(client, range(500), 3)
        # Spark keeps the plan of a frame, and with it the position.
        assert found(frame) == before
    some = load(spark, cluster, "key binary, position bigint", keyTo="key 01000")
    assert found(some) == expected(stock, b"", b"key 01000")
    assert found(some) != [row for row in before if row[0] < b"key 01000"]
    early = load(spark, cluster, at=str(at), keyTo="key 01000")
    assert found(early) == [row for row in before if row[0] < b"key 01000"]
    one = load(spark, cluster, key="key 00042")
    [row] = one.collect()
    record = stock.get(b"key 00042")
    assert record is not None
    assert (bytes(row.value), row.position) == (record.value, record.position)


def test_filters_become_keys_and_parts_of_an_index(
    spark: Any, cluster: LocalCluster, stock: ClusterTable
) -> None:
    plain = load(spark, cluster, keyFormat="utf8", **JSON)
    everything = [(row.key, row.value) for row in plain.collect()]
    cases: dict[str, Any] = {
        "key in ('key 00003', 'nothing', 'key 01999')": lambda key, _: (
            key in ("key 00003", "key 01999")
        ),
        "key >= 'key 07990'": lambda key, _: key >= "key 07990",
        "value.city = 'c05'": lambda _, value: value.city == "c05",
        "value.n between 100 and 300": lambda _, value: 100 <= value.n <= 300,
    }
    for where, matches in cases.items():
        frame = load(
            spark,
            cluster,
            pushdown="true",
            bytesPerPartition=SMALL,
            keyFormat="utf8",
            **JSON,
        )
        rows = sorted(row.key for row in frame.where(where).collect())
        assert rows == sorted(k for k, v in everything if matches(k, v)), where
        assert rows


def test_an_index_is_read_by_several_tasks(
    cluster: LocalCluster, stock: ClusterTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyspark.sql.datasource import EqualTo

    # A city is a twentieth, but how much of an unmerged host's files is not foreseen.
    monkeypatch.setattr(table_plan, "INDEX_PART_MAX", 0.5)

    options = parse(options_of(cluster, bytesPerPartition="32k"))
    column = Column("position", pa.int64())
    reader = table_reader.PushdownTableReader(options, (column,))
    list(reader.pushFilters([EqualTo(("value", "city"), "c05")]))
    partitions = reader.partitions()
    assert {partition.value.index for partition in partitions} == {"by_city"}
    assert len(partitions) > 1
    rows = [
        row["position"]
        for partition in partitions
        for batch in reader.read(partition)
        for row in batch.to_pylist()
    ]
    assert rows == [row.position for row in stock.index("by_city").get("c05")]


def test_a_host_is_killed_between_plan_and_tasks(
    spark: Any, cluster: LocalCluster, stock: ClusterTable
) -> None:
    frame = load(spark, cluster, bytesPerPartition=SMALL)
    before = expected(stock)
    assert 2 < frame.rdd.getNumPartitions() < 40
    killed = stock.describe().hosts[0].node
    cluster.kill(killed)
    try:
        assert found(frame) == before
    finally:
        cluster.start(killed)


def test_what_makes_no_sense_is_refused(
    spark: Any, cluster: LocalCluster, stock: ClusterTable
) -> None:
    with pytest.raises(InvalidArgumentError, match="`stream int`"), log_errors():
        load(spark, cluster, "stream int, key binary").collect()
    with pytest.raises(InvalidArgumentError, match="exclude each other"), log_errors():
        load(spark, cluster, since="1")
    with pytest.raises(NotFoundError, match="'nothing'"), log_errors():
        load(spark, cluster, table="nothing")
    with pytest.raises(BeyondEndError), log_errors():
        load(spark, cluster, at="99999999")


@pytest.fixture
def brief(cluster: LocalCluster) -> Iterator[ClusterTable]:
    """A table whose hosts keep no history."""
    with braidlog.connect(cluster.seeds) as client:
        client.create_log("brief", streams=2)
        table = client.create_table("brief", log="brief", indexes={"by": "value"})
        rewrite(client, b"first")
        yield table
        client.drop_table("brief")
        client.delete_log("brief")


def rewrite(client: Client, value: bytes) -> None:
    """Replace all rows, so that hosts merge away what they were before."""
    keys = [b"%04d" % n for n in range(2000)]
    client.log("brief").append_many([value] * len(keys), keys=keys)
    client.table("brief").flush()


def values(frame: Any) -> set[tuple[bytes, int]]:
    counts = frame.groupBy("value").count().collect()
    return {(bytes(row["value"]), row["count"]) for row in counts}


def test_hosts_keep_the_position_of_a_plan(
    spark: Any, cluster: LocalCluster, brief: ClusterTable
) -> None:
    frame = load(spark, cluster, table="brief", bytesPerPartition="1k")
    assert frame.rdd.getNumPartitions() > 2
    old = values(frame)
    assert old == {(b"first", 2000)}
    position = brief.applied
    with braidlog.connect(cluster.seeds) as client:
        for value in (b"second", b"third"):
            rewrite(client, value)
            assert values(frame) == old
    # Nobody had it before that.
    with pytest.raises(TrimmedError), log_errors():
        load(spark, cluster, table="brief", at=str(position - 1))
    late = load(spark, cluster, table="brief", at=str(position))
    assert values(late) == old
    assert values(load(spark, cluster, table="brief")) == {(b"third", 2000)}


def test_a_task_that_comes_too_late_says_what_to_do(
    cluster: LocalCluster, brief: ClusterTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braidlog.client.tables.hosts._SHARED_S", 0.5)
    options = parse({"cluster": cluster.seeds, "table": "brief"})
    reader = table_reader.TableReader(options, (Column("position", pa.int64()),))
    [partition] = reader.partitions()
    assert sum(batch.num_rows for batch in reader.read(partition)) == 2000
    time.sleep(2.0)
    with braidlog.connect(cluster.seeds) as client:
        for value in (b"second", b"third"):
            rewrite(client, value)
    with pytest.raises(TrimmedError, match="at which this query was planned") as late:
        list(reader.read(partition))
    assert "two minutes" in (late.value.hint or "")


def test_what_was_made_anew_is_another_one(
    cluster: LocalCluster, brief: ClusterTable
) -> None:
    from pyspark.sql.datasource import InputPartition

    options = parse({"cluster": cluster.seeds, "table": "brief"})
    reader = table_reader.TableReader(options, ())
    [partition] = reader.partitions()
    task = partition.value
    part = TablePart(b"a", b"b", 1)
    of_index = replace(task, part=part, index="by", index_id="0" * 32)
    with pytest.raises(NotFoundError, match="index 'by' was made anew"):
        list(reader.read(InputPartition(of_index)))
    with braidlog.connect(cluster.seeds) as client:
        client.drop_table("brief")
        client.create_table("brief", log="brief", indexes={"by": "value"})
    with pytest.raises(NotFoundError, match="made anew"):
        list(reader.read(partition))


def test_empty_tables_and_null_values(spark: Any, cluster: LocalCluster) -> None:
    with braidlog.connect(cluster.seeds) as client:
        log = client.create_log("odd")
        client.create_table("odd", log="odd", deletes="none")
        empty = load(spark, cluster, table="odd")
        assert empty.collect() == []
        first = log.append(None, key=b"a", headers=[("h", None)])
        last = log.append_many([b"", None, b"c"], keys=[b"b", b"c", b""])[-1]
        # Spark keeps the plan of a frame.
        assert empty.collect() == []
        rows = load(spark, cluster, table="odd").orderBy("position").collect()
        assert [(bytes(r.key), r.value) for r in rows] == [
            (b"a", None),
            (b"b", b""),
            (b"c", None),
            (b"", b"c"),
        ]
        assert [dict(row.headers) for row in rows] == [{"h": None}, {}, {}, {}]
        log.append(b"new", key=b"a")
        early = load(spark, cluster, table="odd", at=str(first)).collect()
        assert [row.position for row in early] == [first]
        assert load(spark, cluster, table="odd", at=str(last)).count() == 4
        assert load(spark, cluster, table="odd", keyFrom="c", keyTo="b").count() == 0
        client.drop_table("odd")
        client.delete_log("odd")
