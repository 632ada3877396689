"""Memberships and changes; the joint way and the simple way lead to the same one."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.raft.errors import MembershipError
from braidlog.raft.membership import Change, Membership, enter, leave

THREE = Membership(voters=(1, 2, 3))
NODES = st.lists(st.integers(1, 6), max_size=3, unique=True).map(tuple)


@given(NODES, NODES, NODES, NODES)
def test_both_ways_lead_to_the_same_membership(
    voters: tuple[int, ...],
    add: tuple[int, ...],
    learners: tuple[int, ...],
    remove: tuple[int, ...],
) -> None:
    start = Membership(voters=(1, 2, 3), learners=(4,))
    change = Change(add_voters=add, add_learners=learners, remove=remove)
    try:
        entered = enter(start, change, 9)
    except MembershipError:
        return
    joint = enter(start, replace(change, stay_joint=True), 9)
    assert joint.outgoing == start.voters
    assert joint.halves[0] == entered.voters
    left = leave(joint, 10)
    simple = leave(entered, 10) if entered.joint else replace(entered, epoch=10)
    assert left == simple
    assert left.members == (start.members | {*add, *learners}) - set(remove)
    assert set(left.removed) == set(remove)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (Change(), "leaves the membership as it is"),
        (Change(add_voters=(1,)), "leaves the membership as it is"),
        (Change(remove=(1, 2, 3)), "no voter"),
        (Change(remove=(9,)), "not a member"),
        (Change(add_voters=(4,), remove=(4,)), "twice"),
        (Change(add_voters=(0,)), "count from 1"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(change: Change, reason: str) -> None:
    with pytest.raises(MembershipError, match=reason):
        enter(THREE, change, 5)


def test_a_removed_node_is_never_added_again() -> None:
    now = enter(THREE, Change(remove=(3,)), 5)
    assert now.removed == (3,)
    with pytest.raises(MembershipError, match="never used again"):
        enter(now, Change(add_learners=(3,)), 6)


def test_a_demoted_voter_votes_in_the_old_half_until_the_end() -> None:
    joint = enter(THREE, Change(add_voters=(4,), add_learners=(3,)), 5)
    assert (joint.learners, joint.learners_next) == ((), (3,))
    assert 3 in joint.electors
    assert leave(joint, 6).learners == (3,)


@pytest.mark.parametrize(
    "fields",
    [
        {"voters": (2, 1)},
        {"voters": (1, 1)},
        {"learners": (1,)},
        {"voters": (1,), "learners": (1,)},
        {"voters": (1,), "outgoing": (2,), "learners_next": (3,)},
        {"voters": (1,), "removed": (1,)},
        {"voters": (1,), "auto_leave": True},
    ],
)
def test_an_impossible_membership_is_refused(fields: dict[str, tuple[int]]) -> None:
    with pytest.raises(MembershipError):
        Membership(**fields)  # type: ignore[arg-type]


def test_leaving_needs_a_joint_membership() -> None:
    with pytest.raises(MembershipError, match="not joint"):
        leave(THREE, 5)
