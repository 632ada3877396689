"""Calls that end as nobody expects: their callers hear of it, and the host goes on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from braidlog.app import (
    Abort,
    Application,
    Context,
    DeterminismError,
    DivergedError,
    Host,
    ProcedureError,
)
from braidlog.app.execution.entries import Outcomes, pack
from braidlog.app.replay.inputs import commands_of
from braidlog.app.replay.run import replay
from braidlog.errors import ClosedError, DeadlineError

SCHEMA = "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER NOT NULL)"
ADD = "INSERT INTO t VALUES (?1, 1) ON CONFLICT DO UPDATE SET n = n + 1 RETURNING n"
OPTIONS = {"segment_bytes": 1 << 20, "wal_bytes_max": 16 << 20}
ENDLESS = (
    "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
    " SELECT count(*) FROM c"
)
QUICK = 0.3
HUGE = 1 << 60


class Stop(BaseException):
    """Nothing that ``except Exception`` catches."""


class Meeting:
    """Where an effect-logged call waits in the middle until the test lets it go on."""

    def __init__(self) -> None:
        self.there = threading.Event()
        self.go_on = threading.Event()
        self.error: BaseException | None = None

    def wait(self) -> None:
        self.there.set()
        assert self.go_on.wait(30)
        if self.error is not None:
            raise self.error


def make(meeting: Meeting | None = None) -> Application:
    app = Application("endings", partitions=2, schema=SCHEMA)

    @app.procedure(key="k")
    def add(ctx: Context, k: int) -> int:
        return int(ctx.value(ADD, (k,)))

    @app.procedure(key="k")
    def refuse_with_an_error(ctx: Context, k: int) -> None:
        ctx.execute(ADD, (k,))
        try:
            int("none")
        except ValueError as error:
            raise Abort(error) from None  # type: ignore[arg-type]

    @app.procedure(key="k")
    def refuse_with_no_text(ctx: Context, k: int) -> None:
        raise Abort("\ud800")

    @app.procedure(key="k")
    def stop(ctx: Context, k: int) -> None:
        ctx.execute(ADD, (k,))
        raise Stop

    @app.procedure(key="k")
    def allocate(ctx: Context, k: int, size: int) -> int:
        ctx.execute(ADD, (k,))
        return len(bytes(size))

    @app.procedure(key="k")
    def endless(ctx: Context, k: int) -> int:
        ctx.execute(ADD, (k,))
        return int(ctx.value(ENDLESS))

    @app.procedure(key="k", read_only=True)
    def look(ctx: Context, k: int) -> int:
        return ctx.value("SELECT n FROM t WHERE id = ?", (k,)) or 0

    @app.procedure(read_only=True, multi=True)
    def look_too_far(ctx: Context, size: int) -> int:
        return len(bytes(size))

    @app.procedure(key="k", effects=True)
    def meet(ctx: Context, k: int) -> int:
        found = int(ctx.value(ADD, (k,)))
        if meeting is not None:
            meeting.wait()
        return found

    return app


def check_replay(path: Path, hashes: list[bytes]) -> None:
    """The log alone gives the state that the host had."""
    source = commands_of(path)
    done = replay(make(), source, path / "again")
    source.close()
    assert list(done.hashes.values()) == hashes


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (("refuse_with_an_error", 1), "EncodingError"),
        (("refuse_with_no_text", 1), "EncodingError"),
        (("stop", 1), "Stop"),
        (("allocate", 1, HUGE), "GivenUp"),
        (("endless", 1), "GivenUp"),
    ],
)
def test_one_call_does_not_end_the_host(
    tmp_path: Path, call: tuple[Any, ...], kind: str
) -> None:
    with make().open(tmp_path, watchdog=QUICK, **OPTIONS) as host:
        before, odd, behind = (
            host.submit(name, *rest) for name, *rest in (("add", 1), call, ("add", 1))
        )
        assert before.result(30) == 1
        with pytest.raises(ProcedureError) as caught:
            odd.result(30)
        assert caught.value.kind == kind
        assert behind.result(30) == 2
        with pytest.raises(ProcedureError):
            host.call(call[0], *call[1:], call_id=odd.call_id, timeout=30)
        hashes = host.hashes()[1]
    # Nor does it when it comes again, without a watchdog.
    check_replay(tmp_path, hashes)
    with make().open(tmp_path, watchdog=None, **OPTIONS) as host:
        assert host.hashes()[1] == hashes
        assert host.call("add", 1, timeout=30) == 3


def test_memory_is_given_up_without_a_watchdog_too(tmp_path: Path) -> None:
    with make().open(tmp_path, watchdog=None, **OPTIONS) as host:
        with pytest.raises(
            ProcedureError, match="aborted by the host: it ran out of memory"
        ):
            host.call("allocate", 1, HUGE, timeout=30)
        with pytest.raises(ProcedureError, match="MemoryError"):
            host.call("look_too_far", HUGE)
        assert host.call("add", 1, timeout=30) == 1


@pytest.mark.parametrize("name", ["SystemExit", "KeyboardInterrupt"])
def test_what_ends_a_process_is_refused(load: Callable[..., Any], name: str) -> None:
    app = Application("refused", partitions=1)
    with pytest.raises(DeterminismError, match="raise Abort"):
        app.procedure(load(f"def p(ctx):\n    raise {name}\n").p)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), MemoryError(), OSError()])
def test_an_interrupted_call_leaves_no_effects(
    tmp_path: Path, error: BaseException
) -> None:
    """Also when the next command commits, and when the host is closed."""
    meeting = Meeting()
    meeting.error = error
    meeting.go_on.set()
    with make(meeting).open(tmp_path, **OPTIONS) as host:
        with pytest.raises((KeyboardInterrupt, ProcedureError)):
            host.call("meet", 1)
        assert host.call("add", 1, timeout=30) == 1
        with pytest.raises((KeyboardInterrupt, ProcedureError)):
            host.call("meet", 2)
        hashes = host.hashes()[1]
    check_replay(tmp_path, hashes)
    with make().open(tmp_path, **OPTIONS) as host:
        assert [host.call("look", 1), host.call("look", 2)] == [1, 0]


def in_thread(function: Callable[[], Any], results: list[Any]) -> threading.Thread:
    def run() -> None:
        try:
            results.append(function())
        except Exception as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def until_it_ends(host: Host) -> None:
    while not host.runner._ending:
        time.sleep(0.001)


def test_a_host_is_closed_while_a_call_computes(tmp_path: Path) -> None:
    meeting, results = Meeting(), list[Any]()
    host = make(meeting).open(tmp_path, **OPTIONS)
    caller = in_thread(lambda: host.call("meet", 1), results)
    assert meeting.there.wait(30)
    held = host.submit("add", 1)
    closing = in_thread(host.close, [])
    until_it_ends(host)
    meeting.go_on.set()
    closing.join(30)
    caller.join(30)
    assert [type(each) for each in results] == [ClosedError]
    with pytest.raises(ClosedError):
        held.result(30)
    with make().open(tmp_path, **OPTIONS) as host:
        assert host.call("look", 1) == 0
        hashes = host.hashes()[1]
    check_replay(tmp_path, hashes)


def test_effects_have_a_deadline(tmp_path: Path) -> None:
    meeting, results = Meeting(), list[Any]()
    with make(meeting).open(tmp_path, **OPTIONS) as host:
        first = in_thread(lambda: host.call("meet", 1, timeout=0.05), results)
        assert meeting.there.wait(30)
        with pytest.raises(DeadlineError) as waited:  # For the one that computes.
            host.call("meet", 2, timeout=0.05)
        time.sleep(0.06)
        meeting.go_on.set()
        first.join(30)
        assert isinstance(results[0], DeadlineError)
        assert (waited.value.outcome, results[0].outcome) == (
            "not_stored",
            "not_stored",
        )
        assert [host.call("look", 1), host.call("look", 2)] == [0, 0]
        assert host.call("meet", 1, timeout=30) == 1


def test_a_call_that_was_held_back_is_answered(tmp_path: Path) -> None:
    """A task is woken also if nothing of its host comes after the refusal."""
    meeting = Meeting()

    async def call() -> Sequence[Any]:
        async with make(meeting).open_async(tmp_path, **OPTIONS) as host:
            computing = asyncio.create_task(host.call("meet", 1))
            await asyncio.to_thread(meeting.there.wait, 30)
            held = asyncio.create_task(host.call("add", 1))
            await asyncio.sleep(0)
            closing = asyncio.create_task(host.close())
            await asyncio.to_thread(until_it_ends, host.blocking)
            meeting.go_on.set()
            async with asyncio.timeout(30):
                return await asyncio.gather(
                    computing, held, closing, return_exceptions=True
                )

    computing, held, closed = asyncio.run(call())
    assert (type(computing), type(held), closed) == (ClosedError, ClosedError, None)


def test_a_task_waits_no_longer_than_it_says(tmp_path: Path) -> None:
    async def call() -> list[Any]:
        async with make().open_async(tmp_path, **OPTIONS) as host:
            call_id = host.new_call_id()
            turn = host.blocking.runner._turn
            with turn, pytest.raises(DeadlineError) as caught:
                await host.call("add", 1, call_id=call_id, timeout=0.05)
            assert caught.value.outcome == "unknown"
            return [
                await host.call("add", 1, call_id=call_id, timeout=30),
                await host.call("meet", 1, timeout=30),
                await host.call("look", 1, timeout=30),
            ]

    assert asyncio.run(call()) == [1, 2, 2]


def diverge(host: Host) -> None:
    """Have the log say that the last command gave something else."""
    wrong = (host.position, b"another outcome " + bytes(5))
    entry = Outcomes(host.runner.role.claimed, [wrong])
    host.wait_applied(host.runner._log.append(pack(entry)), 30)


def test_a_partition_that_diverged_is_not_read(tmp_path: Path) -> None:
    with make().open(tmp_path, **OPTIONS) as host:
        assert [host.call("add", 1), host.call("add", 2)] == [1, 1]
        assert [host.call("add", 1)] == [2]
        diverge(host)
        (stopped,) = host.runner.stopped_partitions()
        for stale in (None, 60.0):
            with pytest.raises(DivergedError, match=f"partition {stopped}"):
                host.call("look", 1, stale=stale)
        assert host.call("look", 2) == 1
