"""When something follows from what came: a turn for nothing costs as much as one."""

from collections.abc import Callable
from functools import partial

import pytest

from braidlog.raft import RaftNode
from braidlog.raft.messages import AppendResponse, PreVoteResponse, VoteResponse
from unit.raft.nodes import follower, run


def stirs(node: RaftNode) -> bool:
    """Tell whether effects may follow."""
    return node.stirred


def leader_of_three() -> RaftNode:
    node = follower(eager_commit=False)
    node.tick(10)
    run(node)
    for granted in (PreVoteResponse, VoteResponse):
        node.step(granted(2, 1, 1, 0, granted=True))
        run(node)
    node.step(AppendResponse(2, 1, 1, 0, False, 1, 0, 0))
    node.step(AppendResponse(3, 1, 1, 0, False, 1, 0, 0))
    run(node)
    return node


@pytest.mark.parametrize("first", ["disk", "follower"])
def test_only_the_last_of_a_quorum_lets_a_leader_go_on(first: str) -> None:
    """Its own disk is one of them: a turn for each would cost as much as the last."""
    node = leader_of_three()
    node.propose([b"a"])
    write = node.effects().write
    assert write is not None
    steps: list[Callable[[], None]] = [
        partial(node.durable, write.number),
        partial(node.step, AppendResponse(2, 1, 1, 0, False, 2, 0, 0)),
    ]
    before, after = steps if first == "disk" else steps[::-1]
    before()
    assert not stirs(node)
    after()
    assert stirs(node)
    assert [entry.data for each in run(node) for entry in each.committed] == [b"a"]


def test_what_others_committed_is_handed_out_when_it_is_durable_here() -> None:
    node = leader_of_three()
    node.propose([b"a"])
    write = node.effects().write
    assert write is not None
    for peer in (2, 3):
        node.step(AppendResponse(peer, 1, 1, 0, False, 2, 0, 0))
    assert node.core.log.commit == 2
    assert node.effects().committed == ()
    node.durable(write.number)
    assert [entry.data for entry in node.effects().committed] == [b"a"]


def test_nothing_follows_from_answers_behind_the_commit() -> None:
    """A turn for each of them would cost as much as one that does something."""
    node = leader_of_three()
    node.propose([b"a"])
    run(node)
    assert not stirs(node)
    node.step(AppendResponse(2, 1, 1, 0, False, 2, 0, 0))
    assert stirs(node)
    assert [entry.data for each in run(node) for entry in each.committed] == [b"a"]
    node.step(AppendResponse(3, 1, 1, 0, False, 2, 0, 0))
    assert not stirs(node)
    # Who says that it lacks something is asked what.
    node.propose([b"b"])
    run(node)
    node.step(AppendResponse(3, 1, 1, 0, True, 3, 2, 1))
    assert stirs(node)
