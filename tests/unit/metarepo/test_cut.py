"""The cut: the worked examples, and every rule by which a cut is refused."""

import pytest

from braidlog.errors import FencedError, InvalidArgumentError
from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.machine import cuts
from braidlog.metarepo.machine.state import HISTORY_CUTS_MIN
from braidlog.wire import commands
from braidlog.wire.messages import LogCut, StreamRun, StreamStatus
from braidlog.wire.results import Refused
from unit.metarepo.bench import LOG, Bench, cut_of, one_cut


def test_nothing_is_cut_until_every_replica_has_reported() -> None:
    bench = Bench()
    bench.create((1, 2))
    bench.tell(1, 1, 11)
    assert bench.cut() is None
    bench.tell(2, 1, 8)
    assert bench.cut() == LogCut(LOG, 1, 7, (StreamRun(1, 1, 1, 7, 1),))


def test_two_streams_with_two_and_three_records_end_at_five_in_one_version() -> None:
    bench = Bench()
    bench.create((1, 2), (2, 1))
    for node in (1, 2):
        bench.tell(node, 2, 4)
        bench.tell(node, 1, 3)
    runs = (StreamRun(1, 1, 1, 2, 1), StreamRun(2, 1, 3, 3, 1))
    assert bench.cut() == LogCut(LOG, 1, 5, runs)
    assert bench.cut() is None


def test_only_what_overlaps_counts() -> None:
    bench = Bench()
    bench.create((1, 2))
    bench.tell(1, 1, 11)
    bench.tell(2, 1, 11)
    bench.cut()
    # One is behind in what it knows to be committed, and has two more on its disk.
    bench.tell(1, 1, 18, version=1, committed=11)
    bench.tell(2, 1, 13, version=0, committed=1)
    assert bench.cut() == LogCut(LOG, 2, 12, (StreamRun(1, 11, 11, 2, 1),))


@pytest.mark.parametrize("ends", [(13, 9), (5, 5), (0, 13), (11, 11)])
def test_ends_before_what_is_committed_give_nothing(ends: tuple[int, int]) -> None:
    bench = Bench()
    bench.create((1, 2))
    for node in (1, 2):
        bench.tell(node, 1, 11)
    bench.cut()
    for node, end in zip((1, 2), ends, strict=True):
        bench.tell(node, 1, end)
    assert bench.cut() is None


def test_who_has_no_part_in_a_stream_has_no_say() -> None:
    bench = Bench()
    bench.create((1, 2))
    bench.tell(1, 1, 4)
    bench.tell(3, 1, 9)
    bench.tell(2, 77, 9)
    assert bench.cut() is None
    bench.tell(2, 1, 3)
    made = bench.cut()
    assert made is not None
    assert made.runs == (StreamRun(1, 1, 1, 2, 1),)


def test_each_log_counts_for_itself() -> None:
    bench = Bench()
    bench.create((1,))
    other = commands.CreateLog(b"o" * 16, "other", 1, 1, 1, placement=((1,),))
    bench.do(other)
    bench.tell(1, 1, 5)
    bench.tell(1, 2, 7)
    data = bench.collector.cut(bench.repository.state)
    assert data is not None
    made = cut_of(data)
    assert [(each.version, each.high_watermark) for each in made.cuts] == [
        (1, 4),
        (1, 6),
    ]
    assert [each.runs[0].glsn_begin for each in made.cuts] == [1, 1]
    assert not isinstance(bench.do(made), Refused)


def test_only_the_last_report_that_was_waited_for_lets_a_cut() -> None:
    bench = Bench()
    bench.create((1, 2))
    state = bench.repository.state
    bench.tell(1, 1, 6)
    assert not bench.collector.ripe(state)
    bench.tell(2, 1, 4)
    # A change of the stream is under way: it is not forgotten that there is a report.
    assert not bench.collector.ripe(state, {1})
    assert bench.collector.ripe(state)
    assert bench.cut() == LogCut(LOG, 1, 3, (StreamRun(1, 1, 1, 3, 1),))


def test_a_late_report_of_a_known_end_gives_nothing_again() -> None:
    bench = Bench()
    bench.create((1,))
    bench.tell(1, 1, 6)
    bench.cut()
    bench.tell(1, 1, 6)
    assert bench.cut() is None
    bench.tell(1, 1, 8)
    made = bench.cut()
    assert made is not None
    assert made.runs == (StreamRun(1, 6, 6, 2, 1),)


@pytest.mark.parametrize(
    "state",
    [
        ReplicaState.STARTING,
        ReplicaState.LEARNING,
        ReplicaState.INVALID,
        ReplicaState.FAILED,
    ],
)
def test_a_replica_that_is_not_serving_does_not_count(state: ReplicaState) -> None:
    bench = Bench()
    bench.create((1, 2))
    bench.tell(1, 1, 5)
    bench.tell(2, 1, 5, state=state)
    assert bench.cut() is None


