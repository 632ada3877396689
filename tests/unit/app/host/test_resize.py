"""Other partitions while hosts run: no call is lost, doubled or overtaken."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from braidlog.app import (
    Application,
    BusyError,
    Context,
    Host,
    PendingCall,
    ProcedureError,
    SnapshotSettings,
)
from braidlog.app.errors import ExecutionError, ResizeRefusedError
from braidlog.app.execution.entries import Command, Effect, Resize, pack, unpack
from braidlog.app.host.runner import Runner
from braidlog.app.procedure import partition_of
from braidlog.app.replay.inputs import commands_of
from braidlog.app.replay.run import replay
from braidlog.app.replay.snapshot_source import SnapshotStarts
from braidlog.app.state import resizing
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import InvalidArgumentError
from unit.app.banking import make_bank
from unit.app.shared_log import Contents, SharedLog

KEYS: dict[str, str | None] = {"account": "id"}
ACCOUNTS = 12


@contextlib.contextmanager
def shared(
    path: Path, log: SharedLog, name: bytes, *, active: bool = True
) -> Iterator[Host]:
    bank = make_bank(row_keys=KEYS)
    state = SqliteState(path / name.hex(), bank.partitions)
    host = Host(Runner(bank, log, state, active=active, host=name * 16))
    try:
        yield host
    finally:
        host.close()


def entries_of(contents: Contents) -> list[tuple[int, Any]]:
    return [(r.position, unpack(r.value, r.position)) for r in contents.records]


def test_an_open_application_gets_other_partitions(tmp_path: Path) -> None:
    bank = make_bank(row_keys=KEYS)
    with bank.open(tmp_path) as host:
        for account in range(ACCOUNTS):
            host.call("deposit", account, account)
        call = host.new_call_id()
        host.call("deposit", 3, 4, call_id=call)
        before = host.total_hash()[1]
        at = host.resize(7)
        assert (host.partitions, host.position) == (7, at)
        assert host.total_hash()[1] == before
        assert host.resize(7) == at  # Nothing is left to do.
        assert len(host.hashes()[1]) == 7
        # A repeat is answered, not executed.
        assert host.call("deposit", 3, 4, call_id=call) == 7
        assert [host.call("balance", n) for n in range(4)] == [0, 1, 2, 7]
        assert host.call("total") == sum(range(ACCOUNTS)) + 4
        assert host.call("interest", 3) == 14
        assert host.call("transfer", 3, 5, 10) == [4, 15]
        position, hashes = host.hashes()
    for partitions in (3, 7, 1):  # Whatever the program says.
        with make_bank(partitions=partitions, row_keys=KEYS).open(tmp_path) as host:
            assert host.partitions == 7
            assert host.call("deposit", 3, 0) == 4
    done = _replayed(bank, tmp_path, tmp_path / "again", until=position)
    assert [*done.values()] == hashes


def _replayed(bank: Application, data: Path, to: Path, **options: Any) -> Any:
    with commands_of(data) as source:
        return replay(bank, source, to, **options).hashes


def test_snapshots_before_and_behind_a_change(tmp_path: Path) -> None:
    bank = make_bank(row_keys=KEYS)
    settings = SnapshotSettings(automatic=False, kept=8)
    with bank.open(tmp_path / "bank", snapshots=settings) as host:
        for account in range(ACCOUNTS):
            host.call("deposit", account, account)
        first = host.snapshot().position
        host.resize(5)
        host.call("deposit", 1, 1)
        second = host.snapshot().position
        host.call("deposit", 1, 1)
        hashes = host.hashes()[1]
        total = host.total_hash()[1]
    # A state that is gone comes from the newest one, whatever the program says.
    state = tmp_path / "bank" / "state"
    state.rename(tmp_path / "gone")
    with bank.open(tmp_path / "bank", snapshots=settings) as host:
        assert (host.partitions, host.hashes()[1]) == (5, hashes)
    starts = SnapshotStarts(tmp_path / "bank" / "snapshots")
    for number, position in enumerate((first, second)):
        found = starts(position)
        assert found is not None
        assert found.partitions == (3, 5)[number]
        with commands_of(tmp_path / "bank") as source:
            done = replay(
                bank,
                source,
                tmp_path / f"from-{number}",
                starts=lambda _, found=found: found,
                resize=4,
            )
        assert done.start == position
        assert (done.total_hash, len(done.hashes)) == (total, 4)


def test_what_the_rows_do_not_allow_is_said_and_changes_nothing(tmp_path: Path) -> None:
    with make_bank().open(tmp_path / "none") as host:
        with pytest.raises(ResizeRefusedError, match="has no row_keys="):
            host.resize(5)
        with pytest.raises(InvalidArgumentError, match="from 1 to 4096"):
            host.resize(0)
    wrong = make_bank(row_keys={"account": "balance"})
    with wrong.open(tmp_path / "wrong") as host:
        host.call("deposit", 1, 77)
        with pytest.raises(ResizeRefusedError, match="keeps its partitions: the row"):
            host.resize(5)
        assert (host.partitions, host.call("deposit", 1, 1)) == (3, 78)
    alone = Application("alone", partitions=1, row_keys={})

    @alone.procedure
    def nothing(ctx: Context) -> None:
        pass

    with (
        alone.open(tmp_path / "alone") as host,
        pytest.raises(InvalidArgumentError, match="nothing of 'alone' do not say"),
    ):
        host.resize(2)


def test_calls_that_were_routed_before_are_appended_again(tmp_path: Path) -> None:
    """Each of them once, in their order, and what comes later behind them."""
    contents = Contents()
    log, other = SharedLog(contents), SharedLog(contents)
    with (
        shared(tmp_path, log, b"a") as active,
        shared(tmp_path, other, b"b", active=False) as standby,
    ):
        standby.wait_applied(active.position)
        other.hold()  # It does not see the change, and goes on to append.
        at = active.resize(5)
        pending = [standby.submit("deposit", n % 4, 10**n) for n in range(8)]
        other.let_go()
        pending += [standby.submit("deposit", n % 4, 10**n) for n in range(8, 16)]
        answers = [each.result(30) for each in pending]
        expected = [sum(10**m for m in range(n % 4, n + 1, 4)) for n in range(16)]
        assert answers == expected
        active.wait_applied(standby.position)
        assert (standby.partitions, active.hashes()) == (5, standby.hashes())
    behind = [e for p, e in entries_of(contents) if type(e) is Command and p > at]
    assert [each.routing for each in behind][:8] == [0] * 8
    routed = [each for each in behind if each.routing == at]
    assert [each.arguments[1] for each in routed] == [10**n for n in range(16)]


def test_effects_that_were_computed_before_are_computed_again(tmp_path: Path) -> None:
    contents = Contents()
    log, other = SharedLog(contents), SharedLog(contents)
    with (
        shared(tmp_path, log, b"a") as active,
        shared(tmp_path, other, b"b", active=False) as standby,
    ):
        active.call("deposit", 1, 5)
        standby.wait_applied(active.position)
        other.hold()
        active.resize(1)
        answer: list[Any] = []
        thread = threading.Thread(
            target=lambda: answer.append(standby.call("interest", 1))
        )
        thread.start()
        with contents.changed:  # Until the first attempt is in the log.
            assert contents.changed.wait_for(lambda: _effects(contents) == 1, 30)
        other.let_go()
        thread.join()
        assert answer == [10]
        assert _effects(contents) == 2
        assert active.call("balance", 1) == 10


def _effects(contents: Contents) -> int:
    return sum(type(entry) is Effect for _, entry in entries_of(contents))


def test_two_hosts_that_change_it_at_a_time(tmp_path: Path) -> None:
    contents = Contents()
    log, other = SharedLog(contents), SharedLog(contents)
    with (
        shared(tmp_path, log, b"a") as one,
        shared(tmp_path, other, b"b", active=False) as two,
    ):
        two.wait_applied(one.position)

        def faster() -> None:
            log.before_append = lambda: None
            two.resize(2)

        log.before_append = faster
        with pytest.raises(ResizeRefusedError, match=r"another change .* came first"):
            one.resize(5)
        assert one.partitions == two.partitions == 2


def test_a_command_that_is_given_up_behind_a_change(tmp_path: Path) -> None:
    """It takes back what was executed with it, and nothing of before the change."""
    bank = make_bank(row_keys=KEYS)

    @bank.procedure(key="account")
    def spin(ctx: Context, account: int) -> None:
        while True:
            account += 1

    contents = Contents()
    log = SharedLog(contents)
    state = SqliteState(tmp_path, bank.partitions)
    with Host(Runner(bank, log, state, active=True, watchdog=0.2)) as host:
        log.hold()  # So that all of it is read at once.
        before = host.submit("deposit", 1, 5)
        at = contents.append(pack(Resize(5, 0, KEYS)))
        procedure = bank.find("spin")
        numbers = procedure.partitions([1], 5)
        call = host.new_call_id()
        entry = Command(call, call, "spin", procedure.content, numbers, [1], at)
        contents.append(pack(entry))
        log.let_go()
        assert before.result(60) == 5
        with pytest.raises(ProcedureError, match="aborted by the host"):
            host.call("spin", 1, call_id=call)
        assert (host.partitions, host.call("balance", 1)) == (5, 5)


@pytest.mark.timeout(120)
def test_callers_do_not_notice_changes(tmp_path: Path) -> None:
    """Threads call without a pause while the number changes, on two hosts."""
    contents = Contents()
    done = threading.Event()
    wrong: list[Any] = []

    def calling(host: Host, thread: int, counts: dict[int, int]) -> None:
        numbers = random.Random(thread)
        window: list[tuple[PendingCall, int, int]] = []
        while not done.is_set() or window:
            if not done.is_set() and len(window) < 20:
                account = thread * 100 + numbers.randrange(6)
                # Of the deposits of one thread each sees all before it.
                counts[account] = counts.get(account, 0) + 1
                with contextlib.suppress(BusyError):
                    call = host.submit("deposit", account, 1)
                    window.append((call, account, counts[account]))
                    continue
                counts[account] -= 1
            pending, account, expected = window.pop(0)
            if (found := pending.result(60)) != expected:
                wrong.append((account, found, expected))

    with (
        shared(tmp_path, SharedLog(contents), b"a") as one,
        shared(tmp_path, SharedLog(contents), b"b", active=False) as two,
    ):
        counts: list[dict[int, int]] = [{} for _ in range(4)]
        threads = [
            threading.Thread(target=calling, args=((one, two)[n % 2], n, counts[n]))
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for number, partitions in enumerate((5, 2, 1, 6, 3, 4)):
            (one, two)[number % 2].resize(partitions)
        done.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        for each in counts:
            for account, count in each.items():
                assert one.call("balance", account) == count
                assert two.call("balance", account) == count
        end = max(one.position, two.position)
        one.wait_applied(end)
        two.wait_applied(end)
        assert one.total_hash()[1] == two.total_hash()[1]
    changes = [entry for _, entry in entries_of(contents) if type(entry) is Resize]
    assert len(changes) == 6
    moved = [e for _, e in entries_of(contents) if type(e) is Command and e.routing]
    assert moved, "calls went on between the changes"


def test_a_disk_that_fails_stops_the_host_and_the_next_one_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = make_bank(row_keys=KEYS)
    with bank.open(tmp_path) as host:
        for account in range(ACCOUNTS):
            host.call("deposit", account, account)
        before = host.total_hash()[1]

        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(resizing, "adopt", full)
            with pytest.raises(ExecutionError, match="No space left"):
                host.resize(5)
    with bank.open(tmp_path) as host:
        assert (host.partitions, host.total_hash()[1]) == (5, before)


def test_a_read_sees_all_of_the_old_or_all_of_the_new(tmp_path: Path) -> None:
    bank = make_bank(row_keys=KEYS)
    with bank.open(tmp_path) as host:
        for account in range(ACCOUNTS):
            host.call("deposit", account, 1)
        done = threading.Event()
        totals: set[Any] = set()

        def reading() -> None:
            while not done.is_set():
                totals.add(host.call("total", stale=1000.0))
                position, hashes = host.hashes()
                totals.add(position > 0 and len(hashes) > 0 and ACCOUNTS)

        thread = threading.Thread(target=reading)
        thread.start()
        for partitions in (5, 1, 4, 2, 6):
            host.resize(partitions)
        done.set()
        thread.join()
        assert totals == {ACCOUNTS}


def test_rows_lie_where_calls_look(tmp_path: Path) -> None:
    bank = make_bank(row_keys=KEYS)
    with bank.open(tmp_path) as host:
        host.call("deposit", 1, 1)
        host.resize(11)
        host.call("deposit", 2, 1)
    state = SqliteState(tmp_path / "state", 1)
    for number, each in enumerate(state.partitions):
        for (account,) in each.handle.execute("SELECT id FROM account"):
            assert partition_of(account, 11) == number
    state.close()
