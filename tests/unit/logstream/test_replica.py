"""What each input does to a replica."""

from typing import Any

import pytest
from msgspec.structs import replace

from braidlog.errors import (
    LogFullError,
    NotPrimaryError,
    NotReadyError,
    RemoteProtocolError,
    SealedError,
    SequenceGapError,
    StoreFailedError,
)
from braidlog.logstream import (
    CommitContext,
    Limits,
    ReplicaInvariantError,
    ReplicaState,
)
from braidlog.wire.messages import (
    Appended,
    Entries,
    Fetch,
    LogCut,
    Replicate,
    Run,
    StreamRun,
    StreamStatus,
)
from unit.logstream.group import Group
from unit.logstream.memory import MemoryStorage, batch
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
    assert group.answers[0][1].outcome == "certain"  # type: ignore[union-attr]
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
    group.publish(cut)
    group.settle()
    assert refusals(group) == {"cut": Appended}
    assert group.repository.open
    assert group.state(1) is ReplicaState.RUNNING


def test_an_unsealed_stream_begins_behind_the_cuts_that_it_missed() -> None:
    group = opened()
    group.append(1, ("a", 0, batch("x")))
    group.run()
    group.repository.configure((1, 2), status=StreamStatus.SEALED)
    group.open()
    for _ in range(3):
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


def test_learners_and_old_epochs_get_only_what_is_committed() -> None:
    group = opened(1, learners=(4,))
    group.append(1, ("a", 0, batch("x")))
    group.run()
    group.append(1, ("b", 0, batch("y")))
    group.letters.clear()
    for epoch, only, sent in ((1, True, 1), (0, False, 1), (1, False, 2)):
        group.replicas[1].fetch(4, Fetch(STREAM, epoch, 5, 1, 999, only))
        (_, message, batches), *_ = group.replicas[1].effects().messages
        assert isinstance(message, Entries)
        assert (len(batches), message.committed, message.end) == (sent, 2, 3)


def test_a_learner_follows_and_becomes_a_member() -> None:
    group = opened(1, learners=(4,))
    for number in range(12):
        group.append(1, (number, 0, batch(f"record {number}")))
        group.run()
    for _ in range(4):
        group.tick(4)
        group.settle()
    assert group.log(4) == group.log(1)
    group.repository.configure((4, 1))
    group.open()
    group.append(4, ("a", 0, batch("x")))
    group.run()
    assert group.log(4) == group.log(1)
    assert len(group.log(4)) == 13


def test_a_source_that_was_trimmed_makes_a_copy_start_over() -> None:
    """Producers come along."""
    group = opened(1)
    for number in range(1, 6):
        group.append(1, (number, 0, batch(f"r{number}", 1, 9, number)))
        group.run()
    group.start(2, MemoryStorage())
    for trim, low in ((3, 3), (6, 6)):
        group.repository.trim_to(trim)
        group.configure(1)
        group.settle()
        group.repository.configure((1,), (2,))
        group.open()
        group.tick(2)
        group.settle()
        assert group.disks[2].state().low == low
        assert group.log(2) == group.log(1)
    group.repository.configure((2,))
    group.open()
    group.append(2, ("repeat", 0, batch("r5", 1, 9, 5)))
    group.append(2, ("next", 0, batch("r6", 1, 9, 6)))
    group.run()
    assert group.answers[-1] == ("next", Appended(6, 6, 1, 6))
    assert not isinstance(dict(group.answers)["repeat"], Appended)


# What a copy and its source hold: (first kept, behind the last); then what the copy
# writes: where it starts over, 0 if it does not, and how many batches it is sent.
COPIES: dict[str, tuple[tuple[int, int], tuple[int, int], tuple[int, int]]] = {
    "nothing is missing": ((1, 11), (1, 11), (0, 0)),
    "empty": ((1, 1), (1, 21), (0, 20)),
    "behind": ((1, 11), (1, 21), (0, 10)),
    "behind, source trimmed less": ((5, 11), (1, 21), (0, 10)),
    "behind, source trimmed more": ((1, 11), (5, 21), (0, 10)),
    "behind, source trimmed just up to its end": ((1, 11), (11, 21), (0, 10)),
    "behind, source trimmed beyond its end": ((1, 11), (15, 21), (15, 6)),
    "behind, all is trimmed here": ((11, 11), (1, 21), (0, 10)),
    "behind, all is trimmed there": ((1, 6), (11, 11), (11, 0)),
    "nothing is missing, all is trimmed there": ((1, 11), (11, 11), (0, 0)),
    "empty, all is trimmed there": ((1, 1), (11, 11), (11, 0)),
}


def held(first: int, end: int) -> list[Any]:
    calls: list[Any] = [("enter", 1)]
    calls += [("write", 1, batch(f"r{llsn}")) for llsn in range(1, end)]
    if end > 1:
        calls.append(("commit", CommitContext(0, 1, 1, end - 1, end - 1)))
    return [*calls, ("trim", first)]


@pytest.mark.parametrize("case", COPIES)
def test_a_copy_takes_what_it_lacks(case: str) -> None:
    """Whoever tells the copy of a trim does so later."""
    here, there, (over, sent) = COPIES[case]
    group = Group((1,), (2,), limits=Limits())
    group.repository.committed = there[1]
    group.repository.high_watermark = there[1] - 1
    group.start(1, MemoryStorage(*held(*there)))
    group.start(2, MemoryStorage(*held(*here)))
    known = len(group.disks[2].calls)
    group.repository.configure((1,), (2,))
    group.open()
    calls = group.disks[2].calls[known:]
    assert [call[1] for call in calls if call[0] == "restart"] == [over] * bool(over)
    assert sum(call[0] == "write" for call in calls) == sent
    state = group.disks[2].durable
    assert (state.committed, state.next) == (there[1], there[1])
    assert state.low == (over or here[0])
    assert [(llsn, text) for llsn, _, text in group.log(2)] == [
        (llsn, f"r{llsn}") for llsn in range(state.low, there[1])
    ]
    group.repository.configure((2,))
    group.open()
    group.append(2, ("next", 0, batch("x")))
    group.run()
    answer = group.answers[-1][1]
    assert isinstance(answer, Appended)
    assert (answer.llsn, answer.glsn) == (there[1], there[1])


