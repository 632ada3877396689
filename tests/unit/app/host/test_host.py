"""A host over the embedded log: blocking and async calls, reads, effects, restarts."""
# One file: the calls of one host; all of them need its application and its log.

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from braidlog.app import (
    Abort,
    Application,
    ApplicationMismatchError,
    BusyError,
    CallId,
    Context,
    DeterminismError,
    EncodingError,
    ExecutionError,
    Host,
    OutcomeUnknownError,
    ProcedureError,
    Stop,
    UnknownProcedureError,
)
from braidlog.app.execution.entries import Effect, Outcomes, unpack
from braidlog.app.execution.executor import Executor
from braidlog.app.host.runner import Runner
from braidlog.app.log.source import EmbeddedLog
from braidlog.app.state.sqlite import SqliteState
from braidlog.app.state.sqlite_partition import SqlitePartition
from braidlog.errors import (
    ClosedError,
    CorruptionError,
    DeadlineError,
    InvalidArgumentError,
    LogFullError,
    UnavailableError,
)
from unit.app.banking import SCHEMA, make_bank

OPTIONS = {"segment_bytes": 1 << 20, "wal_bytes_max": 16 << 20}


@pytest.fixture
def bank() -> Application:
    return make_bank()


@pytest.fixture
def host(bank: Application, tmp_path: Path) -> Iterator[Host]:
    with bank.open(tmp_path, **OPTIONS) as host:
        yield host


def test_calls_and_their_results(host: Host) -> None:
    assert host.call("deposit", 1, 100) == 100
    assert host.call("deposit", amount=5, account=1) == 105
    assert host.call("transfer", 1, 2, 5) == [100, 5]
    assert host.call("balance", 1) == 100
    assert host.call("total") == 105
    with pytest.raises(Abort, match="no funds") as caught:
        host.call("transfer", 1, 2, 500)
    assert caught.value.procedure == "transfer"
    with pytest.raises(ProcedureError, match="'explode' raised KeyError"):
        host.call("explode", 1)
    assert host.call("total") == 105


def test_what_is_wrong_with_a_call_is_said_before_it_is_logged(host: Host) -> None:
    end = host.runner.end()
    with pytest.raises(UnknownProcedureError, match="there are: 'balance', 'deposit'"):
        host.call("nothing")
    with pytest.raises(InvalidArgumentError, match="missing a required argument"):
        host.call("deposit", 1)
    with pytest.raises(EncodingError, match=r"argument \[1\]"):
        host.call("deposit", 1, {2})
    with pytest.raises(EncodingError, match="partition key"):
        host.call("deposit", 1.5, 2)
    with pytest.raises(InvalidArgumentError, match="not reached"):
        host.call("deposit", 1, 2, call_id=CallId(b"\xff" * 16))
    with pytest.raises(InvalidArgumentError, match="read_only"):
        host.submit("balance", 1)
    assert host.runner.end() == end


@pytest.mark.parametrize("timeout", [1e10, 1e300, float("inf"), 10**400])
def test_a_timeout_longer_than_any_clock(host: Host, timeout: float) -> None:
    assert host.call("deposit", 1, 100, timeout=timeout) == 100
    assert host.call("total", timeout=timeout, behind=0) == 100
    assert host.submit("deposit", 1, 1).result(timeout) == 101
    host.wait_applied(host.position, timeout)


def test_a_timeout_that_is_none_raises_its_error(host: Host) -> None:
    with pytest.raises(DeadlineError):
        host.wait_applied(host.position + 1, -5.0)
    with pytest.raises(InvalidArgumentError, match="must be a number of seconds"):
        host.wait_applied(host.position + 1, float("nan"))


