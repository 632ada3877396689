"""What a replica is after a start, by what its disk holds."""

from typing import Any

import pytest
from msgspec.structs import replace

from braidlog.logstream import CommitContext, ReplicaState
from braidlog.wire.messages import LogCut, Read, StreamRun
from unit.logstream.group import Group
from unit.logstream.memory import Call, MemoryStorage, batch
from unit.logstream.repository import LOG, OTHER, STREAM


def written(begin: int, end: int) -> list[Call]:
    return [("write", 1, batch(f"r{llsn}")) for llsn in range(begin, end)]


def committed(length: int, version: int = 10, begin: int = 1) -> Call:
    end = begin + length
    return ("commit", CommitContext(version, begin, begin, length, end - 1))


TRIMMED = [*written(1, 11), committed(10)]
GOOD = {
    "new": ([], (0, 1, 1)),
    "uncommitted": (written(1, 11), (0, 1, 11)),
    "committed": ([*written(1, 11), committed(10)], (10, 11, 11)),
    "surplus": ([*written(1, 11), committed(10), *written(11, 21)], (10, 11, 21)),
    "idle commit": (
        [*TRIMMED, ("commit", CommitContext(20, 11, 11, 0, 20))],
        (20, 11, 11),
    ),
    "prefix trimmed": ([*TRIMMED, ("trim", 6)], (10, 11, 11)),
    "all trimmed": ([*TRIMMED, ("trim", 11)], (10, 11, 11)),
    "trimmed, surplus": ([*TRIMMED, ("trim", 11), *written(11, 21)], (10, 11, 21)),
    "started over": ([*TRIMMED, ("restart", 15, b"")], (0, 15, 15)),
}


@pytest.mark.parametrize("name", GOOD)
def test_it_starts(name: str) -> None:
    calls, (version, begin, end) = GOOD[name]
    group = Group((2,))
    group.start(1, MemoryStorage(*calls))
    report = group.replicas[1].report()
    assert report.state == ReplicaState.STARTING
    assert (report.version, report.committed, report.end) == (version, begin, end)


BAD: dict[str, tuple[dict[str, Any], CommitContext]] = {
    "no context": ({}, CommitContext()),
    "ends ahead": ({"next": 31}, CommitContext(10, 1, 1, 20, 20)),
    "ends behind": ({}, CommitContext(10, 1, 1, 5, 5)),
    "records are gone": ({"next": 5}, CommitContext(10, 1, 1, 10, 10)),
    "begins behind its end": ({"low": 12}, CommitContext(10, 1, 1, 10, 10)),
    "log ends before": ({}, CommitContext(10, 1, 1, 10, 9)),
}


@pytest.mark.parametrize("name", BAD)
def test_it_is_invalid_and_says_so(name: str) -> None:
    changes, context = BAD[name]
    disk = MemoryStorage(*written(1, 11), committed(10))
    disk.model.stored = replace(disk.model.stored, context=context, **changes)
    group = Group((1, 2))
    group.start(1, disk)
    replica = group.replicas[1]
    assert replica.defect
    calls = list(disk.calls)
    group.configure(1)
    group.publish(LogCut(LOG, 11, 12, (StreamRun(STREAM, 11, 12, 1, 1),)), 1)
    group.settle()
    group.append(1, ("a", 0, batch("x")))
    assert replica.state is ReplicaState.INVALID
    assert disk.calls == calls
    assert replica.report().state == ReplicaState.INVALID
    assert [request for request, _ in group.answers] == ["a"]


def test_an_invalid_one_starts_over_as_a_learner() -> None:
    group = Group((2,))
    group.open()
    group.append(2, ("a", 0, batch("x", 3)))
    group.run()
    disk = MemoryStorage(*written(1, 5))
    disk.model.stored = type(disk.model.stored)(1, 3, 5, 0, (), CommitContext())
    group.start(1, disk)
    assert group.state(1) is ReplicaState.INVALID
    group.repository.configure((2,), (1,))
    group.open()
    assert group.state(1) is ReplicaState.LEARNING
    assert group.log(1) == [(1, 3, "x")]


