"""What the demo shows: plot, page, tables, JSON; and its way from start to end."""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from examples.demo.page import page
from examples.demo.plot import OTHERS, by_source, draw, draw_growth, to_png, to_svg
from examples.demo.report import DemoReport
from examples.demo.summary import counts, summary
from rich.console import Console

from braidlog.cli import main

MONTHS = Counter({("a", "2023-11"): 5, ("a", "2024-02"): 7, ("b<i>", "2024-02"): 1})
_QUICK = "--no-spark"
TOP = [(b"a/x$y$z", 9), (b"a/\xff\n<script>", 2), (b"a/" + b"long/" * 30, 1)]


@pytest.fixture
def report() -> DemoReport:
    report = DemoReport(origin="a & b", events=13, months=MONTHS, top=TOP)
    report.check("first", True, "fine")
    report.measure("rate", 123_456.7, "events/s")
    return report


@pytest.mark.parametrize(
    ("found", "passed"), [([], False), ([True, True], True), ([True, False], False)]
)
def test_passes_only_if_every_check_does(found: list[bool], passed: bool) -> None:
    report = DemoReport(origin="x")
    for number, holds in enumerate(found):
        report.check(f"check {number}", holds, "")
    assert report.passed is passed


def test_small_sources_become_others() -> None:
    months = {(f"s{n}", "2024-01"): n for n in range(1, 11)}
    found = by_source(months, 3)
    assert {name: c.total() for name, c in found.items()} == {
        "s10": 10,
        "s9": 9,
        OTHERS: 36,
    }


def test_plot_and_page(report: DemoReport, tmp_path: Path) -> None:
    figure = draw(report.months, report.top, "title $x$")
    to_png(figure, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    text = page(report, to_svg(figure))
    assert text.count("<svg") == 1
    assert "<script" not in text
    assert "a/\\xff\\n&lt;script&gt;" in text
    assert not re.search(r'(src|href)="(?!#)', text.replace("xlink:", ""))
    assert "@import" not in text
    assert "Everything is equal" in text


def test_of_one_month_there_are_the_paths_alone() -> None:
    months = Counter({("a", "2024-02"): 7, ("b", "2024-02"): 1})
    text = to_svg(draw(months, TOP, "title"))
    assert "paths changed most often" in text
    assert "per month" not in text


@pytest.mark.parametrize("archived", [1, 7, 12])
def test_plot_of_growth(archived: int) -> None:
    """Also of one moment alone, and before 1970."""
    for steps in ([(-5, 12, 3)], [(1_700_000_000, 7, 7), (1_700_086_400, 5, -2)]):
        figure = draw_growth(steps, archived, "title")
        text = to_svg(figure)
        assert "12 entries" in text
        assert f"{sum(more for _, _, more in steps)} files" in text
        assert f"{archived} in the archive" in text


def test_tables(report: DemoReport) -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    report.check("second", False, "wrong")
    console.print(counts(report), summary(report))
    text = console.export_text()
    assert "FAILED: second" in text
    assert "2024-02" in text
    assert "a/x$y$z" in text
    assert json.loads(json.dumps(report.to_json()))["passed"] is False


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    top = tmp_path / "repo"
    top.mkdir()
    base = ["git", "-C", str(top), "-c", "user.name=A", "-c", "user.email=a@b"]
    subprocess.run([*base, "init", "-q"], check=True)
    for n in range(20):
        (top / f"file{n % 7}").write_text(str(n))
        subprocess.run([*base, "add", "-A"], check=True)
        subprocess.run([*base, "commit", "-q", "-m", str(n)], check=True)
    return top


@pytest.mark.process
@pytest.mark.timeout(180)
def test_the_command_on_a_small_repository(repository: Path, tmp_path: Path) -> None:
    out, data = tmp_path / "out", tmp_path / "data"
    arguments = ["--git", str(repository), "--out", str(out), "--data", str(data)]
    options = ["--no-spark", "--kills", "2", "--json", "--keep"]
    result = CliRunner().invoke(main, ["demo", *arguments, *options])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["passed"] is True
    assert (found["events"], found["lost"], found["doubled"]) == (20, 0, 0)
    assert len(found["kills"]) == 2
    assert sum(row["changes"] for row in found["changes_per_month"]) == 20
    assert sorted(path.name for path in out.iterdir()) == [
        "changes.html",
        "changes.png",
    ]
    assert data.is_dir()
    again = CliRunner().invoke(main, ["demo", *arguments, *options])
    assert again.exit_code == 1
    assert "is not empty" in again.output


@pytest.mark.process
@pytest.mark.timeout(180)
def test_a_wrong_oracle_fails_loudly(tmp_path: Path) -> None:
    events, oracle = tmp_path / "events.jsonl", tmp_path / "oracle.jsonl"
    events.write_text(
        '{"ts":1,"source":"s","seq":0,"commit":"c","author":"a","op":"put",'
        '"path":"x","blob":"b1","mode":"100644"}\n'
    )
    oracle.write_text('{"source":"s","path":"x","blob":"b2","mode":"100644"}\n')
    out = tmp_path / "out"
    result = CliRunner().invoke(
        main,
        [
            "demo",
            "--input",
            str(events),
            "--oracle",
            str(oracle),
            "--out",
            str(out),
            _QUICK,
        ],
    )
    assert result.exit_code == 1
    assert "DIFFERENT s/x: expected 100644 b2, found 100644 b1" in result.output
    assert "FAILED: replay equals the oracle" in result.output
    assert list(out.glob("log-*")), "the log of a failed run is kept"


def test_errors_say_what_to_do(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["demo", "--git", str(tmp_path), "--no-spark"])
    assert result.exit_code == 1
    assert "is not in a git repository" in result.output
    assert "Traceback" not in result.output
