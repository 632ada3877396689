"""Replay: from zero, as of, killed, compared with the log, with holes."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from braidlog import Record
from braidlog.app import Abort, Application, DivergedError, UnknownProcedureError
from braidlog.app.errors import ApplicationMismatchError, EnvironmentMismatchError
from braidlog.app.execution.entries import AbortEntry, Outcomes, pack
from braidlog.app.execution.executor import Executor
from braidlog.app.replay.inputs import commands_of
from braidlog.app.replay.run import Moment, Replay, Replayed, ReplayProgress, replay
from braidlog.app.replay.target import Target
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import (
    AlreadyExistsError,
    BeyondEndError,
    CorruptionError,
    InvalidArgumentError,
    TrimmedError,
)
from unit.app.banking import make_bank
from unit.app.logs import ListInput, history, oracle
from unit.app.records import Records

COMMANDS = 300


@pytest.fixture
def bank() -> Application:
    return make_bank(results_kept=40)


@pytest.fixture
def log(bank: Application) -> Records:
    return history(bank, COMMANDS)


def again(log: Records, path: Path, **options: Any) -> Replayed:
    return replay(log.application, ListInput(log.records), path, **options)


def test_a_replay_from_zero_has_the_hashes_of_the_host(tmp_path: Path) -> None:
    bank = make_bank()
    with bank.open(tmp_path / "bank") as host:
        for account in range(20):
            host.call("deposit", account, 100)
            host.call("lottery", account)
        host.call("interest", 3)
        host.call("transfer", 3, 4, 50)
        with pytest.raises(Abort):
            host.call("transfer", 3, 4, 5000)
        position, hashes = host.hashes()
        # Beside the host, which holds the directory.
        done = replay(bank, commands_of(tmp_path / "bank"), tmp_path / "again")
    assert (done.position, done.commands) == (position, 43)
    assert list(done.hashes.values()) == hashes


@pytest.mark.parametrize("until", [1, 2, 57, 150, COMMANDS + 2])
def test_a_state_as_of_a_position(log: Records, tmp_path: Path, until: int) -> None:
    done = again(log, tmp_path / "again", until=until)
    assert done.position == until
    assert done.hashes == oracle(log, tmp_path / "oracle", until)


def test_a_state_as_of_a_time(log: Records, tmp_path: Path) -> None:
    done = again(log, tmp_path / "again", until=Moment(99_500))  # 1000 a position.
    assert (done.position, done.time) == (99, 99_000)
    assert done.hashes == oracle(log, tmp_path / "oracle", 99)
    # Timestamps may go back: what is behind a later one is not as of then.
    log.command("deposit", 1, 1, timestamp=10**9)
    log.command("deposit", 1, 1, timestamp=99_000)
    late = again(log, tmp_path / "late", until=Moment(10**9 - 1))
    assert late.position == log.end - 3


def test_a_position_that_the_log_does_not_have(log: Records, tmp_path: Path) -> None:
    with pytest.raises(
        BeyondEndError, match="the log ends at 302, before the requested position 900"
    ):
        again(log, tmp_path / "again", until=900)
    assert not (tmp_path / "again").exists()


class _Killed(Exception):
    pass


@pytest.mark.parametrize("round_", [1, 7, 64])
def test_a_killed_replay_goes_on(
    log: Records, tmp_path: Path, round_: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("braidlog.app.replay.run._ROUND", round_)
    whole = oracle(log, tmp_path / "oracle", COMMANDS + 2)
    begun = 0

    def kill(outlook: ReplayProgress) -> None:
        if outlook.position >= begun + 100:
            raise _Killed

    for _ in range(2):
        with pytest.raises(_Killed):
            again(log, tmp_path / "again", progress=kill)
        begun += 100
    done = again(log, tmp_path / "again")
    # A partition that was idle at the end is a little behind.
    assert 100 <= done.start < COMMANDS
    assert done.commands < COMMANDS
    assert done.hashes == whole
    assert again(log, tmp_path / "again").commands == 0


def test_a_kill_between_two_databases(
    log: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commits of a round are several: the first partition is ahead then."""
    from braidlog.app.execution.partition import Partition

    commit = Partition.commit

    def first_alone(book: Partition, position: int, settled: int) -> None:
        if position > 200 and book.number > 0:
            raise _Killed
        commit(book, position, settled)

    monkeypatch.setattr("braidlog.app.replay.run._ROUND", 150)
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "commit", first_alone)
        with pytest.raises(_Killed):
            again(log, tmp_path / "again")
    done = again(log, tmp_path / "again")
    assert done.start == 150
    assert done.hashes == oracle(log, tmp_path / "oracle", COMMANDS + 2)


