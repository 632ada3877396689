"""The results of record, and the tables of documents that are made of them."""

import argparse
import json
from pathlib import Path

import pytest
from benchmarks import contest, machine, report, session
from benchmarks.plan import Plan
from benchmarks.questions import QUESTIONS
from benchmarks.record import results, tables
from benchmarks.rows import Better, Row, Target

FACTS = {
    "date": "2026-11-26",
    "revision": "abc",
    "cpu": "two cores",
    "memory": "8 GiB",
    "load": "0",
    "kernel": "6.18",
    "file system": "ext4",
    "python": "3.11",
    "packages": "lmdb 1.5",
    "parameters": "seed 1",
}
DOCUMENT = "before\n<!-- record: embedded -->\nold\n<!-- record: end -->\nbehind\n"


def row(ours: float = 100.0, **changed: object) -> Row:
    comparison = contest.Comparison(
        "one caller, 128 B, durable per append",
        *("p50_us", "us", Better.LOWER, "ours", Target(1.25), "floor"),
        peers=["lmdb"],
    )
    samples = contest.Samples()
    for name, value in (("ours", ours), ("floor", 80.0), ("lmdb", 50.0)):
        samples.rounds[name] = [{"p50_us": value}]
    values = contest.compare(comparison, samples).as_json() | changed
    return Row.from_json(json.loads(json.dumps(values)))


def every_short_row() -> list[Row]:
    return [row(workload=work, metric=metric) for work, metric in tables.SHORT]


def test_a_record_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    rows = [row(), row(floor=None, floor_spread=None, peers={})]
    results.save("embedded", FACTS, rows, tmp_path)
    assert results.load("embedded", tmp_path) == results.Record(FACTS, rows)
    assert results.load("spark", tmp_path) is None


def test_a_table_is_made_of_the_record(tmp_path: Path) -> None:
    unsteady = row(200.0, note="UNSTEADY: the floor varied")
    results.save("embedded", FACTS, [row(), unsteady], tmp_path)
    assert tables.renewed(DOCUMENT, tmp_path) == (
        "before\n<!-- record: embedded -->\n"
        "| workload | ours | x floor | best peer | x best peer | target |\n"
        "|---|---|---|---|---|---|\n"
        "| one caller, 128 B, durable per append (median) | 100 µs | 1.25 (floor)"
        " | lmdb, 50 µs | 0.5 | <= 1.25 x floor, met, behind the peer |\n"
        "| one caller, 128 B, durable per append (median) | 200 µs | 2.5 (floor)"
        " | lmdb, 50 µs | 0.25"
        " | <= 1.25 x floor, missed, behind the peer, unsteady |\n"
        "\n"
        "date 2026-11-26; revision abc; cpu two cores; memory 8 GiB; load 0;"
        " kernel 6.18; file system ext4; python 3.11; packages lmdb 1.5;"
        " parameters seed 1.\n"
        "<!-- record: end -->\nbehind\n"
    )


def test_without_a_record_a_table_stays(tmp_path: Path) -> None:
    assert tables.renewed(DOCUMENT, tmp_path) == DOCUMENT


def test_what_is_between_two_tables_stays(tmp_path: Path) -> None:
    results.save("embedded", FACTS, [row()], tmp_path)
    twice = tables.renewed(2 * DOCUMENT, tmp_path)
    assert twice == 2 * tables.renewed(DOCUMENT, tmp_path)


def test_a_short_table_has_its_rows_only(tmp_path: Path) -> None:
    short = DOCUMENT.replace("embedded", "embedded, short")
    rows = [row(workload="another"), *every_short_row()]
    results.save("embedded", FACTS, rows, tmp_path)
    made = tables.renewed(short, tmp_path)
    assert made.count("\n| ") == 1 + len(tables.SHORT)
    assert "another" not in made
    results.save("embedded", FACTS, rows[:2], tmp_path)
    with pytest.raises(LookupError, match="no row '64 tasks, alike, 128 B'"):
        tables.renewed(short, tmp_path)


def test_every_row_of_a_short_table_is_measured(tmp_path: Path) -> None:
    measured = {
        (each.workload, each.metric)
        for question in QUESTIONS
        for each in question.comparisons(Plan(tmp_path))
    }
    assert set(tables.SHORT) <= measured


def test_the_documents_have_what_the_record_has() -> None:
    """`python -m benchmarks.record` brings them up to date."""
    readme, status = (path.read_text() for path in tables.DOCUMENTS)
    assert tables.names_in(readme) == ["embedded"]
    assert tables.names_in(status) == list(results.NAMES)
    assert [tables.renewed(text) for text in (readme, status)] == [readme, status]


@pytest.mark.parametrize(
    ("arguments", "revision", "why"),
    [
        (["--quick"], "abc", "whole run"),
        (["--only", "scan"], "abc", "whole run"),
        (["--name", "mine"], "abc", "its own names"),
        ([], "abc-dirty", "commit first"),
    ],
)
def test_part_of_a_run_is_no_record(
    arguments: list[str],
    revision: str,
    why: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(machine, "revision", lambda: revision)
    monkeypatch.setattr("sys.argv", ["benchmarks", "--record", *arguments])
    parser = argparse.ArgumentParser()
    session.add_options(parser, ["scan"])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--name", default="cluster")
    with pytest.raises(SystemExit):
        session.parse(parser)
    assert why in capsys.readouterr().err


@pytest.mark.parametrize("failed", [[], ["scan/lmdb"]])
def test_a_record_is_replaced_by_a_run_that_measured_all(
    failed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    document = tmp_path / "page.md"
    document.write_text(DOCUMENT)
    monkeypatch.setattr(results.save, "__defaults__", (tmp_path,))
    monkeypatch.setattr(tables.write, "__defaults__", ([document], tmp_path))
    arguments = argparse.Namespace(output=tmp_path / "results", record=True)
    console = report.console()
    session.write(console, arguments, "embedded", (FACTS, [row()], failed))
    assert (tmp_path / "results" / "embedded.jsonl").exists()
    assert (tmp_path / "embedded.jsonl").exists() is not bool(failed)
    assert ("revision abc" in document.read_text()) is not bool(failed)
