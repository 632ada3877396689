"""Commands and what they come to; refusals change nothing."""

from typing import Any

import pytest

from braidlog.errors import (
    AlreadyExistsError,
    CorruptionError,
    FencedError,
    FormatError,
    InvalidArgumentError,
    NotFoundError,
)
from braidlog.metarepo.machine import cursors, logs, nodes, repository, streams
from braidlog.metarepo.machine.errors import RepositoryInvariantError
from braidlog.metarepo.machine.repository import Repository
from braidlog.wire import commands
from braidlog.wire.messages import StreamStatus
from braidlog.wire.results import (
    Created,
    Done,
    Epoch,
    Refused,
    Trimmed,
    decode_result,
    encode_result,
)
from unit.metarepo.bench import LOG, Bench, one_cut

RUNNING = StreamStatus.RUNNING


def log(**changes: object) -> commands.CreateLog:
    fields: dict[str, object] = {
        "log": b"m" * 16,
        "name": "more",
        "streams": 1,
        "replication": 2,
        "min_replicas": 1,
    }
    return commands.CreateLog(**{**fields, **changes})  # type: ignore[arg-type]


def test_stream_numbers_are_never_used_again() -> None:
    bench = Bench()
    assert bench.do(log(streams=2)) == Created(b"m" * 16, (1, 2))
    assert bench.do(commands.DeleteLog(b"m" * 16)) == Done()
    assert bench.do(log(streams=2)) == Created(b"m" * 16, (3, 4))


def test_primaries_and_replicas_are_spread() -> None:
    bench = Bench(nodes=4)
    bench.do(log(streams=4))
    streams = bench.repository.state.streams.values()
    assert {stream.replicas[0] for stream in streams} == {1, 2, 3, 4}
    placed = [node for stream in streams for node in stream.replicas]
    assert {placed.count(node) for node in range(1, 5)} == {2}


def test_the_same_log_again_is_the_same_log() -> None:
    bench = Bench()
    assert bench.do(log()) == bench.do(log())
    assert bench.refused(log(streams=3)).code == InvalidArgumentError.code
    other = bench.refused(log(log=b"n" * 16))
    assert other.code == AlreadyExistsError.code


@pytest.mark.parametrize(
    "command",
    [
        log(log=b"short"),
        log(name=""),
        log(streams=0),
        log(streams=100_000),
        log(min_replicas=3),
        log(min_replicas=0),
        log(replication=99),
        log(options=bytes(10_000)),
        log(replication=4, min_replicas=4),
        log(placement=((1, 1),)),
        log(placement=((1, 9),)),
        log(placement=((1,), (2,))),
        commands.RegisterNode(0, "x", 1),
        commands.RegisterNode(9, "", 1),
        commands.RegisterNode(9, "host:1", 1),
        commands.DrainNode(9),
        commands.RemoveNode(9),
        commands.RemoveNode(1),
        commands.SetVoter(9),
        commands.AlterLog(b"?" * 16),
        commands.AlterLog(LOG, replication=0),
        commands.DeleteLog(b"?" * 16),
        commands.Trim(LOG, 9),
        commands.Trim(LOG, 0),
        commands.SetCursor(LOG, "c", 9),
        commands.SetCursor(LOG, "", 1),
        commands.DeleteCursor(LOG, "c"),
        commands.AddLearner(1, 1),
        commands.AddLearner(1, 9),
        commands.AddLearner(9, 1),
        commands.MoveReplica(1, 3, 2),
        commands.Seal(9),
        commands.Reconfigure(1, 0, (1,), (), RUNNING),
        commands.Reconfigure(1, 2, (1,), (), RUNNING),
        commands.Reconfigure(1, 1, (), (), RUNNING),
        commands.Reconfigure(1, 1, (1, 1), (), RUNNING),
        commands.Reconfigure(1, 1, (1, 2), (2,), RUNNING),
        commands.Reconfigure(1, 1, (1,), (), RUNNING),
        commands.Reconfigure(1, 1, (1, 3), (), RUNNING),
        commands.Reconfigure(1, 1, (1, 3), (), RUNNING, learned=(3,)),
    ],
    ids=repr,
)
def test_a_refusal_changes_nothing(command: commands.Command) -> None:
    bench = Bench()
    bench.create((1, 2), replication=2, fewest=2)
    bench.refused(command)


