"""Buckets against a dumb model; meters, which join them; how many there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.errors import QuotaExceededError
from braidlog.serving.quotas import Bucket, Meter, Meters
from braidlog.wire.quotas import Quotas
from braidlog.wire.rights import Rights
from braidlog.wire.roles import Role

TICKS = 64
"""In a second: times are whole numbers of them, which a float has exactly."""


class Model:
    """A bucket that is filled drop by drop: in each tick as many as the rate says."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self.drops = rate * TICKS
        """So many are one unit as there are ticks in a second."""

    def tick(self) -> None:
        self.drops = min(self.rate * TICKS, self.drops + self.rate)

    def passes(self) -> bool:
        return self.drops >= TICKS


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("wait"), st.integers(0, 200)),
        st.tuples(st.just("take"), st.integers(0, 30)),
        st.tuples(st.just("change"), st.sampled_from([1, 2, 64, 100])),
    ),
    max_size=30,
)


@given(st.sampled_from([1, 2, 64, 128]), STEPS)
def test_a_bucket_is_that_of_the_model(rate: int, steps: list[tuple[str, int]]) -> None:
    bucket, model, now = Bucket(rate, 0.0), Model(rate), 0
    for step, number in steps:
        if step == "wait":
            now += number
            for _ in range(number):
                model.tick()
        elif step == "take":
            bucket.take(number, now / TICKS)
            model.drops -= number * TICKS
        else:
            bucket.change(number, now / TICKS)
            model.rate = number
            model.drops = min(model.drops, number * TICKS)
        # These rates and ticks a float has exactly.
        assert (bucket.wait_s(now / TICKS) == 0) == model.passes()
    ticks, wait = 0, bucket.wait_s(now / TICKS) * TICKS
    while not model.passes():
        model.tick()
        ticks += 1
    assert 0 <= ticks - wait < 1


@given(st.integers(1, 50), st.lists(st.integers(0, 40), max_size=200))
def test_no_more_passes_than_the_rate_and_one_second(
    rate: int, pauses: list[int]
) -> None:
    bucket, now, passed = Bucket(rate, 0.0), 0.0, []
    for pause in pauses:
        now += pause / TICKS
        if not bucket.wait_s(now):
            bucket.take(1, now)
            passed.append(now)
    for first, begin in enumerate(passed):
        for count, end in enumerate(passed[first:], 1):
            assert count <= rate * (end - begin) + rate + 1e-6


@given(st.integers(1, 50), st.integers(1, 500))
def test_who_asks_again_when_told_to_passes(rate: int, size: int) -> None:
    bucket, now = Bucket(rate, 7.0), 7.0
    for _ in range(20):
        for _ in range(2):  # A float may be short of it by its last digit.
            now += bucket.wait_s(now)
        assert bucket.wait_s(now) < 1e-9
        bucket.take(size, now)


def test_a_bucket_gives_nothing_for_a_clock_that_goes_back() -> None:
    bucket = Bucket(10, 5.0)
    bucket.take(10, 5.0)
    assert bucket.wait_s(1.0) == bucket.wait_s(5.0) == pytest.approx(0.1)


def test_what_is_larger_than_the_burst_passes_and_makes_a_debt() -> None:
    meter = Meter("t", Quotas(bytes_per_s=100), 0.0)
    meter.admit(1000, 0.0)
    with pytest.raises(QuotaExceededError) as caught:
        meter.admit(1, 1.0)
    error = caught.value
    assert (error.quota, error.limit, error.outcome) == (
        "bytes_per_s",
        100,
        "not_stored",
    )
    # 900 were owed, 800 still are, and one has to be there.
    assert error.retry_after_ms == 8010
    assert "'t'" in error.message
    assert "bytes_per_s = 100" in error.message
    with pytest.raises(QuotaExceededError):
        meter.admit(1, 9.0)
    meter.admit(1, 9.011)


