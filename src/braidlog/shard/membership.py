"""From the members that a shard has to those that it should have.

*Theory of operation.* Whoever is new learns first. When all who should vote have nearly
everything, they vote, and who should not leaves, in one joint change: so at no time do
fewer vote than before or after. A learner that should not vote any more leaves at once.

*Invariants.* Only what the group itself has committed is followed, so a leader that has
not heard of a later decision adds nobody of an earlier one.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from braidlog.raft import Change
from braidlog.raft.core import Core
from braidlog.raft.progress import Mode

__all__ = ["is_there", "next_change"]

LAG_MAX: Final = 256
"""Entries that a learner may lack when it begins to vote."""


def is_there(core: Core, wanted: Collection[int]) -> bool:
    """Tell whether these vote and nobody else belongs to the group, for good."""
    now = core.membership
    settled = now.epoch <= core.log.commit and not now.joint
    return settled and set(now.voters) == set(wanted) and not now.learners


def next_change(core: Core, wanted: Collection[int]) -> Change | None:
    """Return the next change of the membership; None if there is none to make now."""
    now = core.membership
    if now.joint or now.epoch > core.log.commit:
        return None
    # A group that was removed from takes nobody back; whoever decides hears of it.
    voters = set(wanted) - set(now.removed)
    idle = sorted(set(now.learners) - voters)
    if idle:
        return Change(remove=tuple(idle))
    if strange := sorted(voters - now.members):
        return Change(add_learners=tuple(strange))
    gone = sorted(set(now.voters) - voters)
    learned = sorted(voters - set(now.voters))
    if not voters or not (gone or learned):
        return None
    if not all(_follows(core, member) for member in learned):
        return None
    return Change(add_voters=tuple(learned), remove=tuple(gone))


def _follows(core: Core, member: int) -> bool:
    progress = core.log.progress(member)
    return (
        progress is not None
        and progress.mode is Mode.REPLICATE
        and progress.match + LAG_MAX >= core.log.last
    )