LIMITS: dict[str, tuple[Any, str, commands.Command]] = {
    "nodes": (nodes, "NODES_MAX", commands.RegisterNode(4, "host:4", 1)),
    "logs": (logs, "LOGS_MAX", log()),
    "streams": (logs, "STREAMS_MAX", log()),
    "streams of a log": (logs, "STREAMS_OF_LOG_MAX", log(streams=4)),
    "cursors": (cursors, "CURSORS_MAX", commands.SetCursor(LOG, "more", 1)),
    "learners": (streams, "REPLICAS_MAX", commands.AddLearner(1, 3)),
}


@pytest.mark.parametrize("what", LIMITS)
def test_no_more_than_the_limit(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """There are three of each already, or none is allowed."""
    module, name, command = LIMITS[what]
    bench = Bench(nodes=3)
    bench.create((1, 2))
    for each in ("a", "b", "c"):
        bench.do(commands.SetCursor(LOG, each, 1))
    state = bench.repository.state
    held = {"NODES_MAX": 3, "LOGS_MAX": 1, "STREAMS_MAX": 1, "CURSORS_MAX": 3}
    monkeypatch.setattr(module, name, held.get(name, 0))
    bench.refused(command)
    monkeypatch.setattr(module, name, held.get(name, 0) + 4)
    assert not isinstance(bench.do(command), Refused)
    assert len(state.nodes) + len(state.logs) >= 4


def test_an_epoch_begins_where_the_commits_are() -> None:
    bench = Bench()
    bench.create((1, 2))
    bench.do(one_cut(1, (1, 1, 1, 5)))
    made = bench.do(commands.Reconfigure(1, 1, (2,), (1,), RUNNING))
    assert made == Epoch(1, 2, 6)
    config = bench.repository.config(1)
    assert (config.start, config.epochs) == (6, ((1, 1),))
    assert (config.version, config.high_watermark) == (1, 5)
    assert (config.replicas, config.learners) == ((2,), (1,))


def test_an_epoch_needs_somebody_who_has_what_is_committed() -> None:
    """A replica that was named and never came must not become the only one."""
    bench = Bench()
    bench.create((1, 2))
    bench.do(one_cut(1, (1, 1, 1, 5)))
    bench.do(commands.AddLearner(1, 3))
    joined = commands.Reconfigure(1, 1, (1, 2, 3), (), RUNNING, learned=(3,))
    assert not isinstance(bench.do(joined), Refused)
    alone = commands.Reconfigure(1, 2, (3,), (), RUNNING, forced=True)
    bench.refused(alone)
    entered = commands.Reconfigure(1, 2, (3,), (), RUNNING, entered=(3,))
    assert bench.do(entered) == Epoch(1, 3, 6)


def test_a_cut_shows_that_all_replicas_have_everything() -> None:
    bench = Bench()
    bench.create((1, 2))
    bench.do(commands.AddLearner(1, 3))
    bench.do(commands.Reconfigure(1, 1, (1, 2, 3), (), RUNNING, learned=(3,)))
    bench.do(one_cut(1, (1, 1, 1, 2), epoch=2))
    alone = commands.Reconfigure(1, 2, (3,), (), RUNNING)
    assert bench.do(alone) == Epoch(1, 3, 3)


def test_force_goes_below_min_replicas() -> None:
    bench = Bench()
    bench.create((1, 2), replication=2, fewest=2)
    few = commands.Reconfigure(1, 1, (1,), (), RUNNING)
    bench.refused(few)
    forced = commands.Reconfigure(1, 1, (1,), (), RUNNING, forced=True)
    assert bench.do(forced) == Epoch(1, 2, 1)


def test_seal_and_unseal_are_epochs_and_repeat_without_effect() -> None:
    bench = Bench()
    bench.create((1,))
    assert bench.do(commands.Unseal(1)) == Epoch(1, 1, 1)
    assert bench.do(commands.Seal(1)) == bench.do(commands.Seal(1)) == Epoch(1, 2, 1)
    assert bench.do(commands.Unseal(1)) == Epoch(1, 3, 1)


def test_a_move_is_over_when_the_source_is_gone() -> None:
    bench = Bench()
    bench.create((1, 2))
    assert bench.do(commands.MoveReplica(1, 2, 3)) == Done()
    assert bench.do(commands.MoveReplica(1, 2, 3)) == Done()
    bench.refused(commands.MoveReplica(1, 1, 3))
    stream = bench.repository.state.streams[1]
    assert (stream.learners, stream.move) == ((3,), (2, 3))
    bench.do(commands.Reconfigure(1, 1, (1, 3), (), RUNNING, learned=(3,)))
    assert stream.move is None


def test_a_node_is_removed_for_good() -> None:
    bench = Bench()
    assert bench.do(commands.RemoveNode(3)) == bench.do(commands.RemoveNode(3))
    refused = bench.refused(commands.RegisterNode(3, "host:3", 9))
    assert refused.code == FencedError.code


def test_an_older_start_of_a_node_is_fenced() -> None:
    bench = Bench()
    assert bench.do(commands.RegisterNode(1, "host:9", 5)) == Done()
    refused = bench.refused(commands.RegisterNode(1, "host:1", 4))
    assert refused.code == FencedError.code


def test_trim_stops_at_live_pins_and_never_goes_back() -> None:
    bench = Bench()
    bench.create((1,))
    bench.do(one_cut(1, (1, 1, 1, 9)))
    bench.do(commands.SetCursor(LOG, "a", 4, pin=True, lease=100, now=1000))
    assert bench.do(commands.Trim(LOG, 8, now=1050)) == Trimmed(4)
    assert bench.do(commands.Trim(LOG, 2, now=1050)) == Trimmed(4)
    assert bench.do(commands.Trim(LOG, 8, now=1100)) == Trimmed(8)
    assert bench.repository.config(1).trim == 8
    bench.do(commands.SetCursor(LOG, "b", 4, pin=True, now=1000))
    assert bench.do(commands.Trim(LOG, 9, now=1100)) == Trimmed(8)
    assert bench.do(commands.Trim(LOG, 9, ignore_pins=True)) == Trimmed(9)


def test_a_call_is_executed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repository, "CALLS_MAX", 2)
    bench = Bench()
    bench.create((1, 2))
    once = commands.Reconfigure(1, 1, (2,), (1,), RUNNING)
    assert bench.do(once, b"one") == Epoch(1, 2, 1)
    assert bench.do(once, b"one") == Epoch(1, 2, 1)
    assert bench.repository.result_of(b"one") == Epoch(1, 2, 1)
    bench.refused(once)
    bench.do(commands.DrainNode(1), b"two")
    bench.do(commands.DrainNode(2), b"three")
    assert bench.repository.result_of(b"one") is None


