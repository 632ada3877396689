"""What the producer of a stream does about single answers."""

from __future__ import annotations

import pytest

from braidlog._native import Entry
from braidlog.client.append.producer import ProducerLimits, StreamProducer
from braidlog.client.batches import Columns
from braidlog.errors import (
    ConnectionLostError,
    RemoteProtocolError,
    SequenceExpiredError,
    SequenceGapError,
    TooLargeError,
    UnknownProducerError,
)
from braidlog.types import Producer


def entry(name: str, *, size: int = 10, deadline: float = 9.0) -> Entry[str]:
    return Entry(name, Columns([b"v"], None, 0, None), 1, size, deadline)


def producer(**limits: float) -> StreamProducer[str]:
    return StreamProducer(Producer(1), ProducerLimits(**limits))  # type: ignore[arg-type]


def names(entries: list[Entry[str]]) -> list[str]:
    return [each.waiter for each in entries]


def test_the_first_goes_at_once_and_the_next_gather() -> None:
    core = producer()
    core.add(entry("a"), 0.0)
    first = core.take(0.0)
    assert first is not None
    for name in "bcd":
        core.add(entry(name), 0.0)
        assert core.take(0.0) is None
    assert names(core.settle(first, 1)) == ["a"]
    second = core.take(0.0)
    assert second is not None
    assert (names(second.entries), second.sequence) == (["b", "c", "d"], 2)


def test_what_lingers_waits_until_it_is_full_or_due() -> None:
    core = producer(linger_s=1.0, batch_records_max=2)
    core.add(entry("a"), 5.0)
    assert (core.take(5.5), core.due()) == (None, 6.0)
    core.add(entry("b"), 5.5)
    batch = core.take(5.5)
    assert batch is not None
    assert batch.count == 2
    core.settle(batch, 2)
    core.add(entry("c"), 7.0)
    assert core.take(7.9) is None
    assert core.take(8.0) is not None


def test_full_batches_are_pipelined_up_to_a_bound() -> None:
    core = producer(batch_bytes_max=10, in_flight_max=2)
    for name in "abcd":
        core.add(entry(name), 0.0)
    taken = [core.take(0.0) for _ in range(3)]
    assert [batch.sequence for batch in taken if batch] == [1, 2]


def test_nothing_is_sent_again_before_all_attempts_ended() -> None:
    core = producer(batch_bytes_max=10)
    for name in "ab":
        core.add(entry(name), 0.0)
    first, second = core.take(0.0), core.take(0.0)
    assert first
    assert second
    core.fail(first, ConnectionLostError())
    assert core.take(0.0) is None
    core.fail(second, SequenceGapError(expected=1))
    assert core.take(0.0) is first
    assert core.take(0.0) is second


def test_a_hole_is_left_behind_in_a_new_epoch() -> None:
    core = producer(batch_bytes_max=10)
    for name in "abc":
        core.add(entry(name), 0.0)
    before, hole, behind = core.take(0.0), core.take(0.0), core.take(0.0)
    assert before
    assert hole
    assert behind
    core.fail(hole, TooLargeError())
    [(failed, error)] = core.failed()
    assert (failed.waiter, error.outcome) == ("b", "not_stored")
    core.fail(behind, SequenceGapError(expected=2))
    # What is before the hole is settled under its own number first.
    assert core.take(0.0) is None
    core.settle(before, 1)
    assert core.take(0.0) is behind
    assert (behind.producer.epoch, behind.sequence, behind.data) == (2, 1, None)


def test_a_primary_that_forgot_the_producer() -> None:
    core = producer()
    core.add(entry("a"), 0.0)
    batch = core.take(0.0)
    assert batch
    core.settle(batch, 1)
    core.add(entry("b"), 0.0)
    batch = core.take(0.0)
    assert batch
    core.fail(batch, SequenceGapError(expected=1))
    assert core.failed() == []
    assert core.take(0.0) is batch
    assert (batch.producer.epoch, batch.sequence) == (2, 1)
    # Once it may have been stored it is not sent under another number.
    core.fail(batch, ConnectionLostError())
    assert core.take(0.0) is batch
    core.fail(batch, SequenceGapError(expected=0))
    [(_, error)] = core.failed()
    assert error.outcome == "unknown"


