"""Every example runs, says what it should, and leaves a directory that opens."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import braidlog

EXAMPLES = Path(__file__).parents[2] / "examples"

# What must be in the output, in this order.
SAYS = {
    "async_append": ["100 records durable", "1 visitor"],
    "bank": [
        "moves, ",
        "accounts have 40000, branches 40000",
        "made again from the log: the same",
    ],
    "change_events": ["300 changes, 35 files", "replayed: the same"],
    "cluster": [
        "node 2 was killed",
        "300 appends acknowledged",
        "every record is there, once, in order",
    ],
    "cursor_worker": [
        "working on job 1",
        "next is 3",
        "working on job 3",
        "next is 6",
        "kept from 6 on",
    ],
    "duckdb_query": ["north: 667 sales, 333667", "south: 333 sales, 166833"],
    "exactly_once": [
        "epoch 1: 0 of 2",
        "at 2",
        "epoch 1: 2 of 3",
        "at 3",
        "['pay 10', 'pay 20', 'pay 30']",
        "fenced: epoch 1 is older than 2",
    ],
    "follow": [f"{i} tick {i - 1}" for i in range(1, 11)],
    "keyvalue": [
        "version 1",
        "['hello', 1]",
        "counted to 20",
        "exchanged: 20",
        "deleted: True",
        "after its time: None",
    ],
    "pandas_frame": ["1970-01-01", "10", "33"],
    "pipelined": ["the last one will be at 20000", "20000 records durable"],
    "polars_frame": ["range(1, 4)", "5.5", "2.5"],
    "quickstart": [
        "durable at position 1",
        "1 two coffees",
        "3 a cake",
        "positions 1 to 3",
    ],
}


def test_every_example_is_here() -> None:
    assert sorted(SAYS) == sorted(path.stem for path in EXAMPLES.glob("[!_]*.py"))


@pytest.mark.process
@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", SAYS)
def test_an_example(name: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    ran = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py", data],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    at = 0
    for words in SAYS[name]:
        assert words in ran.stdout[at:], f"{words!r} is not in {ran.stdout[at:]!r}"
        at = ran.stdout.index(words, at) + len(words)
    if name == "cluster":
        return  # Its directories are those of nodes.
    if name in ("bank", "change_events", "keyvalue"):
        data = data / "app" / "log" if name == "change_events" else data / "log"
    with braidlog.open(data) as node:
        assert node.report["clean"]
        assert all(node.log(name).end > 1 for name in node.logs())


def test_an_example_needs_no_argument(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLES / "quickstart.py"],
        capture_output=True,
        check=True,
        env={"TMPDIR": str(tmp_path), "PATH": ""},
    )
    assert b"positions 1 to 3" in ran.stdout
