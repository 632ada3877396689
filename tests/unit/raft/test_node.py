"""The way in: refusals change nothing, invariants stop the node."""

from collections.abc import Callable
from typing import Any

import pytest

from braidlog.errors import InvalidArgumentError, LogError, UnavailableError
from braidlog.raft import (
    Base,
    Change,
    Entry,
    EntryKind,
    HardState,
    Membership,
    NotLeaderError,
    RaftInvariantError,
    RaftMessageError,
    RaftNode,
    ReadsFullError,
    RemovedNodeError,
    Role,
    Stored,
)
from braidlog.raft import errors as raft_errors
from braidlog.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallBase,
    Message,
    PreVoteRequest,
    PreVoteResponse,
    TimeoutNow,
    VoteResponse,
)
from braidlog.raft.progress import Mode
from unit.raft.nodes import THREE, config, follower, lone_leader, run
from unit.raft.server import said


def append(
    term: int, prev: tuple[int, int], *entries: Entry, commit: int = 0
) -> Append:
    return Append(2, 1, term, 0, prev[0], prev[1], commit, entries)


def test_a_lone_node_stores_commits_and_hands_out() -> None:
    node = lone_leader()
    span = node.propose([b"a", b"b"])
    assert (span.begin, span.end, span.term) == (2, 4, 1)
    effects = node.effects()
    assert effects.write is not None
    assert [entry.data for entry in effects.write.entries] == [b"a", b"b"]
    assert effects.committed == ()
    assert not node.effects()
    node.durable(effects.write.number)
    assert [entry.data for entry in node.effects().committed] == [b"a", b"b"]


def test_late_reports_of_replaced_writes_say_nothing() -> None:
    """The ABA race on record for etcd raft: index 2 is written in three terms."""
    node = follower()
    node.step(append(1, (0, 0), Entry(1, 1)))
    run(node)
    writes = []
    for term in (1, 2, 3):
        node.step(append(term, (1, 1), Entry(2, term, data=b"%d" % term)))
        write = node.effects().write
        assert write is not None
        writes.append(write.number)
    assert writes == sorted(set(writes))
    for number, durable in zip(writes, (1, 1, 2), strict=True):
        node.durable(number)
        assert node.core.log.durable == durable
    # Each answer is in the term of its append: the first two were overtaken.
    answers = said(node.effects())
    assert [(m.term, type(m)) for m in answers] == [
        (term, AppendResponse) for term in (1, 2, 3)
    ]


@pytest.mark.parametrize(
    "message",
    [
        Heartbeat(2, 3, 1, 0, 0, 0),
        Heartbeat(1, 1, 1, 0, 0, 0),
        Heartbeat(0, 1, 1, 0, 0, 0),
        Heartbeat(2, 1, 0, 0, 0, 0),
        append(1, (0, 0), Entry(2, 1)),
        append(1, (0, 0), Entry(1, 2)),
        append(2, (1, 2), Entry(2, 1)),
        append(1, (0, 1)),
        append(1, (0, 0), Entry(1, 1, EntryKind.MEMBERSHIP)),
        InstallBase(2, 1, 1, 0, Base()),
        InstallBase(2, 1, 1, 0, Base(3, 2, THREE)),
        InstallBase(2, 1, 1, 0, Base(3, 1, Membership((1,), epoch=4))),
    ],
)
def test_an_impossible_message_changes_nothing(message: Message) -> None:
    node = follower()
    node.effects()
    with pytest.raises(RaftMessageError):
        node.step(message)
    assert not node.effects()
    node.tick(10)
    assert node.effects().soft_state is not None


def test_an_answer_beyond_the_end_is_refused() -> None:
    node = lone_leader()
    node.change_membership(Change(add_learners=(2,)))
    run(node)
    with pytest.raises(RaftMessageError, match="beyond the end"):
        node.step(AppendResponse(2, 1, 1, 0, False, 99, 0, 0))


def test_two_leaders_in_a_term_stop_the_node_for_good() -> None:
    node = lone_leader()
    with pytest.raises(RaftInvariantError, match="leads term 1 too"):
        node.step(Heartbeat(2, 1, 1, 0, 0, 0))
    with pytest.raises(RaftInvariantError, match="has stopped"):
        node.tick()
    with pytest.raises(RaftInvariantError, match="has stopped"):
        node.effects()


def test_what_nobody_foresaw_stops_the_node_too() -> None:
    node = follower(jitter=iter([0]).__next__)
    with pytest.raises(RaftInvariantError, match="StopIteration"):
        node.tick(10)
    with pytest.raises(RaftInvariantError, match="has stopped"):
        node.tick()


@pytest.mark.parametrize("jitter", [-1, 11])
def test_jitter_out_of_bounds_stops_the_node(jitter: int) -> None:
    with pytest.raises(RaftInvariantError, match="jitter"):
        follower(jitter=lambda: jitter)


