"""Changes of membership, on the leader (Ongaro, chapter 4).

One change at a time, and none before an entry of the leader's own term is committed:
without that two single changes can have quorums that do not meet (the flaw of the
thesis, found in 2015). The rule is exact, because the latest membership is in the log.
"""

from __future__ import annotations

from braidlog.raft import codec, replication
from braidlog.raft.core import Core
from braidlog.raft.errors import ChangeRefusedError, TransferringError
from braidlog.raft.membership import Change, Membership, enter, leave
from braidlog.raft.messages import TimeoutNow
from braidlog.raft.progress import Mode
from braidlog.raft.quorum import majority
from braidlog.raft.state import EntryKind

__all__ = ["change_membership", "leave_joint", "settle"]


def change_membership(core: Core, change: Change, *, force: bool) -> int:
    """Append a change; return its epoch."""
    _require_calm(core)
    membership = enter(core.membership, change, core.log.last + 1)
    if not force:
        _require_live(core, membership)
    return _append(core, membership)


def leave_joint(core: Core) -> int:
    """Append the end of a joint membership; return its epoch."""
    _require_calm(core)
    return _append(core, leave(core.membership, core.log.last + 1))


def settle(core: Core) -> None:
    """Act on a committed membership: leave a joint one, or the lead."""
    now = core.log.membership
    if now.epoch > core.log.commit:
        return  # It is used already, but may still be replaced by another leader.
    if now.joint:
        if now.auto_leave and replication.confirmed(core):
            _append(core, leave(now, core.log.last + 1))
    elif core.id not in now.voters:
        # It led to the end of its own removal, because the others may lack that entry.
        _resign(core)


def _append(core: Core, membership: Membership) -> int:
    replication.append(core, EntryKind.MEMBERSHIP, [codec.encode(membership)])
    replication.track(core)
    return membership.epoch


def _resign(core: Core) -> None:
    """Step down, and let the follower that has most of the log stand at once."""
    voters = [node for node in core.membership.voters if node in core.log.peers]
    # They learn that the removal is committed, from nobody else for a while.
    replication.feed(core, voters)
    best = max(voters, key=core.log.matched)
    core.send(TimeoutNow, best)
    core.follow(core.term, 0)
    core.note_removal()


def _require_calm(core: Core) -> None:
    if core.transfer:
        msg = f"leadership is being handed over to node {core.transfer.target}"
        raise TransferringError(msg, target=core.transfer.target)
    if core.membership.epoch > core.log.commit:
        msg = (
            f"the membership change of epoch {core.membership.epoch} is not "
            "committed yet"
        )
        raise ChangeRefusedError(msg)
    if not replication.confirmed(core):
        msg = "the leader has not committed an entry of its term yet"
        raise ChangeRefusedError(msg)


def _require_live(core: Core, membership: Membership) -> None:
    """Refuse what would leave fewer voters at work than a majority."""
    live = [node for node in membership.voters if _live(core, node)]
    needed = majority(len(membership.voters))
    if len(live) < needed:
        msg = (
            f"only {live} of the voters {list(membership.voters)} follow the "
            f"leader, but {needed} are needed"
        )
        raise ChangeRefusedError(msg)


def _live(core: Core, node: int) -> bool:
    progress = core.log.progress(node)
    if progress is None:
        return node == core.id
    return progress.active and progress.mode is Mode.REPLICATE
