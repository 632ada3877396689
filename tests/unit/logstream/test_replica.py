"""What each input does to a replica."""

from typing import Any

import pytest
from msgspec.structs import replace

from braidlog.errors import (
    LogFullError,
    NotPrimaryError,
    NotReadyError,
    OlderNodesError,
    RemoteProtocolError,
    SealedError,
    SequenceGapError,
    StoreFailedError,
)
from braidlog.logstream import (
    Limits,
    ReplicaInvariantError,
    ReplicaState,
)
from braidlog.wire.messages import (
    Appended,
    Feature,
    LogCut,
    Replicate,
    StreamRun,
    StreamStatus,
)
from unit.logstream.group import Group
from unit.logstream.memory import batch
from unit.logstream.repository import LOG, STREAM


def opened(*nodes: int, learners: tuple[int, ...] = ()) -> Group:
    group = Group(nodes or (1, 2), learners)
    group.open()
    assert group.repository.open
    return group


def refusals(group: Group) -> dict[Any, Any]:
    return {request: type(answer) for request, answer in group.answers}


def test_an_append_is_answered_when_it_is_cut() -> None:
    group = opened(1, 2, 3)
    group.append(1, ("a", 0, batch("x", 2)), ("b", 1, batch("y")))
    group.settle()
    assert group.answers == []
    group.run(other=5)
    assert group.answers == [("a", Appended(1, 6, 2, 1)), ("b", Appended(3, 8, 1, 1))]
    logs = [group.log(node) for node in (1, 2, 3)]
    assert logs == [[(1, 7, "x"), (3, 8, "y")]] * 3


def test_null_values_wait_until_every_node_knows_them() -> None:
    group = opened(1, 2, 3)
    null = bytearray(batch("x"))
    null[6] = 32
    group.append(1, ("a", 0, bytes(null)), ("b", 0, batch("y")))
    group.run()
    assert refusals(group) == {"a": OlderNodesError, "b": Appended}
    # The same epoch: only what all nodes know is new.
    group.repository.config = replace(
        group.repository.config, features=Feature.NULL_VALUES
    )
    group.open()
    group.append(1, ("c", 0, bytes(null)))
    group.run()
    assert refusals(group)["c"] is Appended
    assert group.log(1) == group.log(3)


def test_nothing_is_cut_that_one_replica_has_not_synced() -> None:
    group = opened()
    group.append(1, ("a", 0, batch("x")))
    group.settle(sync=False)
    group.sync(1)
    group.settle(sync=False)
    assert group.repository.cut() is None
    group.sync(2)
    group.settle(sync=False)
    assert group.repository.cut() is not None


def test_appends_are_refused_where_they_do_not_belong() -> None:
    group = opened()
    group.append(2, ("backup", 0, batch("x")))
    group.append(1, ("old", 7, batch("x")))
    group.repository.configure((1, 2), status=StreamStatus.SEALED)
    group.open()
    group.append(1, ("sealed", 0, batch("x")))
    assert group.state(1) is ReplicaState.SEALED
    expected: dict[Any, Any] = {
        "backup": NotPrimaryError,
        "old": SealedError,
        "sealed": SealedError,
    }
    assert refusals(group) == expected
    assert group.disks[1].state().next == 1


def test_one_bad_batch_refuses_only_itself() -> None:
    group = opened()
    group.append(
        1,
        ("good", 0, batch("x")),
        ("gap", 0, batch("y", 1, 9, 5)),
        ("too", 0, batch("z")),
    )
    group.run()
    assert refusals(group) == {
        "good": Appended,
        "gap": SequenceGapError,
        "too": Appended,
    }


def test_a_full_log_and_a_full_backlog_refuse_before_a_position_is_taken() -> None:
    group = Group((1,), limits=Limits(uncommitted_bytes_max=100))
    group.open()
    group.disks[1].full = True
    group.append(1, ("full", 0, batch("x")))
    group.disks[1].full = False
    group.append(1, ("huge", 0, batch("x" * 200)), ("waits", 0, batch("y")))
    assert refusals(group) == {"full": LogFullError, "waits": NotReadyError}
    group.run()
    group.append(1, ("again", 0, batch("y")))
    group.run()
    assert refusals(group)["huge"] is refusals(group)["again"] is Appended


def test_a_repeat_gets_its_first_place_and_not_before_it_is_committed() -> None:
    group = opened()
    group.append(1, ("first", 0, batch("x", 2, 9, 1)))
    group.append(1, ("waits", 0, batch("x", 2, 9, 1)))
    group.settle()
    assert group.answers == []
    group.run()
    group.append(1, ("later", 0, batch("x", 2, 9, 1)))
    assert [answer for _, answer in group.answers] == [Appended(1, 1, 2, 1)] * 3
    assert group.disks[1].state().next == 3


