"""Raw directories through Python: what comes out, what is refused."""

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import braidlog
from braidlog import _native
from braidlog.errors import (
    CorruptionError,
    InvalidArgumentError,
    LockedError,
    NotFoundError,
    TooLargeError,
)
from braidlog.logstream.storage import CommitContext
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.store.merge import RawDirectory, RawMerge
from braidlog.store.node_store import NodeStore

SEGMENT = 64 << 10
LOG = b"L" * 16


def batch(*values: bytes) -> bytes:
    return _native.encode_batch(values, timestamps=1)


def write(
    path: Path,
    rounds: int,
    *,
    budget: int = 1 << 20,
    size: int = 100,
    hold: int = 1,
    segment: int = SEGMENT,
) -> list[bytes]:
    """Write two streams, cut every `hold` rounds, and close; return the log."""
    node = NodeStore(path, entropy=7, segment_bytes=segment, order_bytes_max=budget)
    stores = [ReplicaStore.create(node, number) for number in (1, 2)]
    for store in stores:
        store.share_order(LOG)
    order: list[bytes] = []
    first = {1: 1, 2: 1}
    waiting: dict[int, list[bytes]] = {1: [], 2: []}
    for turn in range(rounds):
        for store in stores:
            value = b"%d/%d/" % (store.number, turn) + bytes(size)
            store.append(0, [batch(value)])
            waiting[store.number].append(value)
        if turn % hold == hold - 1:
            glsn = len(order) + 1
            high = glsn + 2 * hold - 1
            for store in stores:
                context = CommitContext(turn + 1, glsn, first[store.number], hold, high)
                store.commit(0, context)
                first[store.number] += hold
                glsn += hold
                order += waiting[store.number]
                waiting[store.number] = []
    node.sync()
    node.close()
    return order


def merge(paths: Sequence[Path], **keywords: object) -> RawMerge:
    sources = []
    for path in paths:
        directory = RawDirectory(path)
        names = {log.name: log.stream for log in directory.logs()}
        numbers = {names[f"stream.{number}"]: number for number in (1, 2)}
        sources.append((directory, numbers))
    found = RawMerge(sources, **keywords)  # type: ignore[arg-type]
    for directory, _ in sources:
        found.own(directory)
    return found


def read(merge: RawMerge) -> tuple[list[int], list[bytes]]:
    table = pa.Table.from_batches([pa.record_batch(each) for each in merge])
    return table["position"].to_pylist(), table["value"].to_pylist()


def test_the_records_of_two_copies_come_out_once_and_in_order(tmp_path: Path) -> None:
    order = write(tmp_path / "a", 900)
    assert write(tmp_path / "b", 700) == order[:1400]
    with merge([tmp_path / "a", tmp_path / "b"]) as merged:
        positions, values = read(merged)
        assert positions == list(range(1, 1801))
        assert values == order
        figures = merged.figures()
    assert (figures.next, figures.records, figures.duplicates) == (1801, 1800, 1400)
    assert [source.late_bytes for source in figures.sources] == [0, 0]
    with merge([tmp_path / "b", tmp_path / "a"], begin=1500) as merged:
        assert read(merged)[0] == list(range(1500, 1801))


def test_encoded_batches_have_their_places(tmp_path: Path) -> None:
    order = write(tmp_path, 20)
    with merge([tmp_path]) as merged:
        rows = [each for some in merged.encoded() for each in some]
    assert [each.position for each in rows] == list(range(1, 41))
    assert [each.stream for each in rows] == [1, 2] * 20
    assert [each.llsn for each in rows] == [n // 2 + 1 for n in range(40)]
    for each, value in zip(rows, order, strict=True):
        records = _native.Batch(each.batch).records(each.llsn)
        assert [record.value for record in records][each.first] == value


def test_what_is_pending_stays_within_the_budget_of_the_writer(tmp_path: Path) -> None:
    peaks = {}
    for name, rounds in (("short", 200), ("long", 4000)):
        order = write(tmp_path / name, rounds, budget=20_000, hold=40)
        with merge([tmp_path / name]) as merged:
            assert read(merged)[1] == order
            peaks[name] = merged.figures().sources[0].pending_bytes_peak
    assert 0 < peaks["short"] <= 20_000
    assert peaks["long"] <= 20_000


def test_a_writer_that_breaks_its_promise_is_named(tmp_path: Path) -> None:
    order = write(tmp_path, 400, budget=1 << 40, hold=200)
    directory = RawDirectory(tmp_path, order_bytes_max=9000)
    with directory:
        numbers = {log.stream: int(log.name[-1]) for log in directory.logs()}
        merged = RawMerge([(directory, numbers)])
        with pytest.raises(TooLargeError, match="order_bytes_max") as caught:
            merged.drain()
        assert caught.value.limit == 9000
        merged.close()
    with merge([tmp_path]) as merged:
        assert merged.drain()[0] == len(order)


def test_damage_of_one_copy_is_made_up_for_by_another(tmp_path: Path) -> None:
    order = write(tmp_path / "a", 900)
    write(tmp_path / "b", 900)
    slot = tmp_path / "a" / "wal" / "slot-000001.wal"
    data = bytearray(slot.read_bytes())
    data[SEGMENT // 2] ^= 1
    slot.write_bytes(data)
    with merge([tmp_path / "a", tmp_path / "b"]) as merged:
        assert read(merged)[1] == order
        [damage] = merged.figures().damages
    assert damage.path == str(slot)
    assert damage.end is not None
    assert damage.begin <= SEGMENT // 2 < damage.end
    with merge([tmp_path / "a"]) as merged, pytest.raises(CorruptionError) as caught:
        merged.drain()
    assert caught.value.path == str(slot)


def test_copies_that_differ_are_named_with_both_places(tmp_path: Path) -> None:
    write(tmp_path / "a", 5)
    write(tmp_path / "b", 5, size=101)
    paths = [tmp_path / "a", tmp_path / "b"]
    with merge(paths) as merged, pytest.raises(CorruptionError) as caught:
        merged.drain()
    message = str(caught.value)
    assert all(str(path / "wal" / "slot-000001.wal") in message for path in paths)
    assert "position 1 " in message


def test_an_embedded_log_is_read_too(tmp_path: Path) -> None:
    with braidlog.open(tmp_path, segment_bytes=SEGMENT) as node:
        log = node.create_log("a")
        log.append_many([b"%d" % n for n in range(5000)])
        log.trim(701)
        with pytest.raises(LockedError):
            RawDirectory(tmp_path)
    with RawDirectory(tmp_path) as directory:
        [row] = directory.logs()
        assert (row.name, row.explicit_commit) == ("a", False)
        with RawMerge([(directory, {row.stream: 1})]) as merged:
            positions, values = read(merged)
    assert positions == list(range(701, 5001))
    assert values[:2] == [b"700", b"701"]


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        RawDirectory(tmp_path)
    with pytest.raises(InvalidArgumentError, match="on_hole"):
        RawMerge([], on_hole="perhaps")  # type: ignore[arg-type]
    with RawMerge([]) as merged:
        assert merged.drain() == (0, 0)
