"""Writes of a Raft group on a disk that has no room now and then."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog import _native
from braidlog.errors import StoreFailedError, TooLargeError, UnavailableError
from braidlog.node.repository.group_writes import GroupWrites
from braidlog.node.repository.raft_log import GroupLog
from braidlog.raft import (
    Base,
    Entry,
    EntryKind,
    HardState,
    RaftInvariantError,
    Write,
)
from unit.node.repository.test_group_log import FIRST, opened


def numbered(number: int, size: int = 8 << 10) -> Write:
    """Return a write with the next entry, and all that a write may have."""
    entry = Entry(number, 1, EntryKind.DATA, bytes(size))
    return Write(number, hard_state=HardState(1, 2, number - 1), entries=(entry,))


def lacks_room(writes: GroupWrites) -> bool:
    return writes.lacks_room


def test_what_finds_no_room_is_stored_when_there_is_some(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.ERROR)
    disk = _native.MemoryDisk()
    node = opened(disk)
    log = GroupLog.create(node, 0, FIRST)
    writes = GroupWrites(log)
    disk.set_free(0)
    given = 0
    while not writes.lacks_room:
        given += 1
        assert given < 1000
        writes.put([numbered(given)])
    writes.put([numbered(given + 1), numbered(given + 2)])
    assert len(caplog.records) == 1, "the operator is told once"
    assert writes.durable(node.sync()) == given - 1

    disk.set_free(None)
    node.housekeeping()
    writes.put([])
    assert not lacks_room(writes)
    assert writes.durable(node.sync()) == given + 2
    again = GroupLog(opened(disk.crash("drop")), 0).load()
    assert [entry.index for entry in again.entries] == [*range(1, given + 3)]
    assert again.hard_state == HardState(1, 2, given + 1)


class Moody:
    """A log that is refused room as it is told, before or after it has stored."""

    def __init__(self, log: GroupLog, refusals: list[str]) -> None:
        self._log, self._refusals = log, refusals

    def write(self, write: Write) -> int:
        mood = self._refusals.pop() if self._refusals else ""
        if mood == "nothing":
            raise UnavailableError("no room")
        ticket = self._log.write(write)
        if mood == "all of it":
            raise UnavailableError("no room for what comes last")
        return ticket


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30),
    st.lists(st.sampled_from(["", "nothing", "all of it"]), max_size=30),
)
def test_the_log_is_what_it_is_with_room(
    steps: list[tuple[int, bool]], refusals: list[str]
) -> None:
    """Overwriting, folding and resets, tried again at any point."""
    plain, moody = opened(_native.MemoryDisk()), opened(_native.MemoryDisk())
    wanted, got = GroupLog.create(plain, 0, FIRST), GroupLog.create(moody, 0, FIRST)
    writes = GroupWrites(Moody(got, refusals))
    last = base = 0
    for number, (back, folds) in enumerate(steps, 1):
        first = max(base, last - back) + 1
        last = first + 1
        folded = None
        if folds:
            # Further than the log is: a base that replaces it.
            base = last + 5
            folded = Base(base, number, FIRST.membership)
            first, last = base + 1, base + 2
        new = tuple(
            Entry(index, number, EntryKind.DATA, b"%d" % number)
            for index in (first, last)
        )
        write = Write(number, HardState(number), folded, folds, new)
        wanted.write(write)
        writes.put([write])
    while writes.lacks_room:
        writes.put([])
    assert writes.durable(moody.sync()) == len(steps)
    expected, found = wanted.load(), got.load()
    assert (found.base, found.hard_state) == (expected.base, expected.hard_state)
    assert [*found.entries] == [*expected.entries]


class Refusing:
    """A log that always raises the same."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def write(self, write: Write) -> int:
        raise self._error


def test_what_can_never_be_stored_stops_the_node() -> None:
    with pytest.raises(RaftInvariantError, match=r"write 1 .* cannot be stored: huge"):
        GroupWrites(Refusing(TooLargeError("huge"))).put([numbered(1)])
    with pytest.raises(StoreFailedError):
        GroupWrites(Refusing(StoreFailedError("a sync failed"))).put([numbered(1)])
