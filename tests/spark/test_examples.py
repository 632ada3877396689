"""The examples with Spark run, and find or hold what they say."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pyspark
import pytest

import braidlog
from braidlog.spark import ensure_java
from braidlog.spark.home import ensure_home

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


@pytest.mark.soak
def test_a_declarative_pipeline_reads_each_record_once(
    tmp_path: Path,
) -> None:
    pytest.importorskip("grpc", reason="needs the extra 'declarative'")
    pytest.importorskip("yaml", reason="needs the extra 'declarative'")
    folder = tmp_path / "pipeline"
    shutil.copytree(EXAMPLES / "pipeline", folder)
    spec = folder / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/var/lib/orders", str(tmp_path)))
    with braidlog.open(tmp_path / "data") as node:
        append(node.create_log("orders"), 1, 101)
    run_pipeline(folder, tmp_path)
    assert stock(folder) == {"even": 2550, "odd": 2500}


def append(log: Any, begin: int, end: int) -> None:
    numbers = range(begin, end)
    log.append_many(
        [json.dumps({"pieces": n}).encode() for n in numbers],
        keys=[b"odd" if n % 2 else b"even" for n in numbers],
    )


def run_pipeline(folder: Path, place: Path) -> None:
    command = [
        str(Path(sys.executable).with_name("spark-pipelines")),
        "run",
        "--spec",
        str(folder / "spark-pipeline.yml"),
    ]
    environ = {
        **os.environ,
        "BRAIDLOG_DATA": str(place / "data"),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    ensure_java(environ)
    ensure_home(Path(pyspark.__file__).parent, environ)
    ran = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def stock(folder: Path) -> dict[str, int]:
    """Read the files of the view, which are Parquet."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(folder / "spark-warehouse" / "stock")
    return dict(zip(table["key"].to_pylist(), table["pieces"].to_pylist(), strict=True))
