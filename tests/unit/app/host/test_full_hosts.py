"""Hosts whose log has no room for the entry that makes them active."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import braidlog
from braidlog.app import Host, LogBoundError, SnapshotSettings
from braidlog.app.execution.entries import Outcomes, pack, unpack
from braidlog.app.host.promotion import Promoter
from braidlog.app.host.runner import Runner
from braidlog.app.snapshots.files import SnapshotFiles
from braidlog.app.snapshots.policy import Level
from braidlog.app.snapshots.snapshotter import Snapshotter
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import LogFullError
from unit.app.banking import make_bank
from unit.app.shared_log import Contents, KeptSharedLog

SEGMENT = 1 << 17
SIZES: dict[str, Any] = {"segment_bytes": SEGMENT, "wal_bytes_max": 12 * SEGMENT}
QUIET = SnapshotSettings(automatic=False, reserve_bytes=0)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 15
    while not true():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.01)


def begin(path: Path) -> None:
    with make_bank().open(path, snapshots=QUIET, **SIZES) as host:
        for account in range(20):
            host.call("deposit", account, 5)


def fill(path: Path, count: int = 1_000_000, size: int = 4000) -> None:
    """Append what says nothing, at most so often; a million leave no room."""
    filler = pack(Outcomes(0, [(0, bytes(size))]))
    with braidlog.open(path / "log") as node, contextlib.suppress(LogFullError):
        log = node.log("commands")
        for _ in range(count):
            log.append(filler)


def test_a_host_at_the_hard_mark_opens_and_makes_room(tmp_path: Path) -> None:
    begin(tmp_path)
    fill(tmp_path, 100)
    low = replace(QUIET, soft_bytes=SEGMENT, hard_bytes=2 * SEGMENT)
    with make_bank().open(tmp_path, snapshots=low, **SIZES) as host:
        assert host.runner.role.active
        with pytest.raises(LogBoundError):
            host.call("deposit", 1, 1)
        assert host.call("total") == 100
    low = replace(low, automatic=True)
    with make_bank().open(tmp_path, snapshots=low, **SIZES) as host:
        until(lambda: host.snapshot_status().level is Level.OPEN)
        host.call("deposit", 1, 1)
        assert host.call("total") == 101


def test_a_full_log_is_opened_read_and_trimmed(tmp_path: Path) -> None:
    begin(tmp_path)
    fill(tmp_path)
    fill(tmp_path, size=1)
    with make_bank().open(tmp_path, snapshots=QUIET, **SIZES) as host:
        assert not host.runner.role.active
        assert host.call("total") == 100
        with pytest.raises((LogBoundError, LogFullError)):
            host.call("deposit", 1, 1)
        until(lambda: bool(host.alarms))
        assert "it is not the active host, because the log is full" in host.alarms[0]
        host.snapshot()
        until(lambda: host.runner.role.active)
        until(lambda: not host.alarms)
        host.call("deposit", 1, 1)
    # The same by itself; the state comes from the snapshot and what is behind it.
    fill(tmp_path)
    fill(tmp_path, size=1)
    settings = SnapshotSettings(reserve_bytes=0)
    with make_bank().open(tmp_path, snapshots=settings, **SIZES) as host:
        until(lambda: host.runner.role.active)
        host.call("deposit", 1, 1)
        assert host.call("total") == 102


def test_outcomes_fit_into_the_records_of_a_small_log(tmp_path: Path) -> None:
    with make_bank().open(tmp_path, segment_bytes=1 << 16) as host:
        calls = [host.submit("deposit", 1, 1) for _ in range(1500)]
        assert calls[-1].result() == 1500
    with braidlog.open(tmp_path / "log") as node:
        entries = [unpack(r.value, r.position) for r in node.log("commands")]
    said = [len(entry.digests) for entry in entries if isinstance(entry, Outcomes)]
    assert sum(said) == 1500
    assert max(said) == 512


class FullLog(KeptSharedLog):
    """Takes nothing before it was trimmed."""

    full = False

    def append(self, value: bytes) -> int:
        if self.full and not self.contents.trims:
            raise LogFullError("full", used=1, limit=1)
        return super().append(value)


@contextlib.contextmanager
def opened(
    path: Path, log: FullLog, name: bytes, *, active: bool = True
) -> Iterator[Host]:
    bank = make_bank()
    state = SqliteState(path / name.hex(), bank.partitions)
    files = SnapshotFiles(path / f"{name.hex()}-snapshots")
    keeper = Snapshotter(log, state, files, QUIET, 0)
    runner = Runner(bank, log, state, keeper, active=active, host=name * 16)
    host = Host(runner, keeper, Promoter(runner))
    keeper.start(runner)
    try:
        yield host
    finally:
        host.close()


def waiting(host: Host) -> bool:
    return host.runner.role.waiting


def test_who_was_overtaken_while_the_log_was_full_stands_by(tmp_path: Path) -> None:
    contents = Contents()
    with opened(tmp_path, FullLog(contents), b"a") as first:
        first.call("deposit", 1, 7)
        log = FullLog(contents)
        log.full = True
        with opened(tmp_path, log, b"b") as second:
            assert waiting(second)
            # Neither is anybody's snapshot lost on the way.
            first.runner.role.claim()
            second.wait_applied(len(contents.records))
            assert not waiting(second)
            second.snapshot()
            assert contents.trims == 0, "a standby trims nothing"
            with pytest.raises(LogFullError):
                second.runner.promote()
            assert waiting(second)
            second.snapshot()
            assert contents.trims == 1
            until(lambda: second.runner.role.active)
            assert second.call("deposit", 1, 1) == 8
