"""State of one node of a group, and what every role does with it.

The functions of the roles are in `election`, `follower`, `leader` and `changes`; they
take this state as their first argument. `braidlog.raft.node` is the way in.

*Invariants.* The term never falls; a vote changes only with the term; the commit index
never falls; only a leader has progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from braidlog.raft.config import RaftConfig
from braidlog.raft.effects import (
    NOTHING,
    Effects,
    ReadFailed,
    ReadState,
    Role,
    SoftState,
    Write,
)
from braidlog.raft.errors import check, fail
from braidlog.raft.log import Frame, LogReader, RaftLog
from braidlog.raft.membership import Membership
from braidlog.raft.messages import Message, ReadResponse
from braidlog.raft.progress import Progress
from braidlog.raft.reads import Reads, Request
from braidlog.raft.state import Base, Entry, HardState, Stored

__all__ = ["Core", "Transfer"]


class Transfer:
    """A transfer of leadership in progress."""

    def __init__(self, target: int) -> None:
        """Begin to count the ticks."""
        self.target = target
        self.ticks = 0


class Core:
    """State of a node; see the module."""

    def __init__(
        self,
        config: RaftConfig,
        stored: Stored,
        *,
        applied: int,
        reader: LogReader | None,
    ) -> None:
        """Start from what the disk holds: base, then log, then hard state."""
        self.config = config
        self.id = config.id
        self.log = RaftLog.restore(config, stored, applied=applied, reader=reader)
        hard = stored.hard_state
        # A crash may keep the entries of a write and lose its hard state. The vote of
        # that term was then never promised.
        self.term = max(hard.term, self.log.last_term)
        self.vote = hard.vote if hard.term == self.term else 0
        self.role = Role.REMOVED if hard.removed else Role.FOLLOWER
        self.leader = 0
        self.votes: dict[int, bool] = {}
        self.elected_by: tuple[int, ...] = ()
        """Who voted for this node when it became leader last."""
        self.elapsed = 0
        self.timeout = 0
        self.suspected = False
        """Whether the connection to the leader broke since it was last heard."""
        self.heartbeat_elapsed = 0
        self.term_begin = 0
        self.transfer: Transfer | None = None
        self.reads = Reads()
        self._stored = hard
        self.uncounted = True
        """Whether a quorum may have more than when commits were counted last."""
        self.telling = False
        """Whether followers are told at once what is committed, eager or not."""
        self.messages: list[Message | Frame] = []
        """What is sent with the next effects."""
        self.answers: list[ReadState | ReadFailed] = []
        """Answered reads, for the next effects."""
        self._told: tuple[Role, int, int, int, int] | None = None
        self.restart_timer()
        self.note_removal()

    @property
    def stored_commit(self) -> int:
        """Return the commit index of the hard state that was stored last."""
        return self._stored.commit

    @property
    def membership(self) -> Membership:
        """Return the membership in force: the latest in the log."""
        return self.log.membership

    @property
    def progress(self) -> dict[int, Progress]:
        """Return what this node knows of its followers now, if it leads."""
        known = {node: self.log.progress(node) for node in self.log.peers}
        return {node: each for node, each in known.items() if each is not None}

    def unsettle(self) -> None:
        """Look at everything again; what the lane heard of the leader counts."""
        if self.log.unsettle():
            self.elapsed = 0

    # --- messages

    def send(self, kind: type[Message], receiver: int, **fields: Any) -> None:
        """Send a message that promises nothing."""
        self.messages.append(self.message(kind, receiver, **fields))

    def promise(self, kind: type[Message], receiver: int, **fields: Any) -> None:
        """Send a message once all that was decided so far is durable here."""
        self.hold(self.message(kind, receiver, **fields))

    def hold(self, message: Message | Frame) -> None:
        """Send it, as it is, once all that was decided so far is durable here."""
        self.log.promise(message)

    def message(self, kind: type[Message], receiver: int, **fields: Any) -> Message:
        """Return a message of this node; the term is its own unless it is given."""
        fields.setdefault("term", self.term)
        return kind(self.id, receiver, epoch=self.membership.epoch, **fields)

    # --- roles

    def restart_timer(self) -> None:
        """Wait a whole election timeout again, with new jitter."""
        ticks = self.config.election_ticks
        jitter = self.config.jitter()
        check(0 <= jitter <= ticks, f"jitter {jitter} is not in 0..{ticks}")
        self.elapsed = 0
        self.timeout = ticks + jitter
        self.suspected = False

    def suspect(self) -> None:
        """Wait for no more than a few ticks: the leader may be gone.

        A process that ends closes its connections, so those who have them notice at
        once. Who is wrong disturbs nobody: the others still hear the leader and give no
        vote. A leader that a majority misses at once gives way even if it is there.
        """
        if self.leader == 0 or self.suspected:
            return
        # Jitter keeps those apart who notice it in the same moment.
        jitter = self.config.jitter() // 2
        self.suspected = True
        self.timeout = min(self.timeout, self.lease + 1 + jitter)

    def follow(self, term: int, leader: int) -> None:
        """Become a follower in `term`, of `leader` if it is known."""
        check(term >= self.term, f"the term falls from {self.term} to {term}")
        if term > self.term:
            self.term, self.vote = term, 0
        self.enter(Role.FOLLOWER, leader)

    def enter(self, role: Role, leader: int) -> None:
        """Take a role; reads that wait for another leader fail."""
        check(self.role is not Role.REMOVED, "a removed node acts")
        if leader != self.leader or self.role is Role.LEADER:
            self.fail_reads()
        self.role, self.leader = role, leader
        self.votes = {}
        self.log.track([])
        self.transfer = None
        self.heartbeat_elapsed = 0
        self.restart_timer()

    def hear(self, leader: int) -> None:
        """Note a message of the leader of this term."""
        check(self.role is not Role.LEADER, f"{leader} leads term {self.term} too")
        check(self.leader in (0, leader), f"{self.leader} and {leader} lead one term")
        if self.role is not Role.FOLLOWER or self.leader != leader:
            self.follow(self.term, leader)
        elif self.suspected:
            self.restart_timer()
        self.elapsed = 0

    @property
    def leased(self) -> bool:
        """Tell whether the leader was heard of so lately that no vote is given.

        For the leader itself it holds between two checks of the quorum.
        """
        return self.leader != 0 and self.elapsed < self.lease

    @property
    def lease(self) -> int:
        """Return the ticks for which a leader that was heard keeps its followers."""
        return 1 if self.suspected else self.config.election_ticks

    @property
    def can_stand(self) -> bool:
        """Tell whether this node may become leader.

        It may while its removal or demotion is not committed: only it may have the
        entry, and then nobody else can win (Ongaro, 4.2.2).
        """
        committed = self.log.membership_at(self.log.commit)
        votes = self.id in self.membership.electors | committed.electors
        return votes and not self.log.install_pending

    # --- log

    def splice(self, entries: tuple[Entry, ...]) -> None:
        """Make the log contain a leader's entries."""
        begin = self.log.splice(entries)
        if begin is not None:
            self.log.clip(begin)

    def install(self, base: Base) -> None:
        """Replace the log by a leader's base."""
        self.log.restart_at(base)
        self.log.base_changed(reset=True)
        self.note_removal()

    def commit_to(self, index: int) -> None:
        """Commit up to `index`, if that is news."""
        if index > self.log.commit:
            self.log.commit_to(index)
            # Tombstones stay: what is committed has none that the latest has not.
            if self.id in self.log.membership.removed:
                self.note_removal()

    def note_removal(self) -> None:
        """Stop for good if a committed membership has this node's tombstone."""
        if self.id in self.tombstones and self.role is not Role.LEADER:
            self.remove()

    @property
    def tombstones(self) -> tuple[int, ...]:
        """Return the nodes whose removal is committed."""
        return self.log.membership_at(self.log.commit).removed

    def remove(self) -> None:
        """Give up the right to vote, for ever."""
        if self.role is not Role.REMOVED:
            self.enter(Role.FOLLOWER, 0)
            self.role = Role.REMOVED

    # --- reads

    def answer(self, index: int, request: Request) -> None:
        """Answer a confirmed read."""
        if request.node == self.id:
            self.answers.append(ReadState(request.number, index))
        else:
            self._respond(request, index)

    def fail_read(self, context: int) -> None:
        """Tell the caller that a read will not be answered."""
        self.answers.append(ReadFailed(context))

    def fail_reads(self) -> None:
        """Fail every read that waits."""
        for context in self.reads.clear(self.id, self.refuse_read):
            self.fail_read(context)

    def refuse_read(self, request: Request) -> None:
        """Tell another node that its read cannot be answered here."""
        self._respond(request, 0)

    def _respond(self, request: Request, index: int) -> None:
        # Whoever asked can answer its caller only when it has applied that much.
        self.telling = True
        self.send(
            ReadResponse,
            request.node,
            incarnation=request.incarnation,
            number=request.number,
            index=index,
        )

    # --- effects

    def release(self, kept: Sequence[Any]) -> list[Message]:
        """Send messages whose promise is kept; return those to this node."""
        own: list[Message] = []
        for message in kept:
            if message.receiver != self.id:
                self.messages.append(message)
            else:
                own.append(message)
        return own

    def take(self) -> Effects:
        """Return what has to be done since the last call."""
        log, stored = self.log, self._stored
        vital = (
            self.term != stored.term
            or self.vote != stored.vote
            or (self.role is Role.REMOVED) is not stored.removed
        )
        # A new commit index alone waits for company.
        taken = log.take_write(vital)
        write = self.store(taken, vital=vital) if taken is not None else None
        if (kept := log.release()) and self.release(kept):
            fail("an own vote is durable before it was written")
        messages, reads = tuple(self.messages), tuple(self.answers)
        self.messages, self.answers = [], []
        base = log.base if log.hand_out_base() else None
        committed = log.take_committed(self.config.apply_bytes_max)
        told = self.role, self.term, self.leader, log.membership.epoch, log.commit
        soft = None
        if told != self._told:
            self._told, soft = told, SoftState(*told)
        if not (write or messages or base or committed or reads or soft):
            return NOTHING
        return Effects(write, messages, base, committed, reads, soft)

    def store(
        self, taken: tuple[int, bool, bool, tuple[Entry, ...]], *, vital: bool
    ) -> Write:
        """Return what has to be stored of the log, with the hard state if it is due."""
        number, has_base, reset, entries = taken
        behind, news = self.log.commit - self._stored.commit, None
        if vital or has_base or behind >= self.config.commit_lag:
            removed = self.role is Role.REMOVED
            state = HardState(self.term, self.vote, self.log.commit, removed)
            if state != self._stored:
                self._stored = news = state
        base = self.log.base if has_base else None
        return Write(number, news, base, reset, entries)
