"""Reading: by position, by range, by key, by time; records themselves."""

from __future__ import annotations

import gc
import pickle
import random
from collections.abc import Callable
from typing import Any

import pytest

from braidlog import Log, Record, Store
from braidlog.errors import (
    BeyondEndError,
    ClosedError,
    InvalidArgumentError,
    NotFoundError,
    PositionError,
    TrimmedError,
)
from unit.store.conftest import Opener, values


def positions(records: Any) -> list[int]:
    return [record.position for record in records]


def test_by_position(ten: Log) -> None:
    assert ten[1].value == ten.get(1).value == b"v1"
    assert ten.get(10).value == b"v10"
    assert len(ten) == 10
    assert (ten.first, ten.end) == (1, 11)


def test_outside_of_what_is_there(ten: Log) -> None:
    with pytest.raises(PositionError, match=r"no position 0\. Positions begin at 1"):
        ten.get(0)
    with pytest.raises(BeyondEndError) as beyond:
        ten.get(11)
    assert (beyond.value.next, beyond.value.retryable) == (11, True)
    with pytest.raises(IndexError):
        ten.get((1 << 64) - 1)


@pytest.mark.parametrize("position", [-1, 1 << 64])
def test_numbers_that_no_position_is(ten: Log, position: int) -> None:
    for call in (ten.get, ten.read, ten.to_arrow, ten.trim, ten.wait):
        with pytest.raises(InvalidArgumentError, match=str(position)):
            call(position)
    with pytest.raises(InvalidArgumentError):
        next(ten.subscribe(position))
    with pytest.raises(InvalidArgumentError):
        ten.read(limit=position)


@pytest.mark.parametrize("position", ["1", 1.0, None, slice("a", 2)], ids=str)
def test_things_that_no_position_is(ten: Log, position: Any) -> None:
    with pytest.raises(TypeError):
        ten[position]


def test_ranges_are_half_open(ten: Log) -> None:
    assert positions(ten.read()) == positions(ten) == list(range(1, 11))
    for begin in range(1, 12):
        for end in range(1, 13):
            expected = list(range(begin, min(end, 11)))
            assert positions(ten.read(begin, end)) == expected, (begin, end)
    with pytest.raises(PositionError):
        ten.read(0)
    with pytest.raises(BeyondEndError):
        ten.read(12)


def test_filters(ten: Log) -> None:
    assert positions(ten.read(key=b"a")) == [1, 3, 5, 7, 9]
    assert positions(ten.read(key=bytearray(b"b"), limit=2)) == [2, 4]
    assert positions(ten.read(key=b"")) == positions(ten.read(key=b"c")) == []
    assert positions(ten.read(since=30, until=60)) == [3, 4, 5]
    assert positions(ten.read(4, 9, key=b"b", since=50, until=80)) == [6]
    assert positions(ten.read(since=80, limit=2)) == [8, 9]
    assert positions(ten.read(limit=0)) == positions(ten.read(since=60, until=50)) == []


@pytest.mark.parametrize("key", ["a", [97], 5], ids=str)
def test_a_key_is_bytes(ten: Log, key: Any) -> None:
    with pytest.raises(TypeError, match="key must be bytes"):
        ten.read(key=key)


def test_filters_at_the_ends_of_time(log: Log) -> None:
    low, high = -(1 << 63), (1 << 63) - 1
    log.append_many([b""] * 3, timestamps=[low, 0, high])
    assert positions(log.read(since=low)) == [1, 2, 3]
    assert positions(log.read(since=high)) == [3]
    assert positions(log.read(until=high)) == [1, 2]
    assert positions(log.read(until=low)) == []
    assert [log.find(t) for t in (low, 1, high)] == [1, 3, 3]


def test_find(ten: Log, log: Log) -> None:
    assert [ten.find(t) for t in (-5, 10, 11, 100, 101)] == [1, 1, 2, 10, None]
    with pytest.raises(InvalidArgumentError, match="timestamp"):
        ten.find(1 << 63)


def test_find_in_an_empty_log(log: Log) -> None:
    assert log.find(0) is None


def test_find_the_first_where_times_do_not_rise(log: Log) -> None:
    stamps = [50, 10, 90, 20, 90, 60]
    for stamp in stamps:
        log.append(b"", timestamp=stamp)
    for wanted in range(101):
        expected = next((i for i, s in enumerate(stamps, 1) if s >= wanted), None)
        assert log.find(wanted) == expected


def test_find_over_many_segments_and_after_a_reopen(
    log: Log, node: Store, opener: Opener
) -> None:
    chance = random.Random(1)
    stamps = [chance.randrange(1000) + i for i in range(5000)]
    log.append_many([bytes(1000)] * 5000, timestamps=stamps)
    node.close()
    log = opener().log("orders")
    assert log.stats().segments > 3
    for wanted in (0, 1, 999, 2500, 4999, 5900, 7000):
        expected = next((i for i, s in enumerate(stamps, 1) if s >= wanted), None)
        assert log.find(wanted) == expected


def test_the_end_of_a_read_is_fixed_when_it_begins(ten: Log) -> None:
    reading = ten.read()
    ten.append(b"later")
    assert len(list(reading)) == 10
    assert len(list(ten.read(end=1000))) == 11


def test_an_iterator_that_is_through_stays_so(ten: Log) -> None:
    reading = ten.read(limit=3)
    assert positions(reading) == [1, 2, 3]
    ten.append(b"more")
    assert next(reading, None) is None


