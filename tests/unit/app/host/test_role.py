"""Hosts that share a log: who is active, what the others do, what is stale."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from braidlog.app import ApplicationMismatchError, DivergedError, Host
from braidlog.app.execution.entries import Command, Create, Outcomes, pack, unpack
from braidlog.app.execution.entries import Host as HostEntry
from braidlog.app.host.runner import Runner
from braidlog.app.snapshots.transfer import StateCopies
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import DeadlineError, FencedError, LogFullError, NotReadyError
from braidlog.wire.messages import FetchSnapshot
from unit.app.banking import make_bank
from unit.app.shared_log import Contents, SharedLog


@contextlib.contextmanager
def opened(
    path: Path, log: SharedLog, name: bytes, *, active: bool = True
) -> Iterator[Host]:
    bank = make_bank()
    state = SqliteState(path / name.hex(), bank.partitions)
    host = Host(Runner(bank, log, state, active=active, host=name * 16))
    try:
        yield host
    finally:
        host.close()


def logged(contents: Contents, kind: type) -> list[tuple[int, object]]:
    entries = [(r.position, unpack(r.value, r.position)) for r in contents.records]
    return [(position, entry) for position, entry in entries if type(entry) is kind]


def test_of_two_that_begin_a_log_the_first_counts(tmp_path: Path) -> None:
    contents = Contents()
    log = SharedLog(contents)

    def other() -> None:
        log.before_append = lambda: None
        contents.append(pack(Create(b"other" * 3 + b"!", "bank", 3, 10_000)))

    log.before_append = other  # Between the look at the empty log and the append.
    with opened(tmp_path, log, b"a") as host:
        assert host.call("deposit", 1, 5) == 5
        assert host.runner._executor.shared.identity == b"other" * 3 + b"!"
    assert len(logged(contents, Create)) == 2


def test_who_begins_the_log_of_another_application_is_told(tmp_path: Path) -> None:
    contents = Contents()
    log = SharedLog(contents)
    foreign = pack(Create(bytes(16), "shop", 3, 10_000))
    log.before_append = lambda: (contents.append(foreign), None)[1]
    with pytest.raises(ApplicationMismatchError, match="belong to application 'shop'"):
        opened(tmp_path, log, b"a").__enter__()


def test_a_read_waits_for_the_schema_of_an_active_host(tmp_path: Path) -> None:
    contents = Contents()
    with opened(tmp_path, SharedLog(contents), b"a", active=False) as standby:
        with pytest.raises(NotReadyError, match="does not have the schema"):
            standby.call("balance", 1)
        standby.runner.promote()
        assert standby.call("balance", 1) == 0


def test_a_call_id_that_the_log_is_known_to_reach_asks_nobody(tmp_path: Path) -> None:
    contents = Contents()
    log = SharedLog(contents)
    with opened(tmp_path, log, b"a") as host:
        host.call("deposit", 1, 5)
        call, asked = host.new_call_id(), log.asked
        log.hold()
        # What was asked lately is enough, also where the host has not read so far.
        log.hold_back(1)
        pending = host.submit("deposit", 1, 5, call_id=call)
        assert log.asked == asked, "a loop that submits would stand still"
        log.let_go()
        assert pending.result(10) == 10


def test_of_two_that_are_promoted_at_a_time_the_first_counts(tmp_path: Path) -> None:
    contents = Contents()
    log = SharedLog(contents)
    with (
        opened(tmp_path, SharedLog(contents), b"a") as first,
        opened(tmp_path, log, b"b", active=False) as second,
        opened(tmp_path, SharedLog(contents), b"c", active=False) as third,
    ):

        def overtake() -> None:
            log.before_append = lambda: None
            third.runner.promote()

        log.before_append = overtake
        with pytest.raises(FencedError, match=(b"c" * 16).hex()) as caught:
            second.runner.promote()
        assert (caught.value.given, caught.value.current) == (2, 2)
        first.wait_applied(len(contents.records))
        roles = [each.runner.role.active for each in (first, second, third)]
        assert roles == [False, False, True]
        second.runner.promote()
        assert second.runner.role.active


def test_a_host_that_is_promoted_twice_at_a_time_is_promoted_once(
    tmp_path: Path,
) -> None:
    contents = Contents()
    log = SharedLog(contents)
    with (
        opened(tmp_path, SharedLog(contents), b"a"),
        opened(tmp_path, log, b"b", active=False) as second,
    ):
        again = threading.Thread(target=second.runner.promote)

        def meanwhile() -> None:
            log.before_append = lambda: None
            again.start()
            again.join(0.3)
            assert again.is_alive(), "it waits for the first one"

        log.before_append = meanwhile
        second.runner.promote()
        again.join(30)
        assert second.runner.role.active
    assert [entry for _, entry in logged(contents, HostEntry)] == [
        HostEntry(b"a" * 16, 1),
        HostEntry(b"b" * 16, 2),
    ]


def test_a_host_that_does_not_know_yet_that_it_was_replaced_harms_nobody(
    tmp_path: Path,
) -> None:
    contents = Contents()
    log = SharedLog(contents)
    with (
        opened(tmp_path, log, b"a") as first,
        opened(tmp_path, SharedLog(contents), b"b", active=False) as second,
    ):
        first.call("deposit", 1, 1)
        at = first.position
        log.hold()
        second.runner.promote()
        assert first.runner.role.active, "it cannot know"
        # What it says of outcomes is of an older epoch, and wrong on top.
        contents.append(pack(Outcomes(1, [(at, bytes(21))])))
        second.call("deposit", 1, 1)
        assert second.runner.mismatches == 0
        contents.append(pack(Outcomes(2, [(at, bytes(21))])))
        second.wait_applied(len(contents.records))
        assert second.runner.mismatches == 1
        assert second.runner.stopped_partitions() == (second_partition(second),)
        # Nobody may begin with a state like this.
        with pytest.raises(DivergedError, match="ask another host"):
            StateCopies(second.runner, tmp_path / "copy").part(FetchSnapshot())
        log.let_go()


def second_partition(host: Host) -> int:
    partitions = host.application.find("deposit").partitions([1, 1], 3)
    assert partitions is not None
    return partitions[0]


def test_a_standby_writes_nothing(tmp_path: Path) -> None:
    contents = Contents()
    with (
        opened(tmp_path, SharedLog(contents), b"a") as first,
        opened(tmp_path, SharedLog(contents), b"b", active=False) as second,
    ):
        calls = [second.submit("deposit", 1, 1) for _ in range(1500)]
        assert [call.result() for call in calls][-1] == 1500
        first.wait_applied(second.position)
    said = [entry.epoch for _, entry in logged(contents, Outcomes)]  # type: ignore[attr-defined]
    assert said
    assert set(said) == {1}
    assert len(logged(contents, HostEntry)) == 1


class BusyLog(SharedLog):
    """Has no room for outcomes for a while."""

    busy = True

    def submit(
        self, value: bytes, key: bytes | None, failed: Callable[[Exception], None]
    ) -> None:
        if self.busy and isinstance(unpack(value, 0), Outcomes):
            raise LogFullError("no room", used=1, limit=1)
        super().submit(value, key, failed)


def test_a_host_that_is_closed_logs_all_outcomes(tmp_path: Path) -> None:
    contents = Contents()
    log = BusyLog(contents)
    with opened(tmp_path, log, b"a") as host:
        calls = [host.submit("deposit", 1, 1) for _ in range(1000)]
        calls += [host.submit("deposit", 2, 1) for _ in range(1500)]
        assert calls[-1].result() == 1500
        assert not logged(contents, Outcomes)
        log.busy = False
    records = [entry for _, entry in logged(contents, Outcomes)]
    said = [at for entry in records for at, _ in entry.digests]  # type: ignore[attr-defined]
    assert said == [at for at, _ in logged(contents, Command)]
    assert len(said) == 2500


class LateLog(SharedLog):
    """Makes calls durable long after they were appended."""

    def submit(
        self, value: bytes, key: bytes | None, failed: Callable[[Exception], None]
    ) -> None:
        threading.Timer(1.2, lambda: self.contents.append(value)).start()


def test_a_host_that_is_closed_waits_for_what_is_not_durable_yet(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, LateLog(Contents()), b"a") as host:
        call = host.submit("deposit", 1, 1)
    assert call.result(0) == 1


def test_a_host_that_is_cut_off_reads_no_more_than_is_allowed(tmp_path: Path) -> None:
    contents = Contents()
    log = SharedLog(contents)
    with (
        opened(tmp_path, SharedLog(contents), b"a") as first,
        opened(tmp_path, log, b"b", active=False) as second,
    ):
        first.call("deposit", 1, 1)
        assert second.call("balance", 1) == 1
        log.hold()
        first.call("deposit", 1, 1)
        asked = log.asked
        # Recent enough: nobody is asked.
        assert second.call("balance", 1, stale=60) == 1
        assert log.asked == asked
        # Its last look at the end is too old, and it knows that it lacks something.
        log.looked -= 100
        second.runner._caught_up -= 100
        for options in ({}, {"stale": 60.0}):
            with pytest.raises(DeadlineError, match="was not executed"):
                second.call("balance", 1, timeout=0.05, **options)  # type: ignore[arg-type]
        assert second.call("balance", 1, behind=2) == 1
        log.let_go()
        assert second.call("balance", 1) == 2
