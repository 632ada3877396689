"""Appending single records and lists of them."""

from __future__ import annotations

import array
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from braidlog import Log, Producer, Store
from braidlog.errors import InvalidArgumentError, LogError, TooLargeError
from unit.store.conftest import SEGMENT_BYTES, Opener, values


def test_positions_are_dense_from_one(log: Log) -> None:
    assert [log.append(b"a"), log.append(b"b"), log.submit(b"c").result()] == [1, 2, 3]
    assert log.append_many([b"d", b"e"]) == range(4, 6)
    assert values(log) == [b"a", b"b", b"c", b"d", b"e"]


def test_a_record_comes_back_as_it_went_in(log: Log) -> None:
    headers = [("h", b"1"), ("h", b""), ("ü", b"\0\xff")]
    log.append(b"value\0", key=b"", timestamp=-5, headers=headers)
    record = log[1]
    assert (record.value, record.key, record.timestamp) == (b"value\0", b"", -5)
    assert record.headers == tuple(headers)


def test_a_key_is_absent_or_empty(log: Log) -> None:
    log.append_many([b"", b""], keys=[None, b""])
    log.append(b"")
    assert [record.key for record in log] == [None, b"", None]


@pytest.mark.parametrize("timestamp", [-(1 << 63), -1, 0, (1 << 63) - 1])
def test_any_64_bit_timestamp(log: Log, timestamp: int) -> None:
    log.append(b"", timestamp=timestamp)
    log.append_many([b""], timestamps=timestamp)
    log.append_many([b""], timestamps=[timestamp])
    assert [record.timestamp for record in log.read()] == [timestamp] * 3
    assert log.find(timestamp) == 1


def test_a_record_without_timestamp_gets_the_time_of_the_call(log: Log) -> None:
    before = time.time_ns() // 1000
    log.append(b"")
    log.append_many([b"", b""], timestamps=[None, 7])
    log.submit(b"").result()
    after = time.time_ns() // 1000
    stamps = [record.timestamp for record in log]
    assert stamps.pop(2) == 7
    assert all(before <= stamp <= after for stamp in stamps)


@pytest.mark.parametrize(
    "value",
    [
        bytearray(b"ab"),
        memoryview(b"ab"),
        memoryview(b"axbx")[::2],
        array.array("B", b"ab"),
        np.frombuffer(b"ab", np.uint8),
    ],
    ids=["bytearray", "memoryview", "strided", "array", "numpy"],
)
def test_any_buffer_of_bytes(log: Log, value: Any) -> None:
    log.append(value, key=value, headers=[("h", value)])
    log.submit_many([value], keys=[value], headers=[[("h", value)]]).result()
    for record in log:
        assert (record.value, record.key) == (b"ab", b"ab")
        assert record.headers == (("h", b"ab"),)


def test_changing_a_buffer_afterwards_changes_no_record(log: Log) -> None:
    value = bytearray(b"before")
    pending = log.submit(value)
    value[:] = b"after!"
    pending.result()
    assert log[1].value == b"before"


def lists() -> dict[str, Callable[[], Any]]:
    """Return ways to give two values."""
    return {
        "list": lambda: [b"a", b"b"],
        "tuple": lambda: (b"a", b"b"),
        "iterator": lambda: iter([b"a", b"b"]),
        "dict": lambda: {b"a": 1, b"b": 2},
    }


@pytest.mark.parametrize("shape", lists())
def test_many_from_any_iterable(log: Log, shape: str) -> None:
    assert log.append_many(lists()[shape]()) == range(1, 3)
    assert values(log) == [b"a", b"b"]


@pytest.mark.parametrize(
    "timestamps",
    [[5, 6], (5, 6), iter([5, 6]), range(5, 7), np.array([5, 6])],
    ids=["list", "tuple", "iterator", "range", "numpy"],
)
def test_timestamps_from_any_iterable(log: Log, timestamps: Any) -> None:
    log.append_many([b"", b""], timestamps=timestamps)
    assert [record.timestamp for record in log] == [5, 6]


def test_nothing_is_appended_by_nothing(log: Log) -> None:
    log.append(b"")
    assert log.append_many([]) == range(2, 2)
    assert log.append_many([], keys=[], timestamps=[], headers=[]) == range(2, 2)
    pending = log.submit_many(iter(()), timestamps=5)
    assert (pending.result(), pending.count, pending.done()) == (range(2, 2), 0, True)
    assert log.end == 2


