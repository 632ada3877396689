"""Which of the reads that wait a commit reaches, against a search through all."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from braidlog.node.metrics.latency import Histogram
from braidlog.node.replication.reader import (
    READERS_OF_ONE_MAX,
    READS_AT_ONCE_MAX,
    Reader,
    Readers,
    StreamReaders,
)
from braidlog.wire.messages import Read, Records


def reader(begin: int, *, by_glsn: bool) -> Reader:
    nobody: Any = None
    return Reader(nobody, Read(1, begin, by_glsn, 1, 1), 0.0)


class _Session:
    readers = 0


def readers() -> StreamReaders:
    nothing: Any = None
    return StreamReaders(nothing, lambda: None)


@pytest.mark.parametrize("seed", range(20))
def test_a_commit_reaches_whom_it_serves_in_the_order_they_came(seed: int) -> None:
    rng = random.Random(seed)
    stream = readers()
    # What of `stream.waiting` a commit has not taken out yet.
    left: dict[int, tuple[int, bool]] = {}
    llsn = glsn = 1
    for number in range(2000):
        begin, by_glsn = rng.randrange(300), rng.random() < 0.5
        stream.add(number, reader(begin, by_glsn=by_glsn))
        left[number] = begin, by_glsn
        if rng.random() < 0.5:
            gone = rng.choice(list(stream.waiting))
            del stream.waiting[gone]
            left.pop(gone, None)
        if rng.random() < 0.1:
            llsn += rng.randrange(3)
            glsn += rng.randrange(3)
            expected = [
                number
                for number, (begin, by_glsn) in left.items()
                if begin < (glsn if by_glsn else llsn)
            ]
            assert stream.reached(llsn, glsn) == expected
            for number in expected:
                del left[number]


def test_reads_that_end_unserved_leave_nothing_for_long() -> None:
    stream = readers()
    for number in range(10_000):
        stream.add(number, reader(1 << 40, by_glsn=number % 2 == 0))
        stream.waiting.pop(number - 5, None)
    assert sum(map(len, stream._ahead)) < 200
    assert stream.reached(1 << 41, 1 << 41) == list(range(9_995, 10_000))


def test_many_reads_that_come_together_leave_turns_to_others() -> None:
    """One may search through much of the disk, and a leader waits for an answer."""
    turns: list[Callable[[], None]] = []
    answered: list[int] = []
    records = Records(1, (), (), (), 0, 1, 1)
    replica: Any = SimpleNamespace(read=lambda message, *, expired: (records, ()))
    stream = StreamReaders(replica, lambda: None)
    all_ = Readers(1000, lambda: 1, Histogram(), turns.append)

    many, one = _Session(), _Session()

    def ask(number: int, session: Any = many, *, gone: bool = False) -> None:
        request: Any = SimpleNamespace(
            session=session,
            gone=gone,
            crowded=False,
            answer=lambda *_: answered.append(number),
            fail=lambda _: answered.append(-1),
        )
        all_.read(stream, request, Read(1, 1, False, 100, 0), 0.0)

    for number in range(2 * READS_AT_ONCE_MAX + 3):
        ask(number, gone=number == READS_AT_ONCE_MAX)
    expected = [n for n in range(2 * READS_AT_ONCE_MAX + 3) if n != READS_AT_ONCE_MAX]
    assert answered == expected[:READS_AT_ONCE_MAX]
    # One of another connection waits for one of the first, not for all.
    ask(99, one)
    while turns:
        [turn] = turns
        turns.clear()
        before = len(answered)
        turn()
        assert len(answered) - before <= READS_AT_ONCE_MAX
    rest = expected[READS_AT_ONCE_MAX:]
    assert answered[READS_AT_ONCE_MAX:] == [99, *rest]
    assert (many.readers, one.readers, len(all_)) == (0, 0, 0)
    ask(100)
    assert (answered[-1], len(turns)) == (100, 1)
    # There are so many places for what comes in one turn, and no more.
    for _ in range(READS_AT_ONCE_MAX - 1 + READERS_OF_ONE_MAX):
        ask(101)
    assert -1 not in answered
    ask(102)
    assert (answered[-1], many.readers) == (-1, READERS_OF_ONE_MAX)
    ask(103, one)
    assert one.readers == 1
