"""``braidlog pipeline``: what a person says and sees."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import braidlog
from braidlog.app.log.source import LOG_NAME
from braidlog.cli import main
from process.replayed import fill, near
from unit.cli.conftest import Cli


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BRAIDLOG_DATA", raising=False)
    monkeypatch.delenv("BRAIDLOG_CLUSTER", raising=False)
    with braidlog.open(tmp_path / "data", segment_bytes=64 << 10) as node:
        log = node.create_log("orders")
        for n in range(300):
            log.submit(b"%d" % n * 300, key=b"k%d" % (n % 9))
    return tmp_path / "data"


def call(*words: object) -> Result:
    return CliRunner().invoke(main, ["pipeline", *map(str, words), "--workers", "1"])


def told(*words: object) -> dict[str, Any]:
    result = call(*words, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def test_compact(data: Path) -> None:
    report = told("compact", "orders", "out", "--until", 200)
    assert report["figures"]["keys"] == 9
    assert report["published"]["end"] == 201
    again = call("compact", "orders", "out", "--until", 200)
    assert again.exit_code == 0
    assert "this job was already done" in again.stderr
    assert "each position from 1 to 200 was read once" in again.stdout
    other = call("compact", "orders", "out", "--tombstone", "none")
    assert other.exit_code == 1
    assert "has the results of another job" in other.stderr
    assert call("compact", "orders", "new", "--until", 999).exit_code == 6
    assert call("compact", "nothing", "new").exit_code == 3
    assert call("compact", "orders", "new", "--tombstone", "what").exit_code == 1


@pytest.mark.parametrize("place", [".", "data", "full"])
def test_results_never_go_where_something_else_is(data: Path, place: str) -> None:
    """The results of a job are in DIRECTORY/data, and whatever else is there goes."""
    other = data.parent / "full" / "data" / "other.txt"
    other.parent.mkdir(parents=True)
    other.write_text("precious")
    for command in ("compact", "repartition --into copy", "replay --app app:none"):
        name, *options = command.split()
        result = call(name, "orders", place, *options)
        assert result.exit_code != 0
    result = call("compact", "orders", place)
    assert result.exit_code == 1
    assert "name a directory that is new or empty" in result.stderr
    assert other.read_text() == "precious"
    with braidlog.open(data, read_only=True) as node:
        assert node.log("orders").end == 301


def test_what_was_trimmed_is_read_in_the_archive(data: Path) -> None:
    told("archive", "orders", "archive", "--until", 250, "--trim")
    assert told("compact", "orders", "rest")["published"]["begin"] == 251
    both = told("compact", "orders", "both", "--include-archive")
    assert both["published"]["begin"] == 1
    into = ("--into", "copy", "--into-data", "other", "--archive", "archive")
    assert told("repartition", "orders", "work", *into)["published"]["records"] == [300]
    audited = told("audit", "orders", "audited", "--include-archive")["published"]
    assert (audited["begin"], audited["end"], len(audited["copies"])) == (1, 301, 2)
    result = call("compact", "orders", "new", "--archive", "nothing")
    assert result.exit_code == 3
    assert "has no archive" in result.stderr


def test_repartition(data: Path) -> None:
    into = ("--into", "copy", "--into-data", "other")
    assert told("repartition", "orders", "out", *into)["published"]["records"] == [300]
    with braidlog.open("other", read_only=True) as node:
        assert len(node.log("copy")) == 300
    nowhere = call("repartition", "orders", "out", "--into", "copy")
    assert nowhere.exit_code == 2
    assert "no target log was given" in nowhere.stderr


def test_audit(data: Path) -> None:
    assert told("audit", "orders", "out")["published"]["findings"] == []
    lost = min((data / "wal").glob("*.idx"))
    kept = lost.read_bytes()
    lost.unlink()
    result = call("audit", "orders", "out", "--raw", data)
    assert result.exit_code == 5
    assert f"damaged: {data}: " in result.stderr
    assert told("reindex", "work", "--directory", data)["tasks"] == 1
    assert lost.read_bytes() == kept
    assert call("audit", "orders", "out", "--raw", data).exit_code == 0


def test_replay(data: Path) -> None:
    with near.open(Path("bank")) as host:
        fill(host, 60)
        _, hashes = host.hashes()
    report = told("replay", "process.replayed:near", "out", "-d", "bank", "--tasks", 2)
    found = report["published"]["hashes"]
    assert found == {str(n): each.hex() for n, each in enumerate(hashes)}
    raw = ("--raw", "bank/log", "--log", LOG_NAME)
    again = told("replay", "process.replayed:near", "raw", *raw)
    assert again["published"]["hashes"] == found
    unnamed = call("replay", "process.replayed:near", "x", *raw[:2])
    assert unnamed.exit_code == 2
    assert call("replay", "process.replayed", "x").exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--spark"], "--workers cannot be combined with Spark"),
        (["--conf", "a=b"], "--conf needs Spark"),
    ],
)
def test_options_that_do_not_fit(data: Path, words: list[str], said: str) -> None:
    result = call("compact", "orders", "out", *words)
    assert result.exit_code == 2
    assert said in result.stderr


def test_reindex_refuses_what_is_no_data_directory(data: Path) -> None:
    result = call("reindex", "work", "--directory", data, "--directory", data.parent)
    assert result.exit_code == 3
    assert f"no Braidlog data in {data.parent}" in result.stderr


def test_an_archive_is_kept_out_of_a_data_directory(orders: Cli) -> None:
    before = sorted(orders.data.rglob("*"))
    archive = ("pipeline", "archive", "orders", str(orders.data), "--workers", "1")
    result = orders.run(*archive, code=2)
    assert "is a data directory" in result.stderr
    assert sorted(orders.data.rglob("*")) == before


def test_what_is_damaged_in_an_archive_is_said_in_words(
    orders: Cli, tmp_path: Path
) -> None:
    place = tmp_path / "archive"
    orders.run("pipeline", "archive", "orders", str(place), "--workers", "1")
    [file] = (place / "data").rglob("*.parquet")
    file.unlink()
    result = CliRunner().invoke(main, ["archive", "verify", str(place)])
    assert result.exit_code == 5
    assert f"{file}: it does not exist any more" in result.stderr
    assert "{" not in result.stdout
    assert ["damage", "1"] in [line.split() for line in result.stdout.splitlines()]
