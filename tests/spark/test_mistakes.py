"""Options that do not exist and save modes that are refused, as Spark shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

import braidlog
from braidlog.errors import InvalidArgumentError
from braidlog.spark import log_error, log_errors, register

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

Query = Callable[[Any, dict[str, str], Path], None]


def read(spark: Any, options: dict[str, str], _: Path) -> None:
    spark.read.format("braidlog").options(**options, sinze="1").load().count()


def write(spark: Any, options: dict[str, str], _: Path) -> None:
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value").write
    rows.format("braidlog").mode("append").options(**options, stagin="x").save()


def read_stream(spark: Any, options: dict[str, str], checkpoint: Path) -> None:
    options = options | {"maxRecords": "7"}
    rows = spark.readStream.format("braidlog").options(**options).load()
    finish(rows.writeStream.format("noop"), checkpoint)


def write_stream(spark: Any, options: dict[str, str], checkpoint: Path) -> None:
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    rows = rows.selectExpr("CAST(value AS STRING) AS value")
    finish(
        rows.writeStream.format("braidlog").options(**options, lokWait="1"), checkpoint
    )


def finish(writer: Any, checkpoint: Path) -> None:
    writer = writer.option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.fixture
def options(spark: Any, tmp_path: Path) -> dict[str, str]:
    register(spark)
    with braidlog.open(tmp_path / "data") as node:
        node.create_log("orders").append(b"x")
    return {"path": str(tmp_path / "data"), "log": "orders"}


@pytest.mark.parametrize(
    ("query", "meant"),
    [
        (read, "since"),
        (write, "staging"),
        (read_stream, "maxRecordsPerTrigger"),
        (write_stream, "lockWait"),
    ],
)
def test_an_option_that_does_not_exist_names_the_nearest_in_one_line(
    spark: Any, options: dict[str, str], tmp_path: Path, query: Query, meant: str
) -> None:
    with pytest.raises(PySparkException) as caught:
        query(spark, options, tmp_path / "checkpoint")
    frames = [line for line in str(caught.value).splitlines() if '.py", line' in line]
    assert len(frames) <= 1, "the calls of Braidlog are of no use to the user"
    named = log_error(caught.value)
    assert isinstance(named, InvalidArgumentError)
    assert f"did you mean '{meant}'?" in str(named)
    assert "\n" not in str(named)
    assert len(str(named)) < 100


@pytest.mark.parametrize("mode", [None, "error", "ignore"])
def test_a_save_mode_that_is_refused_names_the_one_that_is_not(
    spark: Any, options: dict[str, str], mode: str | None
) -> None:
    """Spark refuses the others itself, and advises one that the sink refuses."""
    rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value").write
    rows = rows.format("braidlog").options(**options)
    if mode is not None:
        rows = rows.mode(mode)
    with pytest.raises(InvalidArgumentError, match=r'\.mode\("append"\)'), log_errors():
        rows.save()
