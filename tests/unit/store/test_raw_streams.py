"""Streams of raw directories on their own: the same records as the merge gives."""

import heapq
from collections.abc import Sequence
from pathlib import Path

import pytest

from braidlog import _native
from braidlog.errors import CorruptionError, TrimmedError
from braidlog.logstream.storage import CommitContext
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.store.merge import RawDirectory
from braidlog.store.node_store import NodeStore
from braidlog.store.raw_streams import RawSource, RawStreams, StoredPart
from unit.store.test_merge import LOG, SEGMENT, batch, merge, read, write


def streams(paths: Sequence[Path], names: Sequence[int] = (1, 2)) -> RawStreams:
    sources = []
    for path in paths:
        with RawDirectory(path) as directory:
            numbers = {log.name: log.stream for log in directory.logs()}
        pairs = tuple((numbers[f"stream.{name}"], name) for name in names)
        sources.append(RawSource(path, pairs, explicit=True))
    return RawStreams(sources)


def values(parts: Sequence[StoredPart]) -> list[bytes]:
    found = []
    for part in parts:
        records = _native.Batch(part.data).records(part.glsn - part.skip, part.skip)
        found += [record.value for record in records][: part.count]
    return found


def test_ranges_of_streams_are_the_log(tmp_path: Path) -> None:
    order = write(tmp_path / "a", 900, hold=3)
    write(tmp_path / "b", 700, hold=3)
    with streams([tmp_path / "b", tmp_path / "a"]) as raw:
        assert raw.streams == (1, 2)
        assert raw.end(1) == 1801
        assert raw.cut(1801) == {1: 901, 2: 901}
        # Three of one stream, three of the other, and so on.
        assert raw.cut(8) == {1: 5, 2: 4}
        for begin, end in ((1, 1801), (5, 6), (700, 1500)):
            begins, ends = raw.cut(begin), raw.cut(end)
            parts = [list(raw.parts(s, begins[s], ends[s])) for s in raw.streams]
            merged = list(heapq.merge(*parts, key=lambda part: part.glsn))
            assert values(merged) == order[begin - 1 : end - 1]
            for stream, each in zip(raw.streams, parts, strict=True):
                llsns = [n for p in each for n in range(p.llsn, p.llsn + p.count)]
                assert llsns == list(range(begins[stream], ends[stream]))
        assert sum(segment.bytes for segment in raw.segments(1)) > 90_000


def test_it_ends_where_the_merge_ends(tmp_path: Path) -> None:
    """One directory has stream 1 alone, the other less of stream 2."""
    write(tmp_path / "a", 90)
    write(tmp_path / "b", 70)
    with streams([tmp_path / "a"], [1]) as raw:
        assert raw.end(1) == 2
    with merge([tmp_path / "b"]) as merged:
        assert read(merged)[0][-1] == 140
    with streams([tmp_path / "b"]) as raw:
        assert raw.end(1) == 141


def test_what_one_directory_has_trimmed_another_may_have(tmp_path: Path) -> None:
    """The one that trims late is also the one that knows less: both are the log."""
    paths = [tmp_path / "a", tmp_path / "b"]
    order = write(paths[0], 900, hold=3)
    write(paths[1], 700, hold=3)
    node = NodeStore(paths[0], entropy=7)
    for number in (1, 2):
        ReplicaStore(node, number).trim(601)
    node.sync()
    node.close()
    with merge(paths) as merged:
        positions, expected = read(merged)
    assert (positions[0], expected) == (1, order)
    with streams(paths) as raw:
        assert raw.end(1) == 1801
        for position in (1, 9, 1199, 1202, 1500):
            begins = raw.cut(position)
            parts = [list(raw.parts(s, begins[s], 901)) for s in raw.streams]
            merged_parts = list(heapq.merge(*parts, key=lambda part: part.glsn))
            assert values(merged_parts) == order[position - 1 :]


def test_damage_of_one_copy_is_made_up_for_by_another(tmp_path: Path) -> None:
    order = write(tmp_path / "a", 900)
    write(tmp_path / "b", 900)
    slot = tmp_path / "a" / "wal" / "slot-000001.wal"
    data = bytearray(slot.read_bytes())
    data[SEGMENT // 2] ^= 1
    slot.write_bytes(data)
    with streams([tmp_path / "a"]) as raw, pytest.raises(CorruptionError):
        _ = [list(raw.parts(stream, 1, 901)) for stream in raw.streams]
    with streams([tmp_path / "a", tmp_path / "b"]) as raw:
        parts = [list(raw.parts(stream, 1, 901)) for stream in raw.streams]
    merged = list(heapq.merge(*parts, key=lambda part: part.glsn))
    assert values(merged) == order


def test_what_no_directory_has(tmp_path: Path) -> None:
    write(tmp_path, 900)
    node = NodeStore(tmp_path, entropy=7)
    ReplicaStore(node, 1).trim(601)
    node.sync()
    node.close()
    with streams([tmp_path]) as raw:
        with pytest.raises(TrimmedError, match="601"):
            list(raw.parts(1, 1, 901))
        assert len(values(list(raw.parts(1, 601, 901)))) == 300
        with pytest.raises(CorruptionError, match="none of the directories has"):
            list(raw.parts(2, 1, 902))


def test_a_batch_that_two_cuts_committed(tmp_path: Path) -> None:
    """Its first half lies before a record of the other stream, its second behind."""
    node = NodeStore(tmp_path, entropy=7, segment_bytes=SEGMENT)
    one, two = (ReplicaStore.create(node, number) for number in (1, 2))
    for store in (one, two):
        store.share_order(LOG)
    one.append(0, [batch(b"a", b"b", b"d", b"e")])
    two.append(0, [batch(b"c")])
    one.commit(0, CommitContext(1, 1, 1, 2, 3))
    two.commit(0, CommitContext(1, 3, 1, 1, 3))
    one.commit(0, CommitContext(2, 4, 3, 2, 5))
    node.sync()
    node.close()
    with streams([tmp_path]) as raw:
        assert raw.end(1) == 6
        parts = [list(raw.parts(1, 1, 5)), list(raw.parts(2, 1, 2))]
        assert [(p.glsn, p.llsn, p.skip, p.count) for p in parts[0]] == [
            (1, 1, 0, 2),
            (4, 3, 2, 2),
        ]
        assert [(p.glsn, p.count) for p in raw.parts(1, 2, 4)] == [(2, 1), (4, 1)]
    merged = list(heapq.merge(*parts, key=lambda part: part.glsn))
    assert values(merged) == [b"a", b"b", b"c", b"d", b"e"]
