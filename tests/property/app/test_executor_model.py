"""The executor against a dict and a loop, over any history of commits and crashes."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from braidlog.app.errors import Abort, CallExpiredError, ProcedureError
from braidlog.app.execution import executor
from braidlog.app.execution.answers import answer
from braidlog.app.execution.entries import CallId, Effect
from braidlog.app.execution.executor import Executor
from braidlog.app.execution.outcome import Outcome, Status
from braidlog.app.execution.state import State
from braidlog.app.execution.total import total_hash
from braidlog.app.state.sqlite import SqliteState
from unit.app.banking import KEYED, make_bank, read
from unit.app.records import Records
from unit.app.states import DictState

MEMORY = Path("/dev/shm")  # noqa: S108, RUF100
PARTITIONS = 3
KEPT = 6
ACCOUNTS = st.integers(0, 7)
AMOUNTS = st.integers(1, 50)


class CrashError(Exception):
    """The process ended here."""


class Machine(RuleBasedStateMachine):
    """Calls, retries, effects, commits and crashes in any order."""

    database = True
    options: ClassVar[dict[str, Any]] = {}
    row_keys: ClassVar[dict[str, str | None]] = {"account": "id"}

    def __init__(self) -> None:
        super().__init__()
        self.bank = make_bank(partitions=PARTITIONS, results_kept=KEPT, **self.options)
        self.log = Records(self.bank)
        memory = MEMORY if MEMORY.is_dir() else None
        self.directory = Path(tempfile.mkdtemp(dir=memory))
        self.disk: dict[int, dict[str, Any]] = {}
        self.state = self.open("live")
        self.executor = Executor(self.bank, self.state)
        # The model: balances, what each call gave, and the commands in order.
        self.accounts: dict[int, int] = {}
        self.gave: dict[bytes, Any] = {}
        self.calls: list[tuple[CallId, str, tuple[int, ...]]] = []
        self.effect: Effect | None = None
        self.routings = [(0, PARTITIONS)]
        self.feed()
        # Enough for transfers that succeed.
        for account in range(8):
            self.call("deposit", account, 100)

    def open(self, name: str) -> State:
        if self.database:
            return SqliteState(self.directory / name, PARTITIONS)
        disk = self.disk if name == "live" else {}
        return DictState(disk, PARTITIONS)

    def teardown(self) -> None:
        self.check_replay()
        self.executor.rollback()
        self.state.close()
        shutil.rmtree(self.directory)

    def feed(self) -> list[Outcome]:
        return self.executor.feed(self.log.after(self.executor))

    def model(self, name: str, arguments: tuple[int, ...]) -> Any:
        accounts = self.accounts
        if name == "deposit":
            account, amount = arguments
            accounts[account] = accounts.get(account, 0) + amount
            return accounts[account]
        if name == "transfer":
            source, target, amount = arguments
            if accounts.get(source, 0) < amount:
                return "no funds"
            accounts[source] -= amount
            accounts[target] = accounts.get(target, 0) + amount
            left = accounts[source] - (amount if source == target else 0)
            return [left, accounts[target]]
        return "KeyError"

    def heard(self, outcome: Outcome) -> Any:
        try:
            return answer(outcome)
        except Abort as error:
            return error.message
        except CallExpiredError:
            return "expired"
        except ProcedureError as error:
            return error.kind

    def call(self, name: str, *arguments: int) -> None:
        call = self.log.call_id()
        self.log.command(name, *arguments, call=call)
        (outcome,) = self.feed()
        self.gave[call] = self.model(name, arguments)
        assert self.heard(outcome) == self.gave[call]
        self.calls.append((call, name, arguments))

    @rule(account=ACCOUNTS, amount=AMOUNTS)
    def deposit(self, account: int, amount: int) -> None:
        self.call("deposit", account, amount)

    @rule(source=ACCOUNTS, to=ACCOUNTS, amount=AMOUNTS)
    def transfer(self, source: int, to: int, amount: int) -> None:
        self.call("transfer", source, to, amount)

    @rule(account=ACCOUNTS)
    def explode(self, account: int) -> None:
        self.call("explode", account)

    @rule(which=st.integers(0, 1 << 16))
    def repeat(self, which: int) -> None:
        if not self.calls:
            return
        call, name, arguments = self.calls[which % len(self.calls)]
        self.log.command(name, *arguments, call=call)
        (outcome,) = self.feed()
        # Either the first answer or none: never executed again.
        if outcome.status == Status.EXPIRED:
            assert len(self.calls) - which % len(self.calls) > KEPT
        else:
            assert outcome.repeated
            assert self.heard(outcome) == self.gave[call]

    @rule(account=ACCOUNTS)
    def compute_effects(self, account: int) -> None:
        procedure = self.bank.find("interest")
        call = self.log.call_id()
        numbers = procedure.partitions([account], self.log.partitions)
        effect = self.executor.prepare(procedure, call, [account], numbers, 0, b"s")
        assert isinstance(effect, Effect)
        self.effect = effect
        self.doubled = account
        self.computed_by = self.log.routing
        self.base = len(self.calls)

    @rule()
    def log_effects(self) -> None:
        effect, self.effect = self.effect, None
        if effect is None:
            return
        self.log.add(effect)
        (outcome,) = self.feed()
        if self.computed_by != self.log.routing:
            assert outcome.status == Status.VOID
            return
        touched = self.touched_since(self.base)
        if effect.partitions[0] in touched:
            # Computed so long ago that a repeat would not be known as one.
            late = len(self.calls) - self.base > KEPT
            assert outcome.status in (
                (Status.VOID, Status.EXPIRED) if late else (Status.VOID,)
            )
            return
        self.accounts[self.doubled] = 2 * self.accounts.get(self.doubled, 0)
        assert answer(outcome) == self.accounts[self.doubled]
        self.gave[effect.call] = self.accounts[self.doubled]
        self.calls.append((CallId(effect.call), "interest", (self.doubled,)))

    def touched_since(self, begin: int) -> set[int]:
        touched: set[int] = set()
        for call, name, arguments in self.calls[begin:]:
            if self.gave[call] not in ("no funds", "KeyError"):
                procedure = self.bank.find(name)
                numbers = procedure.partitions([*arguments], self.log.partitions)
                touched.update(numbers or ())
        return touched

    @rule(partitions=st.integers(1, 5))
    def resize(self, partitions: int) -> None:
        at = self.log.resize(partitions, self.row_keys)
        before = self.total_hash()
        self.feed()
        assert self.executor.shared.refused(at) == ""
        assert len(self.state.partitions) == partitions
        assert self.total_hash() == before
        self.log.resized(at, partitions)
        self.routings.append((at, partitions))

    @rule(account=ACCOUNTS, amount=AMOUNTS, which=st.integers(0, 1 << 16))
    def route_by_an_older_number(self, account: int, amount: int, which: int) -> None:
        """A host that has not read of the change yet appends twice."""
        call = self.log.call_id()
        routed = self.routings[which % len(self.routings)]
        self.log.command("deposit", account, amount, call=call, routed=routed)
        (outcome,) = self.feed()
        if routed[0] != self.log.routing:
            assert outcome.status == Status.MOVED
            self.log.command("deposit", account, amount, call=call)
            (outcome,) = self.feed()
        self.gave[call] = self.model("deposit", (account, amount))
        assert self.heard(outcome) == self.gave[call]
        self.calls.append((call, "deposit", (account, amount)))

    def total_hash(self) -> bytes:
        self.executor.commit(everywhere=True)
        views = [partition.view() for partition in self.state.partitions]
        found = total_hash([view.tally() for view in views])
        for view in views:
            view.close()
        return found

    @rule()
    def commit(self) -> None:
        self.executor.commit()

    @rule(survive=st.integers(0, PARTITIONS))
    def crash(self, survive: int) -> None:
        """Die in the commit, after it has reached some partitions."""
        left = survive

        def limited(commit: Any) -> Any:
            def counted(saved: Any) -> None:
                nonlocal left
                if left == 0:
                    raise CrashError
                left -= 1
                commit(saved)

            return counted

        for partition in self.state.partitions:
            partition.commit = limited(partition.commit)  # type: ignore[method-assign]
        with contextlib.suppress(CrashError):
            self.executor.commit(everywhere=True)
        self.state.close()
        self.state = self.open("live")
        self.executor = Executor(self.bank, self.state)
        self.feed()

    @invariant()
    def balances(self) -> None:
        for account, balance in self.accounts.items():
            found = 0
            for partition in self.state.partitions:
                handle = partition.handle
                found += read(handle, account)
            assert found == balance

    def check_replay(self) -> None:
        self.executor.commit(everywhere=True)
        state = self.open("replayed")
        replayed = Executor(self.bank, state)
        replayed.feed(self.log.after(replayed))
        replayed.commit(everywhere=True)
        hashes = [partition.view().hash() for partition in self.state.partitions]
        assert [p.view().hash() for p in state.partitions] == hashes
        state.close()


class KeyedMachine(Machine):
    """The same with the accounts in a keyed table."""

    options: ClassVar[dict[str, Any]] = {"schema": KEYED}
    row_keys: ClassVar[dict[str, str | None]] = {"account": "key"}


class DictMachine(Machine):
    """The same over a state of dicts."""

    database = False

    @rule(
        source=ACCOUNTS,
        to=ACCOUNTS,
        lost=st.lists(st.integers(0, 2), min_size=5, max_size=5),
    )
    def lose_power(self, source: int, to: int, lost: list[int]) -> None:
        """Lose commits that were not synced, of each partition others."""
        self.call("transfer", source, to, 1)
        state = self.state
        assert isinstance(state, DictState)
        self.executor.commit()
        unsynced = [partition.unsynced for partition in state.partitions]
        for partition, commits in zip(state.partitions, lost, strict=False):
            partition.lose(commits)
        self.state = self.open("live")
        # Nobody knows now what is durable: the same may be lost once more.
        assert isinstance(self.state, DictState)
        for partition, before in zip(self.state.partitions, unsynced, strict=True):
            kept = before.index(partition.disk)
            partition.unsynced = before[: kept + 1]
        self.executor = Executor(self.bank, self.state)
        self.feed()


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("machine", "copies"),
    [(Machine, 8), (KeyedMachine, 8), (DictMachine, 8), (DictMachine, 1)],
)
def test_the_executor_is_a_loop(
    machine: type[Machine], copies: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Often enough that what was kept for other partitions goes in the few steps here.
    monkeypatch.setattr(executor, "_UNSETTLED_MAX", 3)
    # One: of each transfer only the first partition has what the other needs.
    monkeypatch.setattr(executor, "_COPIES_MAX", copies)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
