"""The executor: repeats, expiry, crashes between participants, digests, code."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from braidlog.app import (
    Abort,
    Application,
    ApplicationMismatchError,
    CallExpiredError,
    Context,
    DivergedError,
    ExecutionError,
    ProcedureError,
    UnknownProcedureError,
)
from braidlog.app.determinism.codec import encode
from braidlog.app.errors import GivenUpError
from braidlog.app.execution.answers import answer
from braidlog.app.execution.entries import AbortEntry, Effect, Host, Outcomes
from braidlog.app.execution.executor import Executor
from braidlog.app.execution.outcome import Outcome, Status
from braidlog.app.execution.state import State
from braidlog.app.state.sqlite import SqliteState
from braidlog.errors import CorruptionError, InvalidArgumentError
from unit.app.banking import SCHEMA, make_bank
from unit.app.records import Records
from unit.app.states import DictState


class Hosted:
    """A log in a list, executed over a state that can be opened again."""

    def __init__(self, bank: Application, open_state: Callable[[], State]) -> None:
        self.bank = bank
        self.log = Records(bank)
        self._open = open_state
        self.reopen()

    def reopen(self, application: Application | None = None) -> list[Outcome]:
        self.state = self._open()
        self.executor = Executor(application or self.bank, self.state)
        return self.feed()

    def feed(self) -> list[Outcome]:
        return self.executor.feed(self.log.after(self.executor))

    def call(self, name: str, *arguments: Any, **options: Any) -> Outcome:
        self.log.command(name, *arguments, **options)
        return self.feed()[-1]

    def hashes(self) -> list[bytes]:
        self.executor.commit(everywhere=True)
        return [partition.view().hash() for partition in self.state.partitions]


@pytest.fixture(params=["sqlite", "dict"])
def make(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Callable[..., Hosted]]:
    opened: list[State] = []

    def make(bank: Application | None = None, **options: Any) -> Hosted:
        chosen = bank or make_bank(**options)
        disk: dict[int, dict[str, Any]] = {}
        where = tmp_path / str(len(opened))

        mine: list[State] = []

        def open_state() -> State:
            if mine:
                mine.pop().close()
            state: State = (
                SqliteState(where, chosen.partitions)
                if request.param == "sqlite"
                else DictState(disk, chosen.partitions)
            )
            opened.append(state)
            mine.append(state)
            return state

        return Hosted(chosen, open_state)

    yield make
    for state in opened:
        state.close()


Make = Callable[..., Hosted]


def test_a_repeated_call_executes_once_also_after_a_restart(make: Make) -> None:
    hosted = make()
    call = hosted.log.call_id()
    assert answer(hosted.call("deposit", 1, 10, call=call)) == 10
    assert answer(hosted.call("deposit", 1, 5)) == 15
    again = hosted.call("deposit", 1, 10, call=call)
    assert (answer(again), again.repeated) == (10, True)
    hosted.executor.commit()
    hosted.reopen()
    again = hosted.call("deposit", 1, 10, call=call)
    assert (answer(again), again.repeated) == (10, True)
    assert answer(hosted.call("deposit", 1, 0)) == 15


def test_a_refusal_is_repeated_too(make: Make) -> None:
    hosted = make()
    call = hosted.log.call_id()
    for _ in range(2):
        with pytest.raises(Abort, match="no funds"):
            answer(hosted.call("transfer", 1, 2, 10, call=call))
    hosted.call("deposit", 1, 10)
    with pytest.raises(Abort):
        answer(hosted.call("transfer", 1, 2, 10, call=call))


def test_a_call_whose_result_may_be_forgotten_is_refused(make: Make) -> None:
    hosted = make(partitions=1, results_kept=2)
    call = hosted.log.call_id()
    hosted.call("deposit", 1, 10, call=call)
    unused = hosted.log.call_id()
    hosted.call("deposit", 1, 1)
    assert hosted.call("deposit", 1, 10, call=call).repeated
    hosted.call("deposit", 1, 1)
    for _ in range(2):
        with pytest.raises(CallExpiredError):
            answer(hosted.call("deposit", 1, 10, call=call))
        hosted.executor.commit()
        hosted.reopen()
    # As old as the oldest that is remembered: it cannot have been executed.
    assert answer(hosted.call("deposit", 1, 10, call=unused)) == 22
    assert answer(hosted.call("deposit", 1, 0)) == 22


def test_what_raises_leaves_nothing(make: Make) -> None:
    hosted = make()
    hosted.call("deposit", 1, 10)
    with pytest.raises(ProcedureError, match="KeyError") as caught:
        answer(hosted.call("explode", 1))
    assert caught.value.kind == "KeyError"
    assert isinstance(caught.value.__cause__, KeyError)
    assert answer(hosted.call("deposit", 1, 0)) == 10


def test_time_and_randomness_come_from_the_record(make: Make) -> None:
    one, other = make(), make()
    for hosted in (one, other):
        first = answer(hosted.call("lottery", 1, timestamp=5_000))
        second = answer(hosted.call("lottery", 1, timestamp=3_000))
        assert first[1] == 5_000
        assert second[1] == 5_000, "time went back"
        assert first[2] != second[2]
    assert one.hashes() == other.hashes()


class CrashError(Exception):
    pass


@pytest.mark.parametrize("survive", range(4))
def test_a_crash_between_the_participants_of_a_command(
    make: Make, survive: int
) -> None:
    """After each step of the commit: what is missing comes from the first one."""
    hosted = make()
    accounts = one_in_each(hosted.bank)
    for account in accounts:
        hosted.call("deposit", account, 100)
    hosted.executor.commit()
    # Commands of one partition before and after, which are executed again.
    for source in accounts:
        hosted.call("deposit", accounts[1], 3)
        for target in accounts:
            hosted.call("transfer", source, target, 10)
            hosted.call("lottery", source)
        hosted.call("transfer", source, accounts[0], 10_000)
    left = survive
    for partition in hosted.state.partitions:
        commit = partition.commit

        def crash(saved: Any, commit: Any = commit) -> None:
            nonlocal left
            if left == 0:
                raise CrashError
            left -= 1
            commit(saved)

        partition.commit = crash  # type: ignore[method-assign]
    if survive < 3:
        with pytest.raises(CrashError):
            hosted.executor.commit()
    hosted.reopen()
    other = make(hosted.bank)
    other.log = hosted.log
    other.feed()
    assert hosted.hashes() == other.hashes()


def one_in_each(bank: Application) -> list[int]:
    find = bank.find("deposit")
    accounts: dict[int, int] = {}
    for account in range(100):
        (number,) = find.partitions([account, 0], bank.partitions) or [0]
        accounts.setdefault(number, account)
    return [accounts[number] for number in sorted(accounts)]


def test_databases_of_different_hosts_are_refused(make: Make) -> None:
    hosted = make()
    accounts = one_in_each(hosted.bank)
    hosted.call("deposit", accounts[0], 10)
    hosted.call("transfer", accounts[0], accounts[2], 1)
    hosted.executor.commit(everywhere=True)
    for book in hosted.executor._books[:2]:
        book.progress.applied = 1
    hosted.executor.position = 1
    # As older versions stored it: for the partitions behind the first one only.
    state = hosted.executor._books[2].state
    state.waiting = lambda position: encode([0, []])  # type: ignore[method-assign]
    with pytest.raises(CorruptionError, match="from different hosts"):
        hosted.feed()


def test_a_partition_that_lost_commands_gets_them_from_any_other() -> None:
    bank = make_bank()
    disk: dict[int, dict[str, Any]] = {}
    hosted = Hosted(bank, lambda: DictState(disk, 3))
    accounts = one_in_each(bank)
    hosted.feed()
    hosted.call("deposit", accounts[0], 10)
    hosted.executor.commit(everywhere=True)
    call = hosted.log.call_id()
    hosted.log.command("transfer", accounts[0], accounts[2], 4, call=call)
    hosted.feed()
    hosted.executor.commit(everywhere=True)
    # The machine dies, and the first partition was not on the device.
    hosted.state.partitions[0].lose(1)  # type: ignore[attr-defined]
    hosted.reopen()
    hosted.log.command("transfer", accounts[0], accounts[2], 4, call=call)
    (outcome,) = hosted.feed()
    assert outcome.repeated, "its result came back with its changes"
    assert answer(outcome) == [6, 4]
    assert answer(hosted.call("deposit", accounts[0], 0)) == 6


def test_effects_are_void_when_their_base_has_moved(make: Make) -> None:
    hosted = make()
    hosted.call("deposit", 1, 10)
    entry = prepare(hosted, 1)
    hosted.call("deposit", 1, 1)
    hosted.log.add(entry)
    (outcome,) = hosted.feed()
    assert outcome.status == Status.VOID
    hosted.log.add(prepare(hosted, 1))
    (outcome,) = hosted.feed()
    assert answer(outcome) == 22
    assert answer(hosted.call("deposit", 1, 0)) == 22


def prepare(hosted: Hosted, account: int) -> Effect:
    procedure = hosted.bank.find("interest")
    numbers = procedure.partitions([account], hosted.bank.partitions)
    call = hosted.log.call_id()
    found = hosted.executor.prepare(procedure, call, [account], numbers, 0, b"s")
    assert isinstance(found, Effect)
    return found


def test_a_record_that_is_missing_stops(make: Make) -> None:
    hosted = make()
    record = hosted.log.records[0]
    with pytest.raises(
        CorruptionError, match="the record at 3 is missing: the log continues at 9"
    ):
        hosted.executor.apply(9, 0, record.value)


@pytest.mark.parametrize(
    ("at", "component"),
    [(16, "status"), (17, "changes"), (18, "result"), (19, "draws"), (20, "times")],
)
def test_another_outcome_stops_the_partition(
    make: Make, at: int, component: str
) -> None:
    hosted = make(partitions=3)
    one, two, three = one_in_each(hosted.bank)
    digest = bytearray(hosted.call("lottery", one).digest)
    position = hosted.log.end - 1
    hosted.call("deposit", two, 5)
    digest[0] ^= 1
    digest[at] ^= 1
    hosted.log.add(Outcomes(1, [(position, bytes(digest))]))
    hosted.feed()
    for _ in range(2):  # Also after a restart.
        stopped = hosted.executor.stopped([0])
        assert isinstance(stopped, DivergedError)
        assert (stopped.position, stopped.procedure) == (position, "lottery")
        assert stopped.component.startswith(component)
        assert hosted.call("deposit", one, 1).status == Status.STOPPED
        assert hosted.call("deposit", two, 1).status == Status.OK
        hosted.executor.commit(everywhere=True)
        hosted.reopen()
    # A command on several partitions stops those that cannot go on without it.
    assert hosted.call("transfer", two, one, 1).status == Status.STOPPED
    assert hosted.executor.stopped([1]) is not None
    assert hosted.call("deposit", three, 1).status == Status.OK


def test_outcomes_that_agree_change_nothing(make: Make) -> None:
    hosted = make()
    digest = hosted.call("lottery", 1).digest
    position = hosted.log.end - 1
    hosted.log.add(Host(b"n", 2))
    # Of a host that is not active any more: not compared.
    hosted.log.add(Outcomes(1, [(position, b"x" * 21)]))
    hosted.log.add(Outcomes(2, [(position, digest)]))
    hosted.feed()
    assert hosted.executor.stopped(None) is None
    assert hosted.executor.shared.unlogged(0, 10) == []


def test_a_command_that_was_given_up_has_no_effects(make: Make) -> None:
    hosted = make()
    hosted.executor.rollback()
    hosted.executor = Executor(
        hosted.bank, hosted.state, given_up=lambda p: "slow" if p == 3 else None
    )
    hosted.feed()
    with pytest.raises(ProcedureError, match="aborted by the host: slow"):
        answer(hosted.call("deposit", 1, 10))
    assert answer(hosted.call("deposit", 1, 1)) == 1
    hosted.log.add(AbortEntry(3, "slow", 0))
    hosted.feed()
    assert hosted.executor.stopped(None) is None
    hosted.log.add(AbortEntry(4, "slow", 0))
    hosted.feed()
    assert hosted.executor.stopped(None) is not None


def test_code_that_is_not_here_stops_before_it_is_needed(make: Make) -> None:
    hosted = make()
    hosted.call("deposit", 1, 10)
    hosted.executor.commit()
    hosted.log.command("deposit", 1, 5)
    other = Application("bank", partitions=3, schema=SCHEMA)
    with pytest.raises(UnknownProcedureError, match="the version of 'deposit'"):
        hosted.reopen(other)
    hosted.reopen()
    assert answer(hosted.call("deposit", 1, 0)) == 15


def test_the_machine_is_no_outcome(make: Make) -> None:
    bank = make_bank()

    @bank.procedure(key="account")
    def fill(ctx: Context, account: int) -> None:
        raise apsw.FullError

    hosted = make(bank)
    hosted.log.command("fill", 1)
    with pytest.raises(ExecutionError, match="'fill'"):
        hosted.feed()


def test_memory_is_given_up_and_not_executed(make: Make) -> None:
    bank = make_bank()

    @bank.procedure(key="account")
    def grow(ctx: Context, account: int) -> None:
        raise MemoryError

    hosted = make(bank)
    hosted.log.command("grow", 1)
    with pytest.raises(GivenUpError, match="ran out of memory") as caught:
        hosted.feed()
    assert (caught.value.position, caught.value.reason) == (
        hosted.log.end - 1,
        "it ran out of memory",
    )


def test_another_application_is_refused(make: Make) -> None:
    hosted = make()
    hosted.executor.commit(everywhere=True)
    with pytest.raises(ApplicationMismatchError, match="'bank'; this program has"):
        hosted.reopen(Application("other", partitions=3))


@pytest.mark.parametrize("partitions", [1, 2, 7])
def test_a_log_has_its_own_number_of_partitions(
    tmp_path: Path, partitions: int
) -> None:
    log = Records(make_bank())
    log.command("deposit", 1, 10)
    bank = make_bank(partitions=partitions)
    state = SqliteState(tmp_path, partitions)
    executor = Executor(bank, state)
    outcomes = executor.feed(log.after(executor))
    executor.commit()
    assert [answer(outcome) for outcome in outcomes] == [10]
    assert len(state.partitions) == executor.shared.partitions == 3
    state.close()
    again = SqliteState(tmp_path, partitions)
    assert (len(again.partitions), Executor(bank, again).position) == (3, 3)
    again.close()


def test_the_schema_grows_by_steps(tmp_path: Path) -> None:
    bank = make_bank()
    log = Records(bank)
    log.command("deposit", 1, 10)
    state = SqliteState(tmp_path, 3)
    executor = Executor(bank, state)
    executor.feed(log.after(executor))
    step = "ALTER TABLE account ADD COLUMN owner TEXT"
    grown = make_bank(schema=[SCHEMA, step])
    executor.commit()
    executor = Executor(grown, state)
    catalog = executor.shared.wanted_catalog()
    assert catalog is not None
    assert (catalog.version, catalog.schema) == (2, [SCHEMA, step])
    executor.shared.try_schema(catalog)
    log.add(catalog)
    executor.feed(log.after(executor))
    executor.commit()
    assert executor.shared.wanted_catalog() is None
    for partition in state.partitions:
        assert partition.handle.execute("SELECT owner FROM account") in ([], [(None,)])
    broken = make_bank(schema=[SCHEMA, step, "ALTER TABLE nothing RENAME TO x"])
    executor = Executor(broken, state)
    catalog = executor.shared.wanted_catalog()
    assert catalog is not None
    with pytest.raises(InvalidArgumentError, match="a step of the schema failed"):
        executor.shared.try_schema(catalog)
    executor = Executor(make_bank(schema=["other"]), state)
    with pytest.raises(ApplicationMismatchError, match="does not begin with the steps"):
        executor.shared.wanted_catalog()
    state.close()
