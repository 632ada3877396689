"""The merge of streams against the log that they were cut from."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.client.read.merge import Merge, MergeGapError, Span, Want
from braidlog.errors import RemoteProtocolError
from braidlog.wire.messages import Records, Run

Batch = tuple[int, int, int]
"""First LLSN, first GLSN, count."""


class Model:
    """A log of streams, cut at random."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.streams: dict[int, list[Batch]] = {
            number: [] for number in range(1, chance.randrange(2, 6))
        }
        self.end = 1

    def append(self) -> None:
        stream = self.chance.choice(list(self.streams))
        batches = self.streams[stream]
        llsn = batches[-1][0] + batches[-1][2] if batches else 1
        count = self.chance.randrange(1, 5)
        batches.append((llsn, self.end, count))
        self.end += count

    def read(self, want: Want) -> tuple[Records, memoryview]:
        """Answer as a replica that may lag, send too much, or send too little."""
        batches = self.streams[want.stream]
        # A cut ends with a batch.
        cuts = [b[1] + b[2] for each in self.streams.values() for b in each]
        cut = self.chance.choice([*cuts, self.end])
        seen = [b for b in batches if b[1] + b[2] <= cut]
        complete = cut - 1
        at = 1 if want.by_glsn else 0
        found = [b for b in seen if b[at] + b[2] > want.begin]
        after = seen[-1][0] + seen[-1][2] if seen else 1
        most = self.chance.randrange(1, 4)
        if len(found) > most:
            after = found[most][0]
            found = found[:most]
            complete = found[-1][1] + found[-1][2] - 1
        # A replica may begin with a batch before what was asked for.
        if found and not want.by_glsn and self.chance.random() < 0.3:
            earlier = seen[: seen.index(found[0])][-1:]
            found = earlier + found
        data = [bytes(b[2]) for b in found]
        records = Records(
            want.stream,
            tuple(Run(*b) for b in found),
            tuple(b[0] for b in found),
            tuple(len(d) for d in data),
            complete,
            1,
            after if found or not want.by_glsn else 0,
        )
        return records, memoryview(b"".join(data))


def positions(spans: list[Span]) -> list[int]:
    for span in spans:
        assert 0 <= span.skip < span.skip + span.count <= span.size == len(span.data)
    return [p for span in spans for p in range(span.glsn, span.glsn + span.count)]


@given(st.integers(0, 2**32), st.booleans())
@settings(max_examples=300, deadline=None)
def test_every_position_once_and_in_order(seed: int, bounded: bool) -> None:
    chance = random.Random(seed)
    model = Model(chance)
    for _ in range(chance.randrange(1, 30)):
        model.append()
    begin = chance.randrange(1, model.end)
    end = chance.randrange(begin, model.end) if bounded else None
    merge = Merge(model.streams, begin, end, credit_bytes=chance.choice([1, 4, 100]))
    asked: list[Want] = []
    seen: list[int] = []
    for turn in range(5000):
        asked += merge.wants()
        if turn < 50 and chance.random() < 0.2:
            model.append()
        if asked:
            want = asked.pop(chance.randrange(len(asked)))
            if chance.random() < 0.2:
                merge.lost(want.stream)
            elif chance.random() < 0.05 and not merge.done:
                merge.enter(want.stream)
            else:
                merge.feed(*model.read(want))
        seen += positions(merge.take())
        if merge.position == (model.end if end is None else end) and turn > 50:
            break
    assert seen == list(range(begin, model.end if end is None else end))


def answer(stream: int, *batches: Batch, complete: int, after: int) -> Records:
    return Records(
        stream,
        tuple(Run(*b) for b in batches),
        tuple(b[0] for b in batches),
        tuple(b[2] for b in batches),
        complete,
        1,
        after,
    )


def test_a_large_credit_is_asked_for_in_parts() -> None:
    merge = Merge([1], 1, credit_bytes=4 << 20)
    part = memoryview(bytes(1 << 20))
    for number in range(1, 5):
        assert merge.wants() == [Want(1, number, number == 1, len(part))]
        assert merge.wants() == []
        runs = (Run(number, number, 1),)
        one = Records(1, runs, (number,), (len(part),), 9, 1, number + 1)
        merge.feed(one, part)
    assert merge.wants() == []
    assert len(merge.take()) == 4
    assert len(merge.wants()) == 1


def test_a_missing_position_is_loud() -> None:
    merge = Merge([1, 2], 1)
    merge.wants()
    merge.feed(answer(1, (1, 1, 2), complete=5, after=3), memoryview(bytes(2)))
    merge.feed(answer(2, (1, 4, 1), complete=5, after=2), memoryview(bytes(1)))
    assert positions(merge.take()) == [1, 2]
    with pytest.raises(MergeGapError, match="position 3"):
        merge.take()


@pytest.mark.parametrize(
    "records",
    [
        answer(1, (1, 1, 2), complete=5, after=4),
        answer(1, (5, 6, 2), complete=5, after=7),
        Records(1, (), (1,), (2,), 5, 1, 3),
        Records(1, (Run(1, 1, 2),), (1,), (9,), 5, 1, 3),
        Records(1, (Run(1, 1, 2),), (1, 3), (2,), 5, 1, 3),
    ],
)
def test_answers_that_contradict_themselves(records: Records) -> None:
    merge = Merge([1], 1)
    merge.wants()
    merge.feed(answer(1, (1, 1, 2), complete=2, after=3), memoryview(bytes(2)))
    with pytest.raises(RemoteProtocolError):
        merge.feed(records, memoryview(bytes(2)))
