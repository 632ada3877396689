"""A command that never ends is stopped, and is given up in the same way everywhere."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest

from braidlog.app import Application, Context
from braidlog.app.errors import GivenUpError, GiveUp
from braidlog.app.execution.answers import answer
from braidlog.app.execution.entries import AbortEntry
from braidlog.app.execution.executor import Executor
from braidlog.app.execution.outcome import Status
from braidlog.app.host.watchdog import Watchdog
from braidlog.app.state.sqlite import SqliteState
from unit.app.records import Records


def make() -> Application:
    app = Application("loops", partitions=1, schema="CREATE TABLE t(id INTEGER)")

    @app.procedure
    def forever(ctx: Context) -> None:
        ctx.execute("INSERT INTO t VALUES (1)")
        while True:
            try:
                while True:
                    pass
            except Exception:  # noqa: S112, PERF203, RUF100
                continue

    @app.procedure
    def count(ctx: Context) -> int:
        found: int = ctx.value("SELECT count(*) FROM t")
        return found

    return app


def test_a_loop_is_stopped_and_its_abort_reproduced(tmp_path: Path) -> None:
    app = make()
    records = Records(app)
    position = records.command("forever")
    watchdog = Watchdog(0.05)
    state = SqliteState(tmp_path / "a", 1)
    executor = Executor(app, state, watchdog=watchdog)
    with pytest.raises(GivenUpError) as caught:
        executor.feed(records.after(executor))
    assert caught.value.position == position
    executor.rollback()
    state.close()
    watchdog.close()
    records.add(AbortEntry(position, caught.value.reason, 0))
    records.command("count")
    hashes = []
    for name in ("a", "b"):
        state = SqliteState(tmp_path / name, 1)
        given_up = {position: caught.value.reason}.get
        executor = Executor(app, state, given_up=given_up)
        stopped, counted = executor.feed(records.after(executor))
        assert stopped.status == Status.GIVEN_UP
        assert answer(counted) == 0
        executor.commit(everywhere=True)
        view = state.partitions[0].view()
        hashes.append(view.hash())
        view.close()
        state.close()
    assert hashes[0] == hashes[1]


def test_commands_in_time_are_left_alone() -> None:
    watchdog = Watchdog(30)
    before = threading.active_count()
    for _ in range(1000):
        with watchdog:
            pass
    watchdog.close()
    assert threading.active_count() == before - 1


def test_what_came_too_late_is_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[Any] = []
    asked = threading.Event()

    def record(thread: int, error: Any) -> None:
        raised.append((thread, error))
        asked.set()

    # As if the thread had not come to its next instruction yet.
    monkeypatch.setattr("braidlog.app.host.watchdog._raise_in", record)
    watchdog = Watchdog(0)
    with watchdog:
        assert asked.wait(30)
    watchdog.close()
    (thread, error), (again, nothing) = raised
    assert (thread, error) == (threading.get_ident(), GiveUp)
    assert again == thread
    assert not nothing  # A null pointer.


def test_many_short_commands_are_stopped_inside_or_not_at_all() -> None:
    watchdog = Watchdog(0)
    for _ in range(2000):
        with contextlib.suppress(GiveUp), watchdog:
            sum(range(100))
    total = sum(n for n in range(10_000))  # Would be hit by one that came late.
    watchdog.close()
    assert total == 49_995_000
