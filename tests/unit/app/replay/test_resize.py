"""Replays of a log of N partitions into M: the same rows, whatever the number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braidlog.app.errors import DivergedError, ResizeRefusedError
from braidlog.app.execution.entries import Outcomes
from braidlog.app.execution.executor import Executor
from braidlog.app.execution.outcome import Outcome
from braidlog.app.procedure import partition_of
from braidlog.app.replay.result import Replayed
from braidlog.app.replay.run import Replay, replay
from braidlog.app.replay.target import Target
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import InvalidArgumentError
from unit.app.banking import make_bank
from unit.app.logs import ACCOUNTS, ListInput, history
from unit.app.records import Records

KEYS: dict[str, str | None] = {"account": "id"}


def log_of(partitions: int, commands: int = 120) -> Records:
    return history(make_bank(partitions=partitions, row_keys=KEYS), commands)


def again(log: Records, path: Path, **options: Any) -> Replayed:
    return replay(log.application, ListInput(log.records), path, **options)


def rows_of(path: Path) -> dict[int, int]:
    """All accounts; each of them in the partition that its key says."""
    state = SqliteState(path, 1)
    found: dict[int, int] = {}
    for number, each in enumerate(state.partitions):
        for account, balance in each.handle.execute("SELECT * FROM account"):
            assert partition_of(account, len(state.partitions)) == number
            assert account not in found
            found[account] = balance
    state.close()
    return found


@settings(max_examples=12, deadline=None, suppress_health_check=[*HealthCheck])
@given(
    old=st.integers(1, 6),
    new=st.integers(1, 6),
    live=st.lists(st.integers(1, 6), max_size=2),
)
def test_any_number_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory, old: int, new: int, live: list[int]
) -> None:
    """Changes in the log on the way, and another number at the end."""
    where = tmp_path_factory.mktemp("resize")
    log = log_of(old, 40)
    plain = again(log, where / "plain", resize=old)
    for number, partitions in enumerate(live):
        at = log.resize(partitions, KEYS)
        log.resized(at, partitions)
        for account in range(ACCOUNTS):
            log.command("deposit", account, number + 1)
    done = again(log, where / "new", resize=new)
    assert len(done.hashes) == new
    more = sum(range(len(live) + 1))
    expected = rows_of(where / "plain")
    if more:
        expected = {n: expected.get(n, 0) + more for n in range(ACCOUNTS)}
    assert rows_of(where / "new") == expected
    one = again(log, where / "one", resize=1)
    assert one.total_hash == done.total_hash
    assert (plain.total_hash == done.total_hash) == (not more)


def test_a_replay_that_was_killed_goes_on(tmp_path: Path) -> None:
    log = log_of(3)
    once = again(log, tmp_path / "once", resize=5)
    path = tmp_path / "killed"
    again(log, path, until=60)
    target = Target(path, log.application)
    source = ListInput(log.records)
    with Replay(log.application, source, target, resize=5) as going:
        going.advance(90)
    done = again(log, path, resize=5)
    assert (done.start, done.hashes) == (90, once.hashes)
    # The same call once more has nothing to do; others begin anew.
    assert again(log, path, resize=5).start == log.end - 1
    assert again(log, path, resize=4).start == 0
    whole = again(log, path)
    assert (whole.start, len(whole.hashes), whole.total_hash) == (0, 3, b"")


def test_what_was_spread_is_no_state_to_go_on_from(tmp_path: Path) -> None:
    log = log_of(3)
    again(log, tmp_path / "out", until=50, resize=2)
    done = again(log, tmp_path / "out", resize=2)
    assert (done.start, done.position) == (0, log.end - 1)


def test_what_cannot_be_spread(tmp_path: Path) -> None:
    log = log_of(3)
    source = ListInput(log.records)
    with pytest.raises(ResizeRefusedError, match="has no row_keys="):
        replay(make_bank(), source, tmp_path / "none", resize=2)
    with pytest.raises(InvalidArgumentError, match="from 1 to 4096"):
        again(log, tmp_path / "zero", resize=0)
    other = make_bank(row_keys={"account": "balance"})
    with pytest.raises(ResizeRefusedError, match="is not what calls"):
        replay(other, source, tmp_path / "wrong", resize=2)
    # What was replayed until then is there, in the partitions of the log.
    assert again(log, tmp_path / "wrong").start == log.end - 1


def test_some_partitions_alone_cannot_be_spread(tmp_path: Path) -> None:
    bank = make_bank(row_keys=KEYS)
    log = Records(bank)
    for account in range(9):
        log.command("deposit", account, 5)
    with pytest.raises(ResizeRefusedError, match=r"only \[1\] are replayed"):
        again(log, tmp_path / "some", partitions=[1], resize=2)
    at = log.resize(2, KEYS)
    with pytest.raises(InvalidArgumentError, match=f"partitions at {at}"):
        again(log, tmp_path / "some", partitions=[1])
    assert len(again(log, tmp_path / "all", partitions=[0, 1, 2]).hashes) == 2


def test_a_change_in_the_log_is_compared_by_its_total_hash(tmp_path: Path) -> None:
    """The log says what the rows were; a replay that has others stops there."""
    log = log_of(3)
    at = log.resize(5, KEYS)
    log.resized(at, 5)
    state = SqliteState(tmp_path / "live", 3)
    executor = Executor(log.application, state)
    executor.feed(log.records)
    digests = [each for each in executor.shared.unlogged(0, 1000) if each[0] == at]
    executor.rollback()
    state.close()
    log.add(Outcomes(0, digests))
    assert again(log, tmp_path / "same").compared == 1
    at, digest = digests[0]
    log.records.pop()
    log.add(Outcomes(0, [(at, b"x" * 16 + digest[16:])]))
    with pytest.raises(DivergedError, match=rf"command at {at} \(\(resize\)\)"):
        again(log, tmp_path / "other")


def test_a_change_that_the_rows_do_not_allow_changes_nothing(tmp_path: Path) -> None:
    log = log_of(3)
    before = again(log, tmp_path / "before")
    log.resize(5, {"account": "balance"})
    log.resize(4, {})
    log.add(log.application.catalog(2))
    refused = again(log, tmp_path / "refused")
    assert refused.hashes == before.hashes
    log.command("deposit", 1, 5)
    assert len(again(log, tmp_path / "refused").hashes) == 3


def test_of_two_changes_at_a_time_the_first_counts(tmp_path: Path) -> None:
    log = log_of(3)
    log.resize(5, KEYS)
    log.resize(2, KEYS)
    assert len(again(log, tmp_path / "out").hashes) == 5


def test_calls_are_answered_once_over_a_change(tmp_path: Path) -> None:
    bank = make_bank(partitions=2, results_kept=4, row_keys=KEYS)
    log = Records(bank)
    calls = [log.call_id() for _ in range(6)]
    for account, call in enumerate(calls):
        log.command("deposit", account, 10, call=call)
    at = log.resize(5, KEYS)
    log.resized(at, 5)
    for account, call in enumerate(calls):
        log.command("deposit", account, 10, call=call)
    state = SqliteState(tmp_path, 2)
    executor = Executor(bank, state)
    outcomes: list[Outcome] = executor.feed(log.records)[len(calls) :]
    executor.rollback()
    # The newest are remembered, the others are refused; none is executed again.
    assert [each.status.name for each in outcomes] == ["EXPIRED"] * 2 + ["OK"] * 4
    assert [each.repeated for each in outcomes] == [False] * 2 + [True] * 4
    state.close()


def test_a_mark_of_an_older_version_names_all_partitions(tmp_path: Path) -> None:
    log = log_of(3)
    again(log, tmp_path / "out", until=60)
    mark = tmp_path / "out" / "replay.json"
    facts = json.loads(mark.read_text())
    assert facts["partitions"] == []
    mark.write_text(json.dumps({**facts, "partitions": [0, 1, 2]}))
    assert again(log, tmp_path / "out").start == 60
