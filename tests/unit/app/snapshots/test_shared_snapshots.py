"""Snapshots of hosts that share a log: each takes its own, the active one trims."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from braidlog.app import Host, Level, SnapshotSettings
from braidlog.app.host.runner import Runner
from braidlog.app.snapshots.files import SnapshotFiles
from braidlog.app.snapshots.restore import position_of, restore_if_needed
from braidlog.app.snapshots.snapshotter import Snapshotter
from braidlog.app.state.sqlite import SqliteState
from unit.app.banking import make_bank
from unit.app.shared_log import Contents, KeptSharedLog

WAIT_S = 30.0


def settings(**given: Any) -> SnapshotSettings:
    return SnapshotSettings(
        **{"automatic": False, "reserve_bytes": 0, "kept": 1, **given}
    )


@contextlib.contextmanager
def opened(
    path: Path,
    contents: Contents,
    name: bytes,
    given: SnapshotSettings,
    *,
    active: bool = True,
    patience_s: float = 60.0,
) -> Iterator[Host]:
    """A host as over a cluster, with a pin of its own that a snapshot moves."""
    bank, log = make_bank(), KeptSharedLog(contents)
    state = SqliteState(path / name.hex(), bank.partitions)
    files = SnapshotFiles(path / f"{name.hex()}-snapshots")
    restore_if_needed(state, files, log.identity, log.first, log.latest())
    position = position_of(state)
    log.pin(f"app-{name.hex()}", position + 1)
    keeper = Snapshotter(
        log,
        state,
        files,
        given,
        position,
        unpin=lambda: log.pin(f"app-{name.hex()}", host.position + 1),
        patience_s=patience_s,
        lease_s=3600.0,
    )
    runner = Runner(bank, log, state, keeper, active=active, host=name * 16)
    host = Host(runner, keeper)
    keeper.start(runner)
    try:
        yield host
    finally:
        host.close()


def keeper_of(host: Host) -> Snapshotter:
    assert host._keeper is not None
    return host._keeper


def look(*hosts: Host) -> None:
    """Do what their threads do each second."""
    for host in hosts:
        keeper_of(host)._look()
        keeper_of(host)._retry_trim()


def test_only_the_active_host_trims_and_to_the_second_best(tmp_path: Path) -> None:
    contents, two = Contents(), settings(snapshots_min=2)
    with (
        opened(tmp_path, contents, b"a", two) as first,
        opened(tmp_path, contents, b"b", two, active=False) as second,
    ):
        first.call("deposit", 1, 1)
        mine = first.snapshot()
        assert contents.first == 1
        assert first.snapshot_status().alarms == ()  # The other has some time for it.
        first.call("deposit", 1, 1)
        second.wait_applied(first.position)
        newer = second.snapshot()
        assert newer.position > mine.position
        assert contents.first == 1, "a standby trims nothing"
        look(second, first)
        assert contents.first == mine.position + 1
        # Each knows where the log begins, and counts from there.
        before = second.snapshot_status().bytes_kept
        look(second)
        assert second.snapshot_status().bytes_kept < before
        assert [one.position for one in second.snapshots()] == [newer.position]
        assert contents.trims == 1


def test_who_is_away_for_longer_than_its_lease_does_not_count(tmp_path: Path) -> None:
    contents, two = Contents(), settings(snapshots_min=2)
    with opened(tmp_path, contents, b"a", two, patience_s=0) as first:
        with opened(tmp_path, contents, b"b", two, active=False) as second:
            first.call("deposit", 1, 1)
            second.wait_applied(first.position)
            second.snapshot()
            name = keeper_of(second)._cursor
            assert contents.leases[name] == 3600.0
        contents.pins.clear()
        del contents.cursors[name]  # So the log shows it from then on.
        mine = first.snapshot()
        assert contents.first == 1
        assert "1 of 2 hosts have a snapshot" in first.snapshot_status().alarms[0]
        with opened(tmp_path, contents, b"b", two, active=False) as second:
            contents.pins.clear()
            keeper_of(second).renew()
            assert name in contents.cursors
            contents.leases.clear()
            keeper_of(second).renew()
            assert contents.leases == {name: 3600.0}
            look(first)
            assert 1 < contents.first <= mine.position + 1


def test_a_pin_of_another_host_is_respected(tmp_path: Path) -> None:
    contents = Contents()
    with opened(tmp_path, contents, b"a", settings(), patience_s=0) as host:
        contents.pins["app-ffff"] = 2
        host.call("deposit", 1, 1)
        snapshot = host.snapshot()
        assert contents.first == 2
        assert "kept from 2 on for others" in host.snapshot_status().alarms[0]
        del contents.pins["app-ffff"]
        look(host)
        assert contents.first == snapshot.position + 1
        assert host.snapshot_status().alarms == ()


def test_a_host_that_is_promoted_trims_from_then_on(tmp_path: Path) -> None:
    contents = Contents()
    with opened(tmp_path, contents, b"a", settings()) as first:
        first.call("deposit", 1, 1)
        with opened(tmp_path, contents, b"b", settings(), active=False) as second:
            snapshot = second.snapshot()
            look(second, first)
            assert contents.first == 1, "the first one has no snapshot to trim to"
            second.runner.promote()
            first.wait_applied(second.position)
            contents.pins.clear()
            look(second)
            assert contents.first == snapshot.position + 1


def test_a_host_goes_on_from_its_own_snapshot(tmp_path: Path) -> None:
    contents = Contents()
    with opened(tmp_path, contents, b"a", settings()) as first:
        with opened(tmp_path, contents, b"b", settings(), active=False) as second:
            first.call("deposit", 1, 1)
            second.wait_applied(first.position)
            snapshot = second.snapshot()
        contents.pins.clear()
        assert first.snapshot().position == contents.first - 1 == snapshot.position
        first.call("deposit", 1, 5)
        (tmp_path / b"b".hex()).rename(tmp_path / "lost")
        with opened(tmp_path, contents, b"b", settings(), active=False) as second:
            second.wait_applied(first.position)
            assert second.hashes() == first.hashes()


def test_a_trim_elsewhere_ends_the_refusals_of_a_standby(tmp_path: Path) -> None:
    contents = Contents()
    tight = settings(soft_bytes=1000, hard_bytes=2000)
    with (
        opened(tmp_path, contents, b"a", settings()) as first,
        opened(tmp_path, contents, b"b", tight, active=False) as second,
    ):
        for _ in range(50):
            first.call("deposit", 1, 1)
        second.wait_applied(first.position)
        second.snapshot()
        assert second.snapshot_status().level == Level.FULL
        first.snapshot()
        assert contents.first > 1
        look(second)
        assert second.snapshot_status().level == Level.OPEN
        second.call("deposit", 1, 1)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.02)


@pytest.mark.timeout(90)
def test_both_take_them_by_themselves(tmp_path: Path) -> None:
    contents = Contents()
    given = settings(
        automatic=True, soft_bytes=3000, snapshots_min=2, pause_seconds=0.01
    )
    with (
        opened(tmp_path, contents, b"a", given) as first,
        opened(tmp_path, contents, b"b", given, active=False) as second,
    ):
        for _ in range(100):
            first.call("deposit", 1, 1)
        until(lambda: min(len(h.snapshots()) for h in (first, second)) > 0)
        until(lambda: contents.first > 1)
        second.wait_applied(first.position)
        assert first.hashes()[1] == second.hashes()[1]
