"""The sink inside a real Spark, into a data directory."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

import braidlog
from braidlog.spark import register
from braidlog.spark.sink.ledger.ledger import open_ledger

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.timeout(180),
    # Sockets between Spark's processes are closed by the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

_HOLDER = """
import sys
import braidlog
with braidlog.open(sys.argv[1]):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def log(spark: Any, data: Path) -> Path:
    register(spark)
    with braidlog.open(data) as node:
        node.create_log("out")
    return data


@pytest.fixture
def numbers(spark: Any) -> Any:
    """A thousand rows in four partitions, in order within each."""
    rows = spark.range(0, 1000, 1, 4)
    return rows.select(
        f.concat(f.lit("k"), f.col("id") % 7).alias("key"),
        f.col("id").cast("string").cast("binary").alias("value"),
    )


def values(data: Path) -> list[bytes | None]:
    with braidlog.open(data, read_only=True) as node:
        return [record.value for record in node.log("out").read()]


def writer(frame: Any, data: Path, **options: str) -> Any:
    given = {"path": str(data), "log": "out", **options}
    return frame.write.format("braidlog").mode("append").options(**given)


def staged(data: Path) -> list[Path]:
    return [path for path in (data / "staging").rglob("*") if path.is_file()]


def test_a_job_stores_its_rows_in_order(numbers: Any, log: Path) -> None:
    writer(numbers, log).save()
    assert values(log) == [b"%d" % number for number in range(1000)]
    assert staged(log) == []
    with braidlog.open(log, read_only=True) as node:
        record = next(iter(node.log("out").read()))
    assert record.key == b"k0"
    assert record.headers == ()
    assert record.timestamp > 1_600_000_000_000_000


def test_all_columns(spark: Any, log: Path) -> None:
    """From another session, whose wall clocks are five hours behind."""
    spark = spark.newSession()
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    frame = spark.sql(
        "SELECT 'k' AS key, 'v' AS value, map('a', 'b') AS headers, 1 AS stream, "
        "timestamp '1969-12-31 19:00:01' AS timestamp "
        "UNION ALL SELECT NULL, 'w', NULL, NULL, NULL"
    )
    writer(frame.coalesce(1), log).save()
    with braidlog.open(log, read_only=True) as node:
        first, second = node.log("out").read()
    assert (first.key, first.value, first.headers) == (b"k", b"v", (("a", b"b"),))
    assert first.timestamp == 1_000_000
    assert (second.key, second.value, second.headers) == (None, b"w", ())
    assert second.timestamp > 1_600_000_000_000_000


def test_a_named_job_is_stored_once(numbers: Any, log: Path) -> None:
    for _ in range(2):
        writer(numbers, log, job="a/day").save()
    writer(numbers, log, job="another").save()
    writer(numbers.where("false"), log).save()
    assert len(values(log)) == 2000
    assert not any((log / "staging").iterdir())


def test_a_task_that_fails_is_tried_again(
    spark: Any, log: Path, tmp_path: Path
) -> None:
    marker = tmp_path / "failed"

    def fail_once(rows: Iterator[Any]) -> Iterator[Any]:
        yield from rows
        if not marker.exists():
            marker.touch()
            raise RuntimeError("the first try")

    rows = spark.range(0, 100, 1, 1).selectExpr("CAST(id AS STRING) AS value")
    writer(rows.mapInArrow(fail_once, "value string"), log).save()
    assert marker.exists()
    assert values(log) == [b"%d" % number for number in range(100)]
    assert staged(log) == []


def test_a_job_that_fails_leaves_nothing(spark: Any, log: Path) -> None:
    rows = spark.range(0, 100, 1, 2).selectExpr(
        "CAST(IF(id = 99, raise_error('bad row'), id) AS STRING) AS value"
    )
    with pytest.raises(PySparkException, match="bad row"):
        writer(rows, log).save()
    assert values(log) == []
    assert staged(log) == []