def test_a_pending_append_knows_its_position_at_once(log: Log) -> None:
    one, many = log.submit(b"a"), log.submit_many([b"b", b"c"])
    assert (one.position, one.count, many.position, many.count) == (1, 1, 2, 2)
    assert repr(many) == "<Pending 2..4>"
    assert (many.wait(), many.done(), one.done()) == (True, True, True)
    assert (one.result(0), many.result(timeout=5)) == (1, range(2, 4))


def test_submitted_records_become_durable_without_being_asked_for(
    log: Log, opener: Opener
) -> None:
    log.submit(b"a")
    assert log.wait(1, timeout=10)
    followed = opener(read_only=True).log("orders")
    assert followed.wait(1, timeout=10)
    assert followed[1].value == b"a"


def test_thousands_in_flight(log: Log) -> None:
    pending = [log.submit(b"%d" % i) for i in range(5000)]
    assert [each.result() for each in pending] == list(range(1, 5001))
    assert values(log) == [b"%d" % i for i in range(5000)]


BAD: dict[str, tuple[type[Exception], str, Callable[[Log], object]]] = {
    "str": (TypeError, "value must be bytes", lambda log: log.append("text")),  # type: ignore[arg-type]
    "header": (
        TypeError,
        "header value must be",
        lambda log: log.append(b"", headers={"a": 1}),  # type: ignore[arg-type]
    ),
    "list": (TypeError, "value must be bytes", lambda log: log.append([1])),  # type: ignore[arg-type]
    "wide buffer": (
        TypeError,
        "buffer of bytes",
        lambda log: log.append(array.array("i", [1])),
    ),
    "str key": (TypeError, "key must be bytes", lambda log: log.append(b"", key="k")),  # type: ignore[arg-type]
    "float time": (TypeError, "since 1970", lambda log: log.append(b"", timestamp=1.5)),  # type: ignore[arg-type]
    "time": (
        InvalidArgumentError,
        "timestamp",
        lambda log: log.append(b"", timestamp=1 << 63),
    ),
    "headers dict": (
        TypeError,
        "header value must be bytes",
        lambda log: log.append(b"", headers={"a": "b"}),  # type: ignore[arg-type]
    ),
    "headers int": (
        TypeError,
        r"\(name, value\)",
        lambda log: log.append(b"", headers=5),  # type: ignore[arg-type]
    ),
    "header value": (
        TypeError,
        "header value",
        lambda log: log.append(b"", headers=[("a", "b")]),  # type: ignore[list-item]
    ),
    "header name": (
        InvalidArgumentError,
        "cannot be stored as UTF-8",
        lambda log: log.append(b"", headers=[("\ud800", b"")]),
    ),
    "too many headers": (
        TooLargeError,
        "257 exceeds the limit of 256",
        lambda log: log.append(b"", headers=[("a", b"")] * 257),
    ),
    "one of many": (
        TypeError,
        "value must be bytes",
        lambda log: log.append_many([b"a", 1]),  # type: ignore[list-item]
    ),
    "bytes for a list": (
        TypeError,
        "must be a list, not one bytes",
        lambda log: log.append_many(b"abc"),  # type: ignore[arg-type]
    ),
    "bytearray for a list": (
        TypeError,
        "must be a list, not one bytearray",
        lambda log: log.append_many(bytearray(b"abc")),  # type: ignore[arg-type]
    ),
    "str for a list": (
        TypeError,
        "must be a list, not one str",
        lambda log: log.append_many("abc"),  # type: ignore[arg-type]
    ),
    "int for a list": (TypeError, "iterable", lambda log: log.append_many(5)),  # type: ignore[arg-type]
    "few keys": (
        InvalidArgumentError,
        "1 keys for 2 values",
        lambda log: log.append_many([b"", b""], keys=[b""]),
    ),
    "many keys": (
        InvalidArgumentError,
        "3 keys for 2 values",
        lambda log: log.append_many([b"", b""], keys=[b""] * 3),
    ),
    "few times": (
        InvalidArgumentError,
        "1 timestamps for 2 values",
        lambda log: log.append_many([b"", b""], timestamps=[1]),
    ),
    "no times": (
        InvalidArgumentError,
        "0 timestamps for 2 values",
        lambda log: log.append_many([b"", b""], timestamps=[]),
    ),
    "many times": (
        InvalidArgumentError,
        "timestamp",
        lambda log: log.append_many([b""], timestamps=[1 << 70]),
    ),
    "few headers": (
        InvalidArgumentError,
        "1 headers for 2 values",
        lambda log: log.append_many([b"", b""], headers=[None]),
    ),
    "iterator raises": (
        ZeroDivisionError,
        "zero",
        lambda log: log.append_many(b"%d" % (1 // i) for i in (1, 0)),
    ),
    "producer alone": (
        InvalidArgumentError,
        "go together",
        lambda log: log.append(b"", producer=Producer(1)),
    ),
    "sequence alone": (
        InvalidArgumentError,
        "go together",
        lambda log: log.append(b"", sequence=1),
    ),
    "tuple producer": (
        TypeError,
        "must be a braidlog.Producer, not tuple",
        lambda log: log.append(b"", producer=(1, 1), sequence=1),  # type: ignore[arg-type]
    ),
    "sequence 0": (
        InvalidArgumentError,
        "begin at 1",
        lambda log: log.append(b"", producer=Producer(1), sequence=0),
    ),
    "sequence -1": (
        InvalidArgumentError,
        "sequence must be from 0",
        lambda log: log.append(b"", producer=Producer(1), sequence=-1),
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_call_is_refused_and_changes_nothing(
    log: Log, node: Store, opener: Opener, case: str
) -> None:
    log.append(b"before")
    error, words, call = BAD[case]
    with pytest.raises(error, match=words):
        call(log)
    # Nothing was left in memory either, to go to the disk with the next append.
    assert log.append(b"after") == 2
    node.close()
    assert values(opener().log("orders")) == [b"before", b"after"]


# A batch takes at most a quarter of a segment, and at most 16 MiB.
ROOM = SEGMENT_BYTES // 4 - 1024


def test_the_largest_record(log: Log, node: Store, opener: Opener) -> None:
    big = bytes(range(256)) * (ROOM // 256)
    log.append(big, key=b"k")
    log.append_many([b"small", big, big])
    node.close()
    assert values(opener().log("orders")) == [big, b"small", big, big]


@pytest.mark.parametrize("part", ["value", "key", "headers"])
def test_a_record_over_a_quarter_segment_is_refused(log: Log, part: str) -> None:
    big = b"x" * (SEGMENT_BYTES // 4)
    every: dict[str, dict[str, Any]] = {
        "value": {"value": big},
        "key": {"value": b"", "key": big},
        "headers": {"value": b"", "headers": [("h", big)]},
    }
    arguments = every[part]
    with pytest.raises(TooLargeError) as caught:
        log.append(**arguments)
    assert caught.value.size > caught.value.limit == SEGMENT_BYTES // 4
    assert log.append(b"next") == 1


@pytest.mark.parametrize("before", [0, 10, 100, 20_000])
def test_one_record_too_large_refuses_the_whole_list(log: Log, before: int) -> None:
    good = [b"x" * 1000] * before
    with pytest.raises(TooLargeError):
        log.append_many([*good, b"y" * SEGMENT_BYTES])
    assert log.append(b"next") == 1


def test_a_record_over_16_mib_is_refused_in_large_segments(opener: Opener) -> None:
    log = opener(segment_bytes=128 << 20).create_log("big")
    limit = 16 << 20
    with pytest.raises(TooLargeError) as caught:
        log.append(b"x" * limit)
    assert caught.value.limit == limit
    assert log.append(b"x" * (limit - 65536)) == 1
    assert len(log[1].value) == limit - 65536


def test_a_list_larger_than_a_segment(log: Log, node: Store, opener: Opener) -> None:
    many = [b"%06d" % i * 100 for i in range(20_000)]
    assert log.append_many(many) == range(1, 20_001)
    assert node.stats().segments > 10
    node.close()
    assert values(opener().log("orders")) == many


def test_an_iterator_may_append_to_the_same_log(log: Log) -> None:
    def appending() -> Iterator[bytes]:
        for i in range(3):
            log.append(b"inner")
            yield b"outer%d" % i

    assert log.append_many(appending()) == range(4, 7)
    assert values(log)[3:] == [b"outer0", b"outer1", b"outer2"]


@pytest.mark.parametrize("size", [0, 1])
def test_no_room_for_unsynced_bytes_makes_every_append_wait(
    opener: Opener, size: int
) -> None:
    log = opener(unsynced_bytes_max=size).create_log("slow")
    log.submit(b"a")
    log.submit_many([b"b"] * 10)
    assert log.append(b"c") == 12


def test_an_error_is_a_log_error_with_a_hint(log: Log) -> None:
    with pytest.raises(LogError, match="Split it") as caught:
        log.append(b"x" * SEGMENT_BYTES)
    assert not caught.value.retryable