def test_after_another_boot_it_starts_over(
    log: Records, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is synced before the end: a crash of the machine may have taken parts."""
    monkeypatch.setattr("braidlog.app.replay.run._ROUND", 50)

    def kill(outlook: ReplayProgress) -> None:
        if outlook.position >= 100:
            raise _Killed

    with pytest.raises(_Killed):
        again(log, tmp_path / "again", progress=kill)
    monkeypatch.setattr("braidlog.app.replay.target.boot", lambda: "another")
    assert again(log, tmp_path / "again").start == 0
    # What came to its end was synced.
    monkeypatch.setattr("braidlog.app.replay.target.boot", lambda: "a third")
    assert again(log, tmp_path / "again").start == COMMANDS + 2


def test_an_earlier_end_starts_over(log: Records, tmp_path: Path) -> None:
    again(log, tmp_path / "again")
    done = again(log, tmp_path / "again", until=100)
    assert (done.start, done.position) == (0, 100)
    assert done.hashes == oracle(log, tmp_path / "oracle", 100)


def test_directories_of_others_are_not_touched(log: Records, tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(AlreadyExistsError, match="not the state of a replay"):
        again(log, tmp_path)
    assert (tmp_path / "precious").exists()
    again(log, tmp_path / "again")
    with pytest.raises(InvalidArgumentError, match="choose another directory"):
        again(log, tmp_path / "again", cut="any-copy")
    (tmp_path / "again" / "replay.json").write_text("{")
    with pytest.raises(CorruptionError, match="is damaged"):
        again(log, tmp_path / "again")


def test_the_log_of_another_application(log: Records, tmp_path: Path) -> None:
    other = Application("other", partitions=3)
    with pytest.raises(ApplicationMismatchError, match="'bank', not to 'other'"):
        replay(other, ListInput(log.records), tmp_path / "again")
    assert not (tmp_path / "again").exists()


# -- what the log says ---------------------------------------------------------------


def outcomes_of(log: Records, path: Path) -> list[tuple[int, bytes]]:
    state = SqliteState(path, log.application.partitions)
    executor = Executor(log.application, state)
    outcomes = executor.feed(log.records)
    executor.rollback()
    state.close()
    return [(o.position, o.digest) for o in outcomes if o.digest and not o.repeated]


@pytest.mark.parametrize("behind", [False, True])
def test_an_outcome_that_differs(log: Records, tmp_path: Path, behind: bool) -> None:
    """``behind``: the log says it only after the position that is asked for."""
    digests = outcomes_of(log, tmp_path / "live")
    at, digest = digests[100]
    wrong = bytearray(digest)
    wrong[0] ^= 1
    wrong[18] ^= 1
    digests[100] = at, bytes(wrong)
    log.add(Outcomes(1, digests))
    until = at if behind else None
    with pytest.raises(DivergedError, match=f"at {at} .*difference: resu") as got:
        again(log, tmp_path / "strict", until=until)
    assert (got.value.position, got.value.component) == (at, "result")
    done = again(log, tmp_path / "report", until=until, outcomes="report")
    assert done.compared == (101 if behind else len(digests))
    [difference] = done.differences
    assert difference.procedure == got.value.procedure
    assert (difference.position, difference.component) == (at, "result")
    assert done.hashes == oracle(log, tmp_path / "oracle", until or log.end - 2)
    off = again(log, tmp_path / "off", until=until, outcomes="off")
    assert (off.differences, off.hashes) == ((), done.hashes)


def test_missing_code_is_refused_before_anything_runs(
    log: Records, tmp_path: Path
) -> None:
    class Without(Application):
        def logged(self, name: str, content: bytes) -> Any:
            return None if name == "lottery" else super().logged(name, content)

    less = Without("bank", partitions=3)
    less._all = log.application._all
    less.schema, less.results_kept = log.application.schema, 40
    with pytest.raises(UnknownProcedureError, match=r"'lottery' with content hash"):
        replay(less, ListInput(log.records), tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_another_environment_is_refused_before_anything_runs(
    bank: Application, tmp_path: Path
) -> None:
    log = Records(bank)
    log.command("deposit", 1, 5)
    facts = {**bank.environment, "python": "2.7", "sqlite": "3.1"}
    log.add(bank.catalog(2)._replace(fingerprint=facts))
    with pytest.raises(EnvironmentMismatchError, match=r"python: '2.7' in the log"):
        again(log, tmp_path / "again")
    assert not (tmp_path / "again").exists()
    done = again(log, tmp_path / "again", environment="report")
    assert [text[:24] for text in done.environment] == [
        "from 4 on python: '2.7' ",
        "from 4 on sqlite: '3.1' ",
    ]
    off = again(log, tmp_path / "again", environment="off")
    assert (off.start, off.environment) == (4, ())
    # The state knows it as well, when the catalog is no longer ahead.
    log.command("deposit", 1, 5)
    with pytest.raises(EnvironmentMismatchError):
        replay(
            bank,
            ListInput(log.records),
            tmp_path / "again",
            starts=lambda _: Copies(4, tmp_path),
        )


@pytest.mark.parametrize("until", [None, 12])
def test_a_command_that_was_given_up(
    log: Records, tmp_path: Path, until: int | None
) -> None:
    """The record that says so is behind the command, and may be behind the end."""
    log.add(AbortEntry(11, "too long", 0))
    done = again(log, tmp_path / "again", until=until)
    given_up = oracle(
        log, tmp_path / "oracle", done.position, given_up={11: "too long"}.get
    )
    assert done.hashes == given_up
    assert done.hashes != oracle(log, tmp_path / "executed", done.position)


# -- snapshots -----------------------------------------------------------------------


@dataclasses.dataclass
class Copies:
    """A snapshot as the seam wants it, of files that views made."""

    position: int
    path: Path
    log: str = ""
    partitions: int = 3

    def restore(self, state: SqliteState, partitions: Collection[int]) -> None:
        for number in partitions:
            state.restore(number, self.path / str(number))


def snapshot(log: Records, path: Path, position: int) -> Copies:
    # Bit by bit: what waited for other databases is gone, as in a host's.
    for end in range(10, position + 1, 10):
        again(log, path / "state", until=end)
    state = SqliteState(path / "state", log.application.partitions)
    for number, partition in enumerate(state.partitions):
        view = partition.view()
        view.copy(path / str(number))
        view.close()
    state.close()
    return Copies(position, path)


def test_a_replay_from_a_snapshot(log: Records, tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    copies = snapshot(log, tmp_path / "copies", 120)
    asked: list[int | None] = []

    def starts(until: int | None) -> Copies | None:
        asked.append(until)
        return copies if until is None or until >= 120 else None

    whole = oracle(log, tmp_path / "oracle", COMMANDS + 2)
    trimmed = ListInput(log.records, first=121)
    done = replay(log.application, trimmed, tmp_path / "again", starts=starts)
    assert (done.start, done.hashes) == (120, whole)
    early = again(log, tmp_path / "early", starts=starts, until=Moment(60_000))
    assert (early.start, early.position) == (0, 60)
    assert asked == [None, 60]
    with pytest.raises(TrimmedError):
        replay(log.application, trimmed, tmp_path / "without")


@pytest.mark.parametrize("records", [0, 1, 2])
def test_a_log_without_commands(log: Records, tmp_path: Path, records: int) -> None:
    """Nothing, what names the application, and its catalog; then it grows."""
    source = ListInput(log.records[:records])
    done = replay(log.application, source, tmp_path / "again")
    assert (done.position, done.commands, done.missing) == (records, 0, 0)
    assert done.hashes == oracle(log, tmp_path / "oracle", records)
    with pytest.raises(BeyondEndError):
        replay(log.application, source, tmp_path / "again", until=records + 1)
    later = again(log, tmp_path / "again")
    assert later.hashes == oracle(log, tmp_path / "whole", COMMANDS + 2)


def test_a_log_of_which_only_the_snapshot_is_left(log: Records, tmp_path: Path) -> None:
    (tmp_path / "copies").mkdir()
    copies = snapshot(log, tmp_path / "copies", 120)
    trimmed = ListInput(log.records[:120], first=121)
    expected = oracle(log, tmp_path / "oracle", 120)
    path = tmp_path / "again"
    for _ in range(2):
        done = replay(log.application, trimmed, path, starts=lambda _: copies)
        assert (done.position, done.commands) == (120, 0)
        assert done.hashes == expected


def test_commands_that_all_abort_are_reproduced(
    bank: Application, tmp_path: Path
) -> None:
    log = Records(bank)
    for one in range(20):
        log.command(
            "transfer" if one % 2 else "explode", *[one, 1, 5][: 1 + one % 2 * 2]
        )
    digests = outcomes_of(log, tmp_path / "live")
    log.add(Outcomes(1, digests))
    done = again(log, tmp_path / "again")
    assert (done.commands, done.compared) == (20, len(digests)) == (20, 20)
    assert done.hashes == oracle(log, tmp_path / "oracle", log.end - 1)


def test_a_kill_while_a_snapshot_is_restored(log: Records, tmp_path: Path) -> None:
    """Half of the databases are there: they must not be taken for a state."""
    (tmp_path / "copies").mkdir()
    copies = snapshot(log, tmp_path / "copies", 120)

    class Half(Copies):
        def restore(self, state: SqliteState, partitions: Collection[int]) -> None:
            super().restore(state, sorted(partitions)[:1])
            raise _Killed

    with pytest.raises(_Killed):
        again(log, tmp_path / "again", starts=lambda _: Half(120, copies.path))
    done = again(log, tmp_path / "again")
    assert done.start == 0
    assert done.hashes == oracle(log, tmp_path / "oracle", COMMANDS + 2)


# -- holes ---------------------------------------------------------------------------


def test_records_that_nobody_has(log: Records, tmp_path: Path) -> None:
    kept = [r for r in log.records if r.position not in (50, 51, 80)]
    with pytest.raises(CorruptionError, match="the record at 50 is missing"):
        replay(log.application, ListInput(kept), tmp_path / "strict")
    source = ListInput(kept, gaps=True)
    done = replay(log.application, source, tmp_path / "any", cut="any-copy")
    assert (done.missing, done.commands) == (3, COMMANDS - 3)
    # Some serial history: that of the same log with records that do nothing there.
    for position in (50, 51, 80):
        old = log.records[position - 1]
        nothing = pack(Outcomes(0, []))
        log.records[position - 1] = Record(position, old.timestamp, None, nothing)
    assert done.hashes == oracle(log, tmp_path / "oracle", COMMANDS + 2)


def test_a_log_whose_beginning_is_gone(log: Records, tmp_path: Path) -> None:
    source = ListInput(log.records[30:], gaps=True)
    with pytest.raises(TrimmedError, match="begins at 31, and no snapshot"):
        replay(log.application, source, tmp_path / "again", cut="any-copy")


def test_an_estimate_is_told(log: Records, tmp_path: Path) -> None:
    told: list[ReplayProgress] = []
    again(log, tmp_path / "again", progress=told.append)
    assert told[-1].position == told[-1].end == COMMANDS + 2
    assert told[-1].seconds_left == 0
    assert told[-1].commands_per_second > 0


def test_a_replay_that_goes_on_with_a_growing_log(log: Records, tmp_path: Path) -> None:
    target = Target(tmp_path / "again", log.application)
    with Replay(log.application, ListInput(log.records), target) as going:
        going.advance(100)
        assert going.hashes() == oracle(log, tmp_path / "at-100", 100)
        going.advance()
        log.command("deposit", 1, 5)
        going.go_on()
        going.advance()
        assert going.position == log.end - 1
        assert going.hashes() == oracle(log, tmp_path / "oracle", going.position)
    shutil.rmtree(tmp_path / "again")