def test_messages_of_another_epoch_write_nothing() -> None:
    group = opened()
    group.repository.configure((1, 2))
    group.open()
    calls = list(group.disks[2].calls)
    data = batch("x")
    for epoch in (1, 3):
        message = Replicate(STREAM, epoch, 1, (len(data),))
        group.replicas[2].replicate(message, (data,))
    assert group.disks[2].calls == calls


def test_a_gap_is_fetched_from_the_primary() -> None:
    group = opened()
    group.append(1, ("a", 0, batch("x")))
    group.letters.clear()
    group.append(1, ("b", 0, batch("y")))
    group.run()
    assert group.log(1) == group.log(2) == [(1, 1, "x"), (2, 2, "y")]


def test_records_that_come_before_their_epoch_are_fetched_in_it() -> None:
    """The primary may be faster than the repository: no time passes meanwhile."""
    group = opened(1, 2, 3)
    group.repository.configure((1, 2, 3))
    group.configure(1, 3)
    group.settle()
    group.append(1, ("a", 0, batch("x")))
    group.settle()
    assert group.log(2) == []
    assert group.answers == []
    group.configure(2)
    group.run()
    assert refusals(group) == {"a": Appended}
    assert group.log(2) == group.log(1) == [(1, 1, "x")]


def test_a_lost_tail_is_found_by_the_probe() -> None:
    group = opened()
    group.append(1, ("a", 0, batch("x")))
    group.letters.clear()
    group.tick(1, 2.0)
    group.run()
    assert refusals(group) == {"a": Appended}


@pytest.mark.parametrize("sizes", [(3,), (28, 28), ()])
def test_batches_that_are_not_what_the_message_says_change_nothing(
    sizes: tuple[int, ...],
) -> None:
    group = opened()
    calls = list(group.disks[2].calls)
    payload = (batch("x")[:3],) if sizes == (3,) else (b"",)
    with pytest.raises(RemoteProtocolError):
        group.replicas[2].replicate(Replicate(STREAM, 1, 1, sizes), payload)
    assert group.disks[2].calls == calls


def test_cuts_apply_once_and_in_order() -> None:
    group = opened(1, 2)
    group.append(1, ("a", 0, batch("x", 2)))
    group.settle()
    first = group.repository.cut()
    group.append(1, ("b", 0, batch("y")))
    group.settle()
    second = group.repository.cut()
    for cut in (second, first, first, second, second):
        group.publish(cut, 2)
    group.settle()
    assert group.log(2) == [(1, 2, "x"), (3, 3, "y")]
    assert group.replicas[2].report().version == 2


def test_an_idle_cut_moves_the_high_watermark_unless_one_was_missed() -> None:
    group = opened(1)
    group.publish(group.repository.cut(other=3))
    group.settle()
    assert group.replicas[1].high_watermark == 3
    group.append(1, ("a", 0, batch("x")))
    group.settle()
    group.repository.cut()
    group.publish(group.repository.cut(other=2))
    group.settle()
    assert group.replicas[1].high_watermark == 3
    for cut in group.repository.missed(1):
        group.publish(cut)
    group.settle()
    assert group.replicas[1].high_watermark == 6
    assert group.disks[1].durable.context.high_watermark == 6


def test_a_run_of_another_epoch_is_not_about_the_tail() -> None:
    group = opened()
    group.append(1, ("a", 0, batch("stale")))
    group.settle()
    group.publish(LogCut(LOG, 1, 1, (StreamRun(STREAM, 1, 1, 1, 2),)))
    group.settle()
    assert group.answers == []
    assert group.log(1) == []
    with pytest.raises(RemoteProtocolError):
        group.replicas[1].commit(LogCut(LOG, 1, 1, (StreamRun(STREAM, 1, 1, 1),)))


def test_a_cut_of_what_was_not_reported_breaks_an_invariant() -> None:
    group = opened()
    group.append(1, ("a", 0, batch("x")))
    with pytest.raises(ReplicaInvariantError):
        group.replicas[1].commit(LogCut(LOG, 1, 1, (StreamRun(STREAM, 1, 1, 1, 1),)))
    group.take(1)
    assert group.state(1) is ReplicaState.FAILED
    assert group.answers[0][1].outcome == "unknown"  # type: ignore[union-attr]


def test_a_seal_refuses_what_was_not_cut_and_answers_what_was() -> None:
    """The tail is gone before the replica reports."""
    group = opened()
    group.append(1, ("cut", 0, batch("x")))
    group.settle()
    cut = group.repository.cut()
    group.append(1, ("late", 0, batch("y")))
    group.repository.configure((1, 2), status=StreamStatus.SEALED)
    group.configure()
    group.settle(sync=False)
    assert refusals(group) == {"late": SealedError}
    assert group.answers[0][1].outcome == "not_stored"  # type: ignore[union-attr]
    assert group.replicas[1].report().epoch == 1
    group.publish(cut)
    group.settle()
    assert refusals(group)["cut"] is Appended
    assert group.repository.open
    assert group.disks[1].durable.next == group.disks[2].durable.next == 2


