"""A node's directory as the cluster uses it, and the replicas in it."""

from pathlib import Path

import pytest

import braidlog
from braidlog import _native
from braidlog.errors import (
    AlreadyExistsError,
    BeyondEndError,
    CorruptionError,
    FencedError,
    ForeignFormatError,
    InvalidArgumentError,
    NotFoundError,
    SequenceGapError,
    StoreFailedError,
    TrimmedError,
    UnknownProducerError,
)
from braidlog.logstream.storage import CommitContext, Placed, StreamStorage
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.store.node_store import NodeStore
from braidlog.wire.messages import Run

SEGMENT = 64 << 10


def opened(
    disk: _native.MemoryDisk | None = None, path: Path | str = "/n"
) -> NodeStore:
    disk = disk or _native.MemoryDisk()
    return NodeStore(
        path, entropy=7, disk=disk, segment_bytes=SEGMENT, wal_bytes_max=32 * SEGMENT
    )


def batch(*values: bytes, first: int | None = None, producer: int = 9) -> bytes:
    who = None if first is None else (producer, 1)
    return _native.encode_batch(values, timestamps=1, producer=who, sequence=first)


def values(store: ReplicaStore, begin: int, end: int = 1 << 40) -> list[bytes]:
    found = []
    for item in store.read(begin, end, 1 << 20):
        found += [r.value for r in _native.Batch(item.data).records(item.llsn)]
    return found


def context(
    version: int, glsn: int, llsn: int, length: int, high: int = 0
) -> CommitContext:
    return CommitContext(version, glsn, llsn, length, high or glsn + length - 1)


def durable_end(replica: ReplicaStore) -> int:
    """Return the first LLSN that is not durable."""
    end: int = replica._log.native.state(replica._log.number)[3]
    return end


def test_a_replica_appends_commits_and_is_there_again() -> None:
    disk = _native.MemoryDisk()
    node = opened(disk)
    replica = ReplicaStore.create(node, 12, b"options")
    storage: StreamStorage = replica
    storage.enter(3)
    placed = storage.append(3, [batch(b"a", b"b"), batch(b"c")])
    assert [(at.llsn, at.count, at.new) for at in placed] == [
        (1, 2, True),
        (3, 1, True),
    ]
    storage.commit(3, context(5, 40, 1, 2))
    state = storage.state()
    assert (state.low, state.committed, state.next, state.epoch) == (1, 3, 4, 3)
    assert (state.epochs, state.context) == (((3, 1),), context(5, 40, 1, 2))
    assert values(replica, 1) == [b"a", b"b", b"c"]
    assert storage.runs(1, 99) == [Run(1, 40, 2)]
    assert [storage.llsn_of(glsn) for glsn in (1, 41, 42)] == [1, 2, 3]
    assert (replica.glsn_floor(99), replica.glsn_floor(39)) == ((41, 2), None)
    assert durable_end(replica) == 1
    assert node.durable() < storage.ticket()
    node.sync()
    assert node.durable() >= storage.ticket()
    assert durable_end(replica) == 4

    after = opened(disk.crash("drop"))
    assert after.streams() == [12]
    again = ReplicaStore(after, 12)
    assert again.options == b"options"
    assert again.state() == state
    assert values(again, 1) == [b"a", b"b", b"c"]


def test_a_repeat_of_a_producer_that_may_be_forgotten_is_refused() -> None:
    # Of smaller segments the windows would take more than a quarter.
    disk, size = _native.MemoryDisk(), 256 << 10
    node = NodeStore(
        "/n", entropy=7, disk=disk, segment_bytes=size, wal_bytes_max=32 * size
    )
    replica = ReplicaStore.create(node, 1)

    def stored(producer: int, *, repeat: bool = False) -> Placed:
        data = batch(b"a", first=1, producer=producer)
        [placed] = replica.append(0, [data], repeat=repeat)
        return placed

    # Who was never here is new, as long as nobody was forgotten.
    assert stored(1, repeat=True).new
    for producer in range(2, 1333):
        assert stored(producer).new
    with pytest.raises(UnknownProducerError) as error:
        stored(1, repeat=True)
    assert error.value.expected == 1
    assert stored(1332, repeat=True) == Placed(1332, 1, new=False)
    assert stored(5000).new


