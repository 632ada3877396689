"""Which raw directories are read, and what the repository adds to what they hold."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog import _native
from braidlog.errors import (
    CorruptionError,
    InvalidArgumentError,
    NotFoundError,
    NotReadyError,
)
from braidlog.faultlog.configuration import Configuration
from braidlog.logstream.storage import CommitContext, StoredStream
from braidlog.metarepo.last_cuts import last_commits
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.node.repository.raft_log import GroupLog
from braidlog.node.rescue import raw
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.raft import Base, Entry, EntryKind, HardState, Membership, Write
from braidlog.store.node_store import NodeStore
from braidlog.wire import commands
from braidlog.wire.messages import LogCut, StreamConfig, StreamRun, StreamStatus

LOG = b"L" * 16


def config(log: str = "bank") -> StreamConfig:
    return StreamConfig(
        stream=4,
        log=LOG,
        name=log,
        epoch=1,
        status=next(iter(StreamStatus)),
        replicas=(1, 2, 3),
        learners=(),
        start=1,
        epochs=(),
        version=0,
        high_watermark=0,
        trim=1,
        options=b"",
    )


def write(path: Path, node: int, records: int, *, failed: tuple[int, ...] = ()) -> Path:
    store = NodeStore(path, entropy=node, segment_bytes=64 << 10)
    about = msgspec.msgpack.encode(config())
    replica = ReplicaStore.create(store, 4, about)
    replica.share_order(LOG)
    for at in range(1, records + 1):
        replica.append(0, [_native.encode_batch([b"%d" % at], timestamps=1)])
        replica.commit(0, CommitContext(at, at, at, 1, at))
    store.sync()
    with FaultLog.open(path, "green", node) as faults:
        faults.record(Configuration(1, 0, (1, 2, 3)), viable=True)
        if failed:
            faults.record(Configuration(1, 1, (1, 2, 3), failed), viable=True)
    store.close()
    return path


def test_a_node_that_is_listed_as_failed_is_left_out(tmp_path: Path) -> None:
    # Node 1 was dropped and went on alone for a while; nobody was promised that.
    one = write(tmp_path / "1", 1, 9)
    two = write(tmp_path / "2", 2, 7, failed=(1,))
    three = write(tmp_path / "3", 3, 7, failed=(1,))
    with raw.open_raw([one, two, three], "bank") as merged:
        assert merged.drain()[0] == 7
        figures = merged.figures()
    assert [source.path for source in figures.sources] == [str(two), str(three)]
    assert figures.duplicates == 7


def test_a_member_that_may_know_more_is_waited_for(tmp_path: Path) -> None:
    two = write(tmp_path / "2", 2, 3, failed=(1,))
    with pytest.raises(NotReadyError, match="3"):
        raw.open_raw([two], "bank")
    # What was opened to look is free again.
    NodeStore(two, entropy=1).close()


def test_directories_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    one = write(tmp_path / "1", 1, 3)
    other = write(tmp_path / "other", 1, 3)
    with pytest.raises(InvalidArgumentError, match="belong to node 1"):
        raw.open_raw([one, other], "bank")
    two, three = write(tmp_path / "2", 2, 3), write(tmp_path / "3", 3, 3)
    with pytest.raises(NotFoundError, match="shop"):
        raw.open_raw([one, two, three], "shop")


def test_an_embedded_log_has_one_directory(tmp_path: Path) -> None:
    for name in ("a", "b"):
        store = NodeStore(tmp_path / name, entropy=1)
        store.create("bank")
        store.close()
    with raw.open_raw([tmp_path / "a"], "bank") as merged:
        assert merged.drain() == (0, 0)
    with pytest.raises(NotFoundError):
        raw.open_raw([tmp_path / "a"], "shop")
    with pytest.raises(InvalidArgumentError, match="pass one directory"):
        raw.open_raw([tmp_path / "a", tmp_path / "b"], "bank")


# --- commits that are on no disk: the repository's log has the cuts


def killed(
    path: Path,
    node: int,
    *,
    stored: int,
    committed: int,
    cuts: int | None,
    epoch: int = 1,
) -> Path:
    """A node that has `stored` records on its disk, and commits of `committed`.

    Its copy of the repository has `cuts` of them; None: it has no copy.
    """
    store = NodeStore(path, entropy=node, segment_bytes=64 << 10)
    replica = ReplicaStore.create(store, 4, msgspec.msgpack.encode(config()))
    replica.share_order(LOG)
    replica.enter(epoch)
    for at in range(1, stored + 1):
        replica.append(epoch, [_native.encode_batch([b"%d" % at], timestamps=1)])
    for at in range(1, committed + 1):
        replica.commit(epoch, CommitContext(at, at, at, 1, at))
    finish(store, path, node, cuts)
    return path


def finish(store: NodeStore, path: Path, node: int, cuts: int | None) -> None:
    """Write the repository's log with so many cuts, if any, and the fault log."""
    if cuts is not None:
        base = Base(membership=Membership(voters=(1, 2, 3)))
        log = GroupLog.create(store, 1, base)
        log.write(Write(1, entries=tuple(logged(cuts)), hard_state=HardState(1)))
    store.sync()
    with FaultLog.open(path, "green", node) as faults:
        faults.record(Configuration(1, 0, (1, 2, 3)), viable=True)
    store.close()


