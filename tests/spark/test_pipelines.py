"""Pipelines inside a real Spark: the same tasks, the same results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.app.log.source import LOG_NAME
from braidlog.app.replay.inputs import commands_of
from braidlog.app.replay.run import replay as embedded
from braidlog.errors import TrimmedError
from braidlog.pipelines import run
from braidlog.pipelines.compact_job import compact
from braidlog.pipelines.replay_job import replay
from braidlog.sources.origin import Origin
from process.replayed import fill, near
from unit.pipelines.works import Square, squares

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(180),
    # Sockets between Spark's processes are closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_the_frame_in_spark(spark: Any, tmp_path: Path) -> None:
    """More tasks than a wave has; one fails at first, in a way that may pass."""
    tasks = [Square(n, str(tmp_path / "flag") if n == 3 else "") for n in range(10)]
    report = run(squares(tmp_path / "home", tasks), spark=spark)
    assert report.figures["total"] == sum(n**2 for n in range(10))
    assert (report.tasks, report.where) == (11, f"Spark {spark.version} at local[2,2]")


def test_an_error_of_a_worker_is_the_error(spark: Any, tmp_path: Path) -> None:
    job = squares(tmp_path, [Square(1), Square(2, "trimmed")])
    with pytest.raises(TrimmedError, match="it is gone") as caught:
        run(job, spark=spark)
    assert caught.value.first == 7


def rows(output: Path) -> list[tuple[Any, ...]]:
    import pyarrow.parquet as pq

    found: list[dict[str, Any]] = pq.read_table(output / "data").to_pylist()
    return sorted(tuple(row.values())[:4] for row in found)


def test_compact_in_spark_gives_what_it_gives_here(spark: Any, tmp_path: Path) -> None:
    with braidlog.open(tmp_path / "data", segment_bytes=64 << 10) as node:
        log = node.create_log("orders")
        for n in range(2000):
            log.submit(None if n % 9 == 0 else b"v%d" % n * 9, key=b"k%d" % (n % 301))
    origin = Origin("orders", path=str(tmp_path / "data"))
    there = compact(origin, tmp_path / "there", spark=spark, bytes_per_task=20_000)
    here = compact(origin, tmp_path / "here", workers=1, bytes_per_task=1 << 20)
    assert there.tasks > here.tasks
    assert rows(tmp_path / "there") == rows(tmp_path / "here")


def test_replay_in_spark_gives_the_hashes_of_the_embedded_one(
    spark: Any, tmp_path: Path
) -> None:
    with near.open(tmp_path / "bank") as host:
        fill(host, 300)
    source = commands_of(tmp_path / "bank")
    expected = embedded(near, source, tmp_path / "expected")
    source.close()
    origin = Origin(LOG_NAME, path=str(tmp_path / "bank" / "log"))
    name = "process.replayed:near"
    for tasks in (1, 2, 7):
        output = tmp_path / str(tasks)
        report = replay(name, origin, output, tasks=tasks, spark=spark)
        hashes = report.published["hashes"]
        assert {int(n): bytes.fromhex(h) for n, h in hashes.items()} == expected.hashes
