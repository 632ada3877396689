"""Every order of events in a small group, not only those that chance finds.

*Theory of operation.* A state is the state of each node, and all messages that were
ever sent: each may be delivered at any time, again, or never, which covers loss,
repetition and any order; who has a later term listens no more. From a state a node may
stand for election, take a proposal, get a message, sync its disk, or lose what was not
synced and start again. The states are visited breadth first, each once. What a node
does depends on its own state and the event alone, so it is computed once for all the
states that differ in the other nodes.

*Bounds.* Terms, proposals and crashes are few; there are no ticks, so no pre-votes and
no heartbeats: candidates stand as if the leader had asked for it, which is the most
that they may do. Nodes are alike, so node 1 stands first.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from braidlog.raft import Membership, Message, Role, election
from braidlog.raft.codec import encode
from braidlog.raft.log import RaftLog
from braidlog.raft.messages import Append, AppendResponse, VoteRequest, VoteResponse
from property.raft.checkers import require
from unit.raft.server import Server

KINDS = (Append, AppendResponse, VoteRequest, VoteResponse)
SETTINGS = {"eager_commit": False}
Log = tuple[tuple[int, bytes], ...]
"""Term and data of each entry, from index 1 on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What may happen at most."""

    terms: int = 2
    proposals: int = 0
    crashes: int = 0
    states: int = 50_000
    """States after which it ends, whether it has seen all or not."""
    slow: bool = False
    """Whether disks sync when they are told to, and not at once."""


class Local(NamedTuple):
    """What counts of the state of one node; numbers of writes do not."""

    term: int
    vote: int
    role: Role
    leader: int
    log: Log
    commit: int
    durable: int
    votes: tuple[tuple[int, bool], ...]
    progress: tuple[tuple[int, int, int, str, bool, int], ...]
    disk: tuple[int, int, int, Log]
    pending: int


class State(NamedTuple):
    """A state of the group, and what was committed on the way to it."""

    nodes: tuple[Local, ...]
    sent: frozenset[Message]
    committed: Log
    leaders: frozenset[tuple[int, int]]
    """Term and node of all who ever led."""
    proposals: int
    crashes: int


class Kept(NamedTuple):
    """A server; its log is in the core, so that it is copied and not pickled."""

    rest: bytes
    log: RaftLog


def kept(server: Server) -> Kept:
    """Keep a server as it is now."""
    core = server.node.core
    log, core.log = core.log, None  # type: ignore[assignment]
    rest = pickle.dumps(server, -1)
    core.log = log
    return Kept(rest, copy(log))


def revived(kept: Kept) -> Server:
    """Return a server that goes on as the one that was kept."""
    server: Server = pickle.loads(kept.rest)
    server.node.core.log = copy(kept.log)
    return server


class Step(NamedTuple):
    """What a node comes to by an event, and what it sends."""

    after: Local
    sent: frozenset[Message]


@dataclass
class Explorer:
    """Visits all states within bounds."""

    bounds: Bounds
    states: int = 0
    complete: bool = True
    committed: int = 0
    """States in which something was committed."""
    _servers: dict[tuple[int, Local], Kept] = field(default_factory=dict)
    _steps: dict[tuple[int, Local, object], Step] = field(default_factory=dict)

    def run(self) -> Explorer:
        """Visit the states; raise a `ViolationError` where a rule does not hold."""
        voters = Membership(voters=(1, 2, 3))
        servers = [Server(n, voters, partial(int, 0), SETTINGS) for n in voters.voters]
        begin = tuple(self._keep(server) for server in servers)
        first = State(begin, frozenset(), (), frozenset(), 0, 0)
        seen, queue = {first}, deque([first])
        while queue:
            state = queue.popleft()
            self.states += 1
            self.committed += bool(state.committed)
            for following in self._following(state):
                if following in seen:
                    continue
                if len(seen) >= self.bounds.states:
                    self.complete = False
                    continue
                seen.add(following)
                queue.append(following)
        return self

    def _following(self, state: State) -> Iterator[State]:
        for at, local in enumerate(state.nodes):
            for event in self._events(state, at, local):
                step = self._step(at + 1, local, event)
                if step.after == local and step.sent <= state.sent:
                    continue
                yield self._after(state, at, event, step)

    def _events(self, state: State, at: int, local: Local) -> Iterator[object]:
        bounds = self.bounds
        first = at == 0 or local.term > 0 or any(n.term for n in state.nodes)
        if local.role is not Role.LEADER and local.term < bounds.terms and first:
            yield "stand"
        if local.role is Role.LEADER and state.proposals < bounds.proposals:
            yield b"%d" % state.proposals
        if local.pending:
            yield "sync"
        if state.crashes < bounds.crashes:
            yield "crash"
        yield from (each for each in state.sent if each.receiver == at + 1)

    def _step(self, node: int, local: Local, event: object) -> Step:
        known = self._steps.get((node, local, event))
        if known is None:
            server = revived(self._servers[node, local])
            sent = self._do(server, event)
            known = Step(self._keep(server), frozenset(sent))
            self._steps[node, local, event] = known
        return known

    def _do(self, server: Server, event: object) -> list[Message]:
        sent: list[Message] = []
        if event == "stand":
            election.campaign(server.node.core, transfer=True)
            server.node.stirred = True
        elif event == "sync":
            server.sync(1)
        elif event == "crash":
            server.crash()
            server.start()
        elif isinstance(event, bytes):
            server.node.propose([event])
        elif isinstance(event, Message):
            server.node.take(encode(event))
        while True:
            effects, messages = server.pump()
            sent += [each for each in messages if isinstance(each, KINDS)]
            if not effects:
                return sent
            if not self.bounds.slow:
                server.sync()

    def _keep(self, server: Server) -> Local:
        core, disk = server.node.core, server.disk
        entries = core.log.read(1, core.log.last + 1, 1 << 40)
        hard = disk.hard_state
        local = Local(
            core.term,
            core.vote,
            core.role,
            core.leader,
            tuple((each.term, each.data) for each in entries),
            core.log.commit,
            core.log.durable,
            tuple(sorted(core.votes.items())),
            tuple(
                (peer, p.match, p.next, p.mode.value, p.probed, p.commit_sent)
                for peer, p in sorted(core.progress.items())
            ),
            (
                hard.term,
                hard.vote,
                hard.commit,
                tuple((each.term, each.data) for each in disk.entries),
            ),
            len(disk.pending),
        )
        self._servers.setdefault((server.id, local), kept(server))
        return local

    def _after(self, state: State, at: int, event: object, step: Step) -> State:
        nodes = (*state.nodes[:at], step.after, *state.nodes[at + 1 :])
        sent = state.sent | step.sent
        # Who has a later term does not listen any more.
        alive = [m for m in sent if m.term >= nodes[m.receiver - 1].term]
        leaders = state.leaders
        if step.after.role is Role.LEADER:
            leaders |= {(step.after.term, at + 1)}
        require(len(leaders) == len(dict(leaders)), "election safety", leaders)
        return State(
            nodes,
            frozenset(alive),
            _committed(nodes, state.committed, step.after),
            leaders,
            state.proposals + isinstance(event, bytes),
            state.crashes + (event == "crash"),
        )


def _committed(nodes: tuple[Local, ...], committed: Log, moved: Local) -> Log:
    """Check the rules; return what is committed now."""
    for other in nodes:
        for mine, theirs in zip(moved.log, other.log, strict=False):
            if mine != theirs:
                require(mine[0] != theirs[0], "log matching", mine, theirs)
    known = moved.log[: moved.commit]
    shared = min(len(known), len(committed))
    require(known[:shared] == committed[:shared], "committed logs agree", nodes)
    committed = max(known, committed, key=len)
    for end in range(1, len(committed) + 1):
        have = sum(each.disk[3][:end] == committed[:end] for each in nodes)
        require(have >= 2, "what is committed is durable on a majority", end, nodes)
    if moved.role is Role.LEADER and moved.term == max(each.term for each in nodes):
        complete = moved.log[: len(committed)] == committed
        require(complete, "leader completeness", nodes, committed)
    return committed
