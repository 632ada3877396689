"""The metadata repository on a Raft group, without input and output.

*Theory of operation.* Inputs are calls; `effects` returns everything there is to do
since the last call. Every member applies what is committed. The leader also listens to
reports, proposes cuts and repairs, and tells the nodes; it begins when it has applied
an entry of its own term, because only then its state is up to date. All of what makes
it a leader is in `Leadership`, made anew for each term.

    group.step(data, node, now); group.report(report, now)
    group.execute(request, call, command, wall)
    effects = group.effects()     # write, send, answer
    group.durable(write.number)

*Invariants.* The repository has applied what Raft says is applied, no more. A request
is answered once. Nothing is told to a node that is not committed.
"""
# One file: one state machine: each input, and what follows from it.

from __future__ import annotations

from dataclasses import replace
from typing import Final

from msgspec import Struct

from braidlog.errors import DeadlineError, LogError, UnavailableError
from braidlog.metarepo.admission import stamped
from braidlog.metarepo.events import Elections, Event
from braidlog.metarepo.leader.leadership import Leadership
from braidlog.metarepo.leader.settings import GroupSettings
from braidlog.metarepo.machine import faults
from braidlog.metarepo.machine.repository import Repository
from braidlog.metarepo.machine.views import Standing
from braidlog.metarepo.pending import Answer, News, Sealing, unknown_outcome
from braidlog.raft import (
    Entry,
    EntryKind,
    Frame,
    NotLeaderError,
    RaftConfig,
    RaftNode,
    ReadState,
    Role,
    SoftState,
    Stored,
    Write,
    codec,
)
from braidlog.raft.effects import NOTHING
from braidlog.wire import commands
from braidlog.wire.commands import Command
from braidlog.wire.messages import Consensus, Message, Metadata, Recorded, Report
from braidlog.wire.results import Epoch, Refused, Result, encode_result


class Outgoing(Struct, frozen=True):
    """A message to a node, with the payload of its frame."""

    node: int
    message: Message
    payload: bytes = b""


class GroupEffects(Struct, frozen=True):
    """What has to be done now; writes in their order, the rest in any."""

    writes: tuple[Write, ...] = ()
    messages: tuple[Outgoing, ...] = ()
    answers: tuple[Answer, ...] = ()
    committed: int = 0
    """Entries that were applied."""
    events: tuple[Event, ...] = ()
    """What the operator is told."""

    def __bool__(self) -> bool:
        """Tell whether there is anything to do."""
        return bool(
            self.writes
            or self.messages
            or self.answers
            or self.committed
            or self.events
        )


_NOTHING: Final = GroupEffects()
_UNKNOWN: Final = Standing()