def test_a_commit_is_seen_as_soon_as_it_is_called() -> None:
    node = opened()
    replica = ReplicaStore.create(node, 1)
    replica.append(0, [batch(b"a"), batch(b"b")])
    node.sync()
    view = node.view("stream.1")
    assert view.range()[:2] == (1, 1)
    before = node.durable()
    replica.commit(0, context(1, 1, 1, 2))
    assert view.range()[:2] == (1, 3)
    assert [r.value for r in view.records()] == [b"a", b"b"]
    assert node.durable() == before, "no sync was needed"


def test_what_is_refused_changes_nothing() -> None:
    node = opened()
    replica = ReplicaStore.create(node, 1)
    replica.append(2, [batch(b"a", first=1)])
    state = replica.state()
    with pytest.raises(SequenceGapError) as gap:
        replica.append(2, [batch(b"b", first=2), batch(b"d", first=4)])
    assert gap.value.expected == 3
    damaged = bytearray(batch(b"x"))
    damaged[-1] ^= 1
    for call in (
        lambda: replica.append(2, [batch(b"b"), bytes(damaged)]),
        lambda: replica.place(2, 2, [bytes(damaged)]),
    ):
        with pytest.raises(CorruptionError):
            call()
    with pytest.raises(SequenceGapError):
        replica.place(2, 9, [batch(b"b")])
    with pytest.raises(FencedError):
        replica.append(1, [batch(b"b")])
    with pytest.raises(BeyondEndError):
        replica.commit(2, context(1, 1, 1, 9))
    with pytest.raises(TypeError):
        replica.append(2, ["text"])  # type: ignore[list-item]
    replica.commit(2, context(1, 1, 1, 1))
    with pytest.raises(InvalidArgumentError):
        replica.rollback(2, 1)
    replica.commit(2, CommitContext(2, 2, 2, 0, 9))
    assert (state.next, replica.state().next) == (2, 2)


def test_a_repeat_is_told_its_place() -> None:
    disk = _native.MemoryDisk()
    node = opened(disk)
    replica = ReplicaStore.create(node, 1)
    replica.append(0, [batch(b"a", b"b", first=1), batch(b"c", first=3)])
    repeated = replica.append(0, [batch(b"c", first=3), batch(b"d", first=4)])
    assert [(at.llsn, at.new) for at in repeated] == [(3, False), (4, True)]
    backup = ReplicaStore.create(node, 2)
    backup.place(0, 1, [batch(b"a", b"b", first=1)])
    assert not backup.append(0, [batch(b"a", b"b", first=1)])[0].new
    replica.rollback(0, 4)
    assert replica.append(0, [batch(b"d", first=4)])[0].new
    node.sync()
    again = ReplicaStore(opened(disk.crash()), 1)
    assert again.append(0, [batch(b"d", first=4)])[0].new is False


def test_reads_are_of_whole_batches() -> None:
    node = opened()
    replica = ReplicaStore.create(node, 1)
    replica.append(0, [batch(b"a", b"b"), batch(b"c"), batch(b"d", b"e")])
    assert [b.llsn for b in replica.read(2, 4, 1 << 20)] == [1, 3]
    assert [b.llsn for b in replica.read(2, 9, 1)] == [1]
    assert replica.read(6, 9, 1) == []
    with pytest.raises(BeyondEndError):
        replica.read(7, 9, 1)
    replica.rollback(0, 5)
    assert values(replica, 4) == [b"d"]
    replica.commit(0, context(1, 1, 1, 4))
    replica.trim(3)
    with pytest.raises(TrimmedError) as trimmed:
        replica.read(2, 4, 1)
    assert trimmed.value.first == 3
    assert values(replica, 3) == [b"c", b"d"]


def test_a_restart_forgets_everything_but_the_epoch() -> None:
    disk = _native.MemoryDisk()
    node = opened(disk)
    replica = ReplicaStore.create(node, 4, b"kept")
    replica.append(3, [batch(b"a", first=1)])
    replica.commit(3, context(9, 9, 1, 1))
    replica.restart(100)
    state = replica.state()
    assert (state.low, state.committed, state.next, state.epoch) == (100, 100, 100, 3)
    assert state.context == CommitContext(llsn_begin=100)
    assert replica.runs(1, 1000) == []
    assert replica.llsn_of(1) == 100
    replica.place(3, 100, [batch(b"z", first=7)])
    node.sync()
    again = ReplicaStore(opened(disk.crash()), 4)
    assert values(again, 100) == [b"z"]
    assert (again.options, again.state().next) == (b"kept", 101)


