"""Directories of dead nodes, read by many tasks: what one merge gives."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from braidlog import _native
from braidlog.errors import BeyondEndError, CorruptionError, LockedError
from braidlog.faultlog.configuration import Configuration
from braidlog.logstream.storage import CommitContext
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.node.rescue import raw
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.pipelines.compact_job import compact
from braidlog.pipelines.shuffle import COLUMNS
from braidlog.sources import dead as sources_dead
from braidlog.sources.origin import Origin
from braidlog.sources.plan import Span
from braidlog.store.node_store import NodeStore
from braidlog.store.raw_streams import RawStreams
from unit.node.rescue.test_raw import LOG, config, killed

COUNT = 300
"""Records of each of two streams."""
RUN = 3


def write(path: Path, node: int, count: int = COUNT, *, changed: int = 0) -> Path:
    """A node with two streams, whose runs of three take turns; one record differs."""
    store = NodeStore(path, entropy=node, segment_bytes=64 << 10)
    replicas = []
    for stream in (4, 5):
        about = msgspec.structs.replace(config(), stream=stream)
        replica = ReplicaStore.create(store, stream, msgspec.msgpack.encode(about))
        replica.share_order(LOG)
        replicas.append(replica)
    for at in range(1, count + 1, RUN):
        for turn, replica in enumerate(replicas):
            glsn = 2 * at - 1 + turn * RUN
            here = range(glsn, glsn + RUN)
            values = [b"changed" if n == changed else b"%d" % n * 20 for n in here]
            keys = [b"k%d" % (n % 70) for n in here]
            # Copies need not be cut into the same batches.
            batches = [slice(0, 3)] if node == 1 else [slice(0, 1), slice(1, 3)]
            for part in batches:
                data = _native.encode_batch(values[part], keys[part], timestamps=1)
                replica.append(0, [data])
            replica.commit(0, CommitContext(at, glsn, at, RUN, glsn + RUN - 1))
    store.sync()
    with FaultLog.open(path, "green", node) as faults:
        faults.record(Configuration(1, 0, (1, 2, 3)), viable=True)
    store.close()
    return path


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of some KB is cut as well."""
    monkeypatch.setattr(sources_dead, "_BYTES_MIN", 1)


@pytest.fixture(scope="module")
def dead(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The third node was behind when all of them died."""
    root = tmp_path_factory.mktemp("dead")
    return [write(root / "1", 1), write(root / "2", 2), write(root / "3", 3, 240)]


def origin(directories: list[Path]) -> Origin:
    return Origin("bank", raw=tuple(map(str, directories)))


def ranges_of(directories: list[Path], until: int | None = None) -> list[Span]:
    with origin(directories).open() as source:
        return source.ranges(until, 4_000)


def read(directories: list[Path], ranges: list[Span]) -> list[dict[str, object]]:
    with origin(directories).open() as source:
        return [
            row
            for each in ranges
            for batch in source.batches(each.begin, each.end, columns=COLUMNS)
            for row in batch.to_pylist()
        ]


def merged(directories: list[Path]) -> Iterator[dict[str, object]]:
    with raw.open_raw(directories, "bank") as merge:
        for batch in merge:
            yield from pa.record_batch(batch).select(list(COLUMNS)).to_pylist()


def test_ranges_are_what_the_merge_gives(dead: list[Path]) -> None:
    ranges = ranges_of(dead)
    assert len(ranges) > 10
    assert (ranges[0].begin, ranges[-1].end) == (1, 2 * COUNT + 1)
    assert read(dead, ranges) == list(merged(dead))
    some = ranges_of(list(reversed(dead)), 100)
    assert [row["position"] for row in read(dead, some)] == list(range(1, 101))
    with pytest.raises(BeyondEndError, match="before the requested position 601"):
        ranges_of(dead, 601)


def test_a_task_reads_its_range_alone(
    dead: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    chunk = RawStreams.copy_chunk
    llsns: set[tuple[int, int]] = set()

    def copy_chunk(self, stream, copy, begin, end):  # type: ignore[no-untyped-def]
        parts = chunk(self, stream, copy, begin, end)
        llsns.update((copy, n) for p in parts for n in range(p.llsn, p.llsn + p.count))
        return parts

    monkeypatch.setattr(RawStreams, "copy_chunk", copy_chunk)
    read(dead, [Span(101, 161, 0)])
    # Of each of two streams thirty records or so, of each of three copies.
    assert {copy for copy, _ in llsns} == {0, 1, 2}
    assert all(45 < n < 90 for _, n in llsns)


def test_copies_are_compared(tmp_path: Path) -> None:
    directories = [
        write(tmp_path / "1", 1),
        write(tmp_path / "2", 2, changed=333),
        write(tmp_path / "3", 3),
    ]
    ranges = ranges_of(directories)
    mine = [each for each in ranges if each.begin <= 333 < each.end]
    with pytest.raises(CorruptionError, match=r"record at 333 in .*[12] .*[12] differ"):
        read(directories, mine)
    others = [each for each in ranges if each not in mine]
    assert len(read(directories, others)) == 600 - (mine[0].end - mine[0].begin)
    with pytest.raises(CorruptionError, match="differ"):
        compact(origin(directories), tmp_path / "out", workers=1, bytes_per_task=4_000)


def test_damage_of_some_copies_is_made_up_for(tmp_path: Path) -> None:
    directories = [write(tmp_path / str(node), node) for node in (1, 2, 3)]
    expected = list(merged(directories))

    def damage(directory: Path, position: int) -> None:
        for slot in (directory / "wal").glob("*.wal"):
            data = bytearray(slot.read_bytes())
            if (at := data.find(b"%d" % position * 20)) > 0:
                data[at] ^= 1
                slot.write_bytes(data)
                return
        raise AssertionError("it is nowhere")

    damage(directories[0], 100)
    damage(directories[1], 200)
    ranges = ranges_of(directories)
    assert len(ranges) > 10
    assert read(directories, ranges) == expected
    damage(directories[1], 100)
    damage(directories[2], 100)
    mine = [each for each in ranges if each.begin <= 100 < each.end]
    with pytest.raises(CorruptionError):
        read(directories, mine)


def test_nobody_runs_on_them_meanwhile(dead: list[Path]) -> None:
    ranges = ranges_of(dead)
    with (dead[1] / "LOCK").open("rb") as node:
        fcntl.flock(node, fcntl.LOCK_EX)
        with pytest.raises(LockedError, match="a node is running on"):
            read(dead, ranges)
    with origin(dead).open() as one:
        batches = one.batches(1, 601, columns=COLUMNS)
        next(batches)
        # Others read at the same time, and no node can begin.
        assert len(read(dead, ranges)) == 600
        with pytest.raises(LockedError):
            NodeStore(dead[1], entropy=2)
        batches.close()  # type: ignore[attr-defined]


def test_what_only_the_repository_knows_is_for_a_merge(tmp_path: Path) -> None:
    """Commits that no disk has: all is one range, and comes out."""
    directories = [
        killed(tmp_path / str(node), node, stored=9, committed=node, cuts=9)
        for node in (1, 2, 3)
    ]
    ranges = ranges_of(directories)
    assert [row["position"] for row in read(directories, ranges)] == [*range(1, 10)]


def test_what_a_merge_reads_in_seconds_is_left_to_it(
    dead: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources_dead, "_BYTES_MIN", 1 << 20)
    [one] = ranges_of(dead)
    assert (one.begin, len(read(dead, [one]))) == (0, 2 * COUNT)
