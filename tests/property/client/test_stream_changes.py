"""Streams change while clients append: each record once, those of a key in order.

The model is what each client was to append: by key, a list. Clients hear late of a
change or not at all until they are refused; connections break before or after a
request. All appends of a client to a key are under way at the same time.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.client import AsyncClusterLog
from braidlog.client.append.log_appender import LogAppender
from braidlog.types import Producer
from braidlog.wire.messages import Append, GetMetadata, Message
from unit.client.batches import FakeBatch
from unit.client.fake import FakeCluster

CLIENTS = 2
KEYS = 5
PRODUCER = Producer(7)

Step: TypeAlias = tuple[str, int, int]

steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, CLIENTS - 1), st.integers(1, 9)),
        st.tuples(st.just("many"), st.integers(0, CLIENTS - 1), st.integers(2, 12)),
        st.tuples(st.just("own"), st.just(0), st.integers(1, 3)),
        st.tuples(st.just("change"), st.integers(0, CLIENTS - 1), st.integers(1, 6)),
        st.tuples(st.just("fail_over"), st.just(0), st.integers(0, 9)),
        st.tuples(st.just("turn"), st.just(0), st.integers(1, 5)),
        st.tuples(st.just("break"), st.just(0), st.integers(0, 1)),
        st.tuples(st.just("deaf"), st.just(0), st.integers(0, 1)),
    ),
    max_size=25,
)


@dataclass
class World:
    cluster: FakeCluster = field(default_factory=FakeCluster)
    sent: dict[tuple[bytes, bytes], list[bytes]] = field(
        default_factory=lambda: defaultdict(list[bytes])
    )
    """Values of each client and key."""
    told: dict[bytes, int] = field(default_factory=dict)
    breaks: list[str] = field(default_factory=list)
    deaf: bool = False
    number: int = 0

    def fault(self, node: int, message: Message) -> str:
        if isinstance(message, GetMetadata) and message.wait_ms and self.deaf:
            return "hang"
        if isinstance(message, Append) and self.breaks:
            return self.breaks.pop()
        return ""

    def record(self, client: int) -> tuple[bytes, bytes]:
        self.number += 1
        # Both clients append to the same keys.
        key = b"%d" % (self.number % KEYS)
        value = b"%d/%d" % (client, self.number)
        self.sent[_client(value), key].append(value)
        return key, value

    async def one(self, log: AsyncClusterLog, key: bytes, value: bytes) -> None:
        self.told[value] = await log.append(value, key=key)

    async def many(
        self, log: AsyncClusterLog, keys: list[bytes], values: list[bytes]
    ) -> None:
        positions = await log.append_many(values, keys=keys)
        self.told.update(zip(values, positions, strict=True))

    def stored(self) -> dict[int, tuple[bytes | None, bytes, int]]:
        found: dict[int, tuple[bytes | None, bytes, int]] = {}
        for stream in self.cluster.streams.values():
            for batch in stream.batches:
                data = FakeBatch(batch.data)
                for at, value in enumerate(data.values):
                    found[batch.glsn + at] = data.keys[at], value, stream.number
        return found


def _client(value: bytes) -> bytes:
    return value.partition(b"/")[0]


async def run(plan: list[Step], *, ends_epochs: bool = True) -> World:
    world = World()
    cluster = world.cluster
    cluster.ends_epochs = ends_epochs
    cluster.fault = world.fault
    options = {"batch_records_max": 4, "attempt_timeout_s": 0.2, "poll_s": 0.1}
    tasks: list[asyncio.Task[None]] = []
    own = 1
    async with cluster.client(**options) as one, cluster.client(**options) as two:
        logs = [await one.create_log("log", streams=2), await two.log("log")]
        for what, who, count in plan:
            log = logs[who]
            match what:
                case "append":
                    for _ in range(count):
                        task = world.one(log, *world.record(who))
                        tasks.append(asyncio.create_task(task))
                case "many":
                    rows = [world.record(who) for _ in range(count)]
                    keys, values = map(list, zip(*rows, strict=True))
                    task = world.many(log, keys, values)
                    tasks.append(asyncio.create_task(task))
                case "own":
                    for _ in range(count):
                        task = own_append(world, log, own)
                        tasks.append(asyncio.create_task(task))
                        own += 1
                case "change":
                    await log.set_streams(count)
                case "fail_over":
                    numbers = sorted(cluster.streams)
                    cluster.fail_over(numbers[count % len(numbers)])
                case "turn":
                    for _ in range(count):
                        await asyncio.sleep(0)
                case "break":
                    world.breaks.append("after" if count else "before")
                case "deaf":
                    world.deaf = bool(count)
                    # The questions that are open are answered, and asked anew.
                    cluster.bump()
                    await asyncio.sleep(0.005)
        world.deaf, world.breaks = False, []
        async with asyncio.timeout(20):
            await asyncio.gather(*tasks)
        # A producer that comes again is known where it was.
        if own > 1:
            assert await logs[1].next_sequence(PRODUCER) == own
    return world


async def own_append(world: World, log: AsyncClusterLog, sequence: int) -> None:
    value = b"own %d" % sequence
    world.told[value] = await log.append(value, producer=PRODUCER, sequence=sequence)


def check(world: World) -> None:
    stored = world.stored()
    assert sorted(stored) == list(range(1, len(stored) + 1))
    by_key: dict[tuple[bytes, bytes], list[bytes]] = defaultdict(list)
    moves: dict[bytes, list[int]] = defaultdict(list)
    own = []
    for position in sorted(stored):
        key, value, stream = stored[position]
        if key is None:
            own.append(value)
        else:
            by_key[_client(value), key].append(value)
            if moves[key][-1:] != [stream]:
                moves[key].append(stream)
        assert world.told[value] == position
    assert by_key == world.sent
    # All of a key in its former stream comes before the first of it in the next one.
    log = world.cluster.named("log")
    changes = log.spread.generation if log.spread else 0
    assert all(len(streams) <= changes + 1 for streams in moves.values())
    assert own == [b"own %d" % n for n in range(1, len(own) + 1)]


@settings(max_examples=150, deadline=None)
@given(steps)
def test_each_record_is_stored_once_and_those_of_a_key_in_order(
    plan: list[Step],
) -> None:
    check(asyncio.run(run(plan)))


BURST: list[Step] = [
    ("append", 0, 9),
    ("many", 0, 12),
    ("turn", 0, 3),
    ("break", 0, 1),
    ("append", 0, 9),
    ("turn", 0, 1),
    ("change", 0, 5),
    ("append", 0, 9),
    ("turn", 0, 5),
    ("many", 0, 12),
    ("break", 0, 1),
    ("append", 0, 9),
    ("change", 0, 1),
    ("append", 0, 9),
]
"""A plan that finds each of the bugs below."""


DEAF: list[Step] = [
    ("append", 0, 9),
    ("append", 1, 9),
    ("turn", 0, 9),
    ("deaf", 0, 1),
    ("change", 0, 5),
    *[("append", 0, 5), ("turn", 0, 9), ("append", 1, 5), ("turn", 0, 9)] * 8,
]
"""Clients that hear nothing, and one that is told when it is refused."""


def test_an_epoch_that_is_not_ended_is_found() -> None:
    check(asyncio.run(run(DEAF)))
    with pytest.raises((AssertionError, TimeoutError)):
        check(asyncio.run(run(DEAF, ends_epochs=False)))


def forgets_what_was_sent(patch: pytest.MonkeyPatch) -> None:
    """Puts everything anew, without a look at what is stored."""

    async def nothing(*_: object) -> dict[object, int]:
        return {}

    patch.setattr(AsyncClusterLog, "_stored", nothing)


def lets_nobody_wait(patch: pytest.MonkeyPatch) -> None:
    """Sends new records at once, beside those whose outcome is open."""
    right = LogAppender._change_streams

    def changed(self: LogAppender) -> None:
        right(self)
        self._change = None

    patch.setattr(LogAppender, "_change_streams", changed)


def puts_what_waited_first(patch: pytest.MonkeyPatch) -> None:
    right = LogAppender._changed
    patch.setattr(LogAppender, "_changed", lambda self, moved: right(self, moved[::-1]))


@pytest.mark.parametrize(
    "mutation", [forgets_what_was_sent, lets_nobody_wait, puts_what_waited_first]
)
def test_a_planted_bug_is_found(
    mutation: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(asyncio.run(run(BURST)))
    mutation(monkeypatch)  # type: ignore[operator]
    with pytest.raises(AssertionError):
        check(asyncio.run(run(BURST)))
