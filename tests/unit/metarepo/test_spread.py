"""Streams of a log that come and go."""

from __future__ import annotations

import pytest

from braidlog.errors import (
    FencedError,
    InvalidArgumentError,
    TooLargeError,
    UnavailableError,
)
from braidlog.metarepo.machine.repository import Repository
from braidlog.metarepo.machine.spread import after_rescue
from braidlog.metarepo.machine.state import STREAMS_OF_LOG_MAX
from braidlog.wire import commands
from braidlog.wire.messages import Place, Spread, StreamStatus
from braidlog.wire.results import Created, Done, Trimmed
from unit.metarepo.bench import LOG, Bench, one_cut


@pytest.fixture
def bench() -> Bench:
    bench = Bench()
    bench.create((1, 2), (2, 3), replication=2)
    return bench


def spread(bench: Bench) -> Spread:
    found = bench.repository.state.logs[LOG].spread
    assert found is not None
    return found


def set_streams(
    bench: Bench, count: int, *, expected: int | None = None
) -> tuple[int, ...]:
    made = bench.do(commands.SetStreams(LOG, count, expected))
    assert isinstance(made, Created), made
    return made.streams


def test_new_streams_come_last_and_every_epoch_ends(bench: Bench) -> None:
    bench.do(one_cut(1, (1, 1, 1, 5), (2, 1, 6, 5)))
    assert set_streams(bench, 4) == (1, 2, 3, 4)
    assert spread(bench) == Spread(1, (1, 2, 3, 4), (1, 2))
    streams = bench.repository.state.streams
    assert [streams[n].epoch for n in (1, 2, 3, 4)] == [2, 2, 1, 1]
    assert [(streams[n].start, streams[n].committed) for n in (1, 2)] == [(6, 6)] * 2
    # What was sent by the former spread is committed no more.
    late = bench.refused(one_cut(2, (1, 6, 11, 1)))
    assert late.code == FencedError.code
    assert all(len(stream.replicas) == 2 for stream in streams.values())
    # A new one knows where the log was when it began.
    new = bench.repository.config(3)
    assert (new.version, new.high_watermark, new.start) == (1, 10, 1)
    assert new.place == Place(1, 3, 4, 0)
    assert bench.repository.config(2).place == Place(1, 2, 4, 2)


def test_the_same_number_changes_nothing(bench: Bench) -> None:
    index = bench.repository.state.logs[LOG].revision
    assert set_streams(bench, 2) == (1, 2)
    log = bench.repository.state.logs[LOG]
    assert (log.spread, log.revision) == (None, index)


def test_the_last_streams_are_sealed_for_good(bench: Bench) -> None:
    set_streams(bench, 4)
    bench.do(one_cut(1, (3, 1, 1, 5), (4, 1, 6, 5)))
    assert set_streams(bench, 3) == (1, 2, 3)
    assert spread(bench) == Spread(2, (1, 2, 3), (1, 2), ((4, 10),))
    streams = bench.repository.state.streams
    assert streams[4].status is StreamStatus.SEALED
    assert bench.refused(commands.Unseal(4)).code == InvalidArgumentError.code
    again = commands.Reconfigure(
        4, streams[4].epoch, streams[4].replicas, (), StreamStatus.RUNNING
    )
    assert bench.refused(again).code == InvalidArgumentError.code
    # Its replicas are repaired as those of any other.
    sealed = commands.Reconfigure(
        4, streams[4].epoch, streams[4].replicas, (), StreamStatus.SEALED
    )
    assert not hasattr(bench.do(sealed), "code")
    # It goes with its last record.
    assert bench.do(commands.Trim(LOG, 10)) == Trimmed(10)
    assert 4 in streams
    assert bench.do(commands.Trim(LOG, 11)) == Trimmed(11)
    assert 4 not in streams
    assert bench.repository.state.logs[LOG].streams == (1, 2, 3)
    assert spread(bench).removed == ()
    # A number is never given again.
    assert set_streams(bench, 4) == (1, 2, 3, 5)


def test_the_first_streams_stay_for_their_producers(bench: Bench) -> None:
    assert set_streams(bench, 1) == (1,)
    assert spread(bench) == Spread(1, (1,), (1, 2))
    streams = bench.repository.state.streams
    assert streams[2].status is StreamStatus.RUNNING
    # They take keys again before new ones are made.
    assert set_streams(bench, 3) == (1, 2, 3)
    assert spread(bench).producers == (1, 2)


