"""Commands that never end, on hosts: what the callers get, and what replay gives."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from braidlog.app import Application, Context, Host, ProcedureError
from braidlog.app.errors import OutcomeUnknownError
from braidlog.app.execution.entries import AbortEntry, Command, pack, unpack
from braidlog.app.execution.executor import Executor
from braidlog.app.host.runner import Runner
from braidlog.app.replay.prescan import Survey
from braidlog.app.state.sqlite import SqliteState
from unit.app.shared_log import Contents, SharedLog

pytestmark = pytest.mark.timeout(60)

QUICK = 0.2
"""Seconds that a command may take here: the others take far less than a hundredth."""


def make() -> Application:
    app = Application("loops", partitions=2, schema="CREATE TABLE t(n INTEGER)")

    @app.procedure(key="key")
    def add(ctx: Context, key: int, n: int) -> int:
        ctx.execute("INSERT INTO t VALUES (?)", (n,))
        found: int = ctx.value("SELECT sum(n) FROM t")
        return found

    @app.procedure(multi=True)
    def forever(ctx: Context) -> None:
        for state in ctx.partitions.values():
            state.execute("INSERT INTO t VALUES (1000)")
        while True:
            pass

    @app.procedure(key="key", effects=True)
    def endless(ctx: Context, key: int) -> None:
        ctx.execute("INSERT INTO t VALUES (1000)")
        while True:
            pass

    return app


@contextlib.contextmanager
def opened(
    path: Path,
    contents: Contents,
    name: bytes,
    *,
    active: bool = True,
    watchdog: float | None = QUICK,
) -> Iterator[Host]:
    app = make()
    state = SqliteState(path / name.hex(), app.partitions)
    runner = Runner(
        app,
        SharedLog(contents),
        state,
        active=active,
        host=name * 16,
        watchdog=watchdog,
    )
    host = Host(runner)
    try:
        yield host
    finally:
        host.close()


def aborts(contents: Contents) -> list[AbortEntry]:
    entries = [unpack(r.value, r.position) for r in contents.records]
    return [entry for entry in entries if isinstance(entry, AbortEntry)]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it does not come"
        time.sleep(0.01)


def replayed(path: Path, contents: Contents, end: int) -> list[bytes]:
    """Execute the log without a watchdog: a loop that is run would never end."""
    app = make()
    survey = Survey(app)
    survey.add(contents.records)
    state = SqliteState(path, app.partitions)
    executor = Executor(app, state, given_up=survey.given_up)
    executor.feed(contents.records[:end])
    executor.commit(everywhere=True)
    views = [partition.view() for partition in state.partitions]
    hashes = [view.hash() for view in views]
    for view in views:
        view.close()
    state.close()
    return hashes


def test_a_loop_is_given_up_and_the_host_goes_on(tmp_path: Path) -> None:
    with make().open(tmp_path, watchdog=QUICK, segment_bytes=1 << 20) as host:
        # In one round with what comes before and behind it.
        before = [host.submit("add", key, 1) for key in (0, 1)]
        loop = host.submit("forever")
        behind = [host.submit("add", key, 1) for key in (0, 1)]
        assert [call.result(30) for call in before] == [1, 1]
        with pytest.raises(
            ProcedureError, match=r"by the host: it took more"
        ) as caught:
            loop.result(30)
        assert caught.value.kind == "GivenUp"
        assert [call.result(30) for call in behind] == [2, 2]
        # A repeat gets the same, and does not run again.
        with pytest.raises(ProcedureError, match="aborted by the host"):
            host.call("forever", call_id=loop.call_id)
        expected = host.hashes()
    # Without a watchdog: nothing runs for ever.
    with make().open(tmp_path, watchdog=None, segment_bytes=1 << 20) as host:
        assert host.hashes()[1] == expected[1]


def test_a_standby_gives_up_what_the_active_host_does(tmp_path: Path) -> None:
    contents = Contents()
    with (
        opened(tmp_path, contents, b"a") as first,
        opened(tmp_path, contents, b"b", active=False) as second,
    ):
        first.call("add", 1, 5)
        with pytest.raises(ProcedureError, match="aborted by the host"):
            second.call("forever", timeout=30)
        assert second.call("add", 1, 5, timeout=30) == 10
        end = first.runner.end() - 1
        for host in (first, second):
            host.wait_applied(end, 30)
        assert len(aborts(contents)) == 1
        assert first.hashes()[1] == second.hashes()[1]
        assert (first.runner.mismatches, second.runner.mismatches) == (0, 0)
        assert second.runner.stopped_partitions() == ()
        hashes = first.hashes()[1]
    assert replayed(tmp_path / "again", contents, end) == hashes
    # A host that comes later finds the entry behind the command.
    with opened(tmp_path, contents, b"c", active=False) as third:
        third.wait_applied(end, 30)
        assert third.hashes()[1] == hashes
    assert len(aborts(contents)) == 1


def test_a_standby_that_is_promoted_decides_itself(tmp_path: Path) -> None:
    contents = Contents()
    with opened(tmp_path, contents, b"a") as first:
        first.call("add", 1, 5)
    # Nobody is active; the standby alone would wait.
    with opened(tmp_path, contents, b"b", active=False) as second:
        answered = second.submit("add", 0, 2)
        call = second.submit("forever")
        assert answered.result(30) == 2
        watchdog = second.runner._abandoner.watchdog
        assert watchdog is not None
        until(lambda: watchdog.seconds > QUICK)  # It waited, and tries again.
        assert not aborts(contents)
        second.runner.promote(30)
        with pytest.raises(ProcedureError, match="aborted by the host"):
            call.result(30)
        # In its own term: the entry of the host that was active would not count.
        assert [entry.epoch for entry in aborts(contents)] == [2]
        assert second.call("add", 1, 5) == 10


def test_a_standby_that_only_was_slow_executes_it(tmp_path: Path) -> None:
    contents = Contents()
    slow = threading.Event()
    with (
        opened(tmp_path, contents, b"a") as first,
        opened(tmp_path, contents, b"b", active=False) as second,
    ):
        inner = second.runner._executor._run
        tries = []

        def run(*given: object, **named: object) -> object:
            tries.append(time.monotonic())
            while len(tries) == 1 and not slow.is_set():
                with second.runner._executor._watchdog:
                    while True:
                        pass
            return inner(*given, **named)  # type: ignore[arg-type]

        second.runner._executor._run = run  # type: ignore[assignment,method-assign]
        assert first.call("add", 1, 5) == 5
        second.wait_applied(first.position, 30)
        assert len(tries) == 1, "the second try has another executor"
        assert first.hashes()[1] == second.hashes()[1]
        assert not aborts(contents)


def test_a_standby_can_be_closed_while_it_waits(tmp_path: Path) -> None:
    contents = Contents()
    with opened(tmp_path, contents, b"a") as first:
        first.call("add", 1, 5)
    with opened(tmp_path, contents, b"b", active=False) as second:
        call = second.submit("forever")
    with pytest.raises(OutcomeUnknownError):
        call.result(30)
    # Whoever is active next decides.
    with opened(tmp_path, contents, b"b") as second:
        assert second.call("add", 1, 5) == 10
    assert len(aborts(contents)) == 1


def test_of_two_entries_the_first_counts(tmp_path: Path) -> None:
    contents = Contents()
    with opened(tmp_path, contents, b"a") as first:
        first.call("add", 1, 5)
        log = first.runner._log
        assert isinstance(log, SharedLog)

        def other() -> None:
            entry = unpack(contents.records[-1].value, len(contents.records))
            if isinstance(entry, Command) and entry.procedure == "forever":
                log.before_append = lambda: None
                contents.append(pack(AbortEntry(len(contents.records), "elsewhere", 1)))

        loop = first.submit("forever")
        log.before_append = other
        with pytest.raises(ProcedureError, match="aborted by the host: elsewhere"):
            loop.result(30)
        hashes, end = first.hashes()[1], first.position
    assert len(aborts(contents)) == 2
    assert replayed(tmp_path / "again", contents, end) == hashes


def test_what_a_host_gives_up_after_it_was_replaced_does_not_count(
    tmp_path: Path,
) -> None:
    contents = Contents()
    with (
        opened(tmp_path, contents, b"a") as first,
        opened(tmp_path, contents, b"b", active=False) as second,
    ):
        log = first.runner._log
        assert isinstance(log, SharedLog)
        taking_over = threading.Event()

        def slow(*_: object, **__: object) -> NoReturn:
            # Once: the executor of the next try is another one.
            log.before_append = take_over
            with first.runner._executor._watchdog:
                while True:
                    pass

        def take_over() -> None:
            # Between the look at the end of the log and the entry.
            log.before_append = lambda: None
            second.runner.promote(30)
            taking_over.set()

        first.runner._executor._run = slow  # type: ignore[method-assign]
        assert second.call("add", 1, 5, timeout=30) == 5
        assert taking_over.wait(30)
        assert second.call("add", 1, 5, timeout=30) == 10
        end = second.runner.end() - 1
        for host in (first, second):
            host.wait_applied(end, 30)
        assert [entry.epoch for entry in aborts(contents)] == [1]
        assert (first.runner.role.active, second.runner.role.active) == (False, True)
        assert second.runner.stopped_partitions() == ()
        assert first.runner.stopped_partitions() == ()
        assert first.hashes()[1] == second.hashes()[1]
        hashes = first.hashes()[1]
    assert replayed(tmp_path / "again", contents, end) == hashes


def test_effects_that_never_end_change_nothing(tmp_path: Path) -> None:
    contents = Contents()
    with opened(tmp_path, contents, b"a") as host:
        host.call("add", 1, 5)
        with pytest.raises(ProcedureError, match="aborted by the host"):
            host.call("endless", 1)
        assert host.call("add", 1, 5) == 10
    assert not aborts(contents)
