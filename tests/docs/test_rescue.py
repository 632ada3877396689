"""`braidlog rescue` prints what the document shows of it, and does what it says."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from braidlog.cli import main
from braidlog.faultlog import scan
from braidlog.node.repository.raft_log import GroupLog
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.node.rescue.ring import read_ring
from braidlog.raft import Base, Membership
from braidlog.store.node_store import NodeStore
from braidlog.wire import commands
from docs.documents import ROOT, blocks
from docs.test_console import normal, shown
from unit.faultlog.worlds import records
from unit.metarepo.bench import Bench

VOTERS = Membership(voters=(1, 2, 3))

Commands = list[tuple[str, list[str]]]


def documented() -> list[Commands]:
    """Return the commands of each block that shows a rescue."""
    texts = (
        block.text for block in blocks(ROOT / "docs" / "operating" / "disaster.md")
    )
    return [shown(text) for text in texts if text.startswith("$ braidlog rescue")]


def known(logs: dict[str, int], cursors: int) -> Base:
    """Return what a repository knows that has logs of so many streams."""
    bench = Bench()
    for number, (name, streams) in enumerate(logs.items()):
        log = bytes([number]) * 16
        bench.do(commands.CreateLog(log, name, streams, 3, 1, placement=()))
    for number in range(cursors):
        bench.do(commands.SetCursor(b"\0" * 16, f"c{number}", 1))
    repository = bench.repository
    return Base(repository.index, 1, VOTERS, repository.snapshot())


def stopped(story: str, bases: dict[int, Base]) -> None:
    """Make the directories of nodes that recorded a story; see `worlds.records`."""
    for node, said in records(story).items():
        path = Path(f"n{node}")
        store = NodeStore(path, entropy=node, segment_bytes=64 << 10)
        GroupLog.create(store, 1, bases[node])
        store.sync()
        store.close()
        with FaultLog.open(path, said.cluster, node, slots=8) as log:
            log.record(said.configuration, viable=said.viable)


def compare(calls: Commands) -> None:
    for call, lines in calls:
        result = CliRunner().invoke(main, shlex.split(call)[1:])
        assert result.exit_code in (0, 8), result.output
        if lines:
            printed = [normal(line) for line in result.output.splitlines()]
            assert printed == [normal(line) for line in lines], call


def epochs(*nodes: int) -> list[int]:
    found = [scan(read_ring(Path(f"n{node}"))).newest for node in nodes]
    return [record.configuration.epoch for record in found if record is not None]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_every_rescue_that_is_shown_is_compared() -> None:
    assert [len(calls) for calls in documented()] == [3, 2]


def test_a_node_that_was_missing_is_brought() -> None:
    now = known({"a": 2, "b": 3}, cursors=3)
    stopped("A:1B B:3A C:3A", {1: known({}, cursors=0), 2: now, 3: now})
    calls = documented()[0]
    compare(calls[:-1])
    assert epochs(1, 2, 3) == [1, 1, 1]
    compare(calls[-1:])
    assert epochs(1, 2, 3) == [1, 2, 2]


def test_two_disks_are_destroyed() -> None:
    stopped("C:2", {3: known({"a": 2}, cursors=1)})
    calls = documented()[1]
    compare(calls[:-1])
    assert epochs(3) == [1]
    compare(calls[-1:])
    assert epochs(3) == [2]


def said(*arguments: str) -> tuple[str, int]:
    result = CliRunner().invoke(main, ["rescue", *arguments])
    return result.output, result.exit_code


def test_a_healthy_stopped_cluster_is_only_to_be_started() -> None:
    now = known({"a": 2}, cursors=1)
    stopped("A,B,C:0", dict.fromkeys((1, 2, 3), now))
    text, code = said("n1", "n2", "n3")
    assert "no rescue is needed: 3 of the 3 voters" in text
    assert "braidlog serve --config FILE" in text
    assert "--write" not in text
    assert code == 0
    # A minority cannot start by itself.
    text, code = said("n3", "--lost", "1", "--lost", "2")
    assert "no rescue is needed" not in text
    assert "--write makes it so" in text
    # What is written has to be written to all, and then nothing more is to be done.
    said("n1", "n2", "n3", "--write", "--yes")
    text, _ = said("n1", "n2", "n3")
    assert "epoch 2 is written to all nodes that go on: start the nodes" in text
    text, _ = said("n1", "n2")
    assert "is written to all" not in text
