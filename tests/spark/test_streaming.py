"""Streaming queries over a directory and over a cluster, inside a real Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import braidlog
from braidlog.spark import lag, register
from braidlog.testing.cluster import LocalCluster

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.timeout(180),
    # Sockets between Spark's processes are closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

STREAMS = 3


@pytest.fixture
def orders(data: Path) -> Path:
    with braidlog.open(data) as node:
        append(node.create_log("orders"), 1, 1001)
    return data


def append(log: Any, begin: int, end: int) -> None:
    for first in range(begin, end, 50):
        log.append_many([b"value %d" % n for n in range(first, min(first + 50, end))])


Batches = dict[int, list[int]]


def run(
    spark: Any,
    checkpoint: Path,
    options: dict[str, str],
    each: Callable[[int, list[int]], None] | None = None,
) -> tuple[Batches, Any]:
    """Read what is there now; return the positions of each batch, and the query."""
    register(spark)
    seen: Batches = {}

    def take(frame: Any, batch: int) -> None:
        seen[batch] = [row.position for row in frame.collect()]
        if each is not None:
            each(batch, seen[batch])

    frame = spark.readStream.format("braidlog").schema("position bigint, value binary")
    query = (
        frame.options(**({"log": "orders"} | options))
        .load()
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return seen, query


def test_a_query_goes_on_where_it_stopped(
    spark: Any, orders: Path, tmp_path: Path
) -> None:
    checkpoint, options = tmp_path / "checkpoint", {"path": str(orders)}
    limits = {"maxRecordsPerTrigger": "400", "bytesPerPartition": "4k"}
    seen, query = run(spark, checkpoint, options | limits)
    assert [len(positions) for positions in seen.values()] == [400, 400, 200]
    assert sorted(sum(seen.values(), [])) == list(range(1, 1001))  # noqa: RUF017
    progress = query.lastProgress["sources"][0]
    assert lag(progress) == {1: 0}
    assert lag(query.recentProgress[0]["sources"][0]) == {1: 600}
    again, _ = run(spark, checkpoint, options)
    assert again == {}
    with braidlog.open(orders) as node:
        append(node.log("orders"), 1001, 1051)
    more, _ = run(spark, checkpoint, options)
    assert more == {3: list(range(1001, 1051))}


def test_a_failed_batch_is_read_again_as_it_was(
    spark: Any, orders: Path, tmp_path: Path
) -> None:
    checkpoint, options = tmp_path / "checkpoint", {"path": str(orders)}
    first: Batches = {}

    def fail(batch: int, positions: list[int]) -> None:
        first[batch] = positions
        if batch == 1:
            raise RuntimeError("the sink is gone")

    with pytest.raises(PySparkException, match="the sink is gone"):
        run(spark, checkpoint, options | {"maxRecordsPerTrigger": "300"}, fail)
    with braidlog.open(orders) as node:
        append(node.log("orders"), 1001, 1051)
        node.log("orders").trim(before=301)
    # Other limits are for the batches behind it.
    seen, _ = run(spark, checkpoint, options | {"maxRecordsPerTrigger": "9999"})
    assert seen == {1: first[1], 2: list(range(601, 1051))}


def test_a_query_that_was_overtaken_by_trimming(
    spark: Any, orders: Path, tmp_path: Path
) -> None:
    checkpoint, options = tmp_path / "checkpoint", {"path": str(orders)}
    run(spark, checkpoint, options | {"to": "101"})
    with braidlog.open(orders) as node:
        node.log("orders").trim(before=201)
    with pytest.raises(PySparkException, match=r"TrimmedError.*read only up to 101"):
        run(spark, checkpoint, options)
    seen, query = run(spark, checkpoint, options | {"failOnTrimmed": "false"})
    assert seen == {1: list(range(201, 1001))}
    assert '"lost": 100' in query.lastProgress["sources"][0]["endOffset"]


def test_a_cluster_while_replicas_fail(
    spark: Any, cluster: LocalCluster, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    options = {"cluster": cluster.seeds, "log": "moves"}
    victim = cluster.nodes[-1]
    with braidlog.connect(cluster.seeds) as client:
        log = client.create_log("moves", streams=STREAMS, min_replicas=2)
        append(log, 1, 1001)

        def kill(batch: int, positions: list[int]) -> None:
            if batch == 1:
                cluster.kill(victim)
                append(log, 1001, 1101)

        limits = {"maxRecordsPerTrigger": "300", "bytesPerPartition": "4k"}
        seen, _ = run(spark, checkpoint, options | limits, kill)
        try:
            assert [len(each) for each in seen.values()] == [300, 300, 300, 100]
            assert sorted(sum(seen.values(), [])) == list(range(1, 1001))  # noqa: RUF017
            more, query = run(spark, checkpoint, options | {"order": "global"})
        finally:
            cluster.restart(victim)
            cluster.wait_ready(victim)
        assert more == {4: list(range(1001, 1101))}
        found = lag(query.lastProgress["sources"][0])
        assert len(found) == STREAMS
        assert set(found.values()) == {0}
