"""A live state beside a replay of its log: equal, tampered with, ahead, stopped."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from braidlog.app import Application, Host
from braidlog.app.replay.audit import Audit, Seen, compare, look_at
from braidlog.app.replay.inputs import commands_of
from braidlog.app.replay.run import Replay
from braidlog.app.replay.target import Target
from braidlog.errors import NotFoundError
from unit.app.banking import make_bank

PARTITIONS = range(3)


@pytest.fixture
def bank() -> Application:
    return make_bank()


@pytest.fixture
def host(bank: Application, tmp_path: Path) -> Iterator[Host]:
    with bank.open(tmp_path / "bank") as host:
        for account in range(30):
            host.call("deposit", account, 100)
        yield host


@pytest.fixture
def going(bank: Application, host: Host, tmp_path: Path) -> Iterator[Replay]:
    source = commands_of(tmp_path / "bank")
    with Replay(bank, source, Target(tmp_path / "work", bank)) as going:
        yield going
    source.close()


def audit(going: Replay, path: Path) -> Audit:
    seen = look_at(path / "bank" / "state", PARTITIONS)
    going.go_on()
    return compare(going, seen)


def test_a_state_that_is_what_its_log_gives(
    host: Host, going: Replay, tmp_path: Path
) -> None:
    found = audit(going, tmp_path)
    assert (found.compared, found.waiting, found.findings) == ((0, 1, 2), (), ())
    before = found.position
    host.call("deposit", 1, 5)
    # The host may have it a moment before it can be read beside it.
    while found.position == before:
        found = audit(going, tmp_path)
        assert found.findings == ()


def test_a_state_is_not_compared_with_a_log_that_ends_before_it(
    host: Host, going: Replay, tmp_path: Path
) -> None:
    assert audit(going, tmp_path).compared == (0, 1, 2)
    end = going.position
    ahead = [Seen(0, end, b"other", False), Seen(1, end + 1, b"other", False)]
    found = compare(going, ahead)
    assert (found.waiting, [each.partition for each in found.findings]) == ((1,), [0])


def test_a_state_that_somebody_changed(
    host: Host, going: Replay, tmp_path: Path
) -> None:
    assert audit(going, tmp_path).findings == ()
    database = apsw.Connection(str(tmp_path / "bank/state/partition-0001.db"))
    database.set_busy_timeout(10_000)
    database.execute(
        "UPDATE account SET balance = balance + 1 WHERE id = "
        "(SELECT min(id) FROM account)"
    )
    database.close()
    [finding] = audit(going, tmp_path).findings
    assert finding.partition == 1
    assert finding.hash != finding.replayed
    assert not finding.stopped


def test_a_host_that_works_meanwhile_is_looked_at_between_its_commits(
    host: Host, going: Replay, tmp_path: Path
) -> None:
    """Its partitions are at several positions, each of them compared at its own."""
    stop = threading.Event()

    def work() -> None:
        number = 0
        while not stop.is_set():
            calls = [
                host.submit("transfer", number % 30, (number * 7 + n) % 30, 1)
                for n in range(1, 20)
                if (number * 7 + n) % 30 != number % 30
            ]
            for call in calls:
                call.result()
            number += 1

    thread = threading.Thread(target=work)
    thread.start()
    try:
        found = [audit(going, tmp_path) for _ in range(20)]
    finally:
        stop.set()
        thread.join()
    assert [each.findings for each in found] == [()] * 20
    assert all(each.compared for each in found)
    assert found[-1].position > found[0].position


def test_what_the_replay_has_passed_is_for_the_next_time(
    host: Host, going: Replay, tmp_path: Path
) -> None:
    seen = look_at(tmp_path / "bank" / "state", PARTITIONS)
    for account in range(30):
        host.call("deposit", account, 1)
    host.close()
    going.go_on()
    going.advance()
    found = compare(going, seen)
    assert (found.compared, found.waiting) == ((), (0, 1, 2))


def test_there_is_no_state(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no state of an application"):
        look_at(tmp_path, PARTITIONS)
