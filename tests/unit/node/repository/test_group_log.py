"""The log of a Raft group on a node's disk."""

from dataclasses import replace

import pytest

from braidlog import _native
from braidlog.errors import (
    AlreadyExistsError,
    CorruptionError,
    NotFoundError,
    TooLargeError,
    TrimmedError,
)
from braidlog.node.repository.raft_log import GroupLog
from braidlog.raft import (
    Base,
    Entry,
    EntryKind,
    HardState,
    LogReader,
    Membership,
    RaftInvariantError,
    RaftMessageError,
    Stored,
    Write,
)
from braidlog.raft.codec import encode
from braidlog.store.node_store import NodeStore

SEGMENT = 64 << 10
FIRST = Base(membership=Membership(voters=(1, 2, 3)))


def opened(disk: _native.MemoryDisk) -> NodeStore:
    return NodeStore(
        "/n", entropy=7, disk=disk, segment_bytes=SEGMENT, wal_bytes_max=32 * SEGMENT
    )


def entries(*numbers: tuple[int, int], data: bytes = b"x") -> tuple[Entry, ...]:
    return tuple(Entry(index, term, EntryKind.DATA, data) for index, term in numbers)


def loaded(log: GroupLog) -> Stored:
    stored = log.load()
    return replace(stored, entries=tuple(stored.entries))


def reopened(node: NodeStore, disk: _native.MemoryDisk) -> GroupLog:
    node.sync()
    return GroupLog(opened(disk.crash()), 0)


def test_what_was_written_is_loaded() -> None:
    disk = _native.MemoryDisk()
    node = opened(disk)
    log = GroupLog.create(node, 0, FIRST)
    assert loaded(log) == Stored(FIRST, (), HardState())
    first = (
        Entry(1, 1, EntryKind.EMPTY),
        Entry(2, 1, EntryKind.MEMBERSHIP, b"m"),
        Entry(3, 2, EntryKind.DATA, b"d"),
    )
    hard = HardState(term=2, vote=3, commit=1)
    ticket = log.write(Write(1, hard_state=hard, entries=first))
    assert node.durable() < ticket
    assert loaded(log) == Stored(FIRST, first, hard)
    node.sync()
    assert node.durable() >= ticket
    again = GroupLog(opened(disk.crash("drop")), 0)
    assert loaded(again) == Stored(FIRST, first, hard)
    assert node.groups() == [0]


def test_entries_are_overwritten_in_the_middle_of_a_batch() -> None:
    disk = _native.MemoryDisk()
    node = opened(disk)
    log = GroupLog.create(node, 0, FIRST)
    log.write(Write(1, entries=entries((1, 1), (2, 1), (3, 1), (4, 1))))
    node.sync()
    log.write(Write(2, entries=entries((3, 5), data=b"new")))
    expected = entries((1, 1), (2, 1)) + entries((3, 5), data=b"new")
    assert loaded(log).entries == expected
    assert loaded(reopened(node, disk)).entries == expected


def test_a_base_folds_entries() -> None:
    disk = _native.MemoryDisk()
    node = opened(disk)
    log = GroupLog.create(node, 0, FIRST)
    log.write(Write(1, entries=entries((1, 1), (2, 1), (3, 1), (4, 2))))
    base = replace(FIRST, index=3, term=1, state=b"folded")
    log.write(Write(2, base=base))
    assert loaded(log) == Stored(base, entries((4, 2)), HardState())
    with pytest.raises(TrimmedError):
        log.read(3, 5, 100)
    log.write(Write(3, base=replace(base, index=4, term=2), entries=entries((5, 2))))
    again = reopened(node, disk)
    assert loaded(again).entries == entries((5, 2))
    with pytest.raises(RaftInvariantError):
        again.write(Write(4, entries=entries((4, 9))))
    with pytest.raises(RaftInvariantError):
        again.write(Write(4, entries=entries((7, 9))))
    with pytest.raises(RaftInvariantError):
        again.write(Write(4, base=replace(base, index=9)))


def test_a_reset_begins_behind_its_base() -> None:
    disk = _native.MemoryDisk()
    node = opened(disk)
    log = GroupLog.create(node, 0, FIRST)
    log.write(Write(1, entries=entries((1, 1), (2, 1))))
    base = replace(FIRST, index=900, term=7)
    hard = HardState(term=7, commit=901)
    new = entries((901, 7), (902, 7))
    log.write(Write(2, hard_state=hard, base=base, reset=True, entries=new))
    assert loaded(log) == Stored(base, new, hard)
    # Also behind the end, and back: the log is what the base says.
    low = replace(FIRST, index=1, term=1)
    log.write(Write(3, base=low, reset=True))
    assert loaded(reopened(node, disk)) == Stored(low, (), hard)
    with pytest.raises(RaftInvariantError):
        log.write(Write(4, reset=True))


