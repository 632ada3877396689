"""What a session of Spark Connect can do, and what it is told that it cannot."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import braidlog

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.timeout(180),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# In a process of its own: one that has a classic session cannot have this one.
_CLIENT = """
import json, sys
from pyspark.sql import SparkSession
from braidlog.errors import LogError
from braidlog.pipelines import Origin, compact
from braidlog.spark import log_errors, register

remote, data, home = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
register(spark)

def count(log):
    options = {"path": data, "log": log}
    return spark.read.format("braidlog").options(**options).load().count()

def said(call, *arguments, **keywords):
    try:
        with log_errors():
            call(*arguments, **keywords)
    except LogError as error:
        return [type(error).__name__, str(error)]

rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value").write
rows.format("braidlog").mode("append").options(path=data, log="orders").save()
print(json.dumps({
    "count": count("orders"),
    "nothing": said(count, "order"),
    "pipeline": said(compact, Origin("orders", path=data), home, spark=spark),
}))
"""


def test_logs_are_read_and_written_and_pipelines_refused(
    spark: Any, remote: str, tmp_path: Path
) -> None:
    with braidlog.open(tmp_path / "data") as node:
        node.create_log("orders").append_many([b"x"] * 10)
    ours = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET")
    ran = subprocess.run(
        [sys.executable, "-c", _CLIENT, remote, tmp_path / "data", tmp_path / "home"],
        env={
            **{name: value for name, value in os.environ.items() if name not in ours},
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout.splitlines()[-1])
    assert said["count"] == 13
    name, text = said["nothing"]
    assert name == "NotFoundError"
    assert "did you mean 'orders'?" in text
    assert text.count("Check the name or path") == 1
    name, text = said["pipeline"]
    assert name == "InvalidArgumentError"
    assert "pipelines cannot run over Spark Connect" in text
    assert "SparkSession.builder.master" in text
    # Refused before anything was begun.
    assert not (tmp_path / "home").exists()
