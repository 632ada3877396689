"""The program of the tutorial: on a git history, and on recorded changes.

`tests/docs/test_tutorial.py` shows that the tutorial has its code from there.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from examples.demo.events import Tree, decode
from examples.demo.files import read_lines
from examples.demo.options import DemoError
from rich.console import Console

from demo.test_real_data import recorded

PROGRAM = Path(__file__).parents[2] / "examples" / "spark" / "change_events.py"
SLICE = 3_000

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(400),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def program() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spark_change_events", PROGRAM)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_changes_come_out_as_the_files_that_git_has(
    spark: Any, program: ModuleType, tmp_path: Path
) -> None:
    """Run twice: the second time there are more changes, and nothing comes twice."""
    out, quiet = tmp_path / "out", Console(quiet=True)
    out.mkdir()
    for turn in range(2):
        commit_changes(tmp_path / "repo", turn)
        given = program.history(tmp_path / "repo", out)
        report = program.run(spark, given, out, quiet)
        assert [each for each in report.checks if not each.passed] == []
        assert (report.passed, report.events) == (True, (27, 33)[turn])
    assert (report.lost, report.doubled) == (0, 0)
    assert report.months == {("repo", "2020-09"): 27, ("repo", "2023-11"): 6}
    assert report.top[0] == (b"repo/0", 3)
    assert [path.name for path in report.files] == [
        "growth.png",
        "changes.png",
        "changes.html",
    ]
    assert all(path.stat().st_size > 1000 for path in report.files)
    assert len(given.trees["repo"]) == 15
    # Another history does not go on from what the logs have.
    commit_changes(tmp_path / "other", 0)
    given = program.history(tmp_path / "other", out)
    with pytest.raises(DemoError, match="name another directory with --out"):
        program.run(spark, given, out, quiet)


@pytest.mark.real_data
def test_recorded_changes_come_out_as_a_dictionary_says(
    spark: Any, program: ModuleType, tmp_path: Path
) -> None:
    events, _ = recorded()
    lines = tmp_path / "events.jsonl"
    trees: dict[str, Tree] = {}
    with lines.open("wb") as file:
        for line in islice(read_lines(events), SLICE):
            file.write(line + b"\n")
            put(trees, line)
    given = program.Given("the first changes", lines, trees)
    report = program.run(spark, given, tmp_path, Console(quiet=True))
    assert [each for each in report.checks if not each.passed] == []
    assert report.months.total() == SLICE


def put(trees: dict[str, Tree], line: bytes) -> None:
    event = decode(line)
    tree = trees.setdefault(event.source, {})
    if event.entry is None:
        del tree[event.path]
    else:
        tree[event.path] = event.entry


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
