"""What is let go of is what all members say may go, against a dumb model."""

from __future__ import annotations

import random

import pytest

from braidlog import _native
from braidlog.shard.entries import Truncate, encode, encode_append
from braidlog.shard.state import ShardState


def batch(size: int, timestamp: int) -> bytes:
    return _native.encode_batch([b"x" * size], timestamps=timestamp)


@pytest.mark.parametrize("seed", range(8))
def test_it_says_what_is_true_and_not_much_less(seed: int) -> None:
    chance = random.Random(seed)
    state = ShardState()
    model: list[tuple[int, int, int]] = []  # position, bytes, timestamp
    now = 0
    for _ in range(4000):
        now += chance.randint(0, 20)
        data = batch(
            chance.choice([10, 1000, 20_000]), max(0, now - chance.randint(0, 50))
        )
        stamp = _native.Batch(data).timestamps[1]
        model.append((state.next, len(data), stamp))
        state.apply(encode_append(1, state.next, 0, data))
        if chance.random() < 0.001:
            first = chance.randint(state.first, state.next)
            state.apply(encode(Truncate(first)))
            model = [row for row in model if row[0] >= first]
            state = ShardState(state.snapshot())
    extent = state.extent
    assert len(extent.points) <= 64
    total = sum(size for _, size, _ in model)
    for at, size in extent.sizes(32):
        assert size == sum(each for position, each, _ in model if position >= at)
    assert len(extent.sizes(32)) <= 32
    for cutoff in range(0, now + 100, max(1, now // 20)):
        kept = extent.young(cutoff, state.next)
        old = [position for position, _, stamp in model if stamp >= cutoff]
        exact = min(old, default=state.next)
        assert kept <= exact, "something young would go"
        between = sum(size for at, size, _ in model if kept <= at < exact)
        assert between <= max(total // 12, 300_000), "much that is old would stay"


def test_an_empty_shard_wants_nothing() -> None:
    extent = ShardState().extent
    assert extent.young(10**15, 1) == 0
    assert extent.sizes(32) == ()


def test_of_an_idle_shard_everything_goes_when_all_is_old() -> None:
    state = ShardState()
    state.apply(encode_append(1, 1, 0, batch(10, 5)))
    assert state.extent.young(6, state.next) == 2
    assert state.copy().extent.young(6, state.next) == 2