def test_null_values_are_written_and_read(spark: Any, numbers: Any, log: Path) -> None:
    nulls = numbers.selectExpr(
        "key",
        "IF(value < '5', NULL, value) AS value",
        "IF(value = '9', map('h', CAST(NULL AS BINARY)), map()) AS headers",
    )
    writer(nulls, log).save()
    kept = {b"%d" % n for n in range(1000) if str(n) >= "5"}
    found = values(log)
    assert {each for each in found if each is not None} == kept
    assert found.count(None) == 1000 - len(kept)
    with braidlog.open(log, read_only=True) as node:
        [named] = [r.headers for r in node.log("out").read() if r.headers]
    assert named == (("h", None),)
    reader = spark.read.format("braidlog").options(path=str(log), log="out")
    frame = reader.load()
    assert frame.where("value is null").count() == found.count(None)
    assert frame.where("headers['h'] is null and size(headers) = 1").count() == 1
    for form, schema in (("utf8", "value string"), ("json", "value struct<a:int>")):
        # Numbers are no objects: they are malformed, and a null value is not.
        typed = reader.options(valueFormat=form, malformed="null").schema(schema)
        read = [row.value for row in typed.load().collect()]
        assert len(read) == 1000
        there = [each for each in read if each is not None]
        assert len(there) == (len(kept) if form == "utf8" else 0)
    strict = spark.read.format("braidlog").options(path=str(log), log="out")
    with pytest.raises(PySparkException, match="is null, but the schema of the read"):
        strict.schema("value binary NOT NULL").load().collect()


def test_what_is_no_record_is_refused(spark: Any, numbers: Any, log: Path) -> None:
    def refused(frame: Any, match: str, **options: str) -> None:
        with pytest.raises(PySparkException, match=match):
            writer(frame, log, **options).save()

    refused(numbers.drop("value"), "no column 'value'")
    refused(numbers.withColumn("position", f.lit(1)), "'position' is assigned by")
    refused(numbers.withColumn("headers", f.lit(1)), "must be map<string,binary>")
    refused(numbers.withColumn("stream", f.lit(9)), "has the value 9, but the streams")
    refused(numbers.selectExpr("key", "NULL AS value"), "must be binary or string")
    refused(numbers, "'stagin' does not exist; did you mean 'staging'", stagin="x")
    refused(numbers, "log 'nothing' does not exist", log="nothing")
    with pytest.raises(PySparkException, match="only be appended to"):
        writer(numbers, log).mode("overwrite").save()
    large = spark.range(1).selectExpr("repeat('x', 17000000) AS value")
    refused(large, "TooLargeError.*the log accepts at most 1677")
    # Also where another task still wrote when its job was aborted.
    assert values(log) == []
    assert staged(log) == []


def test_another_writer_is_named(numbers: Any, log: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(log)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        with pytest.raises(PySparkException, match=r"LockedError.*close the directory"):
            writer(numbers, log, lockWait="0.2").save()
        holder.kill()
    assert values(log) == []
    writer(numbers, log).save()
    assert len(values(log)) == 1000


def test_a_streaming_query(spark: Any, numbers: Any, log: Path, tmp_path: Path) -> None:
    """Stopped, started again, and with the commit of its last batch forgotten."""
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"

    def feed(times: int) -> None:
        for _ in range(times):
            numbers.coalesce(1).write.mode("append").parquet(str(source))

    def run() -> None:
        reader = spark.readStream.schema(numbers.schema)
        frame = reader.option("maxFilesPerTrigger", 1).parquet(str(source))
        query = (
            frame.writeStream.format("braidlog")
            .options(path=str(log), log="out", checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    once = [b"%d" % number for number in range(1000)]
    feed(2)
    run()
    assert values(log) == once * 2
    # Killed after the batch was stored and before Spark had written that down.
    for path in (checkpoint / "commits").glob("*1*"):
        path.unlink()
    feed(1)
    run()
    assert values(log) == once * 3
    assert staged(log) == []
    with braidlog.open(log) as node:
        (query,) = open_ledger(node, "out").read().queries.values()
    assert (query.batch, query.done) == (2, True)