def test_a_restart_with_the_windows_of_another_replica() -> None:
    node = opened()
    source, target = (ReplicaStore.create(node, number) for number in (1, 2))
    source.append(0, [batch(b"a", b"b", first=1), batch(b"c", first=3)])
    target.restart(3, source.producers(3))
    assert target.append(0, [batch(b"a", b"b", first=1)])[0].llsn == 1
    assert target.append(0, [batch(b"c", first=3)])[0].new
    assert target.producers(99) == source.producers(99)
    with pytest.raises(InvalidArgumentError):
        target.restart(2, source.producers(99))
    for wrong in (b"x", source.producers(99) + b"\0", b"\xff" * 20):
        with pytest.raises(CorruptionError):
            target.restart(9, wrong)
    assert target.state().next == 4


def test_the_catalog() -> None:
    disk = _native.MemoryDisk()
    node = opened(disk)
    for number in (10, 9):
        ReplicaStore.create(node, number)
    with pytest.raises(AlreadyExistsError):
        ReplicaStore.create(node, 9)
    with pytest.raises(NotFoundError):
        ReplicaStore(node, 1)
    assert (node.streams(), node.groups()) == ([9, 10], [])
    replica = ReplicaStore(node, 9)
    replica.set_options(b"new")
    assert replica.options == b"new"
    ReplicaStore(node, 10).delete()
    with pytest.raises(NotFoundError):
        node.delete("stream.10")
    assert list(opened(disk.crash("keep"))) == ["stream.9"]
    node.close()
    node.close()


def test_space_comes_back() -> None:
    node = opened()
    replica = ReplicaStore.create(node, 1)
    low = 1
    for i in range(120):
        llsn = replica.append(0, [batch(bytes(9000))])[0].llsn
        replica.commit(0, context(i + 1, llsn, llsn, 1))
        node.sync()
        if i % 10 == 9:
            replica.trim(low := llsn)
            node.sync()
            node.housekeeping()
    assert node.stats()["segments"] < 8
    assert replica.state().low == low
    assert replica.runs(1, 1 << 40) == [Run(low, low, 1)]


def test_a_real_directory(tmp_path: Path) -> None:
    path = tmp_path / "node"
    with pytest.raises(InvalidArgumentError):
        NodeStore(path, entropy=1, segment_bytes=5)
    node = NodeStore(path, entropy=1, segment_bytes=SEGMENT)
    node.start_syncer()
    replica = ReplicaStore.create(node, 1)
    replica.append(0, [batch(b"a")])
    ticket = node.ticket()
    node.sync()
    assert node.durable() >= ticket
    node.close()
    again = NodeStore(path, entropy=2)
    assert values(ReplicaStore(again, 1), 1) == [b"a"]
    again.close()


def test_after_a_failed_write_nothing_is_taken() -> None:
    disk = _native.MemoryDisk()
    node = opened(disk)
    replica = ReplicaStore.create(node, 1)
    replica.append(0, [batch(b"a")])
    disk.fail_next_sync()
    for call in (node.sync, node.durable, lambda: replica.append(0, [batch(b"b")])):
        with pytest.raises(StoreFailedError):
            call()


def test_a_directory_of_a_node_is_none_of_logs_and_stays_free(tmp_path: Path) -> None:
    def of_a_node() -> NodeStore:
        return NodeStore(tmp_path, entropy=7, segment_bytes=SEGMENT)

    store = of_a_node()
    store.create("node", b"BNOD\xff\x00")
    store.close()
    with pytest.raises(ForeignFormatError, match="of a cluster's node") as caught:
        braidlog.open(tmp_path)
    assert "--cluster" in caught.value.hint
    of_a_node().close()  # Who was refused left no lock.
    with braidlog.open(tmp_path, read_only=True) as node:
        for call in (node.logs, lambda: node.log("node"), lambda: node.log("a")):
            with pytest.raises(ForeignFormatError, match="'node' is not a log"):
                call()
