"""A replay that is called again finds what the first one found; and begins nowhere
else."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from braidlog.app import Application, SnapshotSettings
from braidlog.app.errors import ApplicationMismatchError, DivergedError
from braidlog.app.execution.entries import Outcomes
from braidlog.app.execution.executor import Executor
from braidlog.app.log.source import LOG_NAME
from braidlog.app.replay import run as module
from braidlog.app.replay.inputs import commands_of
from braidlog.app.replay.run import Replay, Replayed, replay
from braidlog.app.replay.snapshot_source import SnapshotStarts
from braidlog.app.replay.target import Target
from braidlog.app.state.sqlite import SqliteState
from braidlog.sources.dead import DeadSource
from unit.app.banking import make_bank
from unit.app.logs import ListInput
from unit.app.records import Records

OPTIONS = {"segment_bytes": 1 << 20, "wal_bytes_max": 16 << 20}
UNTRIMMED = SnapshotSettings(automatic=False, snapshots_min=2)


@pytest.fixture
def log(tmp_path: Path) -> Records:
    """A log that names another outcome of one command, long after it."""
    log = Records(make_bank(results_kept=2))
    for number in range(60):
        log.command("deposit", number % 7, number)
    state = SqliteState(tmp_path / "live", 3)
    executor = Executor(log.application, state)
    digests = [(o.position, o.digest) for o in executor.feed(log.records)]
    executor.rollback()
    state.close()
    at, digest = digests[20]
    digests[20] = at, bytes([digest[0] ^ 1]) + digest[1:]
    log.add(Outcomes(1, digests))
    log.command("deposit", 1, 1)
    return log


def again(log: Records, path: Path, **options: Any) -> Replayed:
    return replay(log.application, ListInput(log.records), path, **options)


def test_what_stopped_it_stops_it_again(
    log: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where it was committed by then, and its digest is not kept."""
    monkeypatch.setattr(module, "_ROUND", 8)
    for _ in range(2):
        with pytest.raises(DivergedError, match="the command at 23"):
            again(log, tmp_path / "strict")
    done = again(log, tmp_path / "strict", outcomes="off")
    assert done.hashes == again(log, tmp_path / "whole", outcomes="off").hashes


def test_what_it_reported_is_reported_again(
    log: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ROUND", 8)
    path = tmp_path / "report"
    target = Target(path, log.application)
    source = ListInput(log.records)
    with Replay(log.application, source, target, outcomes="report") as killed:
        killed.advance(log.end - 1)  # And it is not synced.
    for _ in range(2):
        [difference] = again(log, path, outcomes="report").differences
        assert difference.position == 23
    assert again(log, path, outcomes="off").differences == ()


@pytest.mark.parametrize("before", ["report", "off"])
def test_what_was_let_pass_is_found_by_who_looks(
    log: Records, tmp_path: Path, before: Any
) -> None:
    """Nobody goes on from commands whose outcomes were not held against the log."""
    path = tmp_path / "again"
    whole = again(log, path, outcomes=before)
    if before == "off":
        [difference] = again(log, path, outcomes="report").differences
        assert difference.position == 23
    with pytest.raises(DivergedError, match="the command at 23"):
        again(log, path)
    assert again(log, path, outcomes=before).hashes == whole.hashes


def test_a_killed_replay_compares_what_it_does_not_remember(
    log: Records, tmp_path: Path
) -> None:
    """Two results are kept, and the log names outcomes only behind the kill."""
    path = tmp_path / "again"
    with Replay(
        log.application, ListInput(log.records), Target(path, log.application)
    ) as killed:
        killed.advance(40)
    with pytest.raises(DivergedError, match="the command at 23"):
        again(log, path)
    with Replay(
        log.application, ListInput(log.records), Target(path, log.application)
    ) as killed:
        killed.advance(40)
    assert again(log, path, outcomes="off").start == 40


def banks_with_snapshots(path: Path) -> tuple[Application, Path, Path]:
    """Two banks alike, each with a log of its own and a snapshot of it."""
    bank = make_bank()
    for name in ("one", "two"):
        with bank.open(path / name, snapshots=UNTRIMMED, **OPTIONS) as host:
            for account in range(5):
                host.call("deposit", account, 1)
            host.snapshot()
            host.call("deposit", 1, 1)
    return bank, path / "one", path / "two"


def test_a_snapshot_of_another_log_is_refused(tmp_path: Path) -> None:
    bank, one, two = banks_with_snapshots(tmp_path)
    source = commands_of(one)
    for where, fits in ((one, True), (two, False)):
        starts = SnapshotStarts(where / "snapshots")
        if fits:
            assert replay(bank, source, tmp_path / "fits", starts=starts).start
            continue
        with pytest.raises(ApplicationMismatchError, match="belongs to log"):
            replay(bank, source, tmp_path / "not", starts=starts)
    # Where it is not known which log that is, the databases say of which they are.
    source.close()
    with (
        DeadSource([one / "log"], LOG_NAME) as unknown,
        pytest.raises(ApplicationMismatchError, match="choose another directory"),
    ):
        replay(bank, unknown, tmp_path / "not", starts=starts)


def test_a_replay_goes_on_with_its_own_log_alone(tmp_path: Path) -> None:
    bank, one, two = banks_with_snapshots(tmp_path)
    shutil.rmtree(two / "snapshots")
    source = commands_of(one)
    done = replay(bank, source, tmp_path / "again")
    source.close()
    source = commands_of(two)
    with pytest.raises(ApplicationMismatchError, match="the state belongs to"):
        replay(bank, source, tmp_path / "again")
    source.close()
    source = commands_of(one)
    assert replay(bank, source, tmp_path / "again").hashes == done.hashes
    source.close()
