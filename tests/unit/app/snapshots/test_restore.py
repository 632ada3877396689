"""Opening a host whose databases are lost, behind or half restored."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from braidlog.app import (
    ApplicationMismatchError,
    Host,
    Snapshot,
    SnapshotDamagedError,
    SnapshotFailedError,
    SnapshotSettings,
)
from braidlog.app.state.database import DatabaseView
from braidlog.errors import CorruptionError, TrimmedError
from unit.app.banking import make_bank

OPTIONS = {"segment_bytes": 1 << 20, "wal_bytes_max": 16 << 20}


class Stopped(BaseException):
    """A crash, as far as the code can tell."""


def open_bank(path: Path, step: Any = None, **settings: Any) -> Host:
    given = SnapshotSettings(**{"automatic": False, "reserve_bytes": 0, **settings})
    return make_bank().open(path, snapshots=given, step=step, **OPTIONS)


def make(path: Path, count: int, **settings: Any) -> tuple[list[Snapshot], list[bytes]]:
    """Make a host with snapshots, and calls behind the last; then lose its state."""
    with open_bank(path, **settings) as host:
        taken = []
        for _ in range(count):
            for account in range(12):
                host.call("deposit", account, 10)
            taken.append(host.snapshot())
        host.call("transfer", 1, 2, 3)
        hashes = host.hashes()[1]
    shutil.rmtree(path / "state")
    return taken, hashes


def damage(path: Path, snapshot: Snapshot, name: str = "partition-0002.db") -> None:
    file = path / "snapshots" / f"{snapshot.number:012}" / name
    data = bytearray(file.read_bytes())
    data[len(data) // 3] ^= 1
    file.write_bytes(data)


def hashes_of(path: Path, **settings: Any) -> list[bytes]:
    with open_bank(path, **settings) as host:
        assert host.call("total") % 120 == 0
        return host.hashes()[1]


def test_the_state_comes_back_from_the_newest(tmp_path: Path) -> None:
    steps: list[str] = []
    _, hashes = make(tmp_path, 3)
    with open_bank(tmp_path, steps.append) as host:
        assert host.hashes()[1] == hashes
        assert host.call("balance", 2) == 33
        assert [each.number for each in host.snapshots()] == [2, 3]
    assert steps.count("restore") == 3
    steps.clear()
    with open_bank(tmp_path, steps.append) as host:
        assert host.hashes()[1] == hashes
    assert "restore" not in steps


def test_what_the_snapshot_has_is_not_executed_again(tmp_path: Path) -> None:
    """The log begins far below the snapshot, and before the end of a segment."""
    taken, hashes = make(tmp_path, 2, snapshots_min=2)
    with open_bank(tmp_path, snapshots_min=2) as host:
        assert host.runner._log.first == 1
        assert host.position > taken[-1].position
        assert host.hashes()[1] == hashes


@pytest.mark.parametrize("name", ["partition-0002.db", "snapshot.cbor"])
def test_a_damaged_one_gives_way_to_an_older(tmp_path: Path, name: str) -> None:
    taken, hashes = make(tmp_path, 2)
    damage(tmp_path, taken[1], name)
    steps: list[str] = []
    with open_bank(tmp_path, steps.append) as host:
        assert host.hashes()[1] == hashes
        assert host.snapshots() == taken[:1]
        assert "damaged" in host.snapshot_status().alarms[0]
        newest = host.snapshot()
        assert host.snapshots() == [taken[0], newest]
        assert host.snapshot_status().alarms == ()
    assert steps.count("restore") == 3


def test_damaged_ones_and_a_log_that_begins_later_are_refused(tmp_path: Path) -> None:
    taken, _ = make(tmp_path, 2)
    for snapshot in taken:
        damage(tmp_path, snapshot)
    with pytest.raises(SnapshotDamagedError, match=r"partition-0002\.db differs"):
        open_bank(tmp_path)


def test_a_missing_file_is_damage(tmp_path: Path) -> None:
    taken, _ = make(tmp_path, 1)
    file = tmp_path / "snapshots" / f"{taken[0].number:012}" / "partition-0000.db"
    file.unlink()
    with pytest.raises(SnapshotDamagedError, match=r"partition-0000\.db cannot be"):
        open_bank(tmp_path)


def test_damaged_ones_do_not_matter_if_the_log_is_whole(tmp_path: Path) -> None:
    taken, hashes = make(tmp_path, 1, snapshots_min=2)
    damage(tmp_path, taken[0])
    assert hashes_of(tmp_path, snapshots_min=2) == hashes


def test_no_snapshot_at_all_is_refused(tmp_path: Path) -> None:
    make(tmp_path, 1)
    shutil.rmtree(tmp_path / "snapshots")
    with pytest.raises(TrimmedError, match="there is no snapshot that fits"):
        open_bank(tmp_path)


def test_a_snapshot_that_ends_before_the_log_is_named(tmp_path: Path) -> None:
    make(tmp_path, 1)
    shutil.copytree(tmp_path / "snapshots", tmp_path / "old")
    with open_bank(tmp_path, kept=1) as host:
        host.call("deposit", 1, 1)
        host.snapshot()
    shutil.rmtree(tmp_path / "state")
    shutil.rmtree(tmp_path / "snapshots")
    (tmp_path / "old").rename(tmp_path / "snapshots")
    with pytest.raises(TrimmedError, match="snapshot 1 ends at"):
        open_bank(tmp_path)


@pytest.mark.parametrize("lost", ["list", "list/*[!K]", "list/CURRENT"])
def test_a_lost_list_is_no_empty_one(tmp_path: Path, lost: str) -> None:
    taken, _ = make(tmp_path, 1)
    for path in (tmp_path / "snapshots").glob(lost):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(SnapshotDamagedError, match="the list of snapshots is missing"):
        open_bank(tmp_path)
    assert (tmp_path / "snapshots" / f"{taken[0].number:012}").exists()


def test_snapshots_of_another_log_are_refused(tmp_path: Path) -> None:
    make(tmp_path, 1)
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(ApplicationMismatchError, match="belongs to log"):
        open_bank(tmp_path)


def test_a_log_that_lost_its_end_is_refused(tmp_path: Path) -> None:
    with open_bank(tmp_path):
        pass
    shutil.copytree(tmp_path / "log", tmp_path / "old")
    make(tmp_path, 1, snapshots_min=2)
    shutil.rmtree(tmp_path / "log")
    (tmp_path / "old").rename(tmp_path / "log")
    with pytest.raises(CorruptionError, match="beyond the end of the log"):
        open_bank(tmp_path)


@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_a_restore_that_was_cut_short_is_done_again(tmp_path: Path, at: int) -> None:
    _, hashes = make(tmp_path, 1)
    seen: list[str] = []

    def stop(name: str) -> None:
        if name.startswith("restore"):
            seen.append(name)
            if len(seen) == at + 1:
                raise Stopped

    with pytest.raises(Stopped):
        open_bank(tmp_path, stop)
    assert (tmp_path / "snapshots" / "RESTORING").exists()
    # What a crash may leave of a database whose WAL was removed.
    (tmp_path / "state" / "partition-0002.db-wal").unlink(missing_ok=True)
    assert hashes_of(tmp_path) == hashes
    assert not (tmp_path / "snapshots" / "RESTORING").exists()


def test_a_state_that_fell_behind_is_replaced(tmp_path: Path) -> None:
    with open_bank(tmp_path, kept=1) as host:
        host.call("deposit", 1, 120)
    shutil.copytree(tmp_path / "state", tmp_path / "behind")
    _, hashes = make(tmp_path, 1, kept=1)
    (tmp_path / "behind").rename(tmp_path / "state")
    steps: list[str] = []
    with open_bank(tmp_path, steps.append) as host:
        assert host.hashes()[1] == hashes
    assert "restored" in steps


def test_a_copy_with_another_progress_is_no_snapshot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No part of the state hash has it, and a host would go on from there."""
    right = DatabaseView.copy

    def rots(view: DatabaseView, path: Path) -> None:
        right(view, path)
        with contextlib.closing(apsw.Connection(str(path))) as copy:
            copy.execute("UPDATE braidlog_progress SET value = x'00'")

    with open_bank(tmp_path) as host:
        host.call("deposit", 1, 1)
        monkeypatch.setattr(DatabaseView, "copy", rots)
        with pytest.raises(SnapshotFailedError, match="a different position"):
            host.snapshot()
        assert host.snapshots() == []
