"""What a copy takes from another replica, and what it leaves."""

from typing import Any

import pytest
from msgspec.structs import replace

from braidlog.logstream import CommitContext, Limits, ReplicaState
from braidlog.wire.messages import Appended, Entries, Fetch, Run
from unit.logstream.group import Group
from unit.logstream.memory import MemoryStorage, batch
from unit.logstream.repository import STREAM
from unit.logstream.test_replica import opened


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
