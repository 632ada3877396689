"""What a follower does with the messages of its leader (Raft, 5.3)."""

from __future__ import annotations

from braidlog.raft.core import Core
from braidlog.raft.errors import check
from braidlog.raft.messages import (
    Append,
    AppendResponse,
    Heartbeat,
    HeartbeatResponse,
    InstallBase,
)

__all__ = [
    "on_append",
    "on_heartbeat",
    "on_install",
    "refuse_stale",
    "settle",
    "take_append",
]


def take_append(core: Core, data: bytes) -> bool:
    """Take the bytes of a message if they are an append that continues the log.

    Whatever it could contradict or change is looked at in `on_append`.
    """
    membership = core.log.membership
    # A leader that is missed, or was removed, is no leader for the moment.
    if core.suspected or core.leader in membership.removed:
        return False
    answer = core.log.take_append(data, core.leader, core.term, membership.epoch)
    if answer is None:
        return False
    core.elapsed = 0
    core.hold(answer)
    return True


def settle(core: Core) -> None:
    """Let a lane take what continues the log, until something else comes.

    It takes no more than `take_append` does. A commit index that is far ahead of the
    stored one is stored again, with the hard state.
    """
    log = core.log
    followed = core.leader and core.leader not in log.membership.removed
    if followed and not core.suspected and not log.install_pending:
        commit_max = core.stored_commit + core.config.commit_lag - 1
        log.settle(core.leader, core.term, log.membership.epoch, commit_max)


def on_append(core: Core, append: Append) -> None:
    """Add the entries if their predecessor is here; else say what may be."""
    core.hear(append.sender)
    log, prev = core.log, append.prev_index
    _check_committed(core, append)
    if prev < log.base.index:
        # What is folded was committed, so it agrees: the leader goes on behind the
        # commit index, which needs no term that is folded away here.
        _accept(core, append.sender, log.commit)
    elif log.term(prev) == append.prev_term:
        # The logs agree up to `prev` (log matching), so a conflict can only be behind.
        core.splice(append.entries)
        last = prev + len(append.entries)
        # Entries behind `last` may be of an older leader: they are not committed by
        # this message, whatever the leader has committed.
        core.commit_to(min(append.commit, last))
        # A late append says less than is known to be right, and must not take it back.
        _accept(core, append.sender, max(last, log.commit))
    else:
        # A gap or another tail: the hint skips all that cannot match, term by term.
        _reject(core, append)


def _check_committed(core: Core, append: Append) -> None:
    """Stop if the leader's log contradicts what is committed here."""
    log = core.log
    if append.prev_index > log.commit:
        return
    theirs = [(append.prev_index, append.prev_term)]
    theirs += [(entry.index, entry.term) for entry in append.entries]
    for index, term in theirs:
        if index > log.commit:
            break  # What is not committed may be replaced.
        if index >= log.base.index:
            check(log.term(index) == term, f"a conflict with committed entry {index}")


def _accept(core: Core, leader: int, index: int) -> None:
    core.promise(
        AppendResponse, leader, rejected=False, index=index, hint_index=0, hint_term=0
    )


def _reject(core: Core, append: Append) -> None:
    hint = core.log.last_not_after(append.prev_index, append.prev_term)
    core.send(
        AppendResponse,
        append.sender,
        rejected=True,
        index=append.prev_index,
        hint_index=hint,
        hint_term=core.log.term(hint),
    )


def on_heartbeat(core: Core, heartbeat: Heartbeat) -> None:
    """Note that the leader is there, and what it committed."""
    core.hear(heartbeat.sender)
    # The leader names no more than this node has acknowledged to it.
    core.commit_to(heartbeat.commit)
    core.send(HeartbeatResponse, heartbeat.sender, round=heartbeat.round)


def on_install(core: Core, install: InstallBase) -> None:
    """Take the base, unless the log has what it stands for."""
    core.hear(install.sender)
    base, log = install.base, core.log
    if base.index > log.commit:
        if log.term(base.index) == base.term:
            # The entries are all here, and what follows them may be right as well.
            core.commit_to(base.index)
        else:
            core.install(base)
    # An older base than what is committed brings nothing, but has to be answered, or
    # the leader would wait for it.
    _accept(core, install.sender, log.commit)


def refuse_stale(core: Core, leader: int) -> None:
    """Tell a leader of an earlier term which one it is now."""
    core.send(AppendResponse, leader, rejected=True, index=0, hint_index=0, hint_term=0)
