"""The demo over a cluster: what a kill costs, and that nothing is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from examples.demo.clustered import gap_ms
from examples.demo.files import write_events

from braidlog.cli import main
from demo.test_import import make_events


@pytest.mark.parametrize(
    ("gaps", "expected"),
    [
        ([], 0.0),
        ([(9.9, 10.5)], 600.0),
        ([(9.0, 9.9), (9.9, 10.1), (10.1, 10.8)], 700.0),
        ([(11.5, 19.0)], 0.0),
        ([(10.4, 19.0), (10.6, 30.0)], 8600.0),
    ],
    ids=["none", "one", "the longest", "later", "the next kill"],
)
def test_the_gap_around_a_kill(
    gaps: list[tuple[float, float]], expected: float
) -> None:
    assert gap_ms(gaps, 10.0, 10.5) == expected


def history(folder: Path, count: int) -> list[str]:
    """Write events and what must be there at their end."""
    events, state = make_events(count), {}
    for event in events:
        state[event.source, event.path] = event.entry
    list(write_events(folder / "events.jsonl", events))
    lines = [
        json.dumps({"source": source, "path": path, "blob": entry[0], "mode": entry[1]})
        for (source, path), entry in state.items()
        if entry is not None
    ]
    (folder / "oracle.jsonl").write_text("".join(f"{line}\n" for line in lines))
    given = ["--input", str(folder / "events.jsonl")]
    return [*given, "--oracle", str(folder / "oracle.jsonl")]


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_two_primaries_killed_on_the_way(tmp_path: Path) -> None:
    arguments = history(tmp_path, 6000)
    arguments += ["--out", str(tmp_path / "out"), "--nodes", "3", "--kills", "2"]
    result = CliRunner().invoke(main, ["demo", *arguments, "--no-spark", "--json"])
    assert result.exit_code == 0, result.output
    report = json.loads(result.stdout)
    assert report["passed"] is True
    assert (report["events"], report["lost"], report["doubled"]) == (6000, 0, 0)
    assert [kill["primary"] != kill["node"] for kill in report["kills"]] == [True] * 2
    assert all(kill["gap_ms"] > 0 for kill in report["kills"])
    assert all(0 < kill["acknowledged"] < 6000 for kill in report["kills"])
    assert report["resent"] > 0
    assert not list((tmp_path / "out").glob("log-*")), "cleaned up"


def test_two_nodes_cannot_lose_one(tmp_path: Path) -> None:
    arguments = [*history(tmp_path, 1), "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(main, ["demo", *arguments, "--nodes", "2"])
    assert result.exit_code == 1
    assert "cannot go on without one" in result.stderr
