"""How a leader feeds its followers, within their windows.

*Invariants.* Every other member has a progress, nobody else has. An append names an
entry that is in the log or is its base; a follower that needs older ones gets the base.
"""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.raft.core import Core, Transfer
from braidlog.raft.errors import check
from braidlog.raft.messages import Append, InstallBase, TimeoutNow
from braidlog.raft.progress import Mode, Progress
from braidlog.raft.state import Entry, EntryKind

__all__ = ["append", "confirmed", "feed", "hasten_transfer", "track", "transfer"]


def track(core: Core) -> None:
    """Give every other member a progress, and nobody else."""
    members = core.membership.members - {core.id}
    for node in sorted(members - core.progress.keys()):
        # Most newcomers after an election have nearly everything.
        core.progress[node] = Progress(next=core.log.last)
    for node in core.progress.keys() - members:
        del core.progress[node]
    if core.transfer and core.transfer.target not in core.membership.voters:
        core.transfer = None


def append(core: Core, kind: EntryKind, payloads: Sequence[bytes]) -> None:
    """Append to the own log; the next flush replicates."""
    begin = core.log.last + 1
    core.log.append(
        [Entry(i, core.term, kind, data) for i, data in enumerate(payloads, begin)]
    )
    core.tail_bytes += sum(map(len, payloads))


def confirmed(core: Core) -> bool:
    """Tell whether an entry of the own term is committed."""
    return core.log.commit >= core.term_begin


def feed(core: Core, node: int, *, tell: bool = True) -> None:
    """Send a follower what its window has room for; `tell` it what is committed."""
    progress, log, config = core.progress[node], core.log, core.config
    if progress.rests(log.last) and not tell:
        return
    if progress.next <= log.base.index:
        # The entries it needs are folded away.
        _feed_base(core, node, progress)
        return
    while (progress.next <= log.last or progress.mode is Mode.PROBE) and progress.room(
        config.window_messages, config.window_bytes
    ):
        _send_append(core, node, config.message_bytes_max)
    if progress.mode is Mode.REPLICATE:
        # An empty append finds out whether a full window was lost.
        behind = progress.nudge and progress.match < progress.next - 1
        news = progress.commit_sent < min(log.commit, progress.next - 1)
        if behind or (tell and news):
            _send_append(core, node, 0)


def _feed_base(core: Core, node: int, progress: Progress) -> None:
    # One base at a time, and none to a node that is silent: it is the whole state.
    if progress.mode is not Mode.BASE and progress.active:
        progress.sent_base(core.log.base.index)
        core.send(InstallBase, node, base=core.log.base)


def _send_append(core: Core, node: int, bytes_max: int) -> None:
    """Send entries, or none if `bytes_max` is 0."""
    progress, log = core.progress[node], core.log
    end = log.last + 1 if bytes_max else progress.next
    entries = log.read(progress.next, end, bytes_max)
    prev = progress.next - 1
    prev_term = log.term(prev)
    check(prev_term is not None, f"an append behind {prev}, which is gone")
    assert prev_term is not None
    epoch, commit = core.membership.epoch, log.commit
    core.post(Append(core.id, node, core.term, epoch, prev, prev_term, commit, entries))
    size = sum([entry.size for entry in entries])
    progress.sent(prev + len(entries), size, log.commit)


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
    if core.progress[target].match == core.log.last:
        # Before, others would refuse it their votes, and nobody would lead meanwhile.
        core.send(TimeoutNow, target)