@pytest.mark.parametrize(
    "name",
    ["braidlog-house", "braidlog-sync", "braidlog-watchdog", "braidlog-snapshots", ""],
)
def test_a_host_without_a_thread_is_refused_and_opens_later(
    bank: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    start, before = threading.Thread.start, threading.active_count()
    name = name or f"braidlog-{bank.name}"

    def refuse(self: threading.Thread) -> None:
        if self.name == name:
            msg = "can't start new thread"
            raise RuntimeError(msg)
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with (
        pytest.raises(
            UnavailableError, match=f"refused this process a thread for {name}"
        ),
        bank.open(tmp_path, **OPTIONS) as host,
    ):
        host.call("deposit", 1, 1)  # The syncer is started when it is needed.
    monkeypatch.undo()
    assert threading.active_count() == before
    with bank.open(tmp_path, **OPTIONS) as host:
        assert host.call("total") == 0


def test_a_read_only_procedure_changes_nothing(tmp_path: Path) -> None:
    bank = make_bank()

    @bank.procedure(read_only=True, key="account")
    def cheat(ctx: Context, account: int) -> None:
        ctx.execute("INSERT INTO account VALUES (?, 1)", (account,))

    with bank.open(tmp_path, **OPTIONS) as host:
        end = host.runner.end()
        with pytest.raises(ProcedureError, match="readonly"):
            host.call("cheat", 1)
        assert host.call("total", stale=60) == 0
        assert host.call("total", behind=5) == 0
        assert host.runner.end() == end


def test_many_threads(host: Host) -> None:
    def deposit(account: int) -> None:
        for _ in range(20):
            host.call("deposit", account % 5, 1)
            host.call("interest", 100 + account)

    threads = [threading.Thread(target=deposit, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert host.call("total") == 160


def test_calls_of_a_thread_are_in_order(host: Host) -> None:
    pending = [host.submit("deposit", 1, 1) for _ in range(500)]
    assert [call.result() for call in pending] == list(range(1, 501))
    assert all(call.done() for call in pending)


def test_effects_see_what_came_before_and_none_is_lost(host: Host) -> None:
    """Other calls wait while effects are computed, so none of them is ever void."""
    host.call("deposit", 1, 1)
    going = threading.Event()
    going.set()

    def load() -> None:
        while going.is_set():
            pending = [host.submit("deposit", 1, 0) for _ in range(50)]
            assert pending[-1].result() >= 1

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    call = host.new_call_id()
    assert host.call("interest", 1, call_id=call) == 2
    assert host.call("interest", 1, call_id=call) == 2
    for doubled in (4, 8, 16):
        assert host.call("interest", 1) == doubled
    going.clear()
    for thread in threads:
        thread.join()
    assert host.call("balance", 1) == 16
    records = host.runner._log.read(1, 1 << 20)
    entries = [unpack(record.value, record.position) for record in records]
    assert sum(isinstance(entry, Effect) for entry in entries) == 4


def test_an_effect_that_raises_is_not_logged(tmp_path: Path) -> None:
    bank = make_bank()

    @bank.procedure(effects=True, key="account")
    def fail(ctx: Context, account: int) -> None:
        ctx.execute("INSERT INTO account VALUES (?, 1)", (account,))
        raise Abort("not today")

    with bank.open(tmp_path, **OPTIONS) as host:
        end = host.runner.end()
        with pytest.raises(Abort, match="not today"):
            host.call("fail", 1)
        assert host.runner.end() == end
        assert host.call("deposit", 1, 0) == 0


def test_a_restart_and_a_lost_state(bank: Application, tmp_path: Path) -> None:
    with bank.open(tmp_path, **OPTIONS) as host:
        call = host.new_call_id()
        for account in range(10):
            host.call("deposit", account, 10)
        host.call("transfer", 1, 2, 3, call_id=call)
        host.call("interest", 4)
        hashes = host.hashes()[1]
    with bank.open(tmp_path, **OPTIONS) as host:
        assert host.hashes()[1] == hashes
        again = CallId.parse(call.hex())
        assert host.call("transfer", 1, 2, 3, call_id=again) == [7, 13]
    shutil.rmtree(tmp_path / "state")
    with bank.open(tmp_path, **OPTIONS) as host:
        assert host.hashes()[1] == hashes
        assert host.call("transfer", 1, 2, 3, call_id=again) == [7, 13]


def test_a_state_without_its_log_is_refused(bank: Application, tmp_path: Path) -> None:
    with bank.open(tmp_path, **OPTIONS) as host:
        host.call("deposit", 1, 1)
    shutil.rmtree(tmp_path / "log")
    with pytest.raises(CorruptionError, match="beyond the end of the log"):
        bank.open(tmp_path, **OPTIONS)
    other = Application("other", partitions=3)
    shutil.rmtree(tmp_path / "state")
    bank.open(tmp_path, **OPTIONS).close()
    with pytest.raises(ApplicationMismatchError, match="belong to application 'bank'"):
        other.open(tmp_path, **OPTIONS)


def test_changed_code_is_logged_and_old_code_may_stay(tmp_path: Path) -> None:
    def one() -> Application:
        bank = Application("bank", partitions=1, schema=SCHEMA)

        @bank.procedure
        def add(ctx: Context, n: int) -> int:
            ctx.execute("INSERT INTO account VALUES (?, 0)", (n,))
            return n

        return bank

    def two(*, keep: bool) -> Application:
        bank = Application("bank", partitions=1, schema=SCHEMA)

        @bank.procedure
        def add(ctx: Context, n: int) -> int:
            ctx.execute("INSERT INTO account VALUES (?, 7)", (n,))
            return n

        if keep:

            @bank.procedure(name="add", retired=True)
            def add_before(ctx: Context, n: int) -> int:
                ctx.execute("INSERT INTO account VALUES (?, 0)", (n,))
                return n

        return bank

    with one().open(tmp_path, **OPTIONS) as host:
        host.call("add", 1)
    with two(keep=False).open(tmp_path, **OPTIONS) as host:
        host.call("add", 2)
        hashes = host.hashes()[1]
    shutil.rmtree(tmp_path / "state")
    with pytest.raises(UnknownProcedureError, match="retired=True"):
        two(keep=False).open(tmp_path, **OPTIONS)
    with two(keep=True).open(tmp_path, **OPTIONS) as host:
        assert host.hashes()[1] == hashes


def test_the_outcomes_get_into_the_log(bank: Application, tmp_path: Path) -> None:
    with bank.open(tmp_path, **OPTIONS) as host:
        for _ in range(3):
            host.call("deposit", 1, 1)
    with bank.open(tmp_path, **OPTIONS) as host:
        log = host.runner._log
        entries = [unpack(r.value, r.position) for r in log.read(1, 1000)]
        logged = [e for e in entries if isinstance(e, Outcomes)]
        assert sum(len(each.digests) for each in logged) == 3
        assert host.runner._executor.stopped(None) is None


def test_too_many_calls_are_refused(tmp_path: Path) -> None:
    bank = make_bank(results_kept=6)
    with bank.open(tmp_path, **OPTIONS) as host, host.runner._turn:
        pending = [host.submit("deposit", 1, 1) for _ in range(3)]
        with pytest.raises(BusyError, match="3 calls"):
            host.submit("deposit", 1, 1)
        with pytest.raises(DeadlineError):
            pending[0].result(timeout=0.01)
        host.runner._turn.release()
        assert [call.result() for call in pending] == [1, 2, 3]
        host.runner._turn.acquire()


def test_a_host_that_fails_says_so_to_everybody(tmp_path: Path) -> None:
    bank = make_bank()

    @bank.procedure(key="account")
    def fill(ctx: Context, account: int) -> None:
        raise apsw.FullError

    with bank.open(tmp_path, **OPTIONS) as host:
        with host.runner._turn:
            calls = [host.submit("fill", 1), host.submit("deposit", 1, 1)]
        for call in calls:
            with pytest.raises(OutcomeUnknownError, match="the host failed"):
                call.result()
        for refused in (("deposit", 1, 1), ("total",), ("interest", 1)):
            with pytest.raises(ExecutionError, match="the host stopped"):
                host.call(*refused)


def test_effects_that_the_machine_fails_stop_the_host(
    bank: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their transaction may be gone: what came after it would be half of one."""

    def fail(partition: SqlitePartition) -> None:
        raise apsw.IOError("disk I/O error")

    with bank.open(tmp_path, **OPTIONS) as host:
        host.call("deposit", 1, 5)
        with monkeypatch.context() as patch:
            patch.setattr(SqlitePartition, "mark", fail)
            with pytest.raises(ExecutionError, match="disk I/O error") as caught:
                host.call("interest", 1)
        assert caught.value.path == str(tmp_path / "state")
        for refused in (("deposit", 1, 1), ("total",), ("interest", 1)):
            with pytest.raises(ExecutionError, match="the host stopped"):
                host.call(*refused)
    with bank.open(tmp_path, **OPTIONS) as host:
        assert host.call("interest", 1) == 10


def test_a_copy_of_a_host_whose_disk_fails_says_where(
    bank: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Threads beside that of the host get errors of the log, and go on."""

    def fail(partition: SqlitePartition, flags: int) -> None:
        raise apsw.CantOpenError("unable to open database file")

    with bank.open(tmp_path, **OPTIONS) as host:
        host.call("deposit", 1, 5)
        with monkeypatch.context() as patch:
            patch.setattr(SqlitePartition, "_connect", fail)
            for look in (host.hashes, lambda: host.call("total")):
                with pytest.raises(UnavailableError, match="unable to open") as caught:
                    look()
                assert caught.value.path.startswith(str(tmp_path / "state"))
        assert host.call("total") == 5


def test_a_stop_ends_the_opening_and_keeps_what_was_executed(
    bank: Application, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bank.open(tmp_path, **OPTIONS) as host:
        calls = [host.submit("deposit", n % 5, 1) for n in range(50)]
        assert all(call.result() for call in calls)
    shutil.rmtree(tmp_path / "state")
    stop, applied = Stop(), []
    apply = Executor.apply

    def applies(executor: Executor, position: int, *rest: Any) -> Any:
        applied.append(position)
        if len(applied) == 20:
            stop.set()
        return apply(executor, position, *rest)

    monkeypatch.setattr(Executor, "apply", applies)
    with pytest.raises(ClosedError, match="before it was open"):
        bank.open(tmp_path, **OPTIONS, stop=stop)
    assert applied == list(range(1, 21))
    with bank.open(tmp_path, **OPTIONS) as host:
        assert host.call("total") == 50
    assert applied[20:] == list(range(21, len(applied) + 1))


def test_a_closed_host(bank: Application, tmp_path: Path) -> None:
    host = bank.open(tmp_path, **OPTIONS)
    pending = host.submit("deposit", 1, 1)
    host.close()
    host.close()
    assert pending.result() == 1
    with pytest.raises(ClosedError):
        host.call("deposit", 1, 1)


async def test_asyncio(bank: Application, tmp_path: Path) -> None:
    async with bank.open_async(tmp_path, **OPTIONS) as host:
        calls = [host.call("deposit", 1, 1) for _ in range(50)]
        assert sorted(await asyncio.gather(*calls)) == list(range(1, 51))
        assert await host.call("total") == 50
        assert await host.call("interest", 1) == 100
        with pytest.raises(Abort):
            await host.call("transfer", 1, 2, 1000)
        call = host.new_call_id()
        assert await host.call("deposit", 1, 1, call_id=call) == 101
        cancelled = host.submit("deposit", 1, 1)
        cancelled.cancel()
        assert await host.call("deposit", 1, 1, call_id=call) == 101
        assert await host.call("deposit", 1, 0) == 102
        assert (await host.hashes())[0] <= host.position
    with bank.open(tmp_path, **OPTIONS) as blocking:
        assert blocking.call("balance", 1) == 102


SQL: list[tuple[str, type[Exception]]] = [
    ("SELECT random()", DeterminismError),
    ("SELECT datetime('now')", DeterminismError),
    ("SELECT CURRENT_TIMESTAMP", DeterminismError),
    ("SELECT changes()", DeterminismError),
    ("COMMIT", DeterminismError),
    ("RELEASE command", DeterminismError),
    ("PRAGMA foreign_keys = OFF", DeterminismError),
    ("ATTACH 'x' AS x", DeterminismError),
    ("CREATE TABLE x(y)", DeterminismError),
    ("SELECT * FROM braidlog_results", DeterminismError),
    ("DELETE FROM braidlog_progress", DeterminismError),
    ("INSERT OR ROLLBACK INTO account VALUES (1, 1)", DeterminismError),
    ("INSERT OR FAIL INTO account VALUES (1, 1)", DeterminismError),
]


@pytest.mark.parametrize(("sql", "kind"), SQL, ids=[sql for sql, _ in SQL])
def test_sql_that_a_procedure_may_not_use(
    sql: str, kind: type[Exception], tmp_path: Path
) -> None:
    bank = Application("sql", partitions=1, schema=SCHEMA)

    @bank.procedure
    def run(ctx: Context, text: str) -> Any:
        return ctx.execute(text)

    with bank.open(tmp_path, **OPTIONS) as host:
        for _ in range(2):
            with pytest.raises(ProcedureError) as caught:
                host.call("run", sql)
            assert caught.value.kind == kind.__name__
        assert host.call("run", "SELECT count(*) FROM account") == [[0]]


def test_a_change_that_cannot_be_read_fails_its_command(tmp_path: Path) -> None:
    bank = Application("sql", partitions=1, schema=SCHEMA + "; CREATE TABLE t(a)")

    @bank.procedure
    def swallow(ctx: Context) -> None:
        with contextlib.suppress(UnicodeDecodeError):
            ctx.execute("INSERT INTO t VALUES (CAST(x'41ff' AS TEXT))")

    @bank.procedure(read_only=True)
    def count(ctx: Context) -> int:
        return int(ctx.value("SELECT count(*) FROM t"))

    with bank.open(tmp_path, **OPTIONS) as host:
        with pytest.raises(ProcedureError, match="UnicodeDecodeError"):
            host.call("swallow")
        assert host.call("count") == 0


@pytest.mark.parametrize(
    "schema",
    [
        "CREATE TABLE t(a UNIQUE ON CONFLICT ROLLBACK)",
        "CREATE TABLE t(a REFERENCES t(a) DEFERRABLE INITIALLY DEFERRED)",
        "CREATE TABLE t(a, b AS (a + 1) VIRTUAL)",
        "CREATE TABLE t(rowid, oid, _rowid_)",
        "CREATE TABLE",
    ],
)
def test_schemas_that_cannot_be_followed(schema: str, tmp_path: Path) -> None:
    application = Application("schema", partitions=1, schema=schema)
    with pytest.raises(InvalidArgumentError):
        application.open(tmp_path, **OPTIONS)
    # Nothing of it got into the log.
    Application("schema", partitions=1).open(tmp_path, **OPTIONS).close()


class RefusingLog(EmbeddedLog):
    """Full for outcomes, and loses what it is told to."""

    lose = False

    def submit(
        self, value: bytes, key: bytes | None, failed: Callable[[Exception], None]
    ) -> None:
        if isinstance(unpack(value, 0), Outcomes):
            raise LogFullError("no room")
        if self.lose:
            threading.Thread(target=failed, args=(DeadlineError("lost"),)).start()
        else:
            super().submit(value, key, failed)


def test_a_log_that_refuses(bank: Application, tmp_path: Path) -> None:
    log = RefusingLog(tmp_path / "log", **OPTIONS)
    host = Host(Runner(bank, log, SqliteState(tmp_path / "state", 3)))
    with host:
        for _ in range(2100):
            pending = host.submit("deposit", 1, 1)
        assert pending.result() == 2100
        log.lose = True
        with pytest.raises(OutcomeUnknownError, match="lost"):
            host.call("deposit", 1, 1)
        log.lose = False
        assert host.call("deposit", 1, 1) == 2101
