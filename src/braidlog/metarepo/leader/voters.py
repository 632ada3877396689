"""Members of the metadata repository itself, step by step.

A node that has to vote is a learner first, and votes when it has nearly all of the log.
One that no longer has to vote becomes a learner again; only a node that was removed
from the cluster leaves the group, because its id never comes back.
"""

from __future__ import annotations

from typing import Final

from braidlog.metarepo.machine.state import State
from braidlog.raft import Change
from braidlog.raft.core import Core
from braidlog.raft.progress import Mode

LAG_MAX: Final = 256
"""Entries that a learner may lack when it begins to vote."""


def next_change(state: State, core: Core) -> Change | None:
    """Return the next change of the membership, or None if it is as it has to be."""
    now = core.membership
    if now.joint:
        return None
    for node in sorted(state.nodes):
        wanted = state.nodes[node].voter
        if state.nodes[node].readmitting:
            # Its directory is lost, and with it the votes that it gave.
            wanted = False
        if wanted and node not in now.members and node not in now.removed:
            return Change(add_learners=(node,))
        if wanted and node in now.learners and _follows(core, node):
            return Change(add_voters=(node,))
        if wanted is False and node in now.voters and len(now.voters) > 1:
            return Change(add_learners=(node,))
    gone = sorted(set(state.removed) & set(now.learners))
    return Change(remove=(gone[0],)) if gone else None


def _follows(core: Core, node: int) -> bool:
    progress = core.log.progress(node)
    return (
        progress is not None
        and progress.mode is Mode.REPLICATE
        and progress.match + LAG_MAX >= core.log.last
    )
