"""What a node says of trouble: once when it begins, once at its end."""

from __future__ import annotations

import logging

import pytest

from braidlog.node.replication.replica_trouble import ReplicaTrouble
from unit.logstream.group import Group
from unit.logstream.memory import batch


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "braidlog.node.replication.replica_trouble")
    return caplog


def lived(group: Group, complaints: ReplicaTrouble, seconds: int = 4) -> None:
    for _ in range(seconds):
        group.settle()
        group.tick(1)
        group.tick(2)
        complaints.look(7, group.replicas[2].effects().trouble)


@pytest.mark.parametrize("learns", [False, True], ids=["backup", "learner"])
def test_a_full_disk_is_said_when_it_begins_and_when_it_ends(
    said: pytest.LogCaptureFixture, *, learns: bool
) -> None:
    group = Group((1,), (2,)) if learns else Group((1, 2))
    group.open()
    complaints = ReplicaTrouble(group.replicas[2])
    group.append(1, ("before", 0, batch("x")))
    group.run()
    lived(group, complaints)
    assert said.records == []
    group.disks[2].full = True
    for number in range(5):
        group.append(1, (number, 0, batch(f"r{number}")))
        group.run()
        lived(group, complaints)
    [begun] = said.messages
    assert begun.startswith("the replica of stream 7 cannot store records: no room; ")
    assert "Trim or delete logs, or restart this node with a larger" in begun
    group.disks[2].full = False
    for _ in range(5):
        group.run()
        lived(group, complaints)
    assert said.messages[1:] == ["the replica of stream 7 stores records again"]
    assert [record.levelname for record in said.records] == ["ERROR", "INFO"]
    assert group.disks[2].state().next == 7