def test_a_report_of_an_ended_epoch_does_not_count() -> None:
    bench = Bench()
    bench.create((1, 2))
    bench.tell(1, 1, 5)
    bench.tell(2, 1, 5)
    again = commands.Reconfigure(1, 1, (2, 1), (), StreamStatus.RUNNING)
    bench.do(again)
    assert bench.cut() is None


def test_cuts_in_flight_build_on_one_another() -> None:
    bench = Bench()
    bench.create((1,), (2,))
    bench.tell(1, 1, 3)
    first = bench.collector.cut(bench.repository.state)
    assert first is not None
    bench.collector.proposed(10)
    bench.tell(1, 1, 4)
    bench.tell(2, 2, 2)
    second = bench.collector.cut(bench.repository.state)
    assert second is not None
    runs = (StreamRun(1, 3, 3, 1, 1), StreamRun(2, 1, 4, 1, 1))
    assert cut_of(second).cuts == (LogCut(LOG, 2, 4, runs),)
    bench.collector.proposed(11)
    bench.repository.apply(10, first)
    bench.collector.settled(10, refused=False)
    assert not isinstance(bench.repository.apply(11, second), Refused)


def test_a_refused_cut_stops_cuts_until_all_are_back() -> None:
    bench = Bench()
    bench.create((1,), (2,))
    for stream, index in ((1, 10), (2, 11)):
        bench.tell(stream, stream, 3)
        made = bench.collector.cut(bench.repository.state)
        assert made is not None
        bench.collector.proposed(index)
    bench.collector.settled(10, refused=True)
    bench.tell(1, 1, 4)
    assert bench.collector.cut(bench.repository.state) is None
    bench.collector.settled(11, refused=True)
    data = bench.collector.cut(bench.repository.state)
    assert data is not None
    again = cut_of(data).cuts[0]
    assert again.version == 1
    assert [run.length for run in again.runs] == [3, 2]


def test_the_pipeline_is_bounded() -> None:
    bench = Bench()
    bench.create((1,))
    for index in range(10, 14):
        bench.tell(1, 1, index)
        made = bench.collector.cut(bench.repository.state)
        assert made is not None
        bench.collector.proposed(index)
    bench.tell(1, 1, 20)
    assert bench.collector.cut(bench.repository.state) is None


def ready() -> Bench:
    """Two streams, the first committed to LLSN 4 and GLSN 3."""
    bench = Bench()
    bench.create((1,), (2,))
    assert not isinstance(bench.do(one_cut(1, (1, 1, 1, 3))), Refused)
    return bench


@pytest.mark.parametrize(
    "cut",
    [
        one_cut(1, (1, 4, 4, 1)),
        one_cut(3, (1, 4, 4, 1)),
        one_cut(2, (1, 4, 4, 1), epoch=2),
        one_cut(2, (1, 5, 4, 1)),
        one_cut(2, (1, 3, 4, 1)),
        one_cut(2, (1, 4, 5, 1)),
        one_cut(2, (1, 4, 4, 1), (2, 1, 6, 1)),
        one_cut(2, (2, 1, 4, 1), (1, 4, 5, 1)),
        one_cut(2, (1, 4, 4, 1), (1, 5, 5, 1)),
        one_cut(2, (1, 4, 4, 0)),
        one_cut(2, (3, 1, 4, 1)),
        commands.Cut(()),
        commands.Cut((LogCut(LOG, 2, 3),)),
        commands.Cut((LogCut(LOG, 2, 9, (StreamRun(1, 4, 4, 1, 1),)),)),
        commands.Cut((LogCut(b"?" * 16, 2, 4, (StreamRun(1, 4, 4, 1, 1),)),)),
        commands.Cut(2 * one_cut(2, (1, 4, 4, 1)).cuts),
    ],
)
def test_a_cut_that_does_not_follow_is_refused_whole(cut: commands.Cut) -> None:
    ready().refused(cut)


def test_a_good_run_before_a_bad_one_is_not_taken_either() -> None:
    refused = ready().refused(one_cut(2, (1, 4, 4, 1), (2, 2, 5, 1)))
    assert refused.code == FencedError.code
    assert isinstance(refused.error(), FencedError)


def test_a_sealed_stream_gets_nothing() -> None:
    bench = ready()
    bench.do(commands.Seal(1))
    refused = bench.refused(one_cut(2, (1, 4, 4, 1), epoch=2))
    assert refused.code == FencedError.code


def test_cuts_are_kept_until_they_are_durable_everywhere() -> None:
    bench = Bench()
    bench.create((1, 2))
    for end in range(2, 102):
        for node in (1, 2):
            bench.tell(node, 1, end, version=end - 2)
        bench.cut()
    kept = bench.repository.state.logs[LOG].history
    assert kept[-1].version == 100
    assert len(kept) < 60
    assert bench.repository.cuts_since(LOG, 1, 10) is None
    since = bench.repository.cuts_since(LOG, 97, 10)
    assert since is not None
    assert [cut.version for cut in since] == [98, 99, 100]
    assert bench.repository.cuts_since(LOG, 100, 10) == ()


