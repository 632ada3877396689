"""Which of the reads that wait a commit reaches, against a search through all."""

from __future__ import annotations

import random
from typing import Any

import pytest

from braidlog.node.replication.reader import Reader, StreamReaders
from braidlog.wire.messages import Read


def reader(begin: int, *, by_glsn: bool) -> Reader:
    nobody: Any = None
    return Reader(nobody, Read(1, begin, by_glsn, 1, 1), 0.0)


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
