"""One member of a shard's Raft group, without input and output.

*Theory of operation.* Inputs are calls; `effects` returns everything there is to do
since the last call. A leader keeps a second state, that of all it has logged: on it an
append is decided before it is logged, so what is refused takes no entry and no
position. It is made anew when an entry of the own term is applied, because then all
earlier ones are. Until then, and on every other member, appends are refused with the
leader's number.

    member.step(data); member.tick(now)
    member.append([(request, batch)], writer=0, expected=None, repeat=False)
    effects = member.effects()      # write, send, answer
    member.durable(write.number)

What was truncated is folded into the base of the group, a part with each call: entries
are read again and applied to a third state, which stands where the log begins. So the
log begins with the first record that is kept, and who lacks more gets the base and then
every record.

*Invariants.* A request is answered once. An append is answered when a majority has it
durably and it is applied here. A lost lead answers with an unknown outcome. A refusal
that depends on the log is one that any leader would give: a majority has said that this
member still leads, and all that it was decided with is committed.
"""
# One file: one state machine: each input, and what follows from it.

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from msgspec import Struct

from braidlog.errors import (
    ConflictError,
    FencedError,
    InvalidArgumentError,
    LogError,
    NotReadyError,
    SequenceExpiredError,
    SequenceGapError,
    UnavailableError,
)
from braidlog.raft import (
    ChangeRefusedError,
    Entry,
    EntryKind,
    Frame,
    LogReader,
    NotLeaderError,
    RaftConfig,
    RaftNode,
    ReadState,
    Role,
    Stored,
    TransferringError,
    Write,
    codec,
)
from braidlog.raft.effects import NOTHING
from braidlog.shard import entries
from braidlog.shard.checkpoint import Checkpoint
from braidlog.shard.entries import Grant, Plan, Release, Reserve, Truncate
from braidlog.shard.membership import is_there, next_change
from braidlog.shard.places import Places
from braidlog.shard.questions import Question, Questions
from braidlog.shard.stamps import COUNT_MAX, Asked, Stamped, Stamps
from braidlog.shard.state import ShardState
from braidlog.wire.members import generation_of, node_of

__all__ = [
    "Ended",
    "Granted",
    "Placed",
    "ShardEffects",
    "ShardMember",
    "ShardSettings",
    "Standing",
]

