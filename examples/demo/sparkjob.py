"""The Spark job over the log: changes per source and month, and the busiest paths.

Only timestamps and keys are asked for, so no value ever leaves the log: the key says
source and path, the timestamp the month.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples.demo.options import LOG, DemoError
from examples.demo.replay import Counts

__all__ = ["SparkResult", "count_with_spark", "differences"]

_COLUMNS: Final = "timestamp timestamp, key binary"
_BYTES_PER_PARTITION: Final = "16m"
"""Small, so that a log of the demo's size still is several tasks."""


_JVM: Final = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
}
"""For a job of seconds: start sooner, optimise less."""


@dataclass(frozen=True, slots=True)
class SparkResult:
    """What Spark counted, and how long starting and counting took."""

    months: Counter[tuple[str, str]]
    top: list[tuple[bytes, int]]
    partitions: int
    start_seconds: float
    job_seconds: float


def count_with_spark(
    place: Mapping[str, str], top: int, scratch: Path, diagnostics: Path
) -> SparkResult:
    """Start Spark, count over the log, stop Spark if it was not running before.

    ``place`` is the option of the source that says where the log is. What Spark prints
    goes to ``diagnostics``, which is removed if all went well.

    Raises:
        DemoError: A Spark job failed; the message says where to look.
        UnavailableError: There is no Java; the message says how to get one.
    """
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from braidlog.spark import local_session

    running = SparkSession.getActiveSession() is not None
    began = time.perf_counter()
    spark = local_session(
        "braidlog demo", settings=_JVM, scratch=scratch, diagnostics=diagnostics
    )
    started = time.perf_counter()
    try:
        months, top_paths, partitions = _count(spark, place, top)
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise DemoError(
            f"the Spark job failed (see {diagnostics}): {reason}"
        ) from error
    finally:
        seconds = time.perf_counter() - started
        if not running:
            spark.stop()
    diagnostics.unlink(missing_ok=True)
    return SparkResult(months, top_paths, partitions, started - began, seconds)


def differences(result: SparkResult, counts: Counts) -> list[str]:
    """Return where Spark's counts are not the replay's."""
    found = [
        f"{source} {month}: Spark {result.months[source, month]}, replay {count}"
        for (source, month), count in sorted((result.months | counts.months).items())
        if result.months[source, month] != counts.months[source, month]
    ]
    if result.top != counts.top(len(result.top)):
        found.append("the busiest paths differ")
    return found


def _count(
    spark: Any, place: Mapping[str, str], top: int
) -> tuple[Counter[tuple[str, str]], list[tuple[bytes, int]], int]:
    from braidlog.spark import register

    register(spark)
    changes = _read(spark, place)
    months, partitions = _months(changes)
    return months, _top(changes, top), partitions


def _read(spark: Any, place: Mapping[str, str]) -> Any:
    return (
        spark.read.format("braidlog")
        .schema(_COLUMNS)
        .options(**place)
        .option("log", LOG)
        .option("bytesPerPartition", _BYTES_PER_PARTITION)
        .load()
    )


def _months(changes: Any) -> tuple[Counter[tuple[str, str]], int]:
    """Count by month; tell also how many partitions had rows."""
    from pyspark.sql import functions as f

    source = f.substring_index(f.col("key").cast("string"), "/", 1)
    month = f.date_format("timestamp", "yyyy-MM")
    grouped = changes.select(
        source.alias("source"),
        month.alias("month"),
        f.spark_partition_id().alias("partition"),
    ).groupBy("source", "month", "partition")
    months: Counter[tuple[str, str]] = Counter()
    partitions = set()
    for row in grouped.count().collect():
        months[row["source"], row["month"]] += row["count"]
        partitions.add(row["partition"])
    return months, len(partitions)


def _top(changes: Any, top: int) -> list[tuple[bytes, int]]:
    from pyspark.sql import functions as f

    busiest = changes.groupBy("key").count().orderBy(f.desc("count"), "key").limit(top)
    return [(bytes(row["key"]), row["count"]) for row in busiest.collect()]
