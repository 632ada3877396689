"""The data source over a cluster of real processes, inside a real Spark."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f
from pyspark.sql.types import LongType, StructField, StructType

import braidlog
from braidlog.client import ClusterLog
from braidlog.errors import UnauthorizedError
from braidlog.spark import BraidlogDataSource, register
from braidlog.spark.source.schema import DDL
from braidlog.testing.cluster import LocalCluster
from braidlog.wire.roles import Role
from braidlog.wire.tokens import make_token, token_entry

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.timeout(180),
    # Sockets between Spark's processes are closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SECOND = 1_000_000
COUNT = 3000
STREAMS = 3


@pytest.fixture
def orders(cluster: LocalCluster) -> Iterator[ClusterLog]:
    """A record a second by position, in batches over all streams, some without key."""
    with braidlog.connect(cluster.seeds) as client:
        if "orders" in client.logs():
            client.delete_log("orders")
        log = client.create_log("orders", streams=STREAMS)
        log.append(b"value 1", key=b"k1", timestamp=SECOND, headers=[("a", b"\x00")])
        for begin in range(2, COUNT + 1, 100):
            numbers = range(begin, min(begin + 100, COUNT + 1))
            log.append_many(
                [b"value %d" % n for n in numbers],
                timestamps=[n * SECOND for n in numbers],
            )
        yield log


def load(
    spark: Any, cluster: LocalCluster, schema: str | None = None, **options: str
) -> Any:
    register(spark)
    reader = spark.read.format("braidlog").options(cluster=cluster.seeds, log="orders")
    reader = reader.options(**options)
    return (reader.schema(schema) if schema else reader).load()


def test_a_token_comes_from_the_option_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: what is sent to workers has the token."""
    reading, read = make_token("spark", Role.READ, bytes(32))
    peering, peer = make_token("peer", Role.PEER, b"p" * 32)
    tokens, peer_token = tmp_path / "tokens.toml", tmp_path / "peer.token"
    tokens.write_text(token_entry(read) + token_entry(peer))
    peer_token.write_text(peering)
    security = {"tokens": str(tokens), "peer_token": str(peer_token)}
    with LocalCluster(
        1, directory=tmp_path / "cluster", settings={"security": security}
    ) as cluster:
        with braidlog.connect(cluster.seeds, token=peering) as client:
            client.create_log("orders").append_many([b"a", b"b"])
        options = {"cluster": cluster.seeds, "log": "orders"}
        with pytest.raises(UnauthorizedError):
            BraidlogDataSource(options).schema()
        sources = [BraidlogDataSource({**options, "token": reading})]
        monkeypatch.setenv("BRAIDLOG_TOKEN", reading)
        sources.append(BraidlogDataSource(options))
        for source in sources:
            assert source.schema() == DDL
            schema = StructType([StructField("position", LongType())])
            reader = pickle.loads(pickle.dumps(source.reader(schema)))  # noqa: S301, RUF100
            rows = [b for p in reader.partitions() for b in reader.read(p)]
            assert sum(batch.num_rows for batch in rows) == 2


def test_reads_every_column_of_every_stream(
    spark: Any, cluster: LocalCluster, orders: ClusterLog
) -> None:
    frame = load(spark, cluster, bytesPerPartition="8k")
    assert frame.rdd.getNumPartitions() > STREAMS
    rows = sorted(frame.collect(), key=lambda row: row.position)
    assert [row.position for row in rows] == list(range(1, COUNT + 1))
    assert rows[0].headers == {"a": b"\x00"}
    assert rows[0].key == b"k1"
    assert [row.value for row in rows] == [record.value for record in orders.read()]
    llsns: dict[int, list[int]] = {}
    for row in rows:
        llsns.setdefault(row.stream, []).append(row.llsn)
    assert len(llsns) == STREAMS
    assert all(found == list(range(1, len(found) + 1)) for found in llsns.values())