def test_cuts_are_kept_for_the_replica_that_is_behind() -> None:
    bench = Bench()
    bench.create((1, 2))
    for end in range(2, 102):
        bench.tell(1, 1, end, version=end - 2)
        bench.tell(2, 1, end, version=7)
        bench.cut()
    history = bench.repository.state.logs[LOG].history
    # Forgotten is only what it has; looks at that are some versions apart.
    assert history[0].version == 8
    for end in range(102, 120):
        for node in (1, 2):
            bench.tell(node, 1, end, version=end - 2)
        bench.cut()
    assert history[0].version > 60


def test_a_dead_replica_keeps_cuts_only_up_to_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuts, "HISTORY_CUTS_MAX", 50)
    bench = Bench()
    bench.create((1, 2))
    for end in range(2, 102):
        bench.tell(1, 1, end, version=end - 2)
        bench.tell(2, 1, end, version=0)
        bench.cut()
    assert len(bench.repository.state.logs[LOG].history) == 50


def busy_beside(bench: Bench, dead: tuple[int, ...] = ()) -> int:
    """Commit 600 times in stream 2, of which all know; return the cuts kept."""
    for end in range(2, 602):
        for node in bench.repository.state.streams[2].replicas:
            bench.tell(node, 2, end, version=end)
        bench.cut(dead)
    return len(bench.repository.state.logs[LOG].history)


FORGET_EVERY = 16
KEPT = HISTORY_CUTS_MIN + FORGET_EVERY


# Node 3 held its record of stream 1 when it died, and did not say of its commit.
@pytest.mark.parametrize("silent", [True, False], ids=["never heard", "heard"])
@pytest.mark.parametrize("records", [0, 1])
def test_a_dead_replica_of_a_sealed_stream_keeps_no_cuts(
    silent: bool, records: int
) -> None:
    bench = Bench()
    bench.create((1, 3), (2,))
    if records:
        bench.tell(1, 1, 2)
        bench.tell(3, 1, 2)
        bench.cut()
    if silent:
        bench.collector.forget_nodes({1, 2})
    bench.do(commands.Seal(1))
    bench.tell(1, 1, 1 + records, epoch=2, version=1, state=ReplicaState.SEALED)
    assert busy_beside(bench) <= KEPT


def test_a_dead_replica_of_a_stream_that_waits_for_it_keeps_no_cuts() -> None:
    bench = Bench(4)
    bench.create((1, 3), (2, 4), fewest=2)
    bench.tell(1, 1, 2)
    bench.tell(3, 1, 2)
    bench.cut()
    bench.tell(1, 1, 5, version=1)
    assert busy_beside(bench, dead=(3,)) <= KEPT


def test_cuts_are_kept_while_no_other_replica_can_tell_them() -> None:
    bench = Bench()
    bench.create((1, 3), (2,))
    bench.tell(1, 1, 2)
    bench.tell(3, 1, 2)
    bench.cut()
    # Node 1 has the record and not its place, and goes on without node 3.
    bench.do(commands.Reconfigure(1, 1, (1,), (3,), StreamStatus.RUNNING, entered=(1,)))
    assert busy_beside(bench, dead=(3,)) == 601
    bench.tell(1, 1, 2, epoch=2, version=1)
    bench.tell(2, 2, 700, version=700)
    for end in range(701, 701 + FORGET_EVERY):
        bench.tell(2, 2, end, version=end)
        bench.cut()
    assert len(bench.repository.state.logs[LOG].history) <= KEPT


def test_who_has_everything_and_is_dead_tells_nobody() -> None:
    bench = Bench()
    bench.create((1, 3), (2,))
    bench.tell(1, 1, 2)
    bench.tell(3, 1, 2)
    bench.cut()
    bench.tell(1, 1, 2, version=1)
    bench.tell(3, 1, 2)
    assert busy_beside(bench, dead=(1, 3)) == 601


def test_an_old_report_is_dropped() -> None:
    bench = Bench()
    bench.create((1,))
    bench.tell(1, 1, 5)
    bench.reports = 0
    with pytest.raises(AssertionError):
        bench.tell(1, 1, 9)
    assert bench.collector.report(1, 1) is not None


def test_clients_make_no_cuts() -> None:
    assert commands.Cut.ROLE == "leader"
    assert commands.SetCursor.ROLE == "append"
    assert commands.CreateLog.ROLE == "admin"


_NESTED = b"\x93\x13\xc4\x00" + b"\x91" * 100_000 + b"\xc0"  # in a `GetCursors`
_NO_NODE = b"\x94\x01\xcf" + b"\xff" * 8 + b"\xa1a\x01"  # 2**64 - 1 registers


@pytest.mark.parametrize(
    "data",
    [b"", b"\x00", b"\x91\x63", b"\xff" * 9, b"x" * 2**21, _NESTED, _NO_NODE],
)
def test_bytes_that_are_no_command_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidArgumentError):
        commands.decode(data)
    bench = Bench()
    result = bench.repository.apply(bench.repository.index + 1, data)
    assert isinstance(result, Refused)
