"""Marks: the meter against a sum over a list, the levels, the schedule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.app.snapshots.policy import (
    Level,
    Meter,
    Schedule,
    SnapshotSettings,
    judge,
    reach,
)
from braidlog.errors import InvalidArgumentError

SETTINGS = SnapshotSettings(
    soft_bytes=1000, hard_bytes=3000, soft_seconds=1.0, hard_seconds=4.0
)


@given(
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 1 << 19)), max_size=60),
    st.integers(0, 400),
)
def test_the_meter_is_a_sum(rounds: list[tuple[int, int]], asked: int) -> None:
    """Exact at both ends, off by less than what lies between two samples elsewhere."""
    meter, position = Meter(0), 0
    records: list[float] = []
    for count, size in rounds:
        position += count
        meter.add(position, size, size / 1000)
        records += [size / count] * count
    total, seconds = meter.since(0)
    assert total == pytest.approx(sum(records), abs=1)
    assert seconds == pytest.approx(sum(records) / 1000)
    assert meter.since(position) == (0, 0.0)
    found, _ = meter.since(asked)
    assert found == pytest.approx(sum(records[asked:]), abs=(1 << 18) + (1 << 19))


def test_the_meter_forgets_what_nobody_asks_about() -> None:
    meter = Meter(0)
    for position in range(1, 101):
        meter.add(position, 1 << 20, 1.0)
    before = [meter.since(position) for position in range(50, 101)]
    meter.forget(50)
    assert [meter.since(position) for position in range(50, 101)] == before
    assert len(meter._samples) == 52
    assert meter.since(3)[0] <= 51 << 20


def test_levels() -> None:
    meter = Meter(0)
    assert judge(SETTINGS, meter, 0, 1) == Level.OPEN
    meter.add(10, 999, 0.5)
    assert judge(SETTINGS, meter, 0, 1) == Level.OPEN
    meter.add(11, 1, 0.1)
    assert judge(SETTINGS, meter, 0, 1) == Level.SNAPSHOT
    assert judge(SETTINGS, meter, 11, 1) == Level.OPEN
    meter.add(12, 1, 3.4)
    assert judge(SETTINGS, meter, 0, 1) == Level.FULL
    assert judge(SETTINGS, meter, 12, 1) == Level.OPEN


def test_the_hard_mark_counts_all_that_is_kept() -> None:
    meter = Meter(0)
    meter.add(10, 3000, 0.1)
    assert judge(SETTINGS, meter, 10, 1) == Level.FULL
    assert judge(SETTINGS, meter, 10, 11) == Level.OPEN


def test_the_log_goes_to_the_oldest_kept_unless_it_would_stay_full() -> None:
    meter = Meter(0)
    for position in range(1, 11):
        meter.add(position, 1 << 20, 0.0)
    settings = SnapshotSettings(soft_bytes=1 << 20, hard_bytes=5 << 20, kept=2)
    assert reach(settings, meter, []) is None
    assert reach(settings, meter, [9]) == 9
    assert reach(settings, meter, [7, 8, 9]) == 8
    assert reach(settings, meter, [2, 9]) == 9
    assert reach(settings, meter, [1, 2]) == 2


def test_the_schedule_waits_longer_after_each_failure() -> None:
    schedule = Schedule(1.0)
    waits = []
    now = 100.0
    for _ in range(9):
        schedule.begin(now)
        schedule.fail(now)
        waits.append(schedule.wait(now))
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert schedule.failures == 9
    schedule.succeed(now, Level.OPEN)
    assert (schedule.failures, schedule.wait(now)) == (0, 1.0)


def test_the_schedule_leaves_half_of_the_time_and_sees_a_loop() -> None:
    schedule = Schedule(1.0)
    now = 0.0
    for turn in range(1, 5):
        schedule.begin(now)
        now += 7.0
        schedule.succeed(now, Level.SNAPSHOT)
        assert schedule.wait(now) == 7.0
        assert schedule.looping == (turn >= 3)
    schedule.succeed(now, Level.OPEN)
    assert not schedule.looping


def test_settings_that_cannot_work() -> None:
    for wrong in (
        {"soft_bytes": 0},
        {"soft_bytes": 2 << 30},
        {"soft_seconds": 400.0},
        {"kept": 0},
        {"snapshots_min": 0},
        {"reserve_bytes": -1},
    ):
        with pytest.raises(InvalidArgumentError, match="soft marks"):
            SnapshotSettings(**wrong)


def test_marks_stay_below_the_bound_of_the_log() -> None:
    settings = SnapshotSettings()
    assert settings.within(None) == settings
    small = settings.within(16 << 20)
    assert (small.soft_bytes, small.hard_bytes) == (2 << 20, 12 << 20)
    assert SETTINGS.within(1 << 30) == SETTINGS