def test_a_seal_at_zero_empties_the_stream() -> None:
    group = opened()
    group.append(1, *[(n, 0, batch(f"old {n}")) for n in range(3)])
    group.letters.clear()
    group.repository.configure((1, 2), status=StreamStatus.SEALED)
    group.open()
    assert len(group.answers) == 3
    group.repository.configure((1, 2))
    group.open()
    group.append(1, ("new", 0, batch("new")))
    group.run()
    assert group.answers[-1] == ("new", Appended(1, 1, 1, 1))
    assert group.log(1) == group.log(2)


def test_an_unseal_overtakes_a_seal_that_lacks_commits() -> None:
    group = opened()
    group.append(1, ("cut", 0, batch("x")))
    group.settle()
    cut = group.repository.cut()
    for status in (StreamStatus.SEALED, StreamStatus.RUNNING):
        group.repository.configure((1, 2), status=status)
        group.configure()
        group.settle()
        assert group.state(1) is group.state(2) is ReplicaState.CATCHING_UP
        group.append(1, (status.name, 0, batch("early")))
    group.publish(cut)
    group.settle()
    assert refusals(group) == {
        "SEALED": SealedError,
        "RUNNING": NotReadyError,
        "cut": Appended,
    }
    assert group.repository.open
    assert group.state(1) is ReplicaState.RUNNING


def test_an_unsealed_stream_begins_behind_the_cuts_that_it_missed() -> None:
    group = opened()
    group.append(1, ("a", 0, batch("x")))
    group.run()
    group.repository.configure((1, 2), status=StreamStatus.SEALED)
    group.open()
    group.publish(group.repository.cut(other=2))
    group.settle()
    # Readers that merge streams do not wait for this one.
    assert group.state(2) is ReplicaState.SEALED
    assert group.replicas[2].high_watermark == 3
    group.repository.trim_to(2)
    group.open()
    assert [group.disks[node].durable.low for node in (1, 2)] == [2, 2]
    for _ in range(2):
        group.repository.cut(other=2)
    group.repository.configure((1, 2))
    group.open()
    assert [group.replicas[node].high_watermark for node in (1, 2)] == [7, 7]
    group.append(1, ("b", 0, batch("y")))
    group.run()
    assert group.answers[-1] == ("b", Appended(2, 8, 1, 5))


@pytest.mark.parametrize(
    "other", [{"start": 9}, {"status": StreamStatus.RUNNING}, {"replicas": (2, 1)}]
)
def test_a_second_epoch_of_the_same_number_is_refused(other: dict[str, Any]) -> None:
    group = opened()
    config = group.repository.configure((1, 2), status=StreamStatus.SEALED)
    group.open()
    calls = list(group.disks[1].calls)
    with pytest.raises(RemoteProtocolError, match="epoch 2"):
        group.replicas[1].configure(replace(config, **other, trim=99))
    assert group.state(1) is ReplicaState.SEALED
    assert group.disks[1].calls == calls
    group.replicas[1].configure(config)


def test_a_configuration_below_what_is_committed_is_refused() -> None:
    group = opened()
    group.append(1, ("a", 0, batch("x")))
    group.run()
    group.repository.committed = 1
    group.repository.configure((1, 2))
    group.open()
    assert group.state(1) is ReplicaState.INVALID
    assert group.log(1) == [(1, 1, "x")]


def test_a_forgotten_history_does_not_cut_at_a_guess() -> None:
    group = opened()
    group.append(1, ("a", 0, batch("x")))
    group.settle()
    for _ in range(3):
        group.repository.configure((1, 2))
    group.repository.history = group.repository.history[-1:]
    group.repository.configure((1, 2))
    group.repository.history.clear()
    group.repository.configure((1, 2))
    group.open()
    assert group.state(1) is ReplicaState.INVALID
    assert group.answers[0][1].outcome == "unknown"  # type: ignore[union-attr]


def test_a_store_that_fails_ends_all_promises() -> None:
    group = opened()
    group.append(1, ("a", 0, batch("x")))
    group.settle()
    group.disks[1].failed = True
    group.append(1, ("b", 0, batch("y")))
    assert group.state(1) is ReplicaState.FAILED
    assert refusals(group) == {"a": SealedError}
    end = group.replicas[1].report().end
    group.replicas[1].synced(1000)
    assert group.replicas[1].report().end == end
    with pytest.raises(StoreFailedError):
        group.disks[1].rollback(1, 1)


def test_a_dropped_replica_stops() -> None:
    group = opened()
    group.append(1, ("a", 0, batch("x")))
    group.repository.configure((2,))
    group.configure(1)
    group.settle()
    assert group.replicas[1].dropped
    assert refusals(group) == {"a": SealedError}


def test_a_configuration_that_contradicts_itself_changes_nothing() -> None:
    group = opened()
    config = group.repository.configure((1, 1))
    with pytest.raises(RemoteProtocolError):
        group.replicas[1].configure(config)
    assert group.state(1) is ReplicaState.RUNNING
