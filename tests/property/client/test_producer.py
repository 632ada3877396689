"""A producer against a primary that fails at random: exactly once, and in order.

The network delivers copies late, also of attempts that were given up; the primary knows
sequences and epochs, and refuses some batches for good.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog._native import Entry
from braidlog.client.append.producer import (
    Outgoing,
    ProducerLimits,
    StreamProducer,
)
from braidlog.client.batches import Columns
from braidlog.errors import (
    ConnectionLostError,
    FencedError,
    LogError,
    NotPrimaryError,
    SequenceGapError,
    TooLargeError,
    UnauthorizedError,
)
from braidlog.types import Producer

Copy = tuple[int, int, tuple[bytes, ...]]


class Primary:
    """What stores batches; `stored` outlives every failover."""

    def __init__(self, chance: random.Random) -> None:
        self.stored: list[bytes] = []
        self.epoch = 1
        self.expected = 1
        self.places: dict[tuple[int, int], int] = {}
        self.chance = chance
        self.forbidden = 0.0

    def take(self, copy: Copy) -> int:
        epoch, sequence, values = copy
        if self.chance.random() < self.forbidden:
            raise UnauthorizedError("not now")
        if any(value.startswith(b"big") for value in values):
            raise TooLargeError("too large")
        if epoch < self.epoch:
            raise FencedError("fenced")
        expected = 1 if epoch > self.epoch else self.expected
        if sequence < expected:
            return self.places[epoch, sequence]
        if sequence > expected:
            raise SequenceGapError("gap", expected=expected)
        self.epoch, self.expected = epoch, sequence + len(values)
        self.places[epoch, sequence] = len(self.stored) + 1
        self.stored += values
        return self.places[epoch, sequence]


class Run:
    """One client, one primary, and the network between them."""

    def __init__(self, seed: int, forbidden: float) -> None:
        self.chance = random.Random(seed)
        self.primary = Primary(self.chance)
        self.primary.forbidden = forbidden
        limits = ProducerLimits(batch_bytes_max=300, batch_records_max=4)
        self.core: StreamProducer[int] = StreamProducer(Producer(7), limits)
        self.flying: deque[tuple[Outgoing[int], Copy]] = deque()
        self.strays: list[Copy] = []
        self.acknowledged: dict[int, int] = {}
        self.failed: dict[int, LogError] = {}
        self.values: dict[int, list[bytes]] = {}

    def add(self) -> None:
        number = len(self.values)
        word = b"big" if self.chance.random() < 0.1 else b"v"
        count = self.chance.choice([1, 1, 2])
        values = [b"%s.%06d.%d" % (word, number, i) for i in range(count)]
        self.values[number] = values
        entry = Entry(number, Columns(values, None, 0, None), len(values), 100, 1e9)
        self.core.add(entry, 0.0)

    def pump(self) -> None:
        while (batch := self.core.take(0.0)) is not None:
            waiters = [entry.waiter for entry in batch.entries]
            values = tuple(v for waiter in waiters for v in self.values[waiter])
            self.flying.append((batch, (batch.producer.epoch, batch.sequence, values)))
        self.note()

    def note(self) -> None:
        for entry, error in self.core.failed():
            assert entry.waiter not in self.acknowledged
            assert entry.waiter not in self.failed
            self.failed[entry.waiter] = error

    def step(self) -> None:
        self.pump()
        action = self.chance.random()
        if action < 0.1 and self.flying:
            self.break_connection()
        elif action < 0.2 and self.strays:
            copy = self.strays.pop(self.chance.randrange(len(self.strays)))
            with contextlib.suppress(LogError):
                self.primary.take(copy)
        elif self.flying:
            self.deliver(*self.flying.popleft())
        self.note()

    def break_connection(self) -> None:
        """Lose a suffix of what is under way; some of it arrives later."""
        if self.chance.random() < 0.5:
            self.core.abandon()
        else:
            for batch, _ in self.flying:
                self.core.fail(batch, ConnectionLostError("broke"))
        self.strays += [c for _, c in self.flying if self.chance.random() < 0.7]
        self.flying.clear()

    def deliver(self, batch: Outgoing[int], copy: Copy) -> None:
        fault = self.chance.random()
        if fault < 0.1:
            self.core.fail(batch, NotPrimaryError("moved"))
            return
        try:
            first = self.primary.take(copy)
        except LogError as error:
            self.core.fail(batch, error)
            return
        if fault < 0.25:
            self.core.fail(batch, ConnectionLostError("lost the answer"))
            return
        for entry in self.core.settle(batch, len(copy[2])):
            self.acknowledged[entry.waiter] = first
            first += entry.count

    def finish(self) -> None:
        self.primary.forbidden = 0.0
        for _ in range(10_000):
            self.pump()
            if self.core.idle:
                return
            self.step()
        raise AssertionError("it never comes to rest")

    def check(self) -> None:
        stored = self.primary.stored
        assert len(set(stored)) == len(stored), "stored twice"
        assert [v for v in stored if v.startswith(b"v")] == sorted(stored), "order"
        for number, first in self.acknowledged.items():
            values = self.values[number]
            assert stored[first - 1 : first - 1 + len(values)] == values
        for number, error in self.failed.items():
            if error.outcome == "not_stored":
                assert not set(self.values[number]) & set(stored), error
        told = self.acknowledged.keys() | self.failed.keys()
        assert told == self.values.keys()


@given(st.integers(0, 2**32), st.sampled_from([0.0, 0.1, 0.4]))
@settings(max_examples=1000, deadline=None)
def test_exactly_once_and_in_order(seed: int, forbidden: float) -> None:
    run = Run(seed, forbidden)
    for _ in range(run.chance.randrange(5, 60)):
        for _ in range(run.chance.choice([0, 0, 1, 5])):
            run.add()
        run.step()
    run.finish()
    run.check()