def test_a_producer_that_was_pushed_out_is_told_so() -> None:
    core = producer()
    core.add(entry("a"), 0.0)
    batch = core.take(0.0)
    assert batch
    core.settle(batch, 1)
    core.add(entry("b"), 0.0)
    batch = core.take(0.0)
    assert batch
    core.fail(batch, ConnectionLostError())
    assert core.take(0.0) is batch
    # It may have been stored before the log forgot who sent it: never once more.
    core.fail(batch, SequenceGapError(expected=1))
    [(failed, error)] = core.failed()
    assert (failed.waiter, type(error)) == ("b", UnknownProducerError)
    assert error.outcome == "unknown"
    core.add(entry("c"), 0.0)
    batch = core.take(0.0)
    assert batch
    assert (batch.producer.epoch, batch.sequence) == (2, 1)


def test_a_first_append_of_who_may_be_forgotten_is_not_stored_again() -> None:
    core = producer()
    core.add(entry("a"), 0.0)
    batch = core.take(0.0)
    assert batch
    core.fail(batch, ConnectionLostError())
    assert core.take(0.0) is batch
    assert batch.unknown, "the lane says that it is a repeat"
    core.fail(batch, UnknownProducerError(expected=1))
    [(_, error)] = core.failed()
    assert (type(error), error.outcome) == (UnknownProducerError, "unknown")
    assert core.idle


def test_a_position_that_is_forgotten_is_no_hole() -> None:
    core = producer(batch_bytes_max=10)
    for name in "ab":
        core.add(entry(name), 0.0)
    first, second = core.take(0.0), core.take(0.0)
    assert first
    assert second
    first.unknown = True
    core.fail(first, SequenceExpiredError())
    [(told, error)] = core.failed()
    # It is stored, however many attempts got no answer.
    assert (told.waiter, error.outcome) == ("a", "stored")
    assert names(core.settle(second, 1)) == ["b"]
    assert core.idle


def test_what_was_not_sent_can_be_withdrawn() -> None:
    core = producer()
    core.add(entry("a", deadline=1.0), 0.0)
    batch = core.take(0.0)
    late, later = entry("b", deadline=2.0), entry("c")
    core.add(late, 0.0)
    core.add(later, 0.0)
    assert batch
    assert not core.withdraw(batch.entries[0])
    assert core.deadline() == 2.0
    assert [(e.waiter, never) for e, never in core.expire(3.0)] == [("b", True)]
    assert core.withdraw(later)
    core.settle(batch, 1)
    assert core.idle
    assert core.take(0.0) is None


def test_a_late_answer_is_unknown_and_the_batch_goes_on() -> None:
    core = producer()
    core.add(entry("a", deadline=1.0), 0.0)
    batch = core.take(0.0)
    assert batch
    assert [(e.waiter, never) for e, never in core.expire(2.0)] == [("a", False)]
    assert core.expire(3.0) == []
    core.fail(batch, ConnectionLostError())
    assert core.take(3.0) is batch


def test_a_foreign_producer_keeps_its_numbers() -> None:
    core = producer()
    foreign = Entry("x", Columns([b"v"], None, 0, None), 1, 10, 9.0, Producer(5), 8)
    core.add(foreign, 0.0)
    core.add(entry("a"), 0.0)
    batch = core.take(0.0)
    assert batch
    assert (batch.producer, batch.sequence) == (Producer(5), 8)
    core.fail(batch, SequenceGapError(expected=3))
    assert [e.waiter for e, _ in core.failed()] == ["x"]
    following = core.take(0.0)
    assert following
    assert (following.producer, following.sequence) == (Producer(1), 1)


@pytest.mark.parametrize("count", [0, 2])
def test_another_count_is_refused(count: int) -> None:
    core = producer()
    core.add(entry("a"), 0.0)
    batch = core.take(0.0)
    assert batch
    with pytest.raises(RemoteProtocolError):
        core.settle(batch, count)
