"""How often a node ticks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from braidlog.node.tick_schedule import TickSchedule

TICK = 0.05
REST = pytest.approx(0.101)
AWAITS = pytest.approx(0.151)


class Timers:
    """The timers of a loop, of which one is set at a time."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.set = 0
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def call_later(self, wait: float, _: Callable[[], None]) -> Any:
        self.waits.append(wait)
        self.set += 1
        return self

    def cancel(self) -> None:
        self.set -= 1

    def when(self) -> float:
        return self.waits[-1]


@pytest.fixture
def timers() -> Timers:
    return Timers()


async def scheduled(timers: Timers, rest_max_s: float = 0.1) -> TickSchedule:
    schedule = TickSchedule(
        lambda: None, tick_s=TICK, heartbeat_ticks=2, rest_max_s=rest_max_s
    )
    schedule._loop = timers  # type: ignore[assignment]
    return schedule


async def test_who_has_nothing_new_rests(timers: Timers) -> None:
    schedule = await scheduled(timers)
    for _ in range(30):
        schedule.again((1,), heartbeats=False)
    assert timers.waits == [TICK] * 20 + [REST] * 10
    assert schedule.resting
    assert not schedule.awaits
    schedule.again((2,), heartbeats=False)
    assert timers.waits[-1] == TICK
    assert timers.set == 1


async def test_a_follower_waits_for_a_heartbeat_and_a_tick_more(timers: Timers) -> None:
    schedule = await scheduled(timers)
    for _ in range(30):
        schedule.again((1,), heartbeats=True)
    assert timers.waits[-1] == AWAITS
    assert schedule.awaits
    # No heartbeat has come, so none is waited for.
    schedule.again((1,), heartbeats=False)
    assert timers.waits[-1] == REST
    assert not schedule.awaits


async def test_who_has_to_hurry_ticks_soon(timers: Timers) -> None:
    schedule = await scheduled(timers)
    schedule.again((1,), heartbeats=True)
    schedule.hurry()
    assert timers.waits == [TICK]  # It comes soon anyway.
    for _ in range(30):
        schedule.again((1,), heartbeats=True)
    schedule.hurry()
    assert timers.waits[-1] == TICK
    assert not schedule.awaits
    assert timers.set == 1
    for _ in range(20):
        schedule.again((1,), heartbeats=True)
    assert timers.waits[-1] == AWAITS


async def test_nobody_rests_longer_than_it_may_be_silent(timers: Timers) -> None:
    schedule = await scheduled(timers, rest_max_s=0.05)
    for _ in range(30):
        schedule.again((1,), heartbeats=True)
    assert set(timers.waits) == {TICK}


async def test_after_the_end_nothing_ticks(timers: Timers) -> None:
    schedule = await scheduled(timers)
    for _ in range(30):
        schedule.again((1,), heartbeats=True)
    schedule.close()
    assert timers.set == 0
    assert not schedule.awaits
    schedule.hurry()
    assert timers.set == 0


async def test_a_rest_is_no_delay(timers: Timers) -> None:
    schedule = await scheduled(timers)
    assert schedule.late(9.0) == 0.0  # Before the first tick.
    for _ in range(30):
        schedule.again((1,), heartbeats=False)
    assert timers.waits[-1] == REST
    assert schedule.late(0.1) == 0.0
    assert schedule.late(0.151) == pytest.approx(0.05)


async def test_messages_that_come_together_are_one_tick(timers: Timers) -> None:
    schedule = await scheduled(timers)
    ticks = []

    def tick() -> None:
        ticks.append(timers.now)
        schedule.again((1,), heartbeats=True)

    schedule._tick = tick
    schedule.heard()  # At work it ticks by itself.
    for _ in range(21):
        schedule.again((1,), heartbeats=True)
    for timers.now in (0.1, 0.1, 0.12, 0.2, 0.2):
        schedule.heard()
    assert ticks == [0.1, 0.2]
