"""Appends that are stored once, however often they are sent."""

from __future__ import annotations

import pickle

import pytest

from braidlog import Log, Producer, Store
from braidlog.errors import (
    FencedError,
    InvalidArgumentError,
    SequenceExpiredError,
    SequenceGapError,
)
from unit.store.conftest import SEGMENT_BYTES, Opener, values

ALICE = Producer(1)
BOB = Producer(2)
# Stretches that the window of a producer remembers, see `RUNS_MAX` of the core.
RUNS_MAX = 8


def test_a_repeat_returns_the_first_position(log: Log) -> None:
    assert log.append(b"a", producer=ALICE, sequence=1) == 1
    log.append(b"other")
    assert log.append(b"b", producer=ALICE, sequence=2) == 3
    assert log.append(b"different", producer=ALICE, sequence=1) == 1
    assert log.submit(b"a", producer=ALICE, sequence=2).result() == 3
    assert values(log) == [b"a", b"other", b"b"]


def test_a_gap_is_refused(log: Log) -> None:
    log.append(b"a", producer=ALICE, sequence=1)
    for sequence in (3, 4, 1 << 40):
        with pytest.raises(SequenceGapError) as caught:
            log.append(b"c", producer=ALICE, sequence=sequence)
        assert caught.value.expected == 2
    with pytest.raises(SequenceGapError):
        log.append(b"b", producer=BOB, sequence=2)
    assert len(log) == 1


def test_lists_take_a_sequence_each(log: Log) -> None:
    assert log.append_many([b"a", b"b", b"c"], producer=ALICE, sequence=1) == range(
        1, 4
    )
    assert log.append(b"b", producer=ALICE, sequence=2) == 2
    assert log.append_many([b"b", b"c"], producer=ALICE, sequence=2) == range(2, 4)
    with pytest.raises(SequenceGapError) as caught:
        log.append_many([b"c", b"d"], producer=ALICE, sequence=3)
    assert caught.value.expected == 4
    assert log.next_sequence(ALICE) == 4
    assert len(log) == 3


def test_producers_and_logs_count_for_themselves(node: Store) -> None:
    one, other = node.create_log("one"), node.create_log("other")
    for producer in (ALICE, BOB):
        for log in (one, other):
            log.append(b"x", producer=producer, sequence=1)
            log.append(b"x", producer=producer, sequence=1)
    assert (len(one), len(other)) == (2, 2)
    assert one.next_sequence(ALICE) == 2
    assert one.next_sequence(Producer(3)) == 1


def test_a_newer_epoch_fences_the_older(log: Log) -> None:
    log.append(b"a", producer=Producer(1, 5), sequence=1)
    assert log.next_sequence(Producer(1, 6)) == 1
    with pytest.raises(SequenceGapError):
        log.append(b"b", producer=Producer(1, 6), sequence=2)
    log.append(b"b", producer=Producer(1, 6), sequence=1)
    with pytest.raises(FencedError) as caught:
        log.append(b"c", producer=Producer(1, 5), sequence=2)
    assert (caught.value.given, caught.value.current) == (5, 6)
    assert not caught.value.retryable
    assert len(log) == 2


def test_an_old_repeat_is_expired_not_stored_again(log: Log) -> None:
    # Runs are broken by other records in between.
    for i in range(1, RUNS_MAX + 3):
        log.append(b"x", producer=ALICE, sequence=i)
        log.append(b"between")
    with pytest.raises(SequenceExpiredError, match="is stored") as caught:
        log.append(b"x", producer=ALICE, sequence=1)
    assert caught.value.first == 3
    assert log.append(b"x", producer=ALICE, sequence=3) == 5


def test_windows_survive_a_restart(log: Log, node: Store, opener: Opener) -> None:
    log.append_many([b"a", b"b"], producer=ALICE, sequence=1)
    log.append(b"x", producer=Producer(2, 9), sequence=1)
    node.close()
    log = opener().log("orders")
    assert log.append_many([b"a", b"b"], producer=ALICE, sequence=1) == range(1, 3)
    assert log.next_sequence(ALICE) == 3
    with pytest.raises(FencedError):
        log.append(b"y", producer=BOB, sequence=2)
    assert log.append(b"c", producer=ALICE, sequence=3) == 4


def test_windows_survive_rolls_and_trims(log: Log, node: Store, opener: Opener) -> None:
    log.append(b"a", producer=ALICE, sequence=1)
    for _ in range(5):
        log.append_many([bytes(1000)] * 1000)
    assert node.stats().segments > 3
    log.trim(log.end)
    assert log.append(b"a", producer=ALICE, sequence=1) == 1
    node.close()
    log = opener().log("orders")
    assert log.append(b"a", producer=ALICE, sequence=1) == 1
    assert len(log) == 0


def test_a_refused_append_takes_no_sequence(log: Log) -> None:
    with pytest.raises(InvalidArgumentError):
        log.append(b"x" * SEGMENT_BYTES, producer=ALICE, sequence=1)
    with pytest.raises(TypeError):
        log.append_many([b"x", 5], producer=ALICE, sequence=1)  # type: ignore[list-item]
    assert log.next_sequence(ALICE) == 1
    assert log.append(b"x", producer=ALICE, sequence=1) == 1


def test_a_large_list_is_repeated_as_a_whole(log: Log) -> None:
    many = [b"%06d" % i * 100 for i in range(30_000)]
    assert log.append_many(many, producer=ALICE, sequence=1) == range(1, 30_001)
    log.append(b"between")
    assert log.append_many(many, producer=ALICE, sequence=1) == range(1, 30_001)
    assert len(log) == 30_001


def test_the_rest_of_a_list_is_not_scattered(log: Log) -> None:
    # The beginning was stored, then others came: consecutive positions are gone.
    many = [b"%06d" % i * 100 for i in range(30_000)]
    piece = next(
        i for i in range(1, 30_000) if sum(map(len, many[:i])) > SEGMENT_BYTES - 4096
    )
    log.append_many(many[:piece], producer=ALICE, sequence=1)
    log.append(b"between")
    with pytest.raises(InvalidArgumentError):
        log.append_many(many, producer=ALICE, sequence=1)
    rest = many[log.next_sequence(ALICE) - 1 :]
    sequence = log.next_sequence(ALICE)
    found = log.append_many(rest, producer=ALICE, sequence=sequence)
    assert found.start > piece
    assert [v for v in values(log) if v != b"between"] == many


def test_many_producers_at_once(log: Log) -> None:
    for sequence in range(1, 4):
        for number in range(1, 101):
            log.submit(b"%d" % number, producer=Producer(number), sequence=sequence)
    log.append(b"end")
    assert len(log) == 301
    assert {log.next_sequence(Producer(number)) for number in range(1, 101)} == {4}


@pytest.mark.parametrize(
    ("number", "epoch"), [(0, 1), (-1, 1), (1 << 64, 1), (1, -1), (1, 1 << 32)]
)
def test_numbers_that_no_producer_has(number: int, epoch: int) -> None:
    with pytest.raises(ValueError, match="Producer"):
        Producer(number, epoch)


def test_the_largest_numbers(log: Log, node: Store, opener: Opener) -> None:
    last = Producer((1 << 64) - 1, (1 << 32) - 1)
    assert log.append(b"x", producer=last, sequence=1) == 1
    node.close()
    assert opener().log("orders").append(b"x", producer=last, sequence=1) == 1
    assert pickle.loads(pickle.dumps(last)) == last