Request: TypeAlias = object
"""Whoever is answered; never looked into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings:
    """Times in seconds, bounds."""

    tick: float = 0.05
    """One tick of Raft."""
    ticks_max: int = 3
    """Ticks that are made up for after a pause; more would begin elections."""
    requests_max: int = 65_536
    """Requests that wait."""
    fold_bytes: int = 4 << 20
    """Of what is folded with one call."""
    fold_pause: float = 1.0
    """Between two folds: each stores the base anew."""
    checkpoint_bytes: int = 8 << 20
    """Entries that are applied between two checkpoints: a start reads so much."""


class Placed(Struct, frozen=True):
    """Records are durable on a majority, from this position on."""

    position: int
    count: int
    index: int
    """Of the entry."""


class Granted(Struct, frozen=True):
    """The log belongs to the caller, with this epoch; records before `next` are in."""

    epoch: int
    next: int


class Ended(Struct, frozen=True):
    """Where the log begins and ends, and whose it is; not as it was before asking."""

    first: int
    next: int
    epoch: int
    owner: str


class Standing(Struct, frozen=True):
    """What a leader says of its group."""

    term: int
    next: int
    plan: int
    wanted: tuple[int, ...]
    epoch: int
    """Index of the entry that gave the group its members."""
    voters: tuple[int, ...]
    learners: tuple[int, ...]
    generation: int
    """The greatest of all that belong to the group or ever did."""


_OF_THE_LOG: Final = (
    ConflictError,
    FencedError,
    SequenceGapError,
    SequenceExpiredError,
)
"""Refusals that depend on what is in the log. Others are right whoever says them."""

Answer: TypeAlias = Placed | Granted | Ended | Stamped | LogError


class ShardEffects(Struct, frozen=True):
    """What has to be done now; writes in their order, the rest in any."""

    writes: tuple[Write, ...] = ()
    messages: tuple[tuple[int, bytes], ...] = ()
    """Member and payload of a `Consensus`."""
    answers: tuple[tuple[Request, Answer], ...] = ()
    advanced: bool = False
    """Whether more can be read than before, or less."""


_NOTHING: Final = ShardEffects()


class ShardMember:
    """One member; see the module."""

    def __init__(
        self,
        settings: ShardSettings,
        raft: RaftConfig,
        stored: Stored,
        reader: LogReader,
        now: float,
        checkpoint: Checkpoint | None = None,
    ) -> None:
        """Start from what the disk holds.

        With a checkpoint the entries behind it suffice. One that is older than the base
        is passed over.

        Raises:
            CorruptionError: the stored state is none.
            RaftInvariantError: what is stored contradicts itself.
        """
        self.settings = settings
        if checkpoint is not None and checkpoint.mark.index <= stored.base.index:
            checkpoint = None
        mark = None if checkpoint is None else checkpoint.mark
        begin = stored.base.state if checkpoint is None else checkpoint.state
        self.state = ShardState(begin)
        """What is committed."""
        self.places = Places()
        self._base = ShardState(stored.base.state)
        """The state where the log begins."""
        self._unsaved = 0
        """Bytes that were applied since the last checkpoint."""
        self._planned: ShardState | None = None
        """With all that this leader has logged; None unless it is ready to lead."""
        stored = replace(stored, mark=mark)
        applied = None if mark is None else mark.index
        self.raft = RaftNode(raft, stored, applied=applied, reader=reader)
        self._reader = reader
        self._ticked = now
        self._now = now
        self._term = 0
        self._arranged = 0
        """The plan that the membership is as, and will be."""
        self._silent = 0.0
        """Since when the owner has done nothing, as this leader knows."""
        self._fold_at = now
        self._folded = self._base.first
        """Up to where what was truncated is folded, but for a part of an entry."""
        self._pending: dict[int, tuple[Request, Answer | None]] = {}
        """Who is answered what when that entry is applied; None: where the log ends."""
        self._repeats: list[tuple[int, Request, Placed]] = []
        """Who repeated what may not be committed yet."""
        self._questions: Questions[Answer] = Questions(self.raft.read)
        self._stamps: Stamps | None = None
        """None unless it is ready to lead."""
        self._writes: list[Write] = []
        self._messages: list[tuple[int, bytes]] = []
        self._answers: list[tuple[Request, Answer]] = []
        self._advanced = False
        self.stirred = True
        """Whether `effects` may have something."""

    # --- what there is to see

    @property
    def leader(self) -> int:
        """Return the node that leads, 0 if none is known."""
        return node_of(self.raft.core.leader)

    @property
    def leads(self) -> bool:
        """Tell whether this member leads and takes appends."""
        return self._planned is not None

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        waits = len(self._pending) + len(self._repeats) + len(self._questions)
        return waits + (0 if self._stamps is None else len(self._stamps))

    @property
    def quiet(self) -> bool:
        """Tell whether nothing is under way: every member has all, and nobody waits."""
        core = self.raft.core
        log = core.log
        if self.waiting or self.stirred or log.commit != log.last:
            return False
        if log.applied != log.commit or core.transfer or core.reads.active:
            return False
        if self.state.plan != self._arranged:
            return False
        return all(log.matched(peer) == log.last for peer in log.peers)

    def standing(self) -> Standing:
        """Return what a leader tells the repository."""
        core, state = self.raft.core, self.state
        now = core.membership
        if not state.plan:
            # It is as it was founded, and nobody has asked for more.
            return Standing(core.term, state.next, 0, (), 0, (), (), 0)
        # Who has left already cannot stay, so somebody else has to come.
        wanted = tuple(each for each in state.wanted if each not in now.removed)
        wanted = wanted or now.voters
        known = (*now.members, *now.removed, *state.wanted)
        newest = max(map(generation_of, known))
        if now.epoch > core.log.commit:
            # Another leader may take it back.
            return Standing(
                core.term, state.next, state.plan, wanted, 0, (), (), newest
            )
        return Standing(
            core.term,
            state.next,
            state.plan,
            wanted,
            now.epoch,
            tuple(sorted(now.electors)),
            now.learners,
            newest,
        )

    @property
    def saves(self) -> bool:
        """Tell whether a checkpoint is due."""
        return self._unsaved >= self.settings.checkpoint_bytes

    def checkpoint(self) -> Checkpoint:
        """Return what a start needs that begins here, to be stored beside the log."""
        self._unsaved = 0
        return Checkpoint(self.raft.core.log.mark(), self.state.snapshot())

    # --- inputs

    def step(self, data: bytes) -> None:
        """Take the payload of a `Consensus` from another member.

        Raises:
            RaftMessageError: it is malformed or for somebody else.
        """
        self.raft.take(data)
        self.stirred = self.stirred or self.raft.stirred

    def durable(self, number: int) -> None:
        """Note that writes up to `number` are on the disk."""
        self.raft.durable(number)
        self.stirred = self.stirred or self.raft.stirred

    def tick(self, now: float) -> None:
        """Let time pass: `now` in seconds, never falling."""
        self.stirred = True
        self._now = max(now, self._now)
        ticks = int((self._now - self._ticked) / self.settings.tick)
        if ticks:
            self._ticked += ticks * self.settings.tick
            self.raft.tick(min(ticks, self.settings.ticks_max))
            if self._planned is not None and self.state.plan != self._arranged:
                self._arrange()

    def rest(self, now: float) -> None:
        """Let time pass that does not count: nobody has to say anything."""
        self._now = max(now, self._now)
        self._ticked = self._now

    def lost(self, member: int) -> None:
        """Note that the connection to another member broke."""
        self.stirred = True
        self.raft.unreachable(member)

    def transfer(self, member: int) -> None:
        """Hand the lead over to a voter, if this member has it.

        Raises:
            NotLeaderError: another member leads, or none.
        """
        self.stirred = True
        self.raft.transfer(member)

    def follow(self, plan: int, wanted: tuple[int, ...]) -> None:
        """Follow a decision of the repository, if this member leads and it is new."""
        planned = self._planned
        if planned is None or plan <= planned.plan or not wanted:
            return
        self.stirred = True
        data = entries.encode(Plan(plan, wanted))
        try:
            self.raft.propose([data])
        except UnavailableError:
            return  # It is asked for again.
        planned.apply(data)

    def _arrange(self) -> None:
        """Bring the membership one step nearer to what was decided."""
        core, state = self.raft.core, self.state
        if core.role is not Role.LEADER:
            return
        if is_there(core, state.wanted):
            self._arranged = state.plan
            return
        change = next_change(core, state.wanted)
        if change is None:
            return
        try:
            self.raft.change_membership(change)
        except (ChangeRefusedError, TransferringError, NotLeaderError):
            return  # The next tick looks again.

    def abandon(self) -> list[Request]:
        """Answer nobody any more; return who waited."""
        asked = [request for request, _ in self._pending.values()]
        asked += [request for _, request, _ in self._repeats]
        asked += self._questions.clear()
        asked += [] if self._stamps is None else self._stamps.abandon()
        asked += [request for request, _ in self._answers]
        self._pending, self._repeats, self._answers = {}, [], []
        return asked

    # --- requests

    def append(
        self,
        batches: Sequence[tuple[Request, bytes]],
        *,
        writer: int = 0,
        expected: int | None = None,
        repeat: bool = False,
    ) -> None:
        """Append batches that came together, each by itself; see `ShardState.admit`."""
        self.stirred = True
        logged: list[tuple[Request, Placed]] = []
        payloads: list[bytes] = []
        refused: list[tuple[Request, LogError]] = []
        try:
            planned = self._require_lead(len(batches))
        except LogError as error:
            self._answers += [(request, error) for request, _ in batches]
            return
        used = self.raft.core.log.tail_bytes()
        limit = self.raft.core.config.tail_bytes_max
        for request, batch in batches:
            try:
                place = planned.admit(batch, writer, expected, repeat=repeat)
                if used and used + entries.HEAD_BYTES + len(batch) > limit:
                    # As Raft would say it, before the state has it.
                    msg = f"{used} bytes wait for a majority, {len(batch)} do not fit"
                    raise NotReadyError(msg)
            except LogError as error:
                refused.append((request, error))
                continue
            position, count, new = place
            self._silent = self._now
            if not new:
                placed = Placed(position, count, 0)
                self._repeats.append((position + count, request, placed))
                continue
            data = entries.encode_append(count, position, writer, batch)
            planned.apply(data)
            payloads.append(data)
            used += len(data)
            logged.append((request, Placed(position, count, 0)))
        if payloads:
            index = self.raft.propose(payloads).begin
            for at, pending in enumerate(logged, index):
                self._pending[at] = pending
        if refused:
            self._refuse(refused)
        if self._repeats:
            self._answer_repeats()

    def acquire(
        self,
        request: Request,
        owner: str,
        *,
        ttl_ms: int = 0,
        expected: int | None = None,
        force: bool = False,
    ) -> None:
        """Make somebody the only writer; see `ShardState.grant`."""
        self.stirred = True
        try:
            planned = self._require_lead(1)
            ttl = planned.ttl_ms
            lapsed = ttl > 0 and (self._now - self._silent) * 1000 >= ttl
            grant = planned.grant(owner, ttl_ms, expected, lapsed=force or lapsed)
            self._log(planned, request, grant, Granted(grant.epoch, planned.next))
        except LogError as error:
            self._refuse([(request, error)])

    def release(self, request: Request, writer: int) -> None:
        """Let the log belong to nobody, if it belongs to this writer."""
        self.stirred = True
        try:
            planned = self._require_lead(1)
            planned.require_writer(writer)
            if writer:
                self._log(planned, request, Release(writer), None)
            else:
                self.find_end(request)
        except LogError as error:
            self._refuse([(request, error)])

    def renew(self, request: Request, writer: int) -> None:
        """Note that the owner is there; nothing is logged."""
        self.stirred = True
        try:
            self._require_lead(1).require_writer(writer)
            self._silent = self._now
            self.find_end(request)
        except LogError as error:
            self._refuse([(request, error)])

    def find_end(self, request: Request) -> None:
        """Answer where the log ends, linearizably, on any member."""
        self.stirred = True
        try:
            self._require_room(1)
            self._require_member()
            self._questions.add(Question((request,), lambda: [(request, self._end())]))
        except LogError as error:
            self._answers.append((request, error))

    def timestamps(self, request: Request, count: int, floor: int = 0) -> None:
        """Answer with timestamps that nobody got or gets, the first not below `floor`.

        They are greater than all that were given before this was asked for, by any
        leader.
        """
        self.stirred = True
        try:
            if not 1 <= count <= COUNT_MAX:
                msg = f"1 to {COUNT_MAX} timestamps are given at once, not {count}"
                raise InvalidArgumentError(msg)
            self._require_lead(1)
        except LogError as error:
            self._answers.append((request, error))
            return
        asked = Asked(request, count, floor)
        give = partial(self._give, asked)
        self._questions.add(Question((request,), give, leading=True))

    def _give(self, asked: Asked) -> Iterable[tuple[Request, Answer]]:
        """Give timestamps, as a majority has said that this member leads."""
        planned, stamps = self._planned, self._stamps
        assert planned is not None, "who lost the lead drops what it was asked"
        assert stamps is not None, "whoever is ready to lead gives timestamps"
        try:
            stamps.assign(asked)
        except LogError as error:
            return [(asked.request, error)]
        if until := stamps.lacking(planned.stamps):
            data = entries.encode(Reserve(until))
            try:
                self.raft.propose([data])
                planned.apply(data)
            except LogError as error:
                return [(each, error) for each in stamps.abandon()]
        return stamps.ready(self.state.stamps)

    def truncate(self, position: int) -> None:
        """Let records before a position go, if this member leads and has them."""
        planned = self._planned
        if planned is None or not planned.first < position <= self.state.next:
            return
        self.stirred = True
        data = entries.encode(Truncate(position))
        try:
            self.raft.propose([data])
        except UnavailableError:
            return  # It is asked for again.
        planned.apply(data)

    def _log(
        self,
        planned: ShardState,
        request: Request,
        entry: Grant | Release,
        done: Answer | None,
    ) -> None:
        data = entries.encode(entry)
        index = self.raft.propose([data]).begin
        planned.apply(data)
        self._silent = self._now
        self._pending[index] = request, done

    def _refuse(self, refused: list[tuple[Request, LogError]]) -> None:
        """Answer with refusals, of the log only when they are sure.

        Another may lead already, and what is not committed may be taken back: then the
        group would have taken what is refused here.
        """
        unsure = [each for each in refused if isinstance(each[1], _OF_THE_LOG)]
        self._answers += [each for each in refused if each not in unsure]
        if not unsure:
            return
        requests = tuple(request for request, _ in unsure)
        last = self.raft.core.log.last
        self._questions.add(Question(requests, lambda: unsure, last, leading=True))

    def _require_lead(self, count: int) -> ShardState:
        core = self.raft.core
        # It may have lost the lead to a message whose effects were not asked for yet.
        stands = core.role is Role.LEADER and core.term == self._term
        if self._planned is None or not stands or core.transfer:
            leader = 0 if core.leader == core.id else self.leader
            msg = f"node {node_of(core.id)} does not lead this shard"
            raise NotLeaderError(msg, leader=leader, term=core.term)
        self._require_room(count)
        return self._planned

    def _require_member(self) -> None:
        if self.raft.core.role is Role.REMOVED:
            node = node_of(self.raft.core.id)
            raise NotReadyError(f"node {node} is no member of this shard any more")

    def _require_room(self, count: int) -> None:
        if self.waiting + count > self.settings.requests_max:
            raise NotReadyError(f"{self.waiting} requests wait for this shard already")

    # --- outputs

    def effects(self) -> ShardEffects:
        """Return what has to be done since the last call; false if nothing has."""
        if not self.stirred:
            return _NOTHING
        self.stirred = False
        self._ask()
        if self.raft.stirred:
            self._drain()
        if self._folded < self.state.first and self._now >= self._fold_at:
            self._fold()
            if self.raft.stirred:
                self._drain()
        while due := self._questions.due(self.raft.core.log.applied):
            for each in due:
                self._answers += each.answer()
            # What they log has to go out, and they may have made room for others.
            self._ask()
            if self.raft.stirred:
                self._drain()
        done = ShardEffects(
            tuple(self._writes),
            tuple(self._messages),
            tuple(self._answers),
            self._advanced,
        )
        self._writes, self._messages, self._answers = [], [], []
        self._advanced = False
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
                self._messages.append((message.receiver, data))
            if (soft := effects.soft_state) is not None:
                self._stand(soft.role, soft.term)
            if effects.install:
                self._install(effects.install.index, effects.install.state)
            for entry in effects.committed:
                self._unsaved += entry.size
                self._apply(entry)
            if effects.committed:
                raft.applied(effects.committed[-1].index)
                if self._repeats:
                    self._answer_repeats()
            for read in effects.reads:
                if isinstance(read, ReadState):
                    self._questions.confirmed(read.context, read.index)
                else:
                    failed = self._questions.failed(read.context)
                    self._fail(failed, self._unconfirmed())

    def _install(self, index: int, state: bytes) -> None:
        self.state = ShardState(state)
        self._base = ShardState(state)
        self._folded = self.state.first
        self.places = Places()
        self._advanced = True
        self.raft.applied(index)

    def _stand(self, role: Role, term: int) -> None:
        if role is Role.LEADER and term == self._term:
            return
        self._resign()
        self._term = term if role is Role.LEADER else 0

    def _resign(self) -> None:
        """Answer what can no longer be known here."""
        self._planned = None
        error = self._unknown()
        self._answers += [(request, error) for request, _ in self._pending.values()]
        self._answers += [(request, error) for _, request, _ in self._repeats]
        stamps, self._stamps = self._stamps, None
        if stamps is not None:
            self._answers += [(request, error) for request in stamps.abandon()]
        self._pending, self._repeats = {}, []
        # What is not committed may be taken back, so nothing is refused for it.
        self._fail(self._questions.drop_leading(), self._unconfirmed())

    def _ask(self) -> None:
        """Ask the group what waits for it."""
        unasked, error = self._questions.send()
        if error is not None:
            self._fail(unasked, error)

    def _fail(self, questions: Iterable[Question[Answer]], error: LogError) -> None:
        self._answers += [(who, error) for each in questions for who in each.requests]

    def _unconfirmed(self) -> NotLeaderError:
        msg = "the leader could not confirm that it still leads"
        term = self.raft.core.term
        return NotLeaderError(msg, leader=self.leader, term=term)

    def _unknown(self) -> NotLeaderError:
        core = self.raft.core
        msg = "the leader of the shard changed meanwhile: it may have been done or not"
        error = NotLeaderError(msg, leader=self.leader, term=core.term)
        error.outcome = "unknown"
        return error

    def _apply(self, entry: Entry) -> None:
        if entry.kind is EntryKind.DATA:
            if (place := entries.place_of(entry.data)) is not None:
                self.places.note(place[0], entry.index)
            self.state.apply(entry.data)
            self._advanced = True
            if (pending := self._pending.pop(entry.index, None)) is not None:
                request, answer = pending
                if isinstance(answer, Placed):
                    answer = Placed(answer.position, answer.count, entry.index)
                elif answer is None:
                    answer = self._end()
                self._answers.append((request, answer))
            if self._stamps is not None and len(self._stamps):
                self._answers += self._stamps.ready(self.state.stamps)
        if self._term and entry.term == self._term and self._planned is None:
            # Everything of earlier terms is applied.
            self._planned, self._silent = self.state.copy(), self._now
            self._stamps = Stamps(self._planned.stamps)

    def _answer_repeats(self) -> None:
        still: list[tuple[int, Request, Placed]] = []
        for end, request, placed in self._repeats:
            if end <= self.state.next:
                self._answers.append((request, placed))
            else:
                still.append((end, request, placed))
        self._repeats = still

    # --- reads

    def _end(self) -> Ended:
        state = self.state
        return Ended(state.first, state.next, state.epoch, state.owner)

    # --- truncation

    def _fold(self) -> None:
        """Let the log begin later: a part of what was truncated, or all of it."""
        log, base, target = self.raft.core.log, self._base, self.state.first
        index = before = log.base.index
        size = 0
        while index < log.applied and size < self.settings.fold_bytes:
            for entry in self._reader.read(index + 1, log.applied + 1, 1 << 20):
                place = None
                if entry.kind is EntryKind.DATA:
                    place = entries.place_of(entry.data)
                if place is not None and sum(place) > target:
                    # Something of this one is kept.
                    size = self.settings.fold_bytes
                    break
                if entry.kind is EntryKind.DATA:
                    base.apply(entry.data)
                index = entry.index
                size += entry.size
        self._fold_at = self._now + self.settings.fold_pause
        if index == before:
            # Only what is kept in part is left.
            self._folded = target
            return
        self.raft.truncate(index, base.snapshot())
        self.places.drop(index + 1)