def logged(cuts: int) -> Iterator[Entry]:
    done: list[commands.Command] = [
        *(commands.RegisterNode(node, f"host:{node}", 1) for node in (1, 2, 3)),
        commands.CreateLog(LOG, "bank", 4, 3, 1, placement=((1, 2, 3),) * 4),
    ]
    for at in range(1, cuts + 1):
        run = StreamRun(4, at, at, 1, 1)
        done.append(commands.Cut((LogCut(LOG, at, at, (run,)),)))
    for index, command in enumerate(done, 1):
        yield Entry(index, 1, EntryKind.DATA, commands.encode_call(command))


def read(paths: list[Path]) -> tuple[list[tuple[int, bytes]], tuple[str, ...]]:
    with raw.open_raw(paths, "bank") as merged:
        found = [
            (record.position, record.value)
            for rows in merged.encoded()
            for row in rows
            for record in _native.Batch(row.batch).records(
                row.position - row.first, row.first, row.first + row.count
            )
        ]
        return found, merged.figures().notes


def rows(count: int) -> list[tuple[int, bytes]]:
    return [(at, b"%d" % at) for at in range(1, count + 1)]


def test_commits_that_no_disk_has_come_from_the_repository(tmp_path: Path) -> None:
    # 12 were stored by all, 10 acknowledged; a follower of the repository is behind.
    paths = [
        killed(tmp_path / "1", 1, stored=12, committed=4, cuts=10),
        killed(tmp_path / "2", 2, stored=12, committed=7, cuts=10),
        killed(tmp_path / "3", 3, stored=12, committed=0, cuts=6),
    ]
    before = [{f: f.read_bytes() for f in p.rglob("*.wal")} for p in paths]
    assert read(paths) == (rows(10), ())
    after = [{f: f.read_bytes() for f in p.rglob("*.wal")} for p in paths]
    assert after == before


def test_what_may_be_missing_is_said(tmp_path: Path) -> None:
    paths = [
        killed(tmp_path / "1", 1, stored=9, committed=3, cuts=None),
        killed(tmp_path / "2", 2, stored=9, committed=5, cuts=6),
        killed(tmp_path / "3", 3, stored=9, committed=4, cuts=None),
    ]
    found, [note] = read(paths)
    assert found == rows(6)
    assert "1 of 3 voters" in note
    # A copy that is behind the disks says nothing: who knows what came instead.
    shutil.rmtree(paths[1])
    killed(paths[1], 2, stored=9, committed=5, cuts=2)
    found, [_, note] = read(paths)
    assert found == rows(5)
    assert "are at cut 5" in note
    assert "end at cut 2" in note


def test_a_cut_of_another_epoch_is_not_about_what_is_stored(tmp_path: Path) -> None:
    # All entered epoch 2 behind 5 records; what they have beyond was never cut.
    paths = [
        killed(tmp_path / f"{n}", n, stored=9, committed=5, cuts=8, epoch=2)
        for n in (1, 2, 3)
    ]
    assert read(paths) == (rows(5), ())


def test_a_damaged_copy_of_the_repository_is_named(tmp_path: Path) -> None:
    paths = [
        killed(tmp_path / f"{n}", n, stored=9, committed=5, cuts=8) for n in (1, 2, 3)
    ]
    store = NodeStore(paths[0], entropy=1)
    store.open("group.1").alter(b"no base")
    store.sync()
    store.close()
    found, [note] = read(paths)
    assert found == rows(8)
    assert note.startswith(
        f"{paths[0]}: the copy of the metadata repository cannot be read: "
    )


def test_positions_that_the_disk_gave_to_others_are_damage() -> None:
    stored = StoredStream(1, 5, 9, 1, (), CommitContext(4, 10, 1, 4, 13))
    fits = LogCut(LOG, 5, 16, (StreamRun(4, 5, 14, 3, 1),))
    assert list(last_commits(stored, 4, [fits])) == [CommitContext(5, 14, 5, 3, 16)]
    twice = LogCut(LOG, 5, 15, (StreamRun(4, 5, 13, 3, 1),))
    with pytest.raises(CorruptionError, match="the position 13"):
        list(last_commits(stored, 4, [twice]))


@given(
    lengths=st.lists(st.integers(1, 5), min_size=1, max_size=12),
    others=st.lists(st.integers(0, 3), min_size=12, max_size=12),
    cut=st.integers(0, 60),
    lacking=st.integers(0, 4),
    forgotten=st.integers(0, 12),
)
def test_what_is_taken_over_is_the_rest_of_the_cuts(
    lengths: list[int],
    others: list[int],
    cut: int,
    lacking: int,
    forgotten: int,
) -> None:
    """Model: the position of each record, written down one by one."""
    positions: list[int] = []
    cuts, glsn = [], 1
    for version, (length, other) in enumerate(zip(lengths, others, strict=False), 1):
        runs = [StreamRun(4, len(positions) + 1, glsn + other, length, 1)]
        if other:
            runs.insert(0, StreamRun(3, 1, glsn, other, 1))
        positions += range(glsn + other, glsn + other + length)
        glsn += other + length
        cuts.append(LogCut(LOG, version, glsn - 1, tuple(runs)))
    stored = max(len(positions) - lacking, 0)
    committed = min(cut, stored)
    last = positions[committed - 1] if committed else 0
    context = CommitContext(0, last, committed, 1 if committed else 0, last)
    state = StoredStream(1, committed + 1, stored + 1, 1, (), context)
    found = list(last_commits(state, 4, cuts[forgotten:]))
    given = {
        commit.llsn_begin + n: commit.glsn_begin + n
        for commit in found
        for n in range(commit.length)
    }
    known = sum(lengths[:forgotten]) <= committed
    expected = range(committed + 1, stored + 1) if known else ()
    assert given == {llsn: positions[llsn - 1] for llsn in expected}
