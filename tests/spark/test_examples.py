"""The examples with Spark run, and find or hold what they say."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import braidlog

EXAMPLES = Path(__file__).parents[2] / "examples" / "spark"

pytestmark = [
    pytest.mark.spark,
    pytest.mark.process,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def load(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gaps_and_duplicates_are_found(
    spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("google.protobuf", reason="needs the extra 'declarative'")
    from pyspark import cloudpickle

    example = load(EXAMPLES / "audit_streams.py")
    sys.modules["audit_streams"] = example
    # Workers cannot import it: it is no package.
    cloudpickle.register_pickle_by_value(example)
    try:
        example.main(str(tmp_path), spark)
    finally:
        cloudpickle.unregister_pickle_by_value(example)
        del sys.modules["audit_streams"]
    assert capsys.readouterr().out.splitlines() == [
        "stream 1: gap at 500 to 509",
        "stream 1: duplicate at 700 to 700",
    ]


@pytest.fixture
def tables(spark: Any) -> Iterator[None]:
    """Drop what the pipeline made."""
    yield
    for table in ("orders", "stock"):
        spark.sql(f"DROP TABLE IF EXISTS {table}")


@pytest.mark.usefixtures("tables")
def test_a_declarative_pipeline_reads_each_record_once(
    spark: Any, remote: str, tmp_path: Path
) -> None:
    """Run twice: the second run has records to read that came behind the first."""
    pytest.importorskip("yaml", reason="needs the extra 'declarative'")
    folder = tmp_path / "pipeline"
    shutil.copytree(EXAMPLES / "pipeline", folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/var/lib/orders", str(tmp_path)))
    with braidlog.open(tmp_path / "data") as node:
        append(node.create_log("orders"), 1, 101)
    run_pipeline(folder, tmp_path, remote)
    assert stock(spark) == {"even": 2550, "odd": 2500}
    with braidlog.open(tmp_path / "data") as node:
        append(node.log("orders"), 101, 103)
    run_pipeline(folder, tmp_path, remote)
    assert stock(spark) == {"even": 2550 + 102, "odd": 2500 + 101}


def append(log: Any, begin: int, end: int) -> None:
    numbers = range(begin, end)
    log.append_many(
        [json.dumps({"pieces": n}).encode() for n in numbers],
        keys=[b"odd" if n % 2 else b"even" for n in numbers],
    )


def run_pipeline(folder: Path, place: Path, remote: str) -> None:
    """Do what `spark-pipelines run` does when it has a server."""
    spec = folder / "spark-pipeline.yml"
    ran = subprocess.run(
        [sys.executable, "-m", "pyspark.pipelines.cli", "run", "--spec", spec],
        cwd=folder,
        env={
            **os.environ,
            "BRAIDLOG_DATA": str(place / "data"),
            "SPARK_REMOTE": remote,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def stock(spark: Any) -> dict[str, int]:
    spark.catalog.refreshTable("stock")  # Its files have changed behind its back.
    return {row.key: row.pieces for row in spark.table("stock").collect()}
