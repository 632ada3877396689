"""One shard on a node: its member, its log on the disk, who reads and waits."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from braidlog.errors import LogError
from braidlog.node.metrics.status import ReplicaStatus
from braidlog.node.replication.reader import Readers, StreamReaders
from braidlog.node.repository.group_writes import GroupWrites
from braidlog.node.repository.raft_log import GroupLog
from braidlog.node.shards.places import Place
from braidlog.node.shards.saved_state import SavedState
from braidlog.node.shards.shard_reading import ShardReplica
from braidlog.node.shards.waiting import Waiting
from braidlog.raft import Base, Membership, RaftConfig
from braidlog.serving.sessions import Request, Session
from braidlog.shard import ShardMember, ShardSettings, ShardState
from braidlog.shard.member import Ended, Granted, Placed, Standing
from braidlog.shard.stamps import Stamped
from braidlog.store.node_store import NodeStore, shard_name
from braidlog.wire.members import generation_of
from braidlog.wire.messages import Acquired, Appended, ShardEnd, Timestamps
from braidlog.wire.server import AppendRow

ELECTION_TICKS: Final = 10
HEARTBEAT_TICKS: Final = 2
CACHE_BYTES: Final = 4 << 20
"""Entries of one shard that are kept in memory."""
QUIET_TICKS: Final = 20
"""Ticks in which nothing is under way before a group goes quiet."""


class Plain(NamedTuple):
    """A request that is no `Append`: its answer is a message of its own."""

    request: Request


class Retained:
    """A shard that this node leads, as retention looks at it."""

    def __init__(self, stream: int, state: ShardState, options: bytes) -> None:
        """Look at the state within one turn of the loop."""
        self.stream = stream
        self.options = options
        self._state = state

    def young(self, timestamp: int) -> int:
        """Return a position before which all is older; 0 if none is known."""
        return self._state.extent.young(timestamp, self._state.next)

    def sizes(self, points_max: int) -> tuple[tuple[int, int], ...]:
        """Return (position, bytes from there on), positions rising."""
        return self._state.extent.sizes(points_max)


def create(store: NodeStore, place: Place, member: int) -> None:
    """Create the log of a member; durable on return."""
    base = Base(membership=Membership(voters=place.founders(member)))
    group, prefix = shard_name(place.stream, generation_of(member))
    GroupLog.create(store, group, base, prefix)


def delete(store: NodeStore, stream: int, member: int) -> None:
    """Delete the log of a member that cannot be read; durable on return."""
    number, prefix = shard_name(stream, generation_of(member))
    name = f"{prefix}{number}"
    for each in (f"{name}.mark", name, f"{name}.hard"):
        if store.options(each) is not None:
            store.delete(each)


class ShardHost:
    """Drives a `ShardMember`: writes what it writes, answers what it answers."""

    def __init__(
        self,
        stream: int,
        store: NodeStore,
        member: int,
        *,
        incarnation: int,
        chance: random.Random,
        tick_s: float,
        now: float,
        touch: Callable[[], None],
        waiting: Waiting,
    ) -> None:
        """Start from what the disk holds.

        Raises:
            CorruptionError, RaftInvariantError: what is stored cannot be.
        """
        self.stream = stream
        self._waiting = waiting
        self.place: Place | None = None
        """What the repository said last; None: nothing since the start."""
        self.log = GroupLog(store, *shard_name(stream, generation_of(member)))
        self.writes = GroupWrites(self.log, f"shard {stream}")
        raft = RaftConfig(
            id=member,
            incarnation=incarnation,
            jitter=lambda: chance.randint(0, ELECTION_TICKS),
            election_ticks=ELECTION_TICKS,
            heartbeat_ticks=HEARTBEAT_TICKS,
            commit_lag=256,
            cache_bytes_max=CACHE_BYTES,
        )
        settings = ShardSettings(tick=tick_s)
        self._saved = SavedState(store, self.log)
        saved = self._saved.load()
        behind = 0 if saved is None else saved.mark.index
        stored = self.log.load(behind)
        self.member = ShardMember(settings, raft, stored, self.log, now, saved)
        self.replica = ShardReplica(stream, self.member, self.log)
        self.readers = StreamReaders(self.replica, touch)
        self.noted: Standing | None = None
        """What the repository was told last."""
        self.is_noted = False
        """Whether that was all there is to tell, when it was looked at last."""
        self.noting = False
        self.asked = False
        """Whether somebody has asked where the log ends."""
        self.damaged = False
        """Whether something of its log cannot be read."""
        self.broken = False
        """Whether it takes no part any more because of that, as if it had crashed."""
        self._calm = 0
        self.quiet = False
        """Whether nobody says anything until something happens."""

    @property
    def retained(self) -> Retained | None:
        """What retention looks at, if this member leads."""
        if self.place is None or not self.member.leads:
            return None
        return Retained(self.stream, self.member.state, self.place.options)

    # --- time

    def tick(self, now: float) -> bool:
        """Let time pass; tell whether the others should be told to rest."""
        if self.quiet:
            self.member.rest(now)
            return False
        leads = self.member.leads
        self._calm = self._calm + 1 if leads and self.member.quiet else 0
        self.member.tick(now)
        if self._calm < QUIET_TICKS:
            return False
        self.quiet = True
        return True

    def wake(self) -> None:
        """Let time count again."""
        self.quiet, self._calm = False, 0

    def heard(self) -> None:
        """Let time count: another member speaks, perhaps only to be heard."""
        self.quiet = False

    def rests_with(self, term: int, commit: int) -> None:
        """Rest, if this member has all that its leader has."""
        core = self.member.raft.core
        same = core.term == term and core.log.commit == core.log.last == commit
        if same and core.leader not in (0, core.id) and not core.suspected:
            self.quiet = not self.member.waiting

    def silence(self, peer: int) -> bytes:
        """Return what a leader says to another member when it goes quiet."""
        core = self.member.raft.core
        return encode_quiet(peer, core.term, core.log.commit)

    @property
    def takes_part(self) -> bool:
        """Whether the group has this member, as far as it knows."""
        core = self.member.raft.core
        return core.id in core.membership.members

    def status(self) -> ReplicaStatus:
        """Return the member as it is now."""
        core, state = self.member.raft.core, self.member.state
        if core.id not in core.membership.electors:
            role = "learner"
        else:
            role = "leader" if self.member.leads else "follower"
        standing = "quiet" if self.quiet else "running"
        if self.damaged:
            standing = "failed" if self.broken else "damaged"
        return ReplicaStatus(
            stream=self.stream,
            log=self.place.name if self.place is not None else "",
            state=standing,
            role=role,
            epoch=core.term,
            low=state.first,
            committed=state.next,
            end=state.next,
            version=core.log.commit,
            high_watermark=state.next - 1,
            waiting=self.member.waiting,
        )

    # --- effects

    def answer(self, answers: Sequence[tuple[object, object]]) -> None:
        """Answer requests: appends of one connection all at once."""
        placed: dict[Session, list[AppendRow]] = {}
        for asked, answer in answers:
            if isinstance(asked, Plain):
                self._waiting.give(asked.request.session)
                _answer(asked.request, answer)
                continue
            assert isinstance(asked, Request)  # noqa: S101, RUF100
            self._waiting.give(asked.session)
            if isinstance(answer, Placed):
                at = answer.position
                row = (asked.number, at, at, answer.count, answer.index)
                placed.setdefault(asked.session, []).append(row)
            elif isinstance(answer, LogError):
                asked.fail(answer)
        for session, rows in placed.items():
            session.answer_appends(rows)

    def drop(self, readers: Readers, error: LogError) -> None:
        """End everything and delete the log."""
        readers.drop(self.readers, error)
        self.answer([(each, error) for each in self.member.abandon()])
        self._saved.delete()
        self.log.delete()

    def give_up(self, readers: Readers, error: LogError) -> None:
        """Take no part any more: what has to be read cannot be."""
        self.damaged = self.broken = True
        readers.drop(self.readers, error)
        self.answer([(each, error) for each in self.member.abandon()])

    def save(self) -> None:
        """Store a checkpoint, if one is due."""
        if self.member.saves:
            self._saved.store(self.member.checkpoint())


def _answer(request: Request, answer: object) -> None:
    match answer:
        case LogError():
            request.fail(answer)
        case Placed(position, count, index):
            request.answer(Appended(position, position, count, index))
        case Granted(epoch, following):
            request.answer(Acquired(epoch, following))
        case Stamped(first):
            request.answer(Timestamps(first))
        case Ended(first, following, epoch, owner):
            request.answer(ShardEnd(first, following, epoch, owner))


_QUIET: Final = b"quiet"
_QUIET_BODY: Final = struct.Struct("<QQQ")


def encode_quiet(receiver: int, term: int, commit: int) -> bytes:
    """Return the payload with which a leader goes quiet."""
    return _QUIET + _QUIET_BODY.pack(receiver, term, commit)


def decode_quiet(data: bytes) -> tuple[int, int, int] | None:
    """Return member, term and commit index of such a payload; None if it is another."""
    if len(data) != len(_QUIET) + _QUIET_BODY.size or not data.startswith(_QUIET):
        return None
    receiver, term, commit = _QUIET_BODY.unpack_from(data, len(_QUIET))
    return receiver, term, commit
