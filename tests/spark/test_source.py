"""The data source inside a real Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

import braidlog
from braidlog.errors import NotFoundError, TrimmedError
from braidlog.spark import log_errors, register
from braidlog.spark.source.payloads import MalformedPayloadError

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

_WRITER = """
import sys
import time
import braidlog
with braidlog.open(sys.argv[1]) as node:
    log = node.log("orders")
    print("ready", flush=True)
    while True:
        log.append_many([b"more"] * 50)
        time.sleep(0.01)
"""


@pytest.fixture
def orders(data: Path) -> Path:
    """A record a second, in batches, some without key, the first with headers."""
    with braidlog.open(data) as node:
        log = node.create_log("orders")
        log.append(b"value 1", key=b"k1", timestamp=SECOND, headers=[("a", b"\x00")])
        for begin in range(2, COUNT + 1, 100):
            numbers = range(begin, min(begin + 100, COUNT + 1))
            log.append_many(
                [b"value %d" % n for n in numbers],
                keys=[b"k%d" % (n % 7) if n % 10 else None for n in numbers],
                timestamps=[n * SECOND for n in numbers],
            )
    return data


def load(spark: Any, data: Path, schema: str | None = None, **options: str) -> Any:
    register(spark)
    reader = spark.read.format("braidlog").options(path=str(data), log="orders")
    reader = reader.options(**options)
    return (reader.schema(schema) if schema else reader).load()


@contextmanager
def setting(spark: Any, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


def test_reads_every_column(spark: Any, orders: Path) -> None:
    frame = load(spark, orders, bytesPerPartition="16k")
    assert frame.rdd.getNumPartitions() > 2
    rows = sorted(frame.collect())
    assert len(rows) == COUNT
    assert rows[0].asDict() == {
        "stream": 1,
        "llsn": 1,
        "position": 1,
        "timestamp": rows[0].timestamp,
        "key": b"k1",
        "value": b"value 1",
        "headers": {"a": b"\x00"},
    }
    assert rows[9].key is None
    assert rows[9].headers == {}
    totals = frame.agg(
        f.sum("position"), f.max("llsn"), f.countDistinct("value"), f.max("timestamp")
    ).first()
    assert totals[:3] == (COUNT * (COUNT + 1) // 2, COUNT, COUNT)
    last = frame.where("timestamp = timestamp_seconds(3000)").collect()
    assert [row.position for row in last] == [COUNT]


def test_is_found_without_registration(spark: Any, orders: Path) -> None:
    fresh = spark.newSession()
    frame = fresh.read.format("braidlog").options(path=str(orders), log="orders")
    assert frame.load().count() == COUNT
    fresh.sql(
        "CREATE TEMPORARY VIEW orders USING braidlog "
        f"OPTIONS (path '{orders}', log 'orders')"
    )
    assert fresh.sql("SELECT max(position) FROM orders").first()[0] == COUNT
    with pytest.raises(PySparkException, match="use CREATE TEMPORARY VIEW"):
        fresh.sql(f"CREATE TABLE t USING braidlog OPTIONS (path '{orders}', log 'o')")


def test_schema_is_the_projection(spark: Any, orders: Path) -> None:
    frame = load(spark, orders, "key binary, position bigint")
    assert frame.columns == ["key", "position"]
    assert frame.where("position <= 2").orderBy("position").collect() == [
        (b"k1", 1),
        (b"k2", 2),
    ]
    with pytest.raises(PySparkException, match="no column `colour string`"):
        load(spark, orders, "colour string").collect()


def test_options_bound_what_is_read(spark: Any, orders: Path) -> None:
    frame = load(
        spark,
        orders,
        "position bigint",
        **{"from": "11", "until": "1970-01-01T00:01:00Z"},
    )
    assert sorted(row.position for row in frame.collect()) == list(range(11, 60))
    with pytest.raises(PySparkException, match="did you mean 'until'"):
        load(spark, orders, untl="5")


@pytest.mark.parametrize(
    ("pushdown", "zone"),
    [("true", "UTC"), ("true", "America/New_York"), ("false", "UTC")],
)
def test_filters_give_the_same_with_and_without_pushdown(
    spark: Any, orders: Path, pushdown: str, zone: str
) -> None:
    spark = spark.newSession()
    spark.conf.set("spark.sql.session.timeZone", zone)
    frame = load(spark, orders, pushdown=pushdown)
    moment = datetime(1970, 1, 1, 0, 20, tzinfo=UTC)
    chosen = frame.where(
        (f.col("position") > 1000)
        & (f.col("timestamp") <= f.lit(moment))
        & f.col("key").isNotNull()
        & f.col("position").isin(*range(900, 1300, 3))
        & (f.col("key") >= b"k3")
        & (f.col("stream") == 1)
    )
    expected = [n for n in range(900, 1201, 3) if n > 1000 and n % 10 and n % 7 >= 3]
    assert sorted(row.position for row in chosen.collect()) == expected
    assert frame.where("stream <= 2147483647 AND position < 9").count() == 8


def test_pushed_filters_leave_the_plan(spark: Any, orders: Path) -> None:
    def filters(**options: str) -> str:
        frame = load(spark, orders, **options).where("position >= 2990")
        frame = frame.where("key is null or length(key) > 0").where("stream = 1")
        assert frame.count() == 11
        plan = frame._jdf.queryExecution().executedPlan().toString()
        return "".join(line for line in plan.splitlines() if "Filter" in line)

    assert "2990" in filters()
    left = filters(pushdown="true")
    assert ">= 2990" not in left
    assert "= 1)" not in left
    assert "length" in left


def test_pushdown_wants_the_setting(spark: Any, orders: Path) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    with setting(spark, name, "false"):
        assert load(spark, orders).where("position > 10").count() == COUNT - 10
        with pytest.raises(PySparkException, match=name):
            load(spark, orders, pushdown="true").count()


def test_a_writer_may_append_meanwhile(spark: Any, orders: Path) -> None:
    command = [sys.executable, "-c", _WRITER, str(orders)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        try:
            assert writer.stdout is not None
            writer.stdout.readline()
            ends = []
            for _ in range(4):
                frame = load(spark, orders, "position bigint", bytesPerPartition="64k")
                low, high, count, distinct = frame.agg(
                    f.min("position"),
                    f.max("position"),
                    f.count("*"),
                    f.countDistinct("position"),
                ).first()
                assert (low, high, high) == (1, count, distinct)
                ends.append(high)
        finally:
            writer.kill()
    assert ends == sorted(set(ends)), "each action sees more than the one before"
    assert ends[0] > COUNT - 1


def test_a_trimmed_start_is_an_error(spark: Any, orders: Path) -> None:
    with braidlog.open(orders) as node:
        first = node.log("orders").trim(before=501)
    assert load(spark, orders).count() == COUNT + 1 - first
    with pytest.raises(PySparkException, match=r"begins at position \d+.*asks for 1"):
        load(spark, orders, **{"from": "1"}).count()


def test_errors_are_raised_as_those_of_the_log(spark: Any, orders: Path) -> None:
    """On the driver, in a worker, and not where they are none."""
    with pytest.raises(NotFoundError) as caught, log_errors():
        load(spark, orders, log="other")
    assert caught.value.message.endswith(
        "log 'other' does not exist (there are: 'orders')"
    )
    planned = load(spark, orders, "position bigint").rdd
    assert planned.getNumPartitions() == 1
    with braidlog.open(orders) as node:
        node.log("orders").trim(before=501)
    with pytest.raises(TrimmedError, match="501") as caught_too, log_errors():
        planned.collect()
    assert str(caught_too.value).count(TrimmedError.hint) == 1
    with pytest.raises(MalformedPayloadError, match="at position 501"), log_errors():
        load(spark, orders, "value struct<a: int>", valueFormat="json").collect()
    with pytest.raises(PySparkException, match="no_such_column"), log_errors():
        load(spark, orders).select("no_such_column")


@pytest.mark.parametrize("make", [False, True], ids=["no directory", "an empty one"])
def test_a_relative_path_is_shown_as_it_was_looked_up(
    spark: Any, tmp_path: Path, *, make: bool
) -> None:
    # From wherever the JVM was started to this test's folder.
    started = Path(spark._jvm.System.getProperty("user.dir"))
    missing = tmp_path / "missing"
    if make:
        missing.mkdir()
    relative = os.path.relpath(missing, started)
    with pytest.raises(PySparkException) as caught:
        load(spark, Path(relative))
    text = str(caught.value)
    assert str(started / relative) in text
    assert f"'{relative}'" in text
    assert "where its JVM was started" in text


def test_a_missing_absolute_path_is_shown(spark: Any, tmp_path: Path) -> None:
    with pytest.raises(PySparkException) as caught:
        load(spark, tmp_path / "missing")
    assert f"the directory {tmp_path / 'missing'} does not exist" in str(caught.value)
    assert "JVM" not in str(caught.value)


def test_a_missing_log_names_those_that_are_there(spark: Any, orders: Path) -> None:
    register(spark)

    def reader() -> Any:
        return spark.read.format("braidlog").option("path", str(orders))

    with pytest.raises(
        PySparkException, match=r"'order' does not.*did you mean 'orders'"
    ):
        reader().option("log", "order").load()
    with pytest.raises(PySparkException, match=r'needs \.option\("log"'):
        reader().load()