def test_an_operator_seals_what_he_wants_meanwhile(bench: Bench) -> None:
    bench.do(commands.Seal(2))
    set_streams(bench, 3)
    assert bench.repository.state.streams[2].status is StreamStatus.SEALED
    assert not hasattr(bench.do(commands.Unseal(2)), "code")


def test_who_has_not_seen_the_last_change_is_refused(bench: Bench) -> None:
    set_streams(bench, 3, expected=0)
    revision = bench.repository.state.logs[LOG].revision
    assert revision == bench.repository.index
    late = commands.SetStreams(LOG, 1, expected=0)
    assert bench.refused(late).code == FencedError.code
    late_too = commands.AlterLog(LOG, name="x", expected=0)
    assert bench.refused(late_too).code == FencedError.code
    renamed = commands.AlterLog(LOG, name="x", expected=revision, counted=True)
    assert bench.do(renamed) == Done()
    assert bench.repository.state.logs[LOG].revision == revision + 1


def test_a_revision_is_counted_when_all_nodes_count_them(bench: Bench) -> None:
    """An earlier version applies the same entry, and must come to the same state."""
    bench.do(commands.AlterLog(LOG, name="x"))
    assert bench.repository.state.logs[LOG].revision == 0


def test_numbers_that_no_log_can_have_are_refused(bench: Bench) -> None:
    for count in (0, STREAMS_OF_LOG_MAX + 1):
        refused = bench.refused(commands.SetStreams(LOG, count))
        assert refused.code == InvalidArgumentError.code
    set_streams(bench, 3)
    bench.do(one_cut(1, (3, 1, 1, 1)))
    set_streams(bench, 2)
    # The removed one still counts.
    refused = bench.refused(commands.SetStreams(LOG, STREAMS_OF_LOG_MAX))
    assert refused.code == TooLargeError.code
    for node in (2, 3):
        bench.do(commands.DrainNode(node))
    bench.do(commands.AlterLog(LOG, min_replicas=2))
    refused = bench.refused(commands.SetStreams(LOG, 5))
    assert refused.code == UnavailableError.code


def test_places_of_another_number_are_chosen_anew(bench: Bench) -> None:
    made = bench.do(commands.SetStreams(LOG, 4, placement=((1, 2),)))
    assert isinstance(made, Created)
    assert len(bench.repository.state.streams) == 4


def test_a_snapshot_has_it(bench: Bench) -> None:
    set_streams(bench, 4)
    again = Repository(bench.repository.snapshot())
    assert again.state.logs[LOG].spread == spread(bench)


def test_replicas_make_the_spread_up_again(bench: Bench) -> None:
    """A rescue without the last entries of the repository."""
    set_streams(bench, 4)
    set_streams(bench, 3)
    state, wanted = bench.repository.state, spread(bench)
    log = state.logs[LOG]
    places = {n: bench.repository.config(n).place for n in log.streams}
    log.spread = None
    after_rescue(state, log, {n: p for n, p in places.items() if p is not None})
    assert spread(bench).keyed == wanted.keyed
    assert spread(bench).producers == wanted.producers
    assert [n for n, _ in spread(bench).removed] == [4]
    assert spread(bench).generation > wanted.generation
    # One that had not heard of the last change has its place from the one before.
    log.spread = None
    places[2] = Place(1, 2, 4, 2)
    after_rescue(state, log, {n: p for n, p in places.items() if p is not None})
    assert spread(bench).keyed == wanted.keyed
    # A stream that is lost is left out.
    log.streams = (1, 3, 4)
    after_rescue(state, log, {})
    assert spread(bench).keyed == (1, 3)


def test_a_stream_in_another_epoch_is_not_changed(bench: Bench) -> None:
    set_streams(bench, 3)
    for command in (
        commands.Seal(1, 1),
        commands.Unseal(1, 1),
        commands.AddLearner(1, 3, 1),
        commands.DropLearner(1, 3, 1),
        commands.MoveReplica(1, 1, 3, 1),
    ):
        assert bench.refused(command).code == FencedError.code
    assert not hasattr(bench.do(commands.Seal(1, 2)), "code")