# What is wrong with the answer to a fetch of record 4; two are as long as one.
TWO = (len(batch("r4")),) * 2
ANSWERS: dict[str, dict[str, Any]] = {
    "a gap": {"llsn_begin": 5, "runs": (Run(5, 5, 1),)},
    "a repeat": {"llsn_begin": 3, "runs": (Run(3, 3, 1),)},
    "no record": {"sizes": ()},
    "no commit": {"runs": ()},
    "no commit of the first": {"sizes": TWO, "runs": (Run(5, 5, 1),), "committed": 6},
    "what is not committed": {"sizes": TWO, "runs": (), "committed": 4, "end": 6},
    "a commit of more than there is": {"sizes": (), "committed": 9},
    "another number": {"number": -1},
}


@pytest.mark.parametrize("case", ANSWERS)
def test_an_answer_that_does_not_follow_adds_nothing(case: str) -> None:
    group = opened(1, learners=(4,))
    group.append(1, *[(n, 0, batch(f"r{n}")) for n in range(1, 4)])
    group.run()
    group.tick(4)
    group.settle()
    before = group.log(4)
    assert [llsn for llsn, _, _ in before] == [1, 2, 3]
    group.append(1, ("more", 0, batch("r4")))
    group.settle()
    group.publish(group.repository.cut(), 1)
    group.settle()
    group.tick(4, 3.0)
    (asked,) = [item for item in group.letters if item[0] == 4 and item[1]]
    data, run = batch("r4"), Run(4, 4, 1)
    number = asked[2].number
    right = Entries(STREAM, 1, number, 4, (len(data),), (run,), 2, 4, 5, 5)
    wrong = replace(right, **ANSWERS[case])
    group.letters.clear()
    group.replicas[4].entries(asked[1], wrong, (data,) * len(wrong.sizes))
    assert group.log(4) == before
    assert group.disks[4].state().next <= wrong.committed
    for _ in range(3):
        group.tick(4, 3.0)
        group.settle()
    assert group.log(4)[:4] == group.log(1)


def test_old_answers_are_ignored_and_a_silent_source_is_left() -> None:
    group = opened(1, 2, learners=(4,))
    group.append(1, ("a", 0, batch("x")))
    group.run()
    group.letters.clear()
    group.tick(4)
    (asked,) = [item for item in group.letters if item[0] == 4 and item[1]]
    calls = list(group.disks[4].calls)
    data = batch("forged")
    wrong = Entries(STREAM, 1, asked[2].number - 1, 9, (len(data),), (), 9, 9, 10, 10)
    group.replicas[4].entries(asked[1], wrong, (data,))
    assert group.disks[4].calls == calls
    group.letters.clear()
    group.tick(4, 3.0)
    (again,) = [item for item in group.letters if item[0] == 4 and item[1]]
    assert again[1] != asked[1]
    assert again[2].number > asked[2].number


def test_a_configuration_that_contradicts_itself_changes_nothing() -> None:
    group = opened()
    config = group.repository.configure((1, 1))
    with pytest.raises(RemoteProtocolError):
        group.replicas[1].configure(config)
    assert group.state(1) is ReplicaState.RUNNING


def test_a_copy_does_not_pass_for_the_epoch_it_entered_last() -> None:
    """What it holds may be of later epochs, and contradict a tail of that one."""
    group = opened(1, 2)
    group.crash(2)
    group.start(2, group.disks[2])
    for state in (ReplicaState.STARTING, ReplicaState.CATCHING_UP):
        assert group.state(2) is state
        group.replicas[2].fetch(1, Fetch(STREAM, 1, 5, 1, 999, True))
        messages = [message for _, message, _ in group.replicas[2].effects().messages]
        assert [m.epoch for m in messages if isinstance(m, Entries)] == [0]
        group.repository.committed = 5
        group.replicas[2].configure(group.repository.configure((1, 2)))
        group.take(2)


def test_a_learner_ignores_a_configuration_that_came_late() -> None:
    group = opened(1, learners=(4,))
    late = group.repository.configure((1, 4))
    for _ in range(2):
        group.repository.configure((1,), (4,))
    group.configure(1)
    group.settle()
    group.append(1, ("a", 0, batch("x")))
    group.run()
    group.tick(4)
    group.settle()
    assert group.log(4) == group.log(1)
    group.replicas[4].configure(late)
    assert group.state(4) is ReplicaState.LEARNING
    group.open()
    assert group.log(4) == [(1, 1, "x")]


def test_a_copy_of_later_epochs_becomes_a_member() -> None:
    group = opened(1, learners=(4,))
    for number in range(2):
        group.repository.configure((1,), (4,))
        group.configure(1)
        group.settle()
        group.append(1, (number, 0, batch(f"r{number}")))
        group.run()
        group.tick(4)
        group.settle()
    assert group.disks[4].state().epoch == 1
    group.repository.configure((4, 1))
    group.open()
    assert group.state(4) is ReplicaState.RUNNING
    assert group.log(4) == group.log(1) == [(1, 1, "r0"), (2, 2, "r1")]
