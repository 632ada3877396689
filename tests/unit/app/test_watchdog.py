"""A command that never ends is stopped, and is given up in the same way everywhere."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from braidlog.app import Application, Context
from braidlog.app.answers import answer
from braidlog.app.entries import AbortEntry
from braidlog.app.errors import GivenUpError, GiveUp
from braidlog.app.executor import Executor
from braidlog.app.outcome import Status
from braidlog.app.sqlite import SqliteState
from braidlog.app.watchdog import Watchdog
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
    records.add(AbortEntry(position, caught.value.reason))
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


def test_nothing_is_raised_after_the_end() -> None:
    watchdog = Watchdog(0)
    stopped = 0
    for _ in range(2000):
        try:
            with watchdog:
                sum(range(100))
        except GiveUp:
            stopped += 1
    total = sum(n for n in range(10_000))  # Would be hit by one that came late.
    watchdog.close()
    assert total == 49_995_000
    assert stopped <= 2000
