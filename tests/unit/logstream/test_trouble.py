"""Replicas in trouble: damaged disks, and copies of which nobody else has all."""

from typing import Any

import pytest

from braidlog.errors import (
    CorruptionError,
    NotReadyError,
    TrimmedError,
    UnavailableError,
)
from braidlog.logstream import ReplicaState
from braidlog.wire.messages import Entries, Fetch, LogCut, Read
from unit.logstream.group import Group
from unit.logstream.memory import batch
from unit.logstream.repository import LOG, STREAM


def opened(*nodes: int) -> Group:
    group = Group(nodes, ())
    group.open()
    assert group.repository.open
    return group


@pytest.mark.parametrize("nodes", [(1, 2), (1,)])
def test_damage_is_for_the_others_to_repair_if_there_are_any(
    nodes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    group = opened(*nodes)
    group.append(1, ("a", 0, batch("x")))
    group.run()

    def read(*_: object) -> list[Any]:
        raise CorruptionError("a flipped bit", path="wal")

    monkeypatch.setattr(group.disks[1], "read", read)
    replica, alone = group.replicas[1], len(nodes) == 1
    with pytest.raises(CorruptionError if alone else NotReadyError):
        replica.read(Read(STREAM, 1, True, 100, 0))
    # It serves the other records, which may be damaged elsewhere.
    assert replica.state is ReplicaState.RUNNING
    assert replica.defect == "a flipped bit"
    report = replica.effects().report
    assert report is not None
    assert report.damaged
    # Once is enough.
    with pytest.raises((CorruptionError, NotReadyError)):
        replica.read(Read(STREAM, 1, True, 100, 0))
    assert replica.effects().report is None
    monkeypatch.undo()
    group.append(1, ("b", 0, batch("y")))
    group.run()
    assert replica.report().end == 3


def test_a_damaged_replica_serves_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one may be damaged elsewhere, so that each has what the other lacks."""
    group = opened(1, 2)
    for value in ("x", "y", "z"):
        group.append(1, (value, 0, batch(value)))
        group.run()
    disk, replica = group.disks[1], group.replicas[1]
    right = disk.read

    def read(begin: int, end: int, bytes_max: int) -> list[Any]:
        found = right(begin, end, bytes_max)
        if any(each.llsn <= 2 < each.end for each in found):
            raise CorruptionError("a flipped bit", path="wal")
        return found

    monkeypatch.setattr(disk, "read", read)
    before = replica.read(Read(STREAM, 1, False, 1 << 20, 0))
    assert before is not None
    assert (before[0].llsns, before[0].next) == ((1,), 2)
    with pytest.raises(NotReadyError):
        replica.read(Read(STREAM, 2, False, 1 << 20, 0))
    behind = replica.read(Read(STREAM, 3, False, 1 << 20, 0))
    assert behind is not None
    assert behind[0].llsns == (3,)
    assert replica.report().damaged


def test_the_last_copy_of_a_tail_never_starts_over() -> None:
    group = Group((1,), (4,))
    group.open()
    group.append(1, ("a", 0, batch("x")), ("b", 0, batch("y")))
    group.settle()
    cut = group.repository.cut()
    group.replicas[4].commit(LogCut(LOG, 1, 0))
    group.crash(1)
    group.start(1, group.disks[1])
    group.repository.configure((1,), (4,))
    group.configure(1)
    group.settle()
    for _ in range(4):
        group.tick(1)
    fetch = [item for item in group.letters if isinstance(item[2], Fetch)][-1]
    number = fetch[2].number
    group.letters.clear()
    # The source does not know the trim, so nothing may be passed over.
    message = Entries(STREAM, 2, number, 2, (), (), 9, 9, 2, 2, 1)
    group.replicas[1].entries(4, message, ())
    assert group.disks[1].state().next == 3
    group.publish(cut, 1)
    group.settle()
    assert group.log(1) == [(1, 1, "x"), (2, 2, "y")]


def test_the_last_copy_of_a_tail_passes_over_what_all_others_trimmed() -> None:
    group = opened(1, 2)
    for number in range(1, 4):
        group.append(1, (number, 0, batch(f"r{number}")))
    group.settle()
    cut = group.repository.cut(4)
    group.publish(cut, 2)
    group.settle()
    group.crash(1)
    group.start(1, group.disks[1])
    group.repository.trim_to(7)
    group.repository.configure((1, 2))
    group.open()
    assert group.disks[1].state().committed == 1
    for _ in range(6):
        group.tick(1)
        group.settle()
    assert group.disks[2].state().low == 3
    # The first two have lost their GLSNs, the third keeps its own.
    state = group.disks[1].state()
    assert (state.low, state.committed, state.next) == (3, 4, 4)
    assert group.log(1) == group.log(2) == [(3, 7, "r3")]
    assert group.replicas[1].state is ReplicaState.RUNNING
    with pytest.raises(TrimmedError):
        group.replicas[1].read(Read(STREAM, 1, True, 100, 0))


def stuffed(group: Group, *nodes: int, full: bool = True) -> None:
    for node in nodes:
        group.disks[node].stuffed = full


@pytest.mark.parametrize("role", ["member", "learner", "learner that starts over"])
def test_a_disk_without_room_delays_an_epoch_and_no_more(role: str) -> None:
    """The configuration comes again until the replica reports in it."""
    group = opened(1, 2)
    group.append(1, ("a", 0, batch("x")))
    group.run()
    group.append(1, ("tail", 0, batch("refused")))
    group.settle()
    replicas, learners = ((1, 2), ()) if role == "member" else ((2,), (1,))
    if role == "learner that starts over":
        group.replicas[1]._core.state = ReplicaState.INVALID
    group.repository.configure(replicas, learners)
    stuffed(group, 1, 2)
    for _ in range(3):
        group.configure()
        group.settle()
        for node in (1, 2):
            assert group.replicas[node].lacks_room
            group.tick(node)
    assert [request for request, _ in group.answers] == ["a"]
    assert group.repository.cut() is None
    stuffed(group, 1, 2, full=False)
    group.open()
    for _ in range(3):
        group.tick(1)
        group.settle()
    assert group.repository.open
    assert not group.replicas[2].lacks_room
    assert [request for request, _ in group.answers] == ["a", "tail"]
    expected = ReplicaState.RUNNING if role == "member" else ReplicaState.LEARNING
    assert group.state(1) is expected
    group.append(group.repository.config.replicas[0], ("b", 0, batch("y")))
    group.run()
    group.tick(1)
    group.settle()
    assert group.log(1) == group.log(2) == [(1, 1, "x"), (2, 2, "y")]


def test_a_trim_that_finds_no_room_is_tried_again() -> None:
    group = opened(1)
    group.append(1, ("a", 0, batch("x")), ("b", 0, batch("y")))
    group.run()
    group.repository.trim_to(2)
    stuffed(group, 1)
    group.configure(1)
    group.settle()
    with pytest.raises(TrimmedError):
        group.replicas[1].read(Read(STREAM, 1, True, 100, 0))
    group.tick(1)
    assert group.replicas[1].low == 1
    stuffed(group, 1, full=False)
    group.tick(1)
    assert group.replicas[1].low == 2


def test_a_trim_that_frees_room_waits_for_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = opened(1)
    group.append(1, ("a", 0, batch("x")), ("b", 0, batch("y")))
    group.run()
    group.append(1, ("c", 0, batch("z")))
    group.settle()
    group.repository.trim_to(2)
    stuffed(group, 1)
    group.configure(1)
    cut = group.repository.cut()
    group.settle()
    stuffed(group, 1, full=False)

    def refuse(*_: object) -> None:
        raise UnavailableError("no room")

    monkeypatch.setattr(group.disks[1], "commit", refuse)
    monkeypatch.setattr(group.disks[1], "enter", refuse)
    for _ in range(4):
        group.publish(cut, 1)
        group.settle()
        group.tick(1, 0.5)
    assert group.replicas[1].low == 2
    # The same for an epoch that could be entered.
    monkeypatch.undo()
    group.publish(cut, 1)
    group.settle()
    monkeypatch.setattr(group.disks[1], "enter", refuse)
    group.repository.trim_to(3)
    group.repository.configure((1,))
    group.open()
    assert group.replicas[1].low == 3


def test_a_cut_that_finds_no_room_is_applied_when_it_comes_again() -> None:
    group = opened(1, 2)
    group.append(1, ("a", 0, batch("x")))
    group.settle()
    stuffed(group, 1)
    group.run()
    assert group.answers == []
    stuffed(group, 1, full=False)
    group.tick(1)
    for cut in group.repository.missed(1):
        group.publish(cut, 1)
    group.settle()
    assert [request for request, _ in group.answers] == ["a"]
    assert group.log(1) == group.log(2)