def test_a_refusal_is_remembered_too() -> None:
    bench = Bench()
    refused = bench.do(commands.DeleteLog(LOG), b"call")
    bench.create((1,))
    assert bench.do(commands.DeleteLog(LOG), b"call") == refused
    assert LOG in bench.repository.state.logs


def test_a_snapshot_goes_on_as_the_state_it_was_taken_of() -> None:
    bench = Bench()
    bench.create((1, 2), (2, 3))
    bench.do(one_cut(1, (1, 1, 1, 9)), b"call")
    bench.do(commands.SetCursor(LOG, "a", 4, pin=True))
    other = Repository(bench.repository.snapshot())
    entry = commands.encode_call(one_cut(2, (2, 1, 10, 1)))
    for each in (other, bench.repository):
        each.apply(90, entry)
    assert other.snapshot() == bench.repository.snapshot()


@pytest.mark.parametrize("data", [b"x", b"BMR1", b"BMR1\x93\x01"])
def test_what_is_no_snapshot_changes_nothing(data: bytes) -> None:
    bench = Bench()
    before = bench.repository.snapshot()
    with pytest.raises(CorruptionError):
        bench.repository.restore(data)
    assert bench.repository.snapshot() == before


def test_an_entry_twice_stops_the_node() -> None:
    bench = Bench()
    with pytest.raises(RepositoryInvariantError):
        bench.repository.apply(bench.repository.index, b"")


def test_results_have_bytes() -> None:
    for result in (Done(), Refused(42, "no"), Epoch(1, 2, 3), Created(LOG, (1, 2))):
        assert decode_result(encode_result(result)) == result
    with pytest.raises(FormatError):
        decode_result(b"\xc1")
    assert isinstance(Refused(42, "no").error(), NotFoundError)
