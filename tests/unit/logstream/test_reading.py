"""What a replica answers to reads."""

from braidlog.wire.messages import Read
from unit.logstream.memory import batch
from unit.logstream.repository import STREAM
from unit.logstream.test_replica import opened


def test_reads_return_what_is_committed_and_say_how_far_it_is_complete() -> None:
    group = opened(1)
    group.append(1, ("a", 0, batch("x", 2)))
    group.run(other=2)
    group.append(1, ("b", 0, batch("y")))
    group.run(other=3)
    group.append(1, ("c", 0, batch("uncommitted")))
    replica = group.replicas[1]
    answer = replica.read(Read(STREAM, 1, True, 1, 0))
    assert answer is not None
    records, batches = answer
    assert (records.llsns, records.next, records.complete) == ((1,), 3, 7)
    assert [(run.llsn_begin, run.glsn_begin) for run in records.runs] == [(1, 3)]
    assert bytes(batches[0]).endswith(b"x")
    answer = replica.read(Read(STREAM, 3, False, 999, 0))
    assert answer is not None
    assert (answer[0].llsns, answer[0].next, answer[0].complete) == ((3,), 4, 8)
    assert replica.read(Read(STREAM, 4, False, 999, 0)) is None
    assert replica.read(Read(STREAM, 9, True, 999, 0)) is None
    empty = replica.read(Read(STREAM, 9, True, 999, 0), expired=True)
    assert empty is not None
    assert (empty[0].llsns, empty[0].next) == ((), 4)


def test_a_read_places_a_batch_that_a_trim_went_through() -> None:
    group = opened(1)
    group.append(1, ("a", 0, batch("x", 3)), ("b", 0, batch("y")))
    group.run(other=2)
    group.repository.trim_to(4)
    group.configure(1)
    group.settle()
    for read in (Read(STREAM, 4, True, 999, 0), Read(STREAM, 2, False, 999, 0)):
        answer = group.replicas[1].read(read)
        assert answer is not None
        assert (answer[0].llsns, answer[0].first) == ((1, 4), 2)
        assert [(r.llsn_begin, r.glsn_begin, r.length) for r in answer[0].runs] == [
            (1, 3, 4)
        ]