def test_what_is_refused_costs_nothing() -> None:
    meter = Meter("t", Quotas(bytes_per_s=10, requests_per_s=5), 0.0)
    meter.admit(10, 0.0)
    for _ in range(100):
        with pytest.raises(QuotaExceededError, match="bytes_per_s"):
            meter.admit(10, 0.0)
    # Four requests are left, whatever was refused.
    for _ in range(4):
        meter.admit(0, 0.11)
    with pytest.raises(QuotaExceededError, match="requests_per_s"):
        meter.admit(0, 0.11)
    assert meter.use.refused == {"bytes_per_s": 100, "requests_per_s": 1}
    assert (meter.use.requests, meter.use.bytes) == (5, 10)


def test_a_read_is_charged_when_it_is_answered() -> None:
    meter = Meter("t", Quotas(bytes_per_s=10), 0.0)
    for _ in range(3):
        meter.admit(0, 0.0)  # Nobody knows yet.
    meter.charge(110, 0.0)
    with pytest.raises(QuotaExceededError) as caught:
        meter.admit(0, 0.0)
    assert caught.value.retry_after_ms == 10_100


def test_other_quotas_hold_at_once() -> None:
    meter = Meter("t", Quotas(requests_per_s=1), 0.0)
    meter.admit(0, 0.0)
    meter.change(Quotas(requests_per_s=100), 0.0)
    with pytest.raises(QuotaExceededError) as caught:
        meter.admit(0, 0.0)
    assert caught.value.retry_after_ms == 10
    meter.change(Quotas(), 0.0)
    for _ in range(1000):
        meter.admit(1 << 30, 0.0)
    # A new quota begins full, a lower one leaves no more than it holds.
    meter.change(Quotas(requests_per_s=10), 0.0)
    meter.change(Quotas(requests_per_s=2), 0.0)
    for _ in range(2):
        meter.admit(0, 0.0)
    with pytest.raises(QuotaExceededError):
        meter.admit(0, 0.0)


def rights(number: int, quotas: Quotas) -> Rights:
    return Rights(Role.READ, f"t{number}", f"{number:064x}", quotas=quotas)


def test_connections_are_counted_and_bound_who_comes() -> None:
    meters, two = Meters(), rights(1, Quotas(connections=2))
    for _ in range(2):
        meter = meters.find(two, 0.0)
        assert meter is not None
        meters.enter(two, meter)
    assert meter is not None
    with pytest.raises(QuotaExceededError) as caught:
        meters.find(two, 0.0)
    assert (caught.value.quota, caught.value.limit) == ("connections", 2)
    assert caught.value.retry_after_ms > 0
    assert meters.uses()[0].connections == 2
    assert meters.uses()[0].refused == {"connections": 1}
    # A lower quota ends none, and lets nobody in before there are fewer.
    meters.change(lambda _: Quotas(connections=1), 0.0)
    meters.leave(two, meter)
    with pytest.raises(QuotaExceededError):
        meters.find(two, 0.0)
    meters.leave(two, meter)
    assert meters.find(two, 0.0) is meter


def test_who_comes_again_finds_its_bucket_as_it_was() -> None:
    meters, one = Meters(), rights(1, Quotas(requests_per_s=1))
    for passes in (True, False):
        meter = meters.find(one, 0.0)
        assert meter is not None
        meters.enter(one, meter)
        if passes:
            meter.admit(0, 0.0)
        else:
            with pytest.raises(QuotaExceededError):
                meter.admit(0, 0.0)
        meters.leave(one, meter)


def test_nothing_is_kept_of_tokens_that_have_no_quotas_and_no_connections() -> None:
    meters = Meters()
    for number in range(100):
        quotas = Quotas(connections=5) if number < 10 else Quotas()
        who = rights(number, quotas)
        meter = meters.find(who, 0.0)
        assert meter is not None
        meters.enter(who, meter)
        meters.leave(who, meter)
    assert len(meters) == 10
    assert [use.token for use in meters.uses()] == [f"t{n}" for n in range(10)]
    meters.change(lambda _: Quotas(), 0.0)
    assert len(meters) == 0
    assert meters.find(Rights(Role.ADMIN), 0.0) is None
