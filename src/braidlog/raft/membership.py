"""Who belongs to a group, and how that changes.

*Theory of operation.* A membership is a value. A change is one log entry that holds the
complete new membership; a node uses the latest one in its log, committed or not
(Ongaro, 4.1), so that membership is a function of the log and falls back with it. A
change of one voter is one entry. Any other change goes through a joint membership, in
which decisions need a majority of the new and of the old voters (4.3), and is left by a
second entry. The epoch of a membership is the index of its entry.

*Invariants.* A learner is no voter. A voter that is demoted while joint is listed in
`learners_next`, still votes in the old half and becomes a learner when the joint
membership is left. A removed node has a tombstone and is never added again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from braidlog.raft.errors import MembershipError
from braidlog.raft.quorum import Halves

__all__ = ["Change", "Membership", "enter", "leave"]


@dataclass(frozen=True, slots=True)
class Membership:
    """Members of a group; nodes are in ascending order, ids count from 1.

    Without voters it is the membership of a node that waits to be added.
    """

    voters: tuple[int, ...] = ()
    learners: tuple[int, ...] = ()
    outgoing: tuple[int, ...] = ()
    """Old voters while joint."""
    learners_next: tuple[int, ...] = ()
    auto_leave: bool = False
    """The leader leaves the joint membership as soon as it is committed."""
    removed: tuple[int, ...] = ()
    epoch: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot be a membership.

        Raises:
            MembershipError: the sets contradict each other.
        """
        groups = self.voters, self.learners, self.outgoing, self.learners_next
        for nodes in (*groups, self.removed):
            _require(list(nodes) == sorted(set(nodes)), "nodes are not in order")
            _require(all(node > 0 for node in nodes), "node ids count from 1")
        old = set(self.outgoing) - set(self.voters)
        _require(bool(self.voters) or not any(groups), "no voter is left")
        _require(not set(self.learners) & self.electors, "a learner is a voter")
        _require(set(self.learners_next) <= old, "a next learner is not outgoing")
        _require(not set(self.removed) & self.members, "a removed node is a member")
        _require(self.joint or not self.auto_leave, "auto-leave without joint")

    @property
    def joint(self) -> bool:
        """Tell whether two majorities are needed."""
        return bool(self.outgoing)

    @property
    def halves(self) -> Halves:
        """Return the voter sets of which each decision needs a majority."""
        return self.voters, self.outgoing

    @property
    def electors(self) -> set[int]:
        """Return the voters of both halves."""
        return {*self.voters, *self.outgoing}

    @property
    def members(self) -> set[int]:
        """Return every node that gets the log."""
        return {*self.voters, *self.outgoing, *self.learners}


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What to change; a node that is named as learner and votes is demoted."""

    add_voters: tuple[int, ...] = ()
    add_learners: tuple[int, ...] = ()
    remove: tuple[int, ...] = ()
    stay_joint: bool = False
    """Stay joint until `leave` is asked for."""


def enter(now: Membership, change: Change, epoch: int) -> Membership:
    """Return the membership that the entry at `epoch` begins.

    Raises:
        MembershipError: it changes nothing, adds a removed node, or leaves no voter.
    """
    named = [*change.add_voters, *change.add_learners, *change.remove]
    _require(not now.joint, "an earlier change of membership is not finished yet")
    _require(len(named) == len(set(named)), "a node is named twice")
    gone = sorted(set(named) & set(now.removed))
    _require(
        not gone,
        f"nodes {gone} were removed from the group, and node ids are never used again",
    )
    _require(set(change.remove) <= now.members, "a node to remove is not a member")
    voters = (set(now.voters) | set(change.add_voters)) - (
        {*change.add_learners, *change.remove}
    )
    _require(bool(voters), "no voter is left")
    learners = (set(now.learners) | set(change.add_learners)) - (
        {*change.add_voters, *change.remove}
    )
    _require(
        (voters, learners) != (set(now.voters), set(now.learners)),
        "the change leaves the membership as it is",
    )
    joint = change.stay_joint or len(voters ^ set(now.voters)) > 1
    old = set(now.voters) if joint else set()
    return Membership(
        voters=_sorted(voters),
        learners=_sorted(learners - old),
        outgoing=_sorted(old),
        learners_next=_sorted(learners & old),
        auto_leave=joint and not change.stay_joint,
        removed=_sorted({*now.removed, *(set(change.remove) - old)}),
        epoch=epoch,
    )


def leave(now: Membership, epoch: int) -> Membership:
    """Return the membership after the joint one.

    Raises:
        MembershipError: it is not joint.
    """
    _require(now.joint, "the membership is not joint")
    gone = set(now.outgoing) - set(now.voters) - set(now.learners_next)
    return replace(
        now,
        learners=_sorted({*now.learners, *now.learners_next}),
        outgoing=(),
        learners_next=(),
        auto_leave=False,
        removed=_sorted({*now.removed, *gone}),
        epoch=epoch,
    )


def _sorted(nodes: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(nodes))


def _require(holds: bool, reason: str) -> None:
    if not holds:
        raise MembershipError(reason)
