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
from rich.console import Console

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


def test_changes_come_out_as_the_files_that_git_has(spark: Any, tmp_path: Path) -> None:
    """Run twice: the second time there are more changes, and nothing comes twice."""
    example, out = load(EXAMPLES / "change_events.py"), tmp_path / "out"
    out.mkdir()
    for turn in range(2):
        commit_changes(tmp_path / "repo", turn)
        given = example.history(tmp_path / "repo", out)
        report = example.run(spark, given, out, Console(quiet=True))
        assert [each for each in report.checks if not each.passed] == []
        assert (report.passed, report.events) == (True, (27, 33)[turn])
    assert (report.lost, report.doubled) == (0, 0)
    assert report.months == {("repo", "2020-09"): 27, ("repo", "2023-11"): 6}
    assert report.top[0] == (b"repo/0", 3)
    assert all(path.stat().st_size > 1000 for path in report.files)
    assert len(given.trees["repo"]) == 15


def commit_changes(repo: Path, turn: int) -> None:
    """Put files, also one whose name is no text, change some and remove others."""
    repo.mkdir(exist_ok=True)
    git = ["git", "-C", str(repo), "-c", "user.name=A", "-c", "user.email=a@b.example"]
    when = f"{(1_600_000_000, 1_700_000_000)[turn]} +0000"
    environ = {
        **{k: v for k, v in os.environ.items() if not k.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_AUTHOR_DATE": when,
        "GIT_COMMITTER_DATE": when,
    }

    def run(*words: str) -> None:
        subprocess.run([*git, *words], check=True, env=environ, capture_output=True)

    if turn == 0:
        run("init", "-q")
        for number in range(20):
            (repo / f"{number}").write_text(f"{number}")
        (repo / os.fsdecode(b"\xff")).write_text("no text")
        run("add", "-A")
        run("commit", "-q", "-m", "put")
    for number in range(3):
        (repo / f"{number}").write_text(f"{number} in turn {turn}")
    for number in range(3):
        (repo / f"{19 - 3 * turn - number}").unlink()
    run("add", "-A")
    run("commit", "-q", "-m", "change and delete")


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
