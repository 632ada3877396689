"""Snapshots of a running host: what is in them, when they fail, what they let go of."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from braidlog.app import (
    Application,
    DivergedError,
    Host,
    Level,
    LogBoundError,
    PendingCall,
    Snapshot,
    SnapshotFailedError,
    SnapshotSettings,
)
from braidlog.app.execution.entries import Outcomes, pack
from braidlog.app.execution.executor import Executor
from braidlog.app.log.source import EmbeddedLog
from braidlog.app.snapshots.files import SnapshotFiles
from braidlog.app.snapshots.snapshotter import Snapshotter
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import ClosedError
from unit.app.banking import make_bank

OPTIONS = {"segment_bytes": 1 << 20, "wal_bytes_max": 16 << 20}
MANUAL = SnapshotSettings(automatic=False, reserve_bytes=1 << 16)
# The log stays whole: no other host has a snapshot.
WHOLE = SnapshotSettings(automatic=False, reserve_bytes=0, snapshots_min=2, kept=9)
STEPS = ["mark", "copy", "facts", "rename", "sync directory", "verify", "list"]


class Steps:
    """What happens before the steps of a snapshot."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.actions: dict[str, Callable[[], object]] = {}

    def __call__(self, name: str) -> None:
        self.seen.append(name)
        if (action := self.actions.pop(name, None)) is not None:
            action()


def no_space() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def open_bank(path: Path, steps: Steps | None = None, **settings: Any) -> Host:
    given = SnapshotSettings(
        **{"automatic": False, "reserve_bytes": 1 << 16, **settings}
    )
    return make_bank().open(path, snapshots=given, step=steps, **OPTIONS)


def keeper_of(host: Host) -> Snapshotter:
    assert host._keeper is not None
    return host._keeper


def fill(host: Host) -> None:
    """Call until calls are refused."""
    for _ in range(10_000):
        host.call("deposit", 1, 1)


def log_of(host: Host) -> EmbeddedLog:
    assert isinstance(host.runner._log, EmbeddedLog)
    return host.runner._log


def directories(path: Path) -> list[str]:
    return sorted(each.name for each in (path / "snapshots").iterdir())


def replay(path: Path, into: Path, begin: Snapshot | None, end: int) -> list[bytes]:
    """Execute the log of a closed host up to ``end``: the serial oracle."""
    bank = make_bank()
    state = SqliteState(into, bank.partitions)
    files = SnapshotFiles(path / "snapshots")
    log = EmbeddedLog(path / "log", **OPTIONS)
    if begin is not None:
        for number in range(bank.partitions):
            name = f"partition-{number:04}.db"
            state.restore(number, files.directory(begin.number) / name)
    executor = Executor(bank, state)
    assert executor.position == (0 if begin is None else begin.position)
    executor.feed(log.read(executor.position + 1, end - executor.position))
    executor.commit(everywhere=True)
    views = [partition.view() for partition in state.partitions]
    hashes = [view.hash() for view in views]
    for view in views:
        view.close()
    state.close()
    files.close()
    log.close()
    return hashes