def test_columns_and_bounds(
    spark: Any, cluster: LocalCluster, orders: ClusterLog
) -> None:
    frame = load(
        spark,
        cluster,
        "stream int, position bigint",
        **{"from": "11", "until": "1970-01-01T00:25:00Z", "to": "2000"},
    )
    rows = frame.collect()
    assert sorted(row.position for row in rows) == list(range(11, 1500))
    frame = load(spark, cluster, "llsn bigint", **{"from": "950", "to": "1150"})
    assert frame.count() == 200
    nothing = load(spark, cluster, "key binary", **{"from": "99999"})
    assert nothing.count() == 0


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_filters(
    spark: Any, cluster: LocalCluster, orders: ClusterLog, pushdown: str
) -> None:
    frame = load(spark, cluster, pushdown=pushdown)
    chosen = frame.where(
        (f.col("position") > 1000)
        & (f.col("timestamp") < f.timestamp_seconds(f.lit(1200)))
        & f.col("position").isin(*range(900, 1300, 3))
    )
    expected = [n for n in range(900, 1200, 3) if n > 1000]
    assert sorted(row.position for row in chosen.collect()) == expected
    plan = chosen._jdf.queryExecution().executedPlan().toString()
    filters = "".join(line for line in plan.splitlines() if "Filter" in line)
    assert ("> 1000" in filters) == (pushdown == "false")


def test_a_global_order_is_the_order_of_the_log(
    spark: Any, cluster: LocalCluster, orders: ClusterLog
) -> None:
    frame = load(spark, cluster, order="global", bytesPerPartition="8k")
    assert frame.rdd.getNumPartitions() > 5
    rows = frame.collect()  # by partition
    assert [row.position for row in rows] == list(range(1, COUNT + 1))
    assert len({row.stream for row in rows}) == STREAMS
    some = {"order": "global", "streams": str(rows[0].stream), "from": "11", "to": "99"}
    found = [row.position for row in load(spark, cluster, **some).collect()]
    chosen = [row.position for row in rows[10:98] if row.stream == rows[0].stream]
    assert found == chosen
    assert sorted(
        row.position
        for row in load(spark, cluster, **(some | {"order": "stream"})).collect()
    ) == sorted(chosen)


def test_a_writer_may_append_meanwhile(
    spark: Any, cluster: LocalCluster, orders: ClusterLog
) -> None:
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            orders.append_many([b"more"] * 50)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        ends = []
        for _ in range(4):
            frame = load(spark, cluster, "position bigint", bytesPerPartition="64k")
            low, high, count, distinct = frame.agg(
                f.min("position"),
                f.max("position"),
                f.count("*"),
                f.countDistinct("position"),
            ).first()
            assert (low, high, high) == (1, count, distinct)
            ends.append(high)
    finally:
        stop.set()
        writer.join()
    assert ends == sorted(set(ends)), "each action sees more than the one before"


def test_a_replica_dies_in_between(
    spark: Any, cluster: LocalCluster, orders: ClusterLog
) -> None:
    """Planned with all nodes, read without one: each task goes to another replica."""
    frame = load(spark, cluster, "position bigint", bytesPerPartition="4k")
    plan = frame.rdd  # Its partitions, and what the tasks ask, are fixed from here on.
    assert plan.getNumPartitions() > 2 * STREAMS
    victim = cluster.nodes[-1]
    cluster.kill(victim)
    try:
        found = sorted(row.position for row in plan.collect())
        assert found == list(range(1, COUNT + 1))
        assert load(spark, cluster, "position bigint").count() == COUNT
    finally:
        cluster.restart(victim)
        cluster.wait_ready(victim)


def test_errors_reach_the_user(
    spark: Any, cluster: LocalCluster, orders: ClusterLog
) -> None:
    with pytest.raises(
        PySparkException, match=r"NotFoundError.*'nothing' does not exist"
    ):
        load(spark, cluster, log="nothing")
    with pytest.raises(PySparkException, match="exclude each other"):
        load(spark, cluster, path="data/")
    reader = spark.read.format("braidlog").options(path="data/", log="orders")
    with pytest.raises(
        PySparkException, match="option 'token' can only be used with 'cluster'"
    ):
        reader.option("token", "secret").load()
    planned = load(spark, cluster, "position bigint").rdd
    assert planned.getNumPartitions() >= STREAMS
    first = orders.trim(501)
    assert load(spark, cluster).count() == COUNT + 1 - first
    with pytest.raises(PySparkException, match=r"begins at position 501.*asks for 1"):
        load(spark, cluster, **{"from": "1"}).count()
    with pytest.raises(Exception, match=r"TrimmedError.*was trimmed to position 501"):
        planned.collect()