def test_reports_of_what_was_never_handed_out_stop_the_node() -> None:
    with pytest.raises(RaftInvariantError, match="never handed out"):
        follower().durable(1)
    with pytest.raises(RaftInvariantError, match="not handed out"):
        follower().applied(1)


def test_requests_of_a_follower_are_refused() -> None:
    node = follower()
    requests: list[Callable[[], object]] = [
        lambda: node.propose([b"x"]),
        lambda: node.change_membership(Change(remove=(3,))),
        node.leave_joint,
        lambda: node.transfer(2),
        lambda: node.read(1),
    ]
    for request in requests:
        with pytest.raises(NotLeaderError):
            request()
    node.step(Heartbeat(2, 1, 1, 0, 0, 0))
    with pytest.raises(NotLeaderError) as caught:
        node.propose([b"x"])
    assert (caught.value.leader, caught.value.term) == (2, 1)
    assert caught.value.retryable


def test_a_removed_node_refuses_everything_and_says_so_after_a_restart() -> None:
    state = HardState(3, 1, 0, removed=True)
    node = RaftNode(config(), Stored(Base(membership=THREE), (), state))
    assert node.core.role is Role.REMOVED
    node.tick(100)
    assert node.effects().messages == ()
    for request in (lambda: node.propose([b"x"]), lambda: node.read(1)):
        with pytest.raises(RemovedNodeError):
            request()


def test_reads_have_a_bound() -> None:
    node = follower(reads_max=1)
    node.step(Heartbeat(2, 1, 1, 0, 0, 0))
    node.read(1)
    with pytest.raises(ReadsFullError):
        node.read(2)


def test_evicted_entries_are_read_back() -> None:
    """Memory is bounded: what is stored and committed need not stay in it."""
    stored = {i: Entry(i, 1, data=b"x" * 100) for i in range(1, 50)}

    class Reader:
        def read(self, begin: int, end: int, bytes_max: int) -> list[Entry]:
            return [stored[index] for index in range(begin, min(end, begin + 3))]

    node = RaftNode(
        config(cache_bytes_max=1000),
        Stored(Base(membership=THREE), stored.values(), HardState(1, 0, 40)),
        applied=5,
        reader=Reader(),
    )
    assert node.core.log.cached_count <= 18
    seen: list[int] = []
    for effects in run(node):
        seen += [entry.index for entry in effects.committed]
    assert seen == list(range(6, 41))
    # What is not committed may have to go, so it stays.
    node.step(append(2, (41, 1), Entry(42, 2)))
    assert node.core.log.last == 42


def test_a_reader_that_returns_something_else_stops_the_node() -> None:
    class Reader:
        def read(self, begin: int, end: int, bytes_max: int) -> list[Entry]:
            return [Entry(begin, 9)]

    entries = [Entry(i, 1, data=b"x" * 100) for i in range(1, 50)]
    node = RaftNode(
        config(cache_bytes_max=10),
        Stored(Base(membership=THREE), entries, HardState(1, 0, 40)),
        reader=Reader(),
    )
    with pytest.raises(RaftInvariantError, match="storage has"):
        node.effects()


@pytest.mark.parametrize(
    "settings", [{"id": 0}, {"election_ticks": 1}, {"window_messages": 0}]
)
def test_settings_that_cannot_work_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(InvalidArgumentError):
        config(**settings)


def test_error_codes_are_unique_and_those_to_retry_say_so() -> None:
    tree: list[type[LogError]] = [
        getattr(raft_errors, name)
        for name in raft_errors.__all__
        if name.endswith("Error")
    ]
    codes = [error.code for error in tree]
    assert len(codes) == len(set(codes))
    assert min(codes) >= 70
    for error in tree:
        assert error.retryable == issubclass(error, UnavailableError)
        assert error.__name__ in (raft_errors.__doc__ or "")


def elected(**settings: Any) -> RaftNode:
    """Return a leader of three whose first entry both others have."""
    node = follower(**settings)
    node.tick(10)
    run(node)
    node.step(PreVoteResponse(2, 1, 1, 0, granted=True))
    run(node)
    node.step(VoteResponse(2, 1, 1, 0, granted=True))
    run(node)
    for sender in (2, 3):
        node.step(AppendResponse(sender, 1, 1, 0, False, 1, 0, 0))
    run(node)
    return node


def test_a_rejection_that_was_overtaken_changes_nothing() -> None:
    node = elected()
    node.step(AppendResponse(2, 1, 1, 0, True, 1, 0, 0))
    assert run(node) == []
    assert node.core.progress[2].mode is Mode.REPLICATE


def test_only_the_leader_hands_the_lead_over() -> None:
    roles = []
    for sender in (3, 2):
        node = follower()
        node.step(Heartbeat(2, 1, 1, 0, 0, 0))
        node.step(TimeoutNow(sender, 1, 1, 0))
        roles.append(node.core.role)
    assert roles == [Role.FOLLOWER, Role.CANDIDATE]


