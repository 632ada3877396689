"""Whom the leader sends what, how often, and in which order."""

from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.leader.publisher import CUTS_MAX, Publisher, PublisherSettings
from braidlog.wire.commands import Reconfigure
from braidlog.wire.messages import Report, StreamReport, StreamStatus
from braidlog.wire.results import Refused
from unit.metarepo.bench import Bench

REPEATED = 1.0  # seconds, more than any interval


def told(bench: Bench, publisher: Publisher, node: int, now: float) -> bool:
    """Tell whether a node is sent the configuration of stream 1."""
    sent = publisher.configure(bench.repository, bench.collector, node, now)
    return sent is not None and [each.stream for each in sent.streams] == [1]


def test_a_replica_is_told_until_it_reports_the_epoch() -> None:
    bench, publisher = Bench(3), Publisher(PublisherSettings())
    bench.create((1, 2, 3), replication=3, fewest=1)
    assert told(bench, publisher, 1, 0.0)
    assert not told(bench, publisher, 1, 0.0)
    assert told(bench, publisher, 1, REPEATED)
    bench.tell(1, 1, 1, epoch=1)
    assert not told(bench, publisher, 1, 2 * REPEATED)


def test_a_replica_that_became_a_learner_unheard_is_told_again() -> None:
    bench, publisher = Bench(3), Publisher(PublisherSettings())
    bench.create((1, 2, 3), replication=3, fewest=1)
    for node in (1, 2, 3):
        bench.tell(node, 1, 1, epoch=1)
    command = Reconfigure(
        stream=1,
        expected=1,
        replicas=(1, 2),
        learners=(3,),
        status=StreamStatus.RUNNING,
        entered=(1, 2, 3),
    )
    assert not isinstance(bench.do(command), Refused)
    # This one is lost on its way: node 3 still reports that it runs in epoch 1.
    assert told(bench, publisher, 3, 0.0)
    assert told(bench, publisher, 3, REPEATED)
    # What it copies, and from whom, its reports do not show.
    bench.tell(3, 1, 1, state=ReplicaState.LEARNING)
    assert told(bench, publisher, 3, 3 * REPEATED)


def test_the_primary_hears_of_a_cut_first() -> None:
    bench = Bench()
    bench.create((3, 1, 2))
    (stream,) = bench.repository.state.streams
    for node in (1, 2, 3):
        bench.tell(node, stream, end=2)
    cut = bench.cut()
    assert cut is not None
    sent = Publisher(PublisherSettings()).applied(bench.repository, (cut,))
    assert [node for node, _ in sent] == [3, 1, 2]
    # One message for all of them.
    assert len({id(commit) for _, commit in sent}) == 1


def test_who_is_far_behind_gets_the_cuts_in_their_order() -> None:
    bench, publisher = Bench(), Publisher(PublisherSettings())
    bench.create((1, 2))
    for end in range(2, 302):
        for node in (1, 2):
            bench.tell(node, 1, end)
        bench.cut()
    committed, now, number = 1, 0.0, 1000
    while committed < 301:
        now, number = now + REPEATED, number + 1
        held = StreamReport(1, 1, committed - 1, committed, 301, ReplicaState.RUNNING)
        report = Report(2, 1, number, True, (held,))
        for node, commit in publisher.reported(bench.repository, report, now):
            assert node == 2
            assert len(commit.cuts) <= CUTS_MAX
            runs = [run for cut in commit.cuts for run in cut.runs]
            assert [run.llsn_begin for run in runs] == [
                *range(committed, committed + len(runs))
            ]
            committed += len(runs)
    assert number - 1000 <= 4
