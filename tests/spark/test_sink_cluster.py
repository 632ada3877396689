"""The sink into a cluster of real processes, inside a real Spark."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import functions as f

import braidlog
from braidlog import Producer
from braidlog.client import ClusterLog
from braidlog.sources.origin import Origin
from braidlog.spark import register
from braidlog.spark.sink import run
from braidlog.spark.sink.options import SinkOptions
from braidlog.spark.sink.staging import Staging
from braidlog.spark.sink.targets import opened
from braidlog.testing.cluster import LocalCluster
from unit.spark.test_sink import Attempts, Stop, expected

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.timeout(180),
    # Sockets between Spark's processes are closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

COUNT = 3000
KEYS = 10


@pytest.fixture
def log(cluster: LocalCluster) -> Iterator[ClusterLog]:
    with braidlog.connect(cluster.seeds) as client:
        for name in {"out", "out.ledger"}.intersection(client.logs()):
            client.delete_log(name)
        yield client.create_log("out", streams=3)


def test_each_record_once_and_in_the_order_of_its_key(
    spark: Any, cluster: LocalCluster, log: ClusterLog, tmp_path: Path
) -> None:
    """Twice under one name, while a node dies and comes back."""
    register(spark)
    rows = spark.range(0, COUNT, 1, 2).select(
        f.concat(f.lit("k"), f.col("id") % KEYS).alias("key"),
        f.col("id").cast("string").alias("value"),
    )
    # A key is in one partition, so that its records have an order.
    rows = rows.repartition(3, "key").sortWithinPartitions(f.col("value").cast("int"))
    writer = rows.write.format("braidlog").mode("append")
    writer = writer.options(cluster=cluster.seeds, log="out", job="numbers")
    victim = cluster.nodes[-1]
    killing = threading.Timer(0.5, cluster.kill, [victim])
    killing.start()
    try:
        for _ in range(2):
            writer.option("staging", str(tmp_path / "staging")).save()
    finally:
        killing.join()
        cluster.restart(victim)
        cluster.wait_ready(victim)
    found: dict[bytes | None, list[int]] = {}
    for record in log.read():
        found.setdefault(record.key, []).append(int(record.value))
    assert found == {b"k%d" % key: list(range(key, COUNT, KEYS)) for key in range(KEYS)}
    assert len({stream.stream for stream in log.describe().streams}) == 3
    assert not any((tmp_path / "staging").iterdir())


class Forgetting(Attempts):
    """Others go to the very stream, where the sink's producer is then forgotten."""

    def forget(self, log: Any) -> None:
        batch = [{"value": [b"other"]}]
        with braidlog.connect(self.seeds) as client:
            ingest = client.ingest("out")
            for other in range(1, 257):
                data = [_arrow(each) for each in batch]
                append = {self.stream: (data, Producer(other), 1)}
                assert ingest.append_all(append) == {self.stream: None}

    seeds = ""


def _arrow(columns: Any) -> Any:
    import pyarrow as pa

    return pa.record_batch(columns)


def test_a_stream_that_has_forgotten_the_sink(
    cluster: LocalCluster, log: ClusterLog, tmp_path: Path
) -> None:
    """Killed after half of the first batch; forgotten there, and between batches."""
    options = SinkOptions(Origin("out", cluster=cluster.seeds), str(tmp_path))
    stream = log.describe().streams[1].stream
    with opened(options) as target:
        attempts = Forgetting(target, tmp_path, stream)
        attempts.seeds = cluster.seeds
        work, parts = attempts.stage(0, 10)
        append_all = target.ingest.append_all

        def half(appends: Any) -> Any:
            for at, (batches, producer, sequence) in appends.items():
                append_all(
                    {at: ([next(iter(batches)).slice(0, 3)], producer, sequence)}
                )
            raise Stop

        target.ingest.append_all = half  # type: ignore[method-assign]
        with pytest.raises(Stop):
            run.store(target, Staging(tmp_path), work, parts, once=False)
        target.ingest.append_all = append_all  # type: ignore[method-assign]
        for batch in (0, 1):
            attempts.forget(log)
            attempts.store(batch, 10)
    found = [value for value in attempts.values(log) if value != b"other"]
    assert found == expected({0: 10, 1: 10})