def told(node: RaftNode) -> list[int]:
    """Return the commit indexes that appends without entries bring."""
    sent = [each for effects in run(node) for each in said(effects)]
    return [m.commit for m in sent if isinstance(m, Append) and not m.entries]


def commit_one(node: RaftNode) -> list[int]:
    span = node.propose([b"x"])
    run(node)
    for sender in (2, 3):
        node.step(AppendResponse(sender, 1, 1, 0, False, span.begin, 0, 0))
    return told(node)


def test_followers_are_told_of_a_commit_when_they_are_to_be() -> None:
    assert commit_one(elected()) == [2, 2]
    lazy = elected(eager_commit=False)
    assert commit_one(lazy) == []
    lazy.tell_commit()
    assert told(lazy) == [2, 2]


def test_the_stored_commit_index_may_stay_behind() -> None:
    node = elected(commit_lag=3)
    written = []
    for _ in range(5):
        node.propose([b"x"])
        effects = run(node)
        written += [e.write.hard_state for e in effects if e.write]
        for sender in (2, 3):
            last = node.core.log.last
            node.step(AppendResponse(sender, 1, 1, 0, False, last, 0, 0))
        run(node)
    commits = [state.commit for state in written if state]
    assert len(commits) == 1
    assert commits[0] >= 3


def heard(**settings: Any) -> RaftNode:
    """Return a follower that has just heard its leader, node 2."""
    node = follower(heartbeat_ticks=2, **settings)
    node.step(Heartbeat(2, 1, 1, 0, 0, 0))
    run(node)
    return node


def asked(node: RaftNode) -> bool:
    sent = [each for effects in run(node) for each in said(effects)]
    return any(isinstance(each, PreVoteRequest) for each in sent)


def test_a_leader_whose_connection_broke_is_not_waited_for() -> None:
    node = heard(jitter=lambda: 4)
    node.unreachable(2)
    node.tick(3)
    assert not asked(node)
    # One tick in which the others may have heard it, one more, and half the jitter.
    node.tick()
    assert asked(node)


def test_a_leader_that_is_heard_again_is_waited_for_as_ever() -> None:
    node = heard()
    node.unreachable(2)
    node.tick()
    node.step(Heartbeat(2, 1, 1, 0, 0, 0))
    node.tick(9)
    assert not asked(node)
    node.tick()
    assert asked(node)


def test_only_the_leader_is_missed() -> None:
    node = heard()
    node.unreachable(3)
    node.tick(9)
    assert not asked(node)


@pytest.mark.parametrize("broke", [False, True])
def test_a_vote_is_given_when_the_leader_is_missed(broke: bool) -> None:
    """Else one broken connection would be enough to depose a leader that works."""
    node = heard()
    node.tick(3)
    if broke:
        node.unreachable(2)
    node.step(PreVoteRequest(3, 1, 2, 0, 0, 0))
    answers = [each for effects in run(node) for each in said(effects)]
    assert [type(each) for each in answers] == ([PreVoteResponse] if broke else [])


def test_a_stored_base_before_its_membership_stops_the_node() -> None:
    with pytest.raises(RaftInvariantError, match="a base before its membership"):
        RaftNode(config(), Stored(Base(3, 1, Membership((1,), epoch=4))))


@pytest.mark.parametrize(
    "membership",
    [Membership(), Membership((2, 3)), Membership((2, 3), learners=(1,))],
    ids=["waiting", "no member", "learner"],
)
def test_who_does_not_vote_never_stands(membership: Membership) -> None:
    """Not on a timeout, and not when its leader tells it to."""
    node = RaftNode(config(), Stored(Base(membership=membership)))
    node.step(Heartbeat(2, 1, 1, 0, 0, 0))
    node.step(TimeoutNow(2, 1, 1, 0))
    node.tick(100)
    assert node.core.role is Role.FOLLOWER
    assert all(
        isinstance(each, HeartbeatResponse)
        for effects in run(node)
        for each in said(effects)
    )


def test_each_wait_for_a_leader_has_a_jitter_of_its_own() -> None:
    """Two that stood at the same time do not meet again."""
    drawn = iter([0, 7, 3])
    node = follower(jitter=drawn.__next__)
    node.tick(10)
    assert node.core.role is Role.PRE_CANDIDATE
    assert node.core.timeout == 17
    node.tick(17)
    assert node.core.timeout == 13


def test_a_base_with_its_own_tombstone_ends_the_receiver() -> None:
    node = follower()
    left = Membership((2, 3), removed=(1,), epoch=4)
    node.step(InstallBase(2, 1, 1, 0, Base(5, 1, left)))
    stored = [each.write.hard_state for each in run(node) if each.write]
    assert stored[-1] is not None
    assert stored[-1].removed
    with pytest.raises(RemovedNodeError):
        node.propose([b"x"])