def test_reading_back() -> None:
    node = opened(_native.MemoryDisk())
    log = GroupLog.create(node, 0, FIRST)
    many = entries(*((i, 1) for i in range(1, 101)), data=bytes(100))
    log.write(Write(1, entries=many))
    reader: LogReader = log
    assert tuple(reader.read(1, 101, 1 << 20)) == many
    assert tuple(reader.read(40, 42, 1 << 20)) == many[39:41]
    assert len(reader.read(40, 90, 1)) == 1
    assert len(reader.read(40, 90, 3 * 132)) == 3


def test_large_writes_are_several_batches() -> None:
    node = NodeStore("/n", entropy=1, disk=_native.MemoryDisk())
    log = GroupLog.create(node, 0, FIRST)
    many = entries(*((i, 1) for i in range(1, 8)), data=bytes(700_000))
    log.write(Write(1, entries=many))
    assert loaded(log).entries == many


def test_many_entries_fit_into_small_segments() -> None:
    """As those that a new voter is sent at once."""
    log = GroupLog.create(opened(_native.MemoryDisk()), 0, FIRST)
    many = entries(*((i, 1) for i in range(1, 1001)), data=bytes(100))
    log.write(Write(1, entries=many))
    assert loaded(log).entries == many


def test_what_is_too_large_changes_nothing() -> None:
    node = opened(_native.MemoryDisk())
    log = GroupLog.create(node, 0, FIRST)
    log.write(Write(1, entries=entries((1, 1))))
    before = loaded(log)
    huge = replace(FIRST, index=1, state=bytes(SEGMENT // 4))
    with pytest.raises(TooLargeError):
        log.write(Write(2, base=huge))
    with pytest.raises(TooLargeError):
        log.write(Write(2, entries=entries((2, 1), data=bytes(SEGMENT // 4))))
    assert loaded(log) == before


def test_creating_and_deleting() -> None:
    disk = _native.MemoryDisk()
    node = opened(disk)
    with pytest.raises(NotFoundError):
        GroupLog(node, 5)
    # What a crash in the middle of a creation leaves, or of a deletion.
    node.create("group.5.hard", encode(HardState(term=9)))
    node.create("group.5")
    assert node.groups() == []
    with pytest.raises(NotFoundError):
        GroupLog(node, 5)
    log = GroupLog.create(node, 5, replace(FIRST, index=7))
    assert loaded(log).hard_state == HardState()
    assert node.groups() == [5]
    with pytest.raises(AlreadyExistsError):
        GroupLog.create(node, 5)
    node.sync()
    assert loaded(GroupLog(opened(disk.crash()), 5)).base.index == 7
    log.delete()
    assert node.groups() == []


def test_the_bytes_of_an_entry_are_as_documented() -> None:
    node = opened(_native.MemoryDisk())
    log = GroupLog.create(node, 0, replace(FIRST, index=4))
    log.write(Write(1, entries=(Entry(5, 0x0102, EntryKind.MEMBERSHIP, b"m"),)))
    stream = node.open("group.0")
    [(llsn, _, data)] = stream.native.read(stream.number, 5, 6, 100)
    [record] = _native.Batch(data).records(llsn)
    key = b"\x03\x02\x01\0\0\0\0\0\0"
    assert record.as_tuple() == (5, 0, key, b"m", ())


def test_records_that_are_no_entries() -> None:
    node = opened(_native.MemoryDisk())
    log = GroupLog.create(node, 0, FIRST)
    stream = node.open("group.0")
    stream.native.append(stream.number, 0, [_native.encode_batch([b"x"])])
    with pytest.raises(CorruptionError):
        log.read(1, 2, 100)
    unknown = _native.encode_batch([b"x"], [b"\x09\x01\0\0\0\0\0\0\0"])
    stream.native.append(stream.number, 0, [unknown])
    with pytest.raises(CorruptionError, match="kind 9"):
        log.read(2, 3, 100)
    stream.alter(b"no base")
    with pytest.raises(RaftMessageError):
        GroupLog(node, 0)