def test_an_image_under_load_is_what_the_log_gives(tmp_path: Path) -> None:
    """Equal hashes: of each snapshot, and replayed from zero and from each of them."""
    data = tmp_path / "data"
    with open_bank(data, snapshots_min=2, kept=9) as host:
        going = threading.Event()
        going.set()

        def load(number: int) -> None:
            for turn in range(10_000):
                if not going.is_set():
                    return
                host.call("lottery", number + turn % 7)
                host.call("deposit", turn % 11, 50)
                host.submit("transfer", turn % 11, number, 1)

        threads = [threading.Thread(target=load, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        snapshots = []
        for _ in range(4):
            host.wait_applied(host.position + 100, 30)
            snapshots.append(host.snapshot())
        host.wait_applied(host.position + 100, 30)
        going.clear()
        for thread in threads:
            thread.join()
        assert host.snapshots() == snapshots
        end, expected = host.hashes()
    files = SnapshotFiles(data / "snapshots")
    facts = [files.verify(snapshot) for snapshot in snapshots]
    files.close()
    assert replay(data, tmp_path / "zero", None, end) == expected
    for snapshot, fact in zip(snapshots, facts, strict=True):
        into = tmp_path / f"from-{snapshot.number}"
        assert replay(data, into, snapshot, end) == expected
        at = replay(data, tmp_path / f"to-{snapshot.number}", None, snapshot.position)
        assert at == [each[3] for each in fact["files"]]


def test_calls_do_not_wait_for_a_snapshot(tmp_path: Path) -> None:
    """A thousand calls are answered while it stands still before each of its steps."""
    steps = Steps()
    with open_bank(tmp_path, steps) as host:
        host.call("deposit", 1, 100)
        position = host.position

        def calls() -> None:
            for _ in range(1000 // (len(STEPS) - 1) + 1):
                host.call("deposit", 1, 1)

        steps.actions = dict.fromkeys(STEPS[1:], calls)
        snapshot = host.snapshot()
        assert host.call("balance", 1) >= 1100
        assert snapshot.position < position + 100
        host.call("deposit", 1, 1)
    assert steps.seen[: len(STEPS) + 2] == [
        *["mark", "copy", "copy", "copy"],
        *["facts", "rename", "sync directory", "verify", "list"],
    ]


def test_the_log_is_trimmed_only_when_a_snapshot_is_listed(tmp_path: Path) -> None:
    steps = Steps()
    with open_bank(tmp_path, steps, kept=1) as host:
        log = log_of(host)
        for account in range(20):
            host.call("deposit", account, 1)
        firsts: dict[str, int] = {}

        def note(name: str) -> None:
            firsts[name] = log.first

        for name in [*STEPS, "listed", "cursor", "trim", "trimmed"]:
            steps.actions[name] = partial(note, name)
        snapshot = host.snapshot()
        assert firsts.pop("trimmed") == snapshot.position + 1 == log.first
        assert set(firsts.values()) == {1}
        status = host.snapshot_status()
        assert (status.level, status.taken, status.alarms) == (Level.OPEN, 1, ())
        assert host.call("total") == 20


def test_a_host_stays_where_it_was_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with open_bank(Path("bank")) as host:
        monkeypatch.chdir(elsewhere)
        host.call("deposit", 1, 1)
        assert host.snapshot().position == host.position
    assert not any(elsewhere.iterdir())


@pytest.mark.parametrize("name", STEPS)
def test_a_snapshot_that_fails_changes_nothing(tmp_path: Path, name: str) -> None:
    steps = Steps()
    with open_bank(tmp_path, steps, kept=1) as host:
        host.call("deposit", 1, 1)
        first = host.snapshot()
        begin = log_of(host).first
        before = directories(tmp_path)
        host.call("deposit", 1, 1)
        steps.actions[name] = no_space
        with pytest.raises(SnapshotFailedError, match="No space left"):
            host.snapshot()
        assert log_of(host).first == begin
        assert host.snapshots() == [first]
        assert directories(tmp_path) == before
        status = host.snapshot_status()
        assert status.failures == 1
        assert "No space left" in status.alarms[0]
        assert host.call("deposit", 1, 1) == 3
        second = host.snapshot()
        assert second.number > first.number
        assert host.snapshots() == [second]
        status = host.snapshot_status()
        assert (status.failures, status.alarms) == (0, ())


def test_automatic_ones_are_tried_again(tmp_path: Path) -> None:
    steps = Steps()
    steps.actions["list"] = no_space
    settings = SnapshotSettings(soft_bytes=1, hard_bytes=1 << 20, pause_seconds=0.0)
    with make_bank().open(tmp_path, snapshots=settings, step=steps, **OPTIONS) as host:
        taken = threading.Event()
        steps.actions["trimmed"] = taken.set
        host.call("deposit", 1, 1)
        assert taken.wait(30)
    assert steps.seen.count("mark") >= 2


def test_a_snapshot_that_rots_before_the_trim_is_found(tmp_path: Path) -> None:
    """No trim; the next one takes its place."""
    steps = Steps()
    with open_bank(tmp_path, steps, kept=1) as host:
        host.call("deposit", 1, 1)

        def rot() -> None:
            path = tmp_path / "snapshots" / f"{1:012}" / "partition-0001.db"
            data = bytearray(path.read_bytes())
            data[len(data) // 2] ^= 1
            path.write_bytes(data)

        steps.actions["listed"] = rot
        host.snapshot()
        assert log_of(host).first == 1
        assert host.snapshots() == []
        assert "partition-0001.db differs" in host.snapshot_status().alarms[-1]
        second = host.snapshot()
        assert log_of(host).first == second.position + 1
        assert host.snapshots() == [second]
        assert host.snapshot_status().alarms == ()
        assert f"{1:012}" not in directories(tmp_path)


def test_what_is_read_back_must_be_what_was_there(tmp_path: Path) -> None:
    steps = Steps()
    with open_bank(tmp_path, steps) as host:
        host.call("deposit", 1, 1)
        path = tmp_path / "snapshots" / f"{1:012}" / "partition-0000.db"
        steps.actions["verify"] = lambda: path.write_bytes(b"x" * 4096)
        with pytest.raises(SnapshotFailedError, match=r"partition-0000.db differs"):
            host.snapshot()
        assert host.snapshots() == []


def test_older_snapshots_stay_and_so_does_their_log(tmp_path: Path) -> None:
    with open_bank(tmp_path, kept=2) as host:
        taken = []
        for turn in range(4):
            host.call("deposit", 1, turn)
            taken.append(host.snapshot())
            assert host.snapshots() == taken[-2:]
            assert log_of(host).first == taken[-2:][0].position + 1


def test_the_log_goes_to_what_enough_hosts_have(tmp_path: Path) -> None:
    with open_bank(tmp_path, kept=1, snapshots_min=2) as host:
        host.call("deposit", 1, 1)
        host.snapshot()
        assert log_of(host).first == 1
        assert "1 of 2 hosts" in host.snapshot_status().alarms[0]
        log_of(host).set_cursor("snapshot-ffff", 2, None)
        host.call("deposit", 1, 1)
        keeper_of(host)._retry_trim()
        assert log_of(host).first == 2
        log_of(host).set_cursor("snapshot-ffff", host.runner.end(), None)
        snapshot = host.snapshot()
        assert log_of(host).first == snapshot.position + 1
        assert host.snapshot_status().alarms == ()


def test_a_standby_that_is_behind_keeps_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_bank(tmp_path, kept=1) as host:
        host.call("deposit", 1, 1)
        cursor = log_of(host)._log.set_cursor("applied-ffff", 2, pin=True)
        snapshot = host.snapshot()
        assert log_of(host).first == 2
        assert "kept from 2 on for others" in host.snapshot_status().alarms[0]
        # Held as before: the files are not read again for it.
        with monkeypatch.context() as patch:
            patch.setattr(SnapshotFiles, "verify", lambda *_: no_space())
            keeper_of(host)._retry_trim()
        assert "kept from 2 on for others" in host.snapshot_status().alarms[0]
        cursor.commit(snapshot.position)
        keeper_of(host)._retry_trim()
        assert log_of(host).first == snapshot.position
        cursor.delete()
        keeper_of(host)._retry_trim()
        assert log_of(host).first == snapshot.position + 1
        assert host.snapshot_status().alarms == ()


def test_the_hard_mark_refuses_calls_before_they_get_a_position(
    tmp_path: Path,
) -> None:
    with open_bank(tmp_path, soft_bytes=5_000, hard_bytes=20_000) as host:
        with pytest.raises(LogBoundError, match="the hard marks are 20000 bytes"):
            fill(host)
        done = host.call("balance", 1)
        end = host.runner.end()
        for _ in range(3):
            with pytest.raises(LogBoundError) as caught:
                host.call("deposit", 1, 1)
            assert caught.value.retryable
            with pytest.raises(LogBoundError):
                host.call("interest", 1)
        status = host.snapshot_status()
        assert (status.level, status.refused) == (Level.FULL, 7)
        assert host.runner.end() == end
        assert host.call("balance", 1) == done
        host.snapshot()
        assert host.snapshot_status().level == Level.OPEN
        assert host.call("deposit", 1, 1) == done + 1


def test_calls_that_were_on_their_way_at_the_hard_mark_are_executed(
    tmp_path: Path,
) -> None:
    with open_bank(tmp_path, soft_bytes=5_000, hard_bytes=20_000) as host:
        pending: list[PendingCall] = []

        def submit() -> None:
            for number in range(4000):
                pending.append(host.submit("deposit", 1, 1))
                # The mark is seen where calls are executed: else that may come later.
                pending[max(0, number - 50)].result()

        with pytest.raises(LogBoundError):
            submit()
        assert [each.result() for each in pending] == list(range(1, len(pending) + 1))


def test_replay_seconds_count_as_well(tmp_path: Path) -> None:
    with open_bank(tmp_path, soft_seconds=1e-6, hard_seconds=1e-5) as host:
        with pytest.raises(LogBoundError):
            fill(host)
        host.snapshot()
        assert host.snapshot_status().seconds_since == 0
        host.call("deposit", 1, 1)


def test_a_full_log_that_others_hold_asks_for_no_snapshot(tmp_path: Path) -> None:
    with open_bank(tmp_path, soft_bytes=5_000, hard_bytes=20_000, kept=1) as host:
        log_of(host)._log.set_cursor("applied-ffff", 1, pin=True)
        with pytest.raises(LogBoundError):
            fill(host)
        host.snapshot()
        assert host.snapshot_status().level == Level.FULL
        assert not keeper_of(host)._asked()
        with pytest.raises(LogBoundError):
            host.call("deposit", 1, 1)


def test_snapshots_without_a_pause_raise_an_alarm(tmp_path: Path) -> None:
    """Each is behind the soft mark when it is done; no call is lost."""
    steps = Steps()
    with open_bank(tmp_path, steps, soft_bytes=200, pause_seconds=0.0) as host:

        def load() -> None:
            for _ in range(10):
                host.call("deposit", 1, 1)

        for _ in range(4):
            steps.actions["list"] = load
            host.snapshot()
        assert "raise the soft marks" in host.snapshot_status().alarms[0]
        assert keeper_of(host)._schedule.looping
        assert host.call("balance", 1) == 40
        host.snapshot()
        assert host.snapshot_status().alarms == ()


def test_the_soft_mark_takes_one(tmp_path: Path) -> None:
    settings = SnapshotSettings(soft_bytes=2000, hard_bytes=1 << 20, kept=1)
    steps = Steps()
    trimmed = threading.Event()
    steps.actions["trimmed"] = trimmed.set
    with make_bank().open(tmp_path, snapshots=settings, step=steps, **OPTIONS) as host:
        for _ in range(60):
            host.call("deposit", 1, 1)
        assert trimmed.wait(30)
        assert log_of(host).first > 1
    with make_bank().open(tmp_path, snapshots=MANUAL, **OPTIONS) as host:
        assert host.call("balance", 1) == 60


def test_space_for_the_next_one_is_reserved(tmp_path: Path) -> None:
    steps = Steps()
    reserve = tmp_path / "snapshots" / "reserve"
    with open_bank(tmp_path, steps, reserve_bytes=100_000) as host:
        host.call("deposit", 1, 1)
        assert reserve.stat().st_blocks * 512 >= 100_000
        sizes: list[int] = []
        steps.actions["facts"] = lambda: sizes.append(reserve.stat().st_size)
        snapshot = host.snapshot()
        assert sizes[0] <= 100_000 - snapshot.size + 8192
        assert reserve.stat().st_size == max(100_000, 2 * snapshot.size)


def test_no_space_to_reserve_is_an_alarm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_bank(tmp_path, kept=1) as host:
        host.call("deposit", 1, 1)
        monkeypatch.setattr(
            "braidlog.app.snapshots.files.os.posix_fallocate", lambda *_: no_space()
        )
        snapshot = host.snapshot()
        assert log_of(host).first == snapshot.position + 1
        assert "reserve" in host.snapshot_status().alarms[0]


def test_a_host_that_diverged_takes_no_snapshot(tmp_path: Path) -> None:
    with open_bank(tmp_path) as host:
        host.call("deposit", 1, 1)
        position = host.position
        entry = Outcomes(host.runner._executor.shared.epoch, [(position, bytes(21))])
        host.wait_applied(log_of(host).append(pack(entry)))
        with pytest.raises(SnapshotFailedError) as caught:
            host.snapshot()
        assert isinstance(caught.value.__cause__, DivergedError)
        assert log_of(host).first == 1


def test_orphans_go_when_the_directory_is_opened(tmp_path: Path) -> None:
    with open_bank(tmp_path) as host:
        host.call("deposit", 1, 1)
        host.snapshot()
        before = directories(tmp_path)
    for name in ("new", f"{9:012}"):
        shutil.copytree(
            tmp_path / "snapshots" / f"{1:012}", tmp_path / "snapshots" / name
        )
    with open_bank(tmp_path) as host:
        assert directories(tmp_path) == before
        assert [each.number for each in host.snapshots()] == [1]


def test_closing_waits_for_the_snapshot_that_is_being_taken(tmp_path: Path) -> None:
    steps = Steps()
    host = open_bank(tmp_path, steps)
    host.call("deposit", 1, 1)
    closing = threading.Thread(target=host.close)
    steps.actions["facts"] = closing.start
    snapshot = host.snapshot()
    closing.join(30)
    with pytest.raises(ClosedError):
        host.snapshot()
    with open_bank(tmp_path) as again:
        assert again.snapshots() == [snapshot]


def test_async_hosts_take_them(tmp_path: Path) -> None:
    import asyncio

    async def main() -> Snapshot:
        bank: Application = make_bank()
        async with bank.open_async(tmp_path, snapshots=MANUAL, **OPTIONS) as host:
            await host.call("deposit", 1, 1)
            return await host.snapshot()

    assert asyncio.run(main()).number == 1
