"""Looking at real files: healthy, in use, damaged; verification; repair."""

import json
import os
from pathlib import Path

import pytest

from braidlog.errors import (
    AlreadyExistsError,
    CorruptionError,
    LockedError,
    MissingFileError,
    NotFoundError,
)
from braidlog.store import inspect
from braidlog.store.inspect import Keep
from braidlog.store.store import open_store
from unit.store.files import SEGMENT_BYTES, batches, damage, fill, flip


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("healthy") / "data"
    fill(data)
    return data


@pytest.fixture
def data(tmp_path: Path) -> Path:
    fill(tmp_path / "data")
    return tmp_path / "data"


def contents(data: Path, log: str) -> list[tuple[int, bytes]]:
    with open_store(data) as node:
        return [(r.position, r.value) for r in node.log(log).read()]


def test_rows_of_a_healthy_directory(healthy: Path) -> None:
    rows = list(inspect.segments(healthy))
    used = [row for row in rows if row.number is not None]
    assert [row.state for row in used] == ["sealed"] * (len(used) - 1) + ["active"]
    assert {row.side for row in used[:-1]} == {"ok"}
    assert sum(row.records for row in used) == 200
    assert {part.log for row in used for part in row.logs} == {"orders", "small"}
    assert all(row.bytes == SEGMENT_BYTES and row.problem is None for row in rows)

    entries = list(inspect.index(healthy))
    assert sum(entry.end - entry.first for entry in entries) == 200
    samples = list(inspect.samples(healthy, 1, log="small"))
    assert samples[0].first == 1
    assert {sample.log for sample in samples} == {"small"}

    edits = list(inspect.manifest(healthy))
    assert edits[-1].operation == "close"
    assert [e.details for e in edits if e.operation == "open-segment"]


def test_frames_tell_what_they_hold(healthy: Path) -> None:
    everything = list(inspect.frames(healthy, 1))
    assert everything[0].kind == "preamble"
    assert all(row.ok for row in everything)
    [_, (_, small)] = batches(healthy, "small")[:2]
    assert small.batch is not None
    assert small.batch.compression == "zstd"
    order = batches(healthy, "orders")[4][1]
    assert order.batch is not None
    assert (order.batch.producer, order.batch.sequence, order.first) == (7, 5, 5)
    later = list(inspect.frames(healthy, 1, offset=order.offset))
    assert later[0] == order


def test_state_tells_what_the_next_open_finds(healthy: Path) -> None:
    seen = inspect.state(healthy)
    assert (seen.recovery, seen.fault, seen.holder) == ("clean", None, None)
    [orders, small] = seen.logs
    assert (orders.first, orders.end) == (1, 101)
    assert orders.producers[0].next_sequence == 101
    assert orders.cursors[0].position == 50
    assert small.options["compression"] == "zstd"


