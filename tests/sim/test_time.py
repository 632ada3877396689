"""Clocks that drift, runs that are stuck, and what must not happen on the loop."""

import asyncio
import contextvars
import threading
from collections.abc import Iterator
from random import Random

import pytest
from sim.errors import DeadlockError, LivelockError, MisuseError, UnhandledError
from sim.loop import VirtualLoop
from sim.process import CURRENT, Clock, Process


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def test_a_clock_does_not_jump_when_its_rate_changes() -> None:
    clock = Clock(100.0, 2.0)
    assert clock.local(3.0) == 106.0
    clock.drift(3.0, 0.5)
    assert (clock.local(3.0), clock.local(5.0)) == (106.0, 107.0)
    assert clock.due(107.0) == 5.0


def test_at_the_time_a_timer_is_due_the_clock_shows_it() -> None:
    random = Random(1)
    for _ in range(5000):
        begin = random.uniform(0, 1e5)
        clock = Clock(-begin)
        clock.drift(begin, random.uniform(0.9, 1.1))
        local = clock.local(begin) + random.uniform(0, 10)
        assert clock.local(clock.due(local)) >= local


def test_clocks_have_to_move() -> None:
    with pytest.raises(MisuseError):
        Clock(0.0, 0.0)
    with pytest.raises(MisuseError):
        Clock().drift(0.0, -1.0)


def in_process(loop: VirtualLoop, process: Process) -> contextvars.Context:
    context = contextvars.Context()
    context.run(CURRENT.set, process)
    return context


def test_a_process_sleeps_by_its_own_clock(loop: VirtualLoop) -> None:
    fast = Process("fast", 1, Clock(1000.0, 1.25))

    async def node() -> tuple[float, float]:
        begin = loop.time()
        await asyncio.sleep(10)
        return begin, loop.time()

    async def main() -> tuple[float, float]:
        return await loop.create_task(node(), context=in_process(loop, fast))

    begin, end = loop.run_until_complete(main())
    assert (begin, end) == (1000.0, 1010.0)
    assert (loop.true_time, loop.time()) == (8.0, 8.0)


def test_timers_follow_a_clock_that_begins_to_drift(loop: VirtualLoop) -> None:
    process = Process("n", 1)
    fired: list[float] = []

    def note() -> None:
        fired.append(loop.true_time)

    async def main() -> None:
        loop.call_later(10, note, context=in_process(loop, process))
        loop.call_later(6, note)
        await asyncio.sleep(5)
        loop.drift(process, 2.0)
        await asyncio.sleep(20)

    loop.run_until_complete(main())
    assert fired == [6.0, 7.5]


def test_a_deadlock_names_who_waits_where(loop: VirtualLoop) -> None:
    async def waits_for_ever() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.create_task(waits_for_ever(), name="the waiter")
        await asyncio.sleep(1)
        await task

    with pytest.raises(DeadlockError, match=r"the waiter .*wait at locks\.py"):
        loop.run_until_complete(main())


def test_a_loop_without_end_is_found(
    loop: VirtualLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sim.loop._STEPS_AT_ONE_TIME_MAX", 1000)

    async def main() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    with pytest.raises(LivelockError, match="time stands still"):
        loop.run_until_complete(main())


def test_bounds_on_time_and_steps(loop: VirtualLoop) -> None:
    async def main() -> None:
        while True:  # noqa: ASYNC110
            await asyncio.sleep(1)

    loop.time_max = 50.0
    with pytest.raises(LivelockError, match="not done at 50"):
        loop.run_until_complete(main())
    loop.time_max, loop.steps_max = float("inf"), loop.trace.steps + 100
    with pytest.raises(LivelockError, match="steps"):
        loop.run_until_complete(main())


def test_an_exception_in_a_callback_fails_the_run(loop: VirtualLoop) -> None:
    def fails() -> None:
        raise ValueError("planted")

    async def main() -> None:
        asyncio.get_running_loop().call_soon(fails)
        await asyncio.sleep(1)

    with pytest.raises(UnhandledError, match="planted") as caught:
        loop.run_until_complete(main())
    assert isinstance(caught.value.__cause__, ValueError)


def test_an_exception_nobody_asks_for_fails_the_run(loop: VirtualLoop) -> None:
    async def fails() -> None:
        raise ValueError("planted")

    async def main() -> None:
        task = asyncio.create_task(fails())
        await asyncio.sleep(1)
        del task
        loop.pending()
        await asyncio.sleep(1)

    with pytest.raises(UnhandledError, match="never retrieved"):
        loop.run_until_complete(main())


def test_threads_may_not_call_the_loop(loop: VirtualLoop) -> None:
    caught: list[BaseException] = []

    def call() -> None:
        try:
            loop.call_soon_threadsafe(print)
        except MisuseError as error:
            caught.append(error)

    async def main() -> None:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    loop.run_until_complete(main())
    assert len(caught) == 1


def test_calls_in_the_executor_take_the_time_of_their_process(
    loop: VirtualLoop,
) -> None:
    process = Process("n", 1)
    process.executor_delay = lambda: 0.25
    called: list[float] = []

    async def node() -> float:
        await loop.run_in_executor(None, lambda: called.append(loop.true_time))
        nothing: dict[str, str] = {}
        with pytest.raises(KeyError):
            await loop.run_in_executor(None, nothing.__getitem__, "no")
        return loop.time()

    async def main() -> float:
        return await loop.create_task(node(), context=in_process(loop, process))

    assert loop.run_until_complete(main()) == 0.5
    assert called == [0.25]


def test_cancelled_timers_do_not_pile_up(loop: VirtualLoop) -> None:
    async def main() -> None:
        for _ in range(10_000):
            loop.call_later(1e6, print).cancel()
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    assert len(loop._timers) < 5000


def test_closing_ends_coroutines_that_are_left() -> None:
    loop = VirtualLoop()
    log: list[str] = []

    async def left() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            log.append("ended")
            await asyncio.sleep(1)
            log.append("never")

    async def main() -> None:
        loop.create_task(left())
        loop.create_task(left())
        await asyncio.sleep(1)

    loop.run_until_complete(main())
    loop.close()
    loop.close()
    assert log == ["ended", "ended"]
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_soon(print)
