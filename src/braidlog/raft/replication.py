"""How a leader feeds its followers, within their windows.

*Invariants.* Every other member is a peer of the log, nobody else is. An append names
an entry that is in the log or is its base; a follower that needs older ones gets the
base.
"""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.raft.core import Core, Transfer
from braidlog.raft.messages import InstallBase, TimeoutNow
from braidlog.raft.state import Entry, EntryKind

__all__ = ["append", "confirmed", "feed", "hasten_transfer", "track", "transfer"]


def track(core: Core) -> None:
    """Follow what every other member has, and nobody else."""
    core.log.track(sorted(core.membership.members - {core.id}))
    if core.transfer and core.transfer.target not in core.membership.voters:
        core.transfer = None


def append(core: Core, kind: EntryKind, payloads: Sequence[bytes]) -> None:
    """Append to the own log; the next flush replicates."""
    index, entries = core.log.last, []
    for data in payloads:
        index += 1
        entries.append(Entry(index, core.term, kind, data))
    core.log.append(entries)


def confirmed(core: Core) -> bool:
    """Tell whether an entry of the own term is committed."""
    return core.log.commit >= core.term_begin


def feed(core: Core, nodes: list[int] | None = None, *, tell: bool = True) -> None:
    """Send followers what their windows have room for; `tell` what is committed.

    Without `nodes` all followers get it, in the order of their ids.
    """
    log = core.log
    for each in log.feed(core.term, log.membership.epoch, tell=tell, nodes=nodes):
        if isinstance(each, int):
            # The entries it needs are folded away.
            core.send(InstallBase, each, base=log.base)
        else:
            core.messages.append(each)


def transfer(core: Core, target: int) -> None:
    """Hand the lead over; the same target twice does not get more time."""
    if target == core.id:
        core.transfer = None
    elif core.transfer is None or core.transfer.target != target:
        core.transfer = Transfer(target)
        hasten_transfer(core)


def hasten_transfer(core: Core) -> None:
    """Let the target stand once it has the whole log."""
    if core.transfer is None:
        return
    target = core.transfer.target
    if core.log.matched(target) == core.log.last:
        # Before, others would refuse it their votes, and nobody would lead meanwhile.
        core.send(TimeoutNow, target)