def test_everything_works_beside_a_writer(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with open_store(data, segment_bytes=SEGMENT_BYTES) as node:
        log = node.create_log("a")
        for round_ in range(30):
            log.append_many([bytes(500)] * 10)
            if round_ % 10 == 9:
                log.trim(before=log.end - 50)
            report = inspect.verify(data)
            assert (report.findings, report.notes) == ([], [])
            assert inspect.state(data).recovery == "in use"
            assert inspect.state(data).logs[0].end == log.end
        assert "process" in (inspect.state(data).holder or "")
        assert list(inspect.segments(data))
        with pytest.raises(LockedError):
            inspect.repair_plan(data)


def test_a_healthy_directory_verifies_with_progress(healthy: Path) -> None:
    told: list[tuple[int, int]] = []
    report = inspect.verify(healthy, progress=lambda *at: told.append(at))
    assert (report.findings, report.notes, report.records) == ([], [], 200)
    assert told[-1][0] == told[-1][1] == report.bytes


def test_progress_may_stop_the_work(healthy: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        inspect.verify(healthy, progress=stop)


def test_what_is_not_a_node_is_refused(tmp_path: Path) -> None:
    for look in (inspect.verify, inspect.repair_plan):
        with pytest.raises(NotFoundError):
            look(tmp_path)
        with pytest.raises(NotFoundError):
            look(tmp_path / "absent")


def test_damage_is_shown_and_stepped_over(data: Path) -> None:
    path, frame = batches(data, "orders")[10]
    flip(path, frame.offset + 12)
    number = next(s.number for s in inspect.segments(data) if s.path == str(path))
    assert number is not None
    rows = list(inspect.frames(data, number))
    [bad] = [row for row in rows if not row.ok]
    assert (bad.offset, bad.kind) == (frame.offset, None)
    assert rows[-1].ok
    assert rows[-1].offset > bad.offset
    [finding, *_] = inspect.verify(data).findings
    assert (finding.path, finding.offset) == (str(path), frame.offset)
    assert finding.severity == "corruption"


def test_a_manifest_that_is_gone_or_too_long_is_named(data: Path) -> None:
    [manifest] = data.glob("MANIFEST-*")
    manifest.rename(data.parent / "kept")
    with pytest.raises(MissingFileError, match=manifest.name):
        list(inspect.manifest(data))
    (data / "CURRENT").write_bytes(bytes(5000))
    with pytest.raises(CorruptionError, match="CURRENT"):
        list(inspect.manifest(data))


def test_a_side_file_is_only_derived(data: Path) -> None:
    flip(min((data / "wal").glob("*.idx")), 60)
    [finding] = inspect.verify(data).findings
    assert finding.severity == "degraded"
    assert next(iter(inspect.segments(data))).side == "bad"
    assert len(contents(data, "orders")) == 100


@pytest.mark.parametrize(
    ("keep", "at", "first", "end"),
    [
        ("most", 30, 31, 101),
        ("most", 70, 1, 70),
        ("newest", 70, 71, 101),
        ("oldest", 30, 1, 30),
    ],
)
def test_repair_keeps_one_side_of_a_hole(
    data: Path, keep: Keep, at: int, first: int, end: int
) -> None:
    before = contents(data, "orders")
    small = contents(data, "small")
    damage(data, "orders", at)
    plan = inspect.repair_plan(data, keep=keep)
    assert sum(loss.records for loss in plan.losses) == 100 - (end - first)
    original = {p: p.read_bytes() for p in data.rglob("*") if p.is_file()}
    copy = data.with_name("copy")
    done = inspect.repair(data, copy, keep=keep)
    assert done.plan == plan
    assert {p: p.read_bytes() for p in data.rglob("*") if p.is_file()} == original
    assert contents(copy, "orders") == [r for r in before if first <= r[0] < end]
    assert contents(copy, "small") == small
    with open_store(copy) as node:
        assert node.log("orders").append(b"next") == end
        assert node.log("orders").cursors()[0].position == min(50, end)
    note = inspect.state(copy).salvaged
    assert note["losses"] == json.loads((copy / "SALVAGED").read_text())["losses"]
    assert note["keep"] == keep
    with pytest.raises(AlreadyExistsError):
        inspect.repair(data, copy)


def test_repair_without_manifest_and_identity_loses_no_record(data: Path) -> None:
    before = contents(data, "orders"), contents(data, "small")
    for name in ("IDENTITY", "CURRENT", *(p.name for p in data.glob("MANIFEST-*"))):
        (data / name).unlink()
    with pytest.raises(CorruptionError):
        open_store(data)
    assert inspect.verify(data).findings
    assert inspect.state(data).recovery == "corruption"
    copy = data.with_name("copy")
    done = inspect.repair(data, copy)
    assert done.plan.losses == []
    assert done.plan.guesses
    assert (contents(copy, "orders"), contents(copy, "small")) == before


def cut_edits(data: Path, *, left: int) -> None:
    """Let the manifest end behind so many of the segments that it opened."""
    edits = list(inspect.manifest(data))
    opened = [e.offset for e in edits if e.operation == "open-segment"]
    [manifest] = data.glob("MANIFEST-*")
    os.truncate(manifest, opened[left])


@pytest.mark.parametrize("left", [0, 2])
def test_segments_that_the_manifest_lost_come_back(data: Path, left: int) -> None:
    before = contents(data, "orders")
    cut_edits(data, left=left)
    with pytest.raises(CorruptionError):
        open_store(data)
    [finding] = inspect.verify(data).findings
    assert finding.severity == "corruption"
    assert "was durable" in finding.problem
    assert inspect.state(data).recovery == "corruption"
    copy = data.with_name("copy")
    plan = inspect.repair(data, copy).plan
    assert plan.losses == []
    assert "the file list is lost" in plan.guesses[0]
    assert contents(copy, "orders") == before


@pytest.mark.parametrize("left", [0, 5000, 20_000])
def test_a_repair_says_that_the_end_is_missing(data: Path, left: int) -> None:
    [newest] = [s for s in inspect.segments(data) if s.state == "active"]
    os.truncate(newest.path, left)
    [loss] = [loss for loss in inspect.repair_plan(data).losses if loss.log is None]
    assert "of the newest segment" in loss.reason
    assert inspect.repair(data, data.with_name("copy")).report.findings == []


def test_an_interrupted_repair_leaves_nothing_that_opens(data: Path) -> None:
    def stop(done: int, total: int) -> None:
        if done * 3 > total:
            raise KeyboardInterrupt

    copy = data.with_name("copy")
    with pytest.raises(KeyboardInterrupt):
        inspect.repair(data, copy, progress=stop)
    if (copy / "IDENTITY").exists():
        assert inspect.verify(copy).findings == []
    elif copy.exists():
        with pytest.raises(CorruptionError):
            open_store(copy)
