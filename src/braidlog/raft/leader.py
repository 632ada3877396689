"""What a leader does: take the lead, keep it, commit, confirm reads.

*Theory of operation.* Inputs only change state; `flush` then sends what that allows, so
everything that came in together leaves together. The leader's own log counts for a
commit as far as it is durable, like anybody's; the followers write in parallel, and a
commit may rest on them alone (Ongaro, 10.2.1).

*Invariants.* Only entries of the own term are committed by counting (Raft, 5.4.2). A
leader that did not hear a quorum within an election timeout stops leading.
"""

from __future__ import annotations

from braidlog.raft import changes, replication
from braidlog.raft.core import Core
from braidlog.raft.effects import Role
from braidlog.raft.errors import RaftMessageError, check
from braidlog.raft.messages import AppendResponse, Heartbeat, HeartbeatResponse
from braidlog.raft.progress import Mode
from braidlog.raft.quorum import agreed, holds
from braidlog.raft.reads import Request
from braidlog.raft.state import EntryKind

__all__ = [
    "flush",
    "lead",
    "on_append_response",
    "on_heartbeat_response",
    "read",
    "rests",
    "settle",
    "tick",
]


def lead(core: Core) -> None:
    """Become leader; the first entry is empty and commits what is left over."""
    check(core.role is Role.CANDIDATE, f"a {core.role.value} takes the lead")
    core.enter(Role.LEADER, core.id)
    # Entries of earlier terms are never counted; with this one they are committed.
    core.term_begin = core.log.last + 1
    replication.append(core, EntryKind.EMPTY, [b""])
    replication.track(core)


# --- time


def tick(core: Core) -> None:
    """Count a tick as the leader."""
    core.elapsed += 1
    core.heartbeat_elapsed += 1
    core.log.tick_bases()
    if core.transfer:
        core.transfer.ticks += 1
        if core.transfer.ticks >= core.config.election_ticks:
            # The target is not coming: take proposals again.
            core.transfer = None
    if core.elapsed >= core.config.election_ticks:
        core.elapsed = 0
        if not _quorum_active(core):
            # Another leader may have been elected: clients should look for it, and
            # must not wait for commits that cannot come.
            core.follow(core.term, 0)
            return
    if core.heartbeat_elapsed >= core.config.heartbeat_ticks:
        _heartbeat(core)


def _quorum_active(core: Core) -> bool:
    return holds(core.membership.halves, {*core.log.take_active(), core.id})


def _heartbeat(core: Core) -> None:
    core.heartbeat_elapsed = 0
    for node in core.log.peers:
        # Not beyond what the follower is known to have: it may have another tail.
        commit = min(core.log.matched(node), core.log.commit)
        core.send(Heartbeat, node, commit=commit, round=core.reads.round)


# --- reads


def read(core: Core, request: Request) -> None:
    """Take a read; it is answered when a round has confirmed that this node leads."""
    # Before the first commit of its term a leader may not know all that is committed.
    core.reads.add(request, core.log.commit if replication.confirmed(core) else None)


def _answer_reads(core: Core) -> None:
    if core.reads.begin_round():
        _heartbeat(core)
    for index, request in core.reads.confirmed(core.membership.halves, core.id):
        core.answer(index, request)
    core.reads.active = len(core.reads) > 0


# --- replication


def flush(core: Core) -> None:
    """Commit what can be, and send what may be."""
    if core.uncounted:
        _advance_commit(core)
    if core.role is Role.LEADER:
        if core.reads.active:
            _answer_reads(core)
        tell, core.telling = core.config.eager_commit or core.telling, False
        if tell or not core.log.peers_rest:
            replication.feed(core, tell=tell)


def rests(core: Core) -> bool:
    """Count an answer or a sync; tell whether `flush` would find nothing to do.

    So it is after most of them: a commit follows from one, that of the quorum.
    """
    log = core.log
    if core.config.eager_commit or core.telling or core.transfer or core.reads.active:
        return False
    commit = log.commit
    if core.uncounted and commit < log.last:
        _advance_commit(core)
    core.uncounted = False
    if log.commit > commit or core.messages or core.answers:
        return False
    return log.peers_rest and not log.has_committed


def settle(core: Core) -> None:
    """Let a lane propose, take answers and commit, until something else comes.

    While it hands over, the target may have everything with an answer. A commit index
    that is far ahead of the stored one is stored again, with the hard state.
    """
    now, config = core.log.membership, core.config
    tells = config.eager_commit or core.telling or core.reads.active
    leaves = now.outgoing or core.id not in now.voters
    if not (tells or core.transfer or leaves or core.log.install_pending):
        commit_max = core.stored_commit + config.commit_lag - 1
        halves, bytes_max = now.halves, config.tail_bytes_max
        core.log.lead(core.term, now.epoch, halves, commit_max, bytes_max)


def _advance_commit(core: Core) -> None:
    """Commit what a quorum has durably, and what follows from that."""
    core.uncounted = False
    while core.role is Role.LEADER and core.log.commit < core.log.last:
        index = agreed(core.log.membership.halves, _durable(core).__getitem__)
        if index <= core.log.commit or core.log.term(index) != core.term:
            # An entry of an earlier term can still be replaced, even if a quorum has it
            # (Raft, figure 8).
            return
        core.commit_to(index)
        if core.reads.active:
            core.reads.committed(index)
        now = core.log.membership
        if now.outgoing or core.id not in now.voters:
            # Once it is committed it may need fewer, or make this node resign.
            changes.settle(core)


def _durable(core: Core) -> dict[int, int]:
    """Return how far the log of each member is durable, as far as is known."""
    log, peers = core.log, core.log.peers
    reached = dict(zip(peers, map(log.matched, peers), strict=True))
    reached[core.id] = log.durable
    return reached


def on_append_response(core: Core, response: AppendResponse) -> None:
    """Learn where a follower's log meets the own one."""
    log, sender = core.log, response.sender
    if log.peer(sender) is None:
        return  # It was removed while the answer was on its way.
    if max(response.index, response.hint_index) > log.last:
        msg = f"{sender} answers for {response.index}, beyond the end"
        raise RaftMessageError(msg)
    log.heard(sender)
    if response.rejected:
        # Of the own log too, what has a later term than the hint cannot match.
        hint = log.last_not_after(response.hint_index, response.hint_term)
        log.rejected(sender, response.index, min(hint, response.hint_index))
    else:
        log.accepted(sender, response.index)
        replication.hasten_transfer(core)
    log.check()


def on_heartbeat_response(core: Core, response: HeartbeatResponse) -> None:
    """Note a sign of life and the round that it answers."""
    progress = core.log.progress(response.sender)
    if progress is None:
        return
    core.log.answered(response.sender)
    late = progress.base_ticks >= core.config.election_ticks
    if progress.mode is Mode.BASE and late:
        # The base was lost, or refused: begin with a probe.
        core.log.lost(response.sender)
    core.reads.acknowledge(response.sender, response.round)
