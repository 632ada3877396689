"""The ring: laps, torn writes, damage, refusals, failing disks, real files."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.errors import (
    ClosedError,
    CorruptionError,
    FencedError,
    ForeignFormatError,
    InvalidArgumentError,
    LockedError,
    NotFoundError,
    StoreFailedError,
    UnavailableError,
)
from braidlog.faultlog import Configuration, ForkedError, scan
from braidlog.faultlog.record import SLOT_BYTES, encode
from braidlog.faultlog.scan import offsets_of
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.node.rescue.ring import read_ring, write_locked
from unit.faultlog.worlds import record

SLOTS = 8
MEMBERS = (1, 2, 3)


def number(sequence: int, *failed: int) -> Configuration:
    return Configuration(1, sequence, MEMBERS, failed)


class Memory:
    """A ring whose writes can stop at any byte."""

    path = "FAULTS"

    def __init__(self, slots: int = SLOTS) -> None:
        self.data = bytearray(slots * SLOT_BYTES)
        self.budget: int | None = None
        self.writes = 0

    def read(self) -> bytes:
        return bytes(self.data)

    def write(self, offset: int, data: bytes) -> None:
        self.writes += 1
        length = len(data) if self.budget is None else min(self.budget, len(data))
        self.data[offset : offset + length] = data[:length]
        if self.budget is not None:
            self.budget -= length
            if length < len(data) or self.budget == 0:
                raise OSError(errno.EIO, "the machine stopped")

    def close(self) -> None:
        pass


def opened(ring: Memory, node: int = 1) -> FaultLog:
    return FaultLog(ring, "green", node)


def filled(records: int, slots: int = SLOTS) -> Memory:
    ring = Memory(slots)
    log = opened(ring)
    for sequence in range(records):
        log.record(number(sequence), viable=True)
    return ring


def sequence_of(log: FaultLog) -> int | None:
    return log.newest.configuration.sequence if log.newest else None


@pytest.mark.parametrize("records", [0, 1, 2, 3, 4, 5, 8, 9, 31])
def test_the_newest_record_is_found_in_every_lap(records: int) -> None:
    ring = filled(records)
    log = opened(ring)
    assert sequence_of(log) == (records - 1 if records else None)
    assert log.notes == ()
    assert len(ring.data) == SLOTS * SLOT_BYTES


@pytest.mark.parametrize("records", [0, 1, 3, 4, 5, 9])
@pytest.mark.parametrize("kept", [1, 511, 512, 2048, 4064, 4095])
@pytest.mark.parametrize("copy", [0, 1])
def test_a_torn_write_leaves_one_record_or_the_other(
    records: int, kept: int, copy: int
) -> None:
    ring = filled(records)
    log = opened(ring)
    ring.budget = copy * SLOT_BYTES + kept
    with pytest.raises(StoreFailedError):
        log.record(number(records), viable=True)
    ring.budget = None
    before = ring.writes
    again = opened(ring)
    if copy == 0:
        assert sequence_of(again) == (records - 1 if records else None)
        # What was there a lap ago begins with the same bytes.
        assert bool(again.notes) == (kept > 1 or records < SLOTS // 2)
        assert all("torn" in note for note in again.notes)
    else:
        assert sequence_of(again) == records
        assert ring.writes > before  # it has its second copy now
        assert scan(ring.read()).incomplete is False
    again.record(number(records + 1), viable=True)
    assert sequence_of(opened(ring)) == records + 1
    assert opened(ring).notes == ()


@pytest.mark.parametrize("records", [1, 4, 5, 9])
def test_one_damaged_place_never_hides_the_newest_record(records: int) -> None:
    whole = filled(records)
    half = SLOTS // 2
    for place in range(half):
        for at in (0, 100, 4095):
            for copies in ((0,), (1,), (0, 1)):
                ring = Memory()
                ring.data[:] = whole.data
                for copy in copies:
                    ring.data[(place + copy * half) * SLOT_BYTES + at] ^= 16
                try:
                    found = sequence_of(opened(ring))
                except CorruptionError:
                    # Whatever is missing there may have been the newest.
                    unused = (place, copies) == (records, (1,))
                    assert unused or len(copies) == 2
                else:
                    assert found == records - 1


def test_a_newest_record_that_is_lost_is_refused() -> None:
    ring = filled(6)
    for offset in (1 * SLOT_BYTES, 5 * SLOT_BYTES):
        ring.data[offset + 9] ^= 1
    with pytest.raises(CorruptionError, match="may be lost"):
        opened(ring)


def test_a_newest_record_that_was_zeroed_is_refused() -> None:
    ring = filled(6)
    for offset in (1 * SLOT_BYTES, 5 * SLOT_BYTES):
        ring.data[offset : offset + SLOT_BYTES] = bytes(SLOT_BYTES)
    with pytest.raises(CorruptionError, match="may be lost"):
        opened(ring)


def test_damage_of_old_records_is_said_and_changes_nothing() -> None:
    ring = filled(8)
    ring.data[SLOT_BYTES + 9] ^= 1
    log = opened(ring)
    assert sequence_of(log) == 7
    assert "does not match" in log.notes[0]


def test_rings_that_do_not_fit_together_are_refused() -> None:
    ring, other = filled(6), filled(7)
    shifted = Memory()
    shifted.data[SLOT_BYTES:] = ring.data[:-SLOT_BYTES]
    with pytest.raises(CorruptionError, match="another ring or place"):
        opened(shifted)
    mixed = opened(Memory())
    for sequence in range(20, 26):
        mixed.record(number(sequence), viable=True)
    assert isinstance(mixed._ring, Memory)
    mixed._ring.data[:SLOT_BYTES] = ring.data[:SLOT_BYTES]
    mixed._ring.data[4 * SLOT_BYTES : 5 * SLOT_BYTES] = ring.data[
        4 * SLOT_BYTES : 5 * SLOT_BYTES
    ]
    with pytest.raises(CorruptionError, match="does not follow"):
        opened(mixed._ring)
    other.data[:] = b"\xff" * len(other.data)
    with pytest.raises(CorruptionError, match="none of the records"):
        opened(other)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"cluster": "blue"}, "another ring"),
        ({"node": 2}, "another ring"),
        ({"sequence": 9}, "contradicts"),
        ({"serial": 6, "viable": False}, "contradicts"),
    ],
)
def test_whole_records_that_cannot_stand_together_are_refused(
    change: dict[str, Any], match: str
) -> None:
    ring = filled(6)
    serial = change.get("serial", 4)
    forged = record(**{"sequence": serial - 1, "serial": serial} | change)
    for offset in offsets_of(serial, SLOTS)[1:]:
        ring.data[offset : offset + SLOT_BYTES] = encode(forged)
    with pytest.raises(CorruptionError, match=match):
        opened(ring)


def test_a_repeat_writes_nothing() -> None:
    ring = filled(3)
    log = opened(ring)
    before = log.record(number(2), viable=True)
    assert ring.writes == 6
    assert log.record(number(2), viable=True) is before
    assert ring.writes == 6


def test_the_same_configuration_with_another_viability_is_a_record() -> None:
    ring = Memory()
    log = opened(ring)
    log.record(number(0), viable=False)
    log.record(number(0), viable=True)
    newest = opened(ring).newest
    assert newest is not None
    assert (newest.viable, newest.serial) == (True, 2)


def test_what_must_not_be_recorded_changes_nothing() -> None:
    ring = Memory()
    log = opened(ring)
    log.record(number(3, 2), viable=True)
    before = ring.read()
    with pytest.raises(FencedError):
        log.record(number(2), viable=True)
    with pytest.raises(ForkedError) as caught:
        log.record(number(3, 3), viable=True)
    assert caught.value.number == (1, 3)
    with pytest.raises(InvalidArgumentError, match="not viable"):
        log.record(number(4, 1), viable=True)
    with pytest.raises(InvalidArgumentError, match="no member"):
        log.record(Configuration(1, 4, (2, 3)), viable=True)
    assert ring.read() == before
    log.record(Configuration(2, 0, MEMBERS, (2,)), viable=True)


def test_a_failed_write_ends_all_recording() -> None:
    ring = filled(2)
    log = opened(ring)
    ring.budget = 10
    with pytest.raises(StoreFailedError):
        log.record(number(2), viable=True)
    ring.budget = None
    with pytest.raises(StoreFailedError):
        log.record(number(2), viable=True)
    assert sequence_of(log) == 1


def test_a_thousand_failures_take_no_more_space() -> None:
    ring = Memory()
    log, configuration = opened(ring), number(0)
    for _ in range(500):
        configuration = configuration.without([2])
        mine = log.record(configuration, viable=True)
        joiner = type(mine)("green", 2, configuration, viable=False)
        configuration = joiner.with_back(configuration)
        log.record(configuration, viable=True)
    assert sequence_of(opened(ring)) == 1000
    assert len(ring.data) == SLOTS * SLOT_BYTES


# Real files.


def test_a_ring_in_a_directory(tmp_path: Path) -> None:
    with FaultLog.open(tmp_path, "green", 1) as log:
        assert log.newest is None
        log.record(number(0), viable=True)
    size = (tmp_path / "FAULTS").stat().st_size
    assert size == 256 * SLOT_BYTES
    with FaultLog.open(tmp_path, "green", 1, slots=4, create=False) as log:
        for sequence in range(1, 300):
            log.record(number(sequence), viable=True)
    with FaultLog.open(tmp_path, "green", 1) as log:
        assert sequence_of(log) == 299
    assert (tmp_path / "FAULTS").stat().st_size == size
    assert [path.name for path in tmp_path.iterdir()] == ["FAULTS"]
    found = scan(read_ring(tmp_path)).newest
    assert found is not None
    assert found.serial == 300
    log.close()
    with pytest.raises(ClosedError):
        log.record(number(301), viable=True)


def test_another_nodes_ring_is_refused(tmp_path: Path) -> None:
    with FaultLog.open(tmp_path, "green", 1) as log:
        log.record(number(0), viable=True)
    for cluster, node in (("blue", 1), ("green", 2)):
        with pytest.raises(
            ForeignFormatError, match="belongs to node 1 of cluster 'green'"
        ) as caught:
            FaultLog.open(tmp_path, cluster, node)
        # Nothing is damaged, so the hint of the class would mislead.
        assert "[node] id and [cluster] name" in caught.value.hint
    assert sequence_of(FaultLog.open(tmp_path, "green", 1)) == 0


def test_what_is_no_ring_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        FaultLog.open(tmp_path, "green", 1, create=False)
    with pytest.raises(NotFoundError):
        read_ring(tmp_path)
    with pytest.raises(NotFoundError):
        FaultLog.open(tmp_path / "nowhere", "green", 1)
    for slots in (0, 2, 5, 65538):
        with pytest.raises(InvalidArgumentError):
            FaultLog.open(tmp_path, "green", 1, slots=slots)
    assert list(tmp_path.iterdir()) == []
    for content in (b"", b"x", bytes(SLOT_BYTES * 5)):
        (tmp_path / "FAULTS").write_bytes(content)
        with pytest.raises(CorruptionError, match="a fault log cannot have"):
            FaultLog.open(tmp_path, "green", 1)


def test_a_creation_that_was_cut_off_is_done_again(tmp_path: Path) -> None:
    (tmp_path / "FAULTS.tmp").write_bytes(b"half")
    FaultLog.open(tmp_path, "green", 1).close()
    assert [path.name for path in tmp_path.iterdir()] == ["FAULTS"]


def test_a_full_disk_at_creation_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("braidlog.node.rescue.ring.os.fsync", full)
        with pytest.raises(UnavailableError, match="No space left"):
            FaultLog.open(tmp_path, "green", 1)
    assert list(tmp_path.iterdir()) == []
    FaultLog.open(tmp_path, "green", 1).close()


def test_a_failed_sync_fails_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(file: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with FaultLog.open(tmp_path, "green", 1) as log:
        log.record(number(0), viable=True)
        with monkeypatch.context() as patched:
            patched.setattr("braidlog.node.rescue.ring.os.fdatasync", broken)
            with pytest.raises(StoreFailedError, match="Input/output"):
                log.record(number(1), viable=True)
        with pytest.raises(StoreFailedError):
            log.record(number(1), viable=True)


def test_each_copy_is_synced_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    pwrite, fdatasync = os.pwrite, os.fdatasync

    def write(file: int, data: bytes, offset: int) -> int:
        calls.append(f"write {offset}")
        return pwrite(file, data[:3000], offset)

    def sync(file: int) -> None:
        calls.append("sync")
        fdatasync(file)

    with FaultLog.open(tmp_path, "green", 1, slots=4) as log:
        monkeypatch.setattr("braidlog.node.rescue.ring.os.pwrite", write)
        monkeypatch.setattr("braidlog.node.rescue.ring.os.fdatasync", sync)
        log.record(number(0), viable=True)
    half = 2 * SLOT_BYTES
    first = ["write 0", "write 3000", "sync"]
    assert calls == [*first, f"write {half}", f"write {half + 3000}", "sync"]


def test_the_lock_is_the_one_of_the_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with braidlog.open(data), pytest.raises(LockedError), write_locked(data):
        pytest.fail("two have the lock")
    with write_locked(data), pytest.raises(LockedError):
        braidlog.open(data)
    braidlog.open(data).close()