class MetadataMember:
    """One member; see the module."""

    def __init__(
        self, settings: GroupSettings, raft: RaftConfig, stored: Stored, now: float
    ) -> None:
        """Start from what the disk holds.

        Raises:
            CorruptionError: the stored state is none.
            RaftInvariantError: what is stored contradicts itself.
        """
        self.settings = settings
        self.repository = Repository(stored.base.state)
        if not stored.base.state:
            self.repository.state.index = stored.base.index
        self.raft = RaftNode(raft, stored)
        self.leadership: Leadership | None = None
        self._now = self._ticked = now
        self._folded = 0
        self._folded_bytes = 0
        self._damaged_to = 0
        """The last entry of the log when damage was found in it; 0: it is whole."""
        self.unfolded_bytes = 0
        """Size of a snapshot that was too large to be stored, 0 if the last one fit."""
        self._context = 0
        self._pending: dict[int, tuple[int, Command]] = {}
        self._news: dict[int, News] = {}
        self._reads: dict[int, int] = {}
        self._sealing: list[Sealing] = []
        self._elections = Elections(raft.id, now)
        self._events: list[Event] = []
        self._writes: list[Write] = []
        self._messages: list[Outgoing] = []
        self._carrier = Consensus(settings.group)
        self._answers: list[Answer] = []
        self._applied = 0
        self.stirred = True
        """Whether `effects` may have something."""
        self._told = self.repository.revision
        self.standing: tuple[Role, int, int, int] | None = None
        """Role, term, leader, and epoch of the membership, as was told last."""
        self._missed: tuple[()] | tuple[int, float] = ()
        """The leader whose connection broke, and when."""

    # --- what there is to see

    @property
    def leader(self) -> int:
        """Return the node that leads, 0 if none is known."""
        return self.raft.core.leader

    @property
    def leads(self) -> bool:
        """Tell whether this node leads and its state is up to date."""
        return self.leadership is not None and self.leadership.ready

    def metadata(self, *, judged: bool = False) -> Metadata:
        """Return the metadata as of the last applied entry.

        With ``judged`` the leader adds how the streams stand, which no entry says.
        Members that do not lead take every node for alive.
        """
        leads, now = self.leadership, self._now
        return Metadata(
            index=self.repository.index,
            leader=self.leader,
            cluster=self.settings.cluster,
            nodes=self.repository.nodes(
                (lambda node: not leads.dead(node, now)) if leads else bool,
                frozenset(self.raft.core.membership.voters),
                (lambda node: leads.silent_ms(node, now))
                if leads and judged
                else lambda _: 0,
                (lambda node: leads.slow_nodes.slow_ms(node, now))
                if leads
                else lambda _: 0,
            ),
            logs=self.repository.logs(
                (lambda stream: leads.standing(stream, now))
                if leads and judged
                else lambda _: _UNKNOWN
            ),
            tables=tuple(self.repository.state.tables.values()),
            settled=faults.is_settled(self.repository.state),
        )

    @property
    def reads_wait(self) -> bool:
        """Tell whether somebody waits for an entry to be applied here.

        Who waits for news does not: no cut brings any.
        """
        index = self.repository.index
        return any(not 0 <= news.index <= index for news in self._news.values())

    def stir(self) -> None:
        """Look at everything: the log is further than what was asked for last."""
        self.stirred = True
        self.raft.stir()

    # --- inputs

    def step(self, data: bytes, node: int, now: float) -> None:
        """Take the payload of a `Consensus` from another member, which so lives.

        Raises:
            RaftMessageError: it is malformed or for somebody else.
        """
        self.raft.take(data)
        self.stirred = self.stirred or self.raft.stirred
        if self.leadership is not None:
            self.leadership.liveness.kept(node, now)

    def heard(self, reported: set[int], kept: set[int], now: float) -> None:
        """Note whom the lane heard: who has reported, and who answered."""
        if self.leadership is not None:
            for node in kept:
                self.leadership.liveness.kept(node, now)
            for node in reported:
                self.leadership.liveness.heard(node, now)

    def kept(self, node: int, now: float) -> None:
        """Note that a member lives, though it has said nothing."""
        if self.leadership is not None:
            self.leadership.liveness.kept(node, now)

    def durable(self, number: int) -> None:
        """Note that writes up to `number` are on the disk."""
        self.raft.durable(number)
        self.stirred = self.stirred or self.raft.stirred

    def tick(self, now: float, late: float = 0.0) -> None:
        """Let time pass; this call was due ``late`` seconds ago."""
        self.stirred = True
        self._now = max(now, self._now)
        ticks = int((self._now - self._ticked) / self.settings.tick)
        if ticks:
            self._ticked += ticks * self.settings.tick
            self.raft.tick(min(ticks, self.settings.ticks_max))
        if self.leader and not self.raft.core.suspected:
            self._missed = ()
        if self.leadership is not None:
            self.leadership.passed(self.repository, self._now, late)
        self._events += self._elections.tick(self._now)
        self._expire()

    def report(self, report: Report, now: float) -> None:
        """Take the report of a node; it counts only while this node leads."""
        self._now = max(now, self._now)
        leads = self.leadership
        if leads is not None and leads.report(self.repository, report, self._now):
            self.stirred = True

    def recorded(self, message: Recorded) -> None:
        """Take what a node says of its fault log."""
        self.stirred = True
        if self.leadership is not None:
            self.leadership.recorded(message)

    def unsent(self, node: int) -> None:
        """Note that what a node was sent may be lost: its link is new, or too full."""
        self.stirred = True
        if self.leadership is not None:
            self.leadership.publisher.unsent(node)

    def lost(self, node: int, now: float) -> None:
        """Note that the connection to a node broke."""
        self.stirred = True
        self._now = max(now, self._now)
        if node == self.leader:
            self._missed = node, self._now
        self.raft.unreachable(node)
        if self.leadership is not None:
            self.leadership.lost(node, self._now)

    def left(self, node: int, now: float) -> None:
        """Note that a node has closed the connection that it had made.

        A leader that ended is missed for that, too: what it sent before may be taken
        after the other connection broke, and looks like a sign of life.
        """
        if node == self.leader:
            self.lost(node, now)

    def transfer(self, node: int) -> None:
        """Hand leadership over to a voter, if this node leads.

        Raises:
            NotLeaderError: another node leads, or none.
        """
        self.stirred = True
        self.raft.transfer(node)

    def execute(self, request: int, call: bytes, command: bytes, wall: int) -> None:
        """Execute a command at a time of day; the answer comes with `effects`."""
        self.stirred = True
        try:
            self._execute(request, call, stamped(commands.decode(command), wall))
        except LogError as error:
            self._answers.append(Answer(request, error=error))

    def _execute(self, request: int, call: bytes, command: Command) -> None:
        leads = self.leadership
        if leads is None or not leads.ready:
            msg = "this node is not the leader of the metadata repository"
            raise NotLeaderError(msg, leader=0 if leads else self.leader)
        known = self.repository.result_of(call)
        if known is not None:
            self._answer(request, known)
            return
        # What nodes say of themselves is bounded by how many there are.
        of_nodes = command.ROLE == "peer"
        if len(self._pending) >= self.settings.requests_max and not of_nodes:
            raise UnavailableError(
                f"{len(self._pending)} requests wait for the metadata repository "
                "already"
            )
        prepared = leads.prepare(
            self.repository, command, self._now, self.raft.core.membership
        )
        # What changes nothing may be asked again, and its result may be large: it is
        # not remembered.
        identity = b"" if isinstance(command, commands.GetCursors) else call
        index = self.raft.propose([commands.encode_call(prepared, identity)]).begin
        self._pending[index] = request, prepared
        leads.begun(index, prepared)

    def read_metadata(
        self,
        request: int,
        now: float,
        *,
        known: int = 0,
        wait: float = 0.0,
        linearizable: bool = False,
    ) -> None:
        """Answer when the metadata is newer than `known`, or after `wait` seconds.

        The answer has no payload: the shell takes `metadata()`. A linearizable read
        shows everything that was answered before it was asked, on any member.
        """
        self.stirred = True
        self._now = max(now, self._now)
        news = News(request, known, self._now + wait)
        try:
            if len(self._news) >= self.settings.requests_max:
                msg = f"{len(self._news)} reads of metadata wait already"
                raise UnavailableError(msg)
            if linearizable:
                news.index = -1
                self.raft.read(self._context + 1)
                self._context += 1
                self._reads[self._context] = request
            self._news[request] = news
        except LogError as error:
            self._answers.append(Answer(request, error=error))

    def cancel(self, request: int) -> None:
        """Forget a read whose asker is gone."""
        self._news.pop(request, None)

    # --- outputs

    def effects(self) -> GroupEffects:
        """Return what has to be done since the last call; false if nothing has."""
        if not self.stirred:
            return _NOTHING
        self.stirred = False
        # A lane leaves cuts behind, which come before what is decided now.
        if self.raft.core.log.has_committed:
            self.raft.stir()
        # Raft has nothing to do after most reports, and after a look at the nodes.
        if self.raft.stirred:
            self._drain()
        leads = self.leadership
        if leads is not None and leads.ready:
            self._lead(leads)
            if self.raft.stirred:
                self._drain()
        if self._news:
            self._answer_news()
        done = GroupEffects(
            tuple(self._writes),
            tuple(self._messages),
            tuple(self._answers),
            self._applied,
            tuple(self._events),
        )
        self._writes, self._messages, self._answers = [], [], []
        self._events = []
        self._applied = 0
        return done

    def _drain(self) -> None:
        """Take all that Raft has to do."""
        raft = self.raft
        while raft.stirred and (effects := raft.effects()) is not NOTHING:
            if effects.write:
                self._writes.append(effects.write)
            for message in effects.messages:
                if isinstance(message, Frame):
                    data = message.data
                else:
                    data = codec.encode(message)
                self._messages.append(Outgoing(message.receiver, self._carrier, data))
            if effects.install:
                self.repository.restore(effects.install.state)
                raft.applied(effects.install.index)
                self._folded = effects.install.index
            if (soft := effects.soft_state) is not None:
                standing = soft.role, soft.term, soft.leader, soft.epoch
                # Of most news only the commit index is new.
                if standing != self.standing:
                    self.standing = standing
                    self._stand(soft)
            for entry in effects.committed:
                self._apply(entry)
            if effects.committed:
                index = effects.committed[-1].index
                raft.applied(index)
                if self._told != self.repository.state.revision:
                    self._tell_news()
                many = index - self._folded >= self.settings.fold_entries
                large = self._folded_bytes >= self.settings.fold_bytes
                if many or large or 0 < self._damaged_to <= index:
                    self._fold(index)
            for read in effects.reads:
                self._take_read(read.context, read)

    def _stand(self, soft: SoftState) -> None:
        """Act on who leads and votes now."""
        self._events += self._elections.see(
            soft,
            self._now,
            elected_by=self.raft.core.elected_by,
            voters=self.raft.core.membership.voters,
            broke=bool(self._missed),
        )
        self._change_role(soft.role, soft.term)

    def _tell_news(self) -> None:
        """Let the other members show new metadata at once; cuts go to nodes anyway."""
        self._told = self.repository.state.revision
        if self.leadership is not None:
            self.raft.tell_commit()

    def _change_role(self, role: Role, term: int) -> None:
        known = self.leadership
        if role is Role.LEADER and (known is None or known.term != term):
            self._resign()
            self.leadership = Leadership(self.settings, term, self._now)
            if self._missed:
                # It was not heard since, or this node would not lead now.
                self.leadership.liveness.lost(*self._missed)
        elif role is not Role.LEADER and known is not None:
            self._resign()

    def _resign(self) -> None:
        """Answer what can no longer be known."""
        error = unknown_outcome(self.leader, self.raft.core.term)
        requests = [request for request, _ in self._pending.values()]
        requests += [each.answer.request for each in self._sealing]
        self._answers += [Answer(request, error=error) for request in requests]
        self._pending, self._sealing = {}, []
        self.leadership = None

    # --- applying

    def _apply(self, entry: Entry) -> None:
        self._applied += 1
        leads = self.leadership
        if leads is not None and not leads.ready and entry.term == leads.term:
            leads.begin(self.repository, self._now)
        if entry.kind is not EntryKind.DATA:
            self.repository.skip(entry.index)
            return
        self._folded_bytes += len(entry.data)
        told = leads is not None and entry.index in leads.told
        facts = leads.facts(self.repository, entry.index) if leads and told else None
        result = self.repository.apply(entry.index, entry.data)
        if leads is not None:
            if told:
                leads.happened(self.repository, entry.index, facts, result)
            leads.applied(self.repository, entry, result, self.raft)
        if entry.index in self._pending:
            request, command = self._pending.pop(entry.index)
            self._finish(request, command, result)

    def _finish(self, request: int, command: Command, result: Result) -> None:
        if isinstance(command, commands.Seal) and isinstance(result, Epoch):
            answer = Answer(request, self.repository.index, encode_result(result))
            deadline = self._now + self.settings.seal_timeout
            waits = Sealing(answer, result.stream, result.epoch, deadline)
            self._sealing.append(waits)
        else:
            self._answer(request, result)

    def _answer(self, request: int, result: Result) -> None:
        if isinstance(result, Refused):
            self._answers.append(Answer(request, error=result.error()))
        else:
            index, payload = self.repository.index, encode_result(result)
            self._answers.append(Answer(request, index, payload))

    def damaged(self) -> None:
        """Replace the log by a snapshot: entries of it cannot be read any more.

        The state machine has what they did. Those that are not applied yet are waited
        for: a snapshot in the middle of a damaged batch would keep the rest of it.
        """
        log = self.raft.core.log
        if log.install_pending:
            return  # The snapshot of the leader replaces the log.
        self._damaged_to = log.last
        if 0 < log.last == self.repository.state.index:
            self._fold(log.last)

    def _fold(self, index: int) -> None:
        """Let the log begin behind `index`, which is what was applied last."""
        self._folded, self._folded_bytes = index, 0
        if self._damaged_to <= index:
            # Where the snapshot is too large, the next pass over the disk asks again.
            self._damaged_to = 0
        state = self.repository.snapshot()
        fits = len(state) <= self.settings.state_bytes_max
        self.unfolded_bytes = 0 if fits else len(state)
        if fits:
            self.raft.truncate(index, state)

    # --- leading

    def _lead(self, leads: Leadership) -> None:
        stirred = leads.stirred or leads.collector.stirred
        passed = self._now - leads.looked
        looked = (stirred or passed >= leads.pause) and leads.look(self._now)
        if looked:
            for command in leads.decide(self.repository, self._now):
                self._log(leads, command)
            for command in leads.registrations(self.repository):
                self._log(leads, command)
            leads.lead_members(self.repository, self.raft)
            for command in leads.admissions(self.repository, self.raft):
                self._log(leads, command)
            leads.configure(self.repository, self._now)
        if leads.collector.has_fresh:
            leads.cut(self.repository.state, self.raft)
        if looked and (successor := leads.successor(self.raft, self._now)):
            self.raft.transfer(successor)
        if leads.events:
            self._events += leads.events
            leads.events = []
        if leads.messages:
            for node, message in leads.messages:
                self._messages.append(Outgoing(node, message))
            leads.messages = []
        if self._sealing:
            self._answer_seals(leads)

    def _log(self, leads: Leadership, command: Command) -> None:
        """Log a command of the leader's own; it comes again if that fails."""
        try:
            index = self.raft.propose([commands.encode_call(command)]).begin
        except UnavailableError:
            return
        leads.begun(index, command)

    def _answer_seals(self, leads: Leadership) -> None:
        open_: list[Sealing] = []
        for each in self._sealing:
            if leads.sealed(self.repository, each.stream, each.epoch, self._now):
                self._answers.append(each.answer)
            else:
                open_.append(each)
        self._sealing = open_

    # --- reads

    def _take_read(self, context: int, read: object) -> None:
        request = self._reads.pop(context, None)
        news = self._news.get(request) if request is not None else None
        if news is None:
            return
        if isinstance(read, ReadState):
            news.index = read.index
        else:
            del self._news[news.request]
            error = NotLeaderError(
                "the leader could not confirm that it still leads", leader=self.leader
            )
            self._answers.append(Answer(news.request, error=error))

    def _answer_news(self) -> None:
        revision, index = self.repository.revision, self.repository.index
        for news in list(self._news.values()):
            if not 0 <= news.index <= index:
                continue
            if revision > news.known or self._now >= news.deadline:
                del self._news[news.request]
                self._answers.append(Answer(news.request, index))

    def _expire(self) -> None:
        """Answer what took too long."""
        late = [each for each in self._sealing if self._now >= each.deadline]
        for each in late:
            self._sealing.remove(each)
            msg = (
                f"stream {each.stream} is sealed, but some replicas have not "
                "confirmed it yet"
            )
            error = DeadlineError(msg)
            self._answers.append(replace(each.answer, payload=b"", error=error))