def test_a_read_that_is_overtaken_by_a_trim(log: Log) -> None:
    log.append_many([bytes(1000)] * 10_000)
    reading = log.read()
    assert next(reading).position == 1
    log.trim(9000)
    with pytest.raises(TrimmedError) as caught:
        list(reading)
    assert caught.value.first == 9000
    assert positions(log.read(limit=1)) == [9000]


@pytest.mark.parametrize("recent", [0, 16 << 20])
def test_every_position_alone(opener: Opener, recent: int) -> None:
    log = opener(recent_bytes_max=recent).create_log("points")
    for i in range(1, 1001):
        log.submit(b"%d" % i, key=b"k%d" % i if i % 2 else None)
    log.append_many([b"%d" % i for i in range(1001, 3001)])
    order = list(range(1, 3001))
    random.Random(2).shuffle(order)
    assert all(log[i].value == b"%d" % i for i in order)


def test_a_record_is_a_value(ten: Log) -> None:
    one, same, other = ten[1], ten.get(1), ten[2]
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    thing: object = one.as_tuple()
    assert one != thing
    assert len({one, same, other}) == 2
    assert pickle.loads(pickle.dumps(one)) == one
    with pytest.raises(AttributeError):
        one.value = b""  # type: ignore[misc]
    assert not hasattr(one, "__dict__")


def test_the_collector_does_not_look_at_records(ten: Log) -> None:
    """Whoever keeps a million of them would pay for each, again and again."""
    kept = [*ten, ten.get(1), *ten.read(reverse=True)]
    assert not any(gc.is_tracked(record) for record in kept)
    gc.collect()
    assert [record.value for record in kept[:3]] == [b"v1", b"v2", b"v3"]


def test_a_record_shows_itself() -> None:
    bare = Record(1, 2, None, b"v")
    full = Record(1, 2, b"k", b"v", (("h", b"x"),))
    assert repr(bare) == "Record(position=1, timestamp=2, key=None, value=b'v')"
    assert repr(full).endswith("key=b'k', value=b'v', headers=(('h', b'x'),))")
    assert eval(repr(full)) == full  # noqa: S307, RUF100
    assert full.as_tuple() == (1, 2, b"k", b"v", (("h", b"x"),))
    assert bare != full


def test_read_objects_are_the_same_from_both_paths(log: Log) -> None:
    log.append(b"v", key=b"k", headers=[("h", b"x")])
    (read,) = log.read()
    assert read == log[1]
    assert read.headers == log[1].headers


def test_closing_ends_what_was_handed_out(ten: Log, node: Store) -> None:
    reading, batches, pending = ten.read(), ten.batches(), ten.submit(b"x")
    next(reading)
    node.close()
    with pytest.raises(ClosedError):
        next(reading)
    with pytest.raises(ClosedError):
        next(batches)
    # What was promised is known all the same.
    assert (pending.result(), pending.done()) == (11, True)
    assert "closed" in repr(ten)


CLOSED: dict[str, Callable[[Log], object]] = {
    "append": lambda log: log.append(b""),
    "submit": lambda log: log.submit(b""),
    "append_many": lambda log: log.append_many([b""]),
    "get": lambda log: log.get(1),
    "read": lambda log: log.read(),
    "iter": lambda log: iter(log),
    "len": lambda log: len(log),
    "first": lambda log: log.first,
    "end": lambda log: log.end,
    "subscribe": lambda log: next(log.subscribe()),
    "find": lambda log: log.find(0),
    "batches": lambda log: next(log.batches()),
    "to_arrow": lambda log: log.to_arrow(),
    "arrow stream": lambda log: log.__arrow_c_stream__(),
    "trim": lambda log: log.trim(2),
    "retention": lambda log: log.apply_retention(0),
    "cursor": lambda log: log.cursor("c"),
    "cursors": lambda log: log.cursors(),
    "segments": lambda log: log.segments(),
    "stats": lambda log: log.stats(),
    "describe": lambda log: log.describe(),
    "set_options": lambda log: log.set_options(retention_ms=5),
}


@pytest.mark.parametrize("call", CLOSED)
def test_a_closed_log_refuses(ten: Log, node: Store, call: str) -> None:
    node.close()
    with pytest.raises(ClosedError, match="closed"):
        CLOSED[call](ten)


@pytest.mark.parametrize("call", CLOSED)
def test_a_deleted_log_refuses(ten: Log, node: Store, call: str) -> None:
    node.delete_log("orders")
    with pytest.raises(NotFoundError, match=r"log .orders. \(?(it )?was deleted"):
        CLOSED[call](ten)


def test_a_log_of_the_same_name_is_another_one(ten: Log, node: Store) -> None:
    ten.cursor("c")
    node.delete_log("orders")
    fresh = node.create_log("orders")
    fresh.append(b"new")
    fresh.cursor("c", pin=True)
    for call in ("get", "describe", "cursor", "cursors", "append", "set_options"):
        with pytest.raises(NotFoundError):
            CLOSED[call](ten)
    assert ten.id != fresh.id
    assert values(fresh) == [b"new"]
    assert fresh.describe().cursors == 1


def test_the_first_timestamp_follows_a_trim_that_overtakes_it(
    ten: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    get = Log.get

    def overtaken(log: Log, position: int) -> Record:
        monkeypatch.undo()
        log.trim(11)
        log.append(b"late", timestamp=5)
        return get(log, position)

    monkeypatch.setattr(Log, "get", overtaken)
    assert ten.first_timestamp() == 5