def test_a_cut_made_before_the_crash_completes_after_it() -> None:
    """Records were written, their commit was lost."""
    group = Group((1, 2))
    group.open()
    group.append(1, ("a", 0, batch("x", 3)))
    group.settle()
    cut = group.repository.cut()
    group.crash(1)
    group.start(1, group.disks[1])
    assert group.replicas[1].report().end == 4
    group.publish(cut)
    group.settle()
    assert group.log(1) == group.log(2) == [(1, 3, "x")]


@pytest.mark.parametrize("before", [1, 11])
def test_an_epoch_keeps_what_was_cut_of_the_records_of_a_crash(before: int) -> None:
    """Ten records without a commit, of which the last cut took five."""
    end = before + 10
    calls = [*written(1, before), committed(before - 1)] if before > 1 else []
    disk = MemoryStorage(("enter", 1), *calls, *written(before, end))
    group = Group((1,))
    group.start(1, disk)
    repository = group.repository
    repository.committed = repository.high_watermark = before + 5
    repository.high_watermark -= 1
    repository.configure((1,))
    group.configure()
    cut = LogCut(LOG, 11, before + 4, (StreamRun(STREAM, before, before, 5, 1),))
    group.publish(cut)
    group.settle()
    assert group.repository.open
    state = group.disks[1].durable
    assert (state.committed, state.next) == (before + 5, before + 5)
    assert [text for _, _, text in group.log(1)][-1] == f"r{before + 4}"


def test_a_trim_reaches_who_was_down() -> None:
    group = Group((1, 2))
    group.open()
    group.append(1, *[(n, 0, batch(f"r{n}")) for n in range(1, 11)])
    group.run()
    group.crash(2)
    group.repository.trim_to(11)
    group.configure(1)
    group.settle()
    group.start(2, group.disks[2])
    group.repository.configure((1, 2))
    group.open()
    assert [group.disks[n].durable.low for n in (1, 2)] == [11, 11]
    group.append(1, ("a", 0, batch("next")))
    group.run()
    assert group.log(1) == group.log(2) == [(11, 11, "next")]


def test_it_acts_in_no_epoch_that_an_earlier_start_entered() -> None:
    group = Group((1, 2))
    group.open()
    group.crash(1)
    group.start(1, group.disks[1])
    group.open()
    assert group.state(1) is ReplicaState.STARTING
    group.append(1, ("a", 0, batch("x")))
    assert "NotReady" in type(group.answers[0][1]).__name__
    group.repository.configure((1, 2))
    group.open()
    assert group.state(1) is ReplicaState.RUNNING


def test_what_an_epoch_refused_never_comes_back() -> None:
    """A tail, a seal, a restart."""
    group = Group((1, 2))
    group.open()
    group.append(1, *[(n, 0, batch(f"old {n}")) for n in range(5)])
    group.sync(1)
    group.letters.clear()
    group.repository.configure((1, 2))
    group.open()
    group.append(1, ("new", 0, batch("new")))
    group.settle()
    group.crash(1)
    assert group.disks[1].state().next == 2
    group.start(1, group.disks[1])
    group.repository.configure((1, 2))
    group.open()
    group.append(1, ("newer", 0, batch("newer")))
    group.run()
    assert [text for _, _, text in group.log(1)] == ["newer"]
    assert group.log(1) == group.log(2)


def test_reads_after_a_restart_know_what_was_trimmed() -> None:
    group = Group((1,))
    group.open()
    group.append(1, ("a", 0, batch("x")), ("b", 0, batch("y")))
    group.run(other=4)
    assert group.repository.cuts[0].runs[0].stream == OTHER
    group.repository.trim_to(6)
    group.open()
    group.crash(1)
    group.start(1, group.disks[1])
    for begin, by_glsn, error in ((1, False, "Trimmed"), (5, True, "NotReady")):
        with pytest.raises(Exception, match=r"begins at|state starting") as raised:
            group.replicas[1].read(Read(STREAM, begin, by_glsn, 99, 0))
        assert error in type(raised.value).__name__
    group.repository.configure((1,))
    group.open()
    with pytest.raises(IndexError, match="6"):
        group.replicas[1].read(Read(STREAM, 5, True, 99, 0))
    assert group.replicas[1].low == 2
