"""Snapshots and real trouble: hosts killed at each step, disks that are full."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.app import SnapshotFailedError, SnapshotSettings
from process import snapshot_host
from process.snapshot_host import CALLS, open_bank
from process.test_faults import mounted

TESTS = Path(__file__).parents[1]
# In their order; a step is killed before it is done.
STEPS = [
    *[("mark", 0), ("copy", 0), ("copy", 1), ("copy", 2), ("facts", 0)],
    *[("rename", 0), ("sync directory", 0), ("verify", 0), ("list", 0)],
    *[("listed", 0), ("cursor", 0), ("trim", 0), ("trimmed", 0)],
    *[("delist", 0), ("delisted", 0), ("trash", 0)],
]


def kill_at(data: Path, step: str, turn: int) -> int:
    """Return how many calls were acknowledged."""
    path = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, snapshot_host.__file__, str(data), step, str(turn)],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    return len(done.stdout)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.parametrize(("step", "turn"), STEPS)
def test_killed_at_each_step_of_a_snapshot(
    tmp_path: Path, step: str, turn: int
) -> None:
    """There is a snapshot, the log goes on from it, and nothing is applied twice."""
    acknowledged = kill_at(tmp_path, step, turn)
    assert acknowledged == 2 * CALLS
    with open_bank(tmp_path) as host:
        listed = host.snapshots()
        at = STEPS.index((step, turn))
        numbers = {1} if at < STEPS.index(("listed", 0)) else {1, 2}
        if at >= STEPS.index(("delisted", 0)):
            numbers = {2}
        # The older one cannot be used any more once the log was trimmed.
        trimmed = at >= STEPS.index(("trimmed", 0))
        assert {each.number for each in listed} == ({2} if trimmed else numbers)
        first = host.runner._log.first
        assert any(first <= each.position + 1 for each in listed)
        assert host.call("total") == acknowledged
        hashes = host.hashes()[1]
        directories = {each.name for each in (tmp_path / "snapshots").iterdir()}
        names = {f"{number:012}" for number in numbers}
        assert directories == names | {"HOST", "list", "reserve", "trash"}
    shutil.rmtree(tmp_path / "state")
    with open_bank(tmp_path) as host:
        assert host.hashes()[1] == hashes
        assert host.call("total") == acknowledged
        snapshot = host.snapshot()
        assert host.snapshots() == [snapshot]
        assert host.runner._log.first == snapshot.position + 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Have a file system that holds one snapshot and not two."""
    with mounted(
        tmp_path / "small", "-t", "tmpfs", "-o", "size=128k", "tmpfs"
    ) as where:
        yield where


@pytest.mark.process
def test_a_disk_that_is_full_takes_no_log_away(
    tmp_path: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = SnapshotSettings(automatic=False, kept=1, reserve_bytes=0)
    monkeypatch.setattr(snapshot_host, "SETTINGS", settings)
    data = tmp_path / "data"
    data.mkdir()
    (data / "snapshots").symlink_to(small_disk)
    with open_bank(data) as host:
        host.call("deposit", 1, 1)
        first = host.snapshot()
        begin = host.runner._log.first
        host.call("deposit", 1, 1)
        for _ in range(2):
            with pytest.raises(SnapshotFailedError, match=r"FullError|No space"):
                host.snapshot()
        assert host.snapshots() == [first]
        assert host.runner._log.first == begin
        assert host.snapshot_status().failures == 2
        assert host.call("deposit", 1, 1) == 3
        larger = ["mount", "-o", "remount,size=4m", str(small_disk)]
        subprocess.run(larger, check=True)
        second = host.snapshot()
        assert host.runner._log.first == second.position + 1
        assert host.snapshot_status().alarms == ()
    shutil.rmtree(data / "state")
    with open_bank(data) as host:
        assert host.call("balance", 1) == 3
