"""What must hold in every run, whatever the network and the disks do.

Each rule is checked where it can first be broken, against facts gathered from all
nodes: what one node committed, every other node has to agree with.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from braidlog.raft import Base, Effects, Entry, EntryKind, ReadState, Role
from unit.raft.server import Server


class ViolationError(AssertionError):
    """A rule does not hold; the message names it."""


def require(holds: bool, rule: str, *facts: object) -> None:
    if not holds:
        raise ViolationError(": ".join([rule, *map(str, facts)]))


@dataclass
class Facts:
    """What the nodes said so far."""

    leaders: dict[int, int] = field(default_factory=dict)
    """Leader by term."""
    entries: dict[tuple[int, int], tuple[Entry, int]] = field(default_factory=dict)
    """Entry and term of its predecessor, by index and term."""
    committed: list[int] = field(default_factory=lambda: [0])
    """Term by index."""
    committed_in: list[int] = field(default_factory=lambda: [0])
    """Term in which a leader committed it, by index."""
    applied: dict[int, Entry] = field(default_factory=dict)
    states: dict[int, bytes] = field(default_factory=dict)
    last: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Term, incarnation and commit index of each node."""
    reads: dict[int, int] = field(default_factory=dict)
    """The least index that may answer, by context."""
    read_count: int = 0

    @property
    def commit(self) -> int:
        """Return the greatest index that any node knows to be committed."""
        return len(self.committed) - 1


def check(facts: Facts, server: Server, effects: Effects) -> None:
    """Check all rules for what one node just did."""
    if effects.write is not None:
        _log_matching(facts, server, effects.write.entries)
    soft = effects.soft_state
    if soft is not None:
        _monotonic(facts, server)
        if soft.role is Role.LEADER and facts.leaders.get(soft.term) != server.id:
            _election_safety(facts, server, soft.term)
            _leader_completeness(facts, server)
        _commit_agreement(facts, server)
    _state_machine_safety(facts, server, effects)
    for read in effects.reads:
        least = facts.reads.pop(read.context)
        if isinstance(read, ReadState):
            facts.read_count += 1
            require(read.index >= least, "linearizable reads", read, least)


def _election_safety(facts: Facts, server: Server, term: int) -> None:
    other = facts.leaders.setdefault(term, server.id)
    require(other == server.id, "election safety", term, other, server.id)
    stored = server.disk.hard_state
    durable = (stored.term, stored.vote) == (term, server.id)
    require(durable, "a leader's vote is durable", server.id, term, stored)


def _leader_completeness(facts: Facts, server: Server) -> None:
    log = server.node.core.log
    for index in range(log.base.index, facts.commit + 1):
        # A candidate that was stopped may win a term that is long over.
        if facts.committed_in[index] >= server.node.core.term:
            break
        agrees = log.term(index) == facts.committed[index]
        require(agrees, "leader completeness", server.id, index)


def _commit_agreement(facts: Facts, server: Server) -> None:
    log = server.node.core.log
    for index in range(facts.commit + 1, log.commit + 1):
        term = log.term(index)
        require(term is not None, "a base ahead of every commit", server.id, index)
        assert term is not None
        facts.committed.append(term)
        facts.committed_in.append(server.node.core.term)
    agrees = facts.committed[log.commit] == log.term(log.commit)
    require(agrees, "committed logs agree", server.id, log.commit)


def _log_matching(facts: Facts, server: Server, entries: tuple[Entry, ...]) -> None:
    for entry in entries:
        before = server.node.core.log.term(entry.index - 1)
        if before is not None:
            mine = (entry, before)
            known = facts.entries.setdefault((entry.index, entry.term), mine)
            require(known == mine, "log matching", server.id, mine, known)


def _state_machine_safety(facts: Facts, server: Server, effects: Effects) -> None:
    if effects.install is not None:
        _same_state(facts, server, effects.install)
    for entry in effects.committed:
        known = facts.applied.setdefault(entry.index, entry)
        require(known == entry, "state machine safety", server.id, entry, known)
        durable = server.disk.hard_state.term >= 0 and _on_disk(server, entry)
        require(durable, "applied is durable here", server.id, entry)
    if effects.committed:
        index = effects.committed[-1].index
        state = facts.states.setdefault(index, server.states[index])
        require(state == server.states[index], "equal states", server.id, index)


def _same_state(facts: Facts, server: Server, base: Base) -> None:
    known = facts.states.setdefault(base.index, base.state)
    require(known == base.state, "equal states", server.id, base.index)


def _on_disk(server: Server, entry: Entry) -> bool:
    at = entry.index - server.disk.base.index - 1
    return at < 0 or server.disk.entries[at : at + 1] == [entry]


def _monotonic(facts: Facts, server: Server) -> None:
    core = server.node.core
    now = (core.term, server.incarnation, core.log.commit)
    before = facts.last.get(server.id, now)
    restarted = now[1] > before[1]
    # What a crash makes forget was never promised, and it is not a lot.
    require(restarted or now[0] >= before[0], "terms never fall", server.id, now)
    require(restarted or now[2] >= before[2], "commits never fall", server.id, now)
    facts.last[server.id] = now


def data_of(facts: Facts) -> list[bytes]:
    """Return the data of all applied entries, in order."""
    found = [facts.applied[index] for index in sorted(facts.applied)]
    return [entry.data for entry in found if entry.kind is EntryKind.DATA]
