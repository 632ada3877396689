"""The shards of a node: which there are, and what goes to which of them.

*Theory of operation.* Where a shard is, the metadata says; a node makes its part of it
when it first hears of it, and from then on the members need nobody. A leader tells the
repository who leads and where the log ends, seldom, so that clients find it. A group in
which nothing is under way goes quiet: its leader says so once, and time does not count
for its members until something comes, or the leader's node is lost.

Inputs are handed on at once; `flush` gathers what follows at the end of a turn.

*Invariants.* A member is dropped only when metadata that is no older than the start of
the node has given its number and no longer has its log, or says that the group has it
no more; and made only of such metadata, so a member that was dropped is not made again.
"""
# One file: every input of a node that is about a shard, and what follows from it.

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import msgspec

from braidlog.errors import (
    CorruptionError,
    LogError,
    NotReadyError,
    UnavailableError,
)
from braidlog.metarepo.events import Event
from braidlog.node.metrics.event_log import tell
from braidlog.node.metrics.status import ReplicaStatus
from braidlog.node.peers.links import Peers
from braidlog.node.replication.reader import Readers
from braidlog.node.requests.forwarding import Answer as PeerAnswer
from braidlog.node.shards.places import Place
from braidlog.node.shards.shard_host import (
    Plain,
    Retained,
    ShardHost,
    create,
    decode_quiet,
    delete,
)
from braidlog.node.shards.waiting import Waiting
from braidlog.raft import codec
from braidlog.serving.sessions import Request
from braidlog.shard.member import Standing
from braidlog.store.node_store import NodeStore
from braidlog.wire import commands
from braidlog.wire.members import member_of, node_of
from braidlog.wire.messages import (
    Acquire,
    Append,
    AppendTo,
    Consensus,
    GetShardEnd,
    GetTimestamps,
    Message,
    Read,
    Release,
)

_log = logging.getLogger(__name__)

SHARD_GROUPS: Final = 1 << 40
"""Numbers of groups from here on are those of shards, by the number of the stream."""
SHARD_REQUESTS: Final = (AppendTo, Acquire, Release, GetShardEnd, GetTimestamps)
ShardRequest: TypeAlias = AppendTo | Acquire | Release | GetShardEnd | GetTimestamps
_NOTE_S: Final = 0.1
"""Between two times that the repository is told where shards end."""

Execution = Callable[[bytes, bytes, PeerAnswer], None]


class Shards:
    """All shards of a node; see the module."""

    def __init__(
        self,
        node: int,
        store: NodeStore,
        peers: Peers,
        readers: Readers,
        *,
        incarnation: int,
        chance: random.Random,
        tick_s: float,
        clock: Callable[[], float],
        wall_clock: Callable[[], int],
        changed: Callable[[], None],
        execute: Execution,
        connections: Callable[[], int],
    ) -> None:
        """Load what the disk has; `changed` asks for a flush soon."""
        self._node = node
        self._store = store
        self._peers = peers
        self._readers = readers
        self._incarnation = incarnation
        self._chance = chance
        self._tick_s = tick_s
        self._clock = clock
        self._wall_clock = wall_clock
        self._changed = changed
        self._execute = execute
        self._waiting = Waiting(connections)
        self._hosts: dict[tuple[int, int], ShardHost] = {}
        """By stream and member."""
        self._serving: dict[int, ShardHost] = {}
        """By stream: what clients are served by."""
        self._dirty: dict[tuple[int, int], None] = {}  # dicts, for their order
        self._note_at = 0.0
        self._unreadable: dict[tuple[int, int], None] = {}
        """Members whose log cannot be read at all; they take no part."""
        self._told: frozenset[tuple[int, int]] = frozenset()
        """Damaged members of which the repository was told."""
        for stream, generation in store.shard_members():
            member = member_of(node, generation)
            try:
                self._host(stream, member)
            except CorruptionError as error:
                self._unreadable[stream, member] = None
                self._complain(stream, error)

    def _host(self, stream: int, member: int) -> ShardHost:
        key = stream, member
        host = self._hosts[key] = ShardHost(
            stream,
            self._store,
            member,
            incarnation=self._incarnation,
            chance=self._chance,
            tick_s=self._tick_s,
            now=self._clock(),
            touch=lambda: self._touch(host),
            waiting=self._waiting,
        )
        self._serve(stream)
        self._touch(host)
        return host

    def _serve(self, stream: int) -> None:
        """Choose what clients are served by: the newest that the group has."""
        here = [host for (number, _), host in self._hosts.items() if number == stream]
        if not here:
            self._serving.pop(stream, None)
            return
        here = [host for host in here if not host.broken] or here
        part = [host for host in here if host.takes_part]
        newest = max(part or here, key=lambda host: host.member.raft.core.id)
        self._serving[stream] = newest

    def _touch(self, host: ShardHost) -> None:
        self._dirty[host.stream, host.member.raft.core.id] = None
        self._changed()

    def __len__(self) -> int:
        """Return of how many shards something is here."""
        return len(self._serving)

    def __contains__(self, stream: int) -> bool:
        """Tell whether a stream is a shard that this node is a member of."""
        return stream in self._serving

    @property
    def busy(self) -> bool:
        """Whether time counts for some of them."""
        return any(not h.quiet for h in self._hosts.values() if not h.broken)

    @property
    def waits(self) -> bool:
        """Whether something of them is not durable, or not done."""
        return bool(self._dirty) or any(
            host.writes.stored or host.writes.lacks_room
            for host in self._hosts.values()
            if not host.broken
        )

    # --- what the metadata repository says

    def look(self, places: Iterable[Place], given: int, *, fresh: bool) -> None:
        """Have the members that are placed here.

        Of the streams below ``given`` the places are all there are: others, whose
        numbers are never given again, were deleted. What is not ``fresh`` may be older
        than what this node has made and deleted: it only says what is to be done.
        """
        found = {each.stream: each for each in places}
        if fresh:
            self._make(found)
        for stream, member in sorted(self._hosts):
            host = self._hosts[stream, member]
            place = found.get(stream)
            if place is not None and member in place.kept:
                if host.place != place:
                    host.place = place
                    host.wake()
                    self._touch(host)
            elif fresh and (stream < given if place is None else place.settled):
                self._drop(host)
        for key in list(self._unreadable) if fresh else ():
            place = found.get(key[0])
            gone = key[0] < given if place is None else place.settled
            if gone and (place is None or key[1] not in place.kept):
                self._forget(*key)

    def _make(self, found: dict[int, Place]) -> None:
        for stream, place in found.items():
            for member in place.due(self._node):
                key = stream, member
                if key in self._hosts or key in self._unreadable:
                    continue
                try:
                    create(self._store, place, member)
                except UnavailableError as error:
                    _log.warning("shard %d waits for disk space: %s", stream, error)
                    continue
                self._host(stream, member)
                self._tell(place, "shard_member", "a member")

    def _drop(self, host: ShardHost) -> None:
        stream = host.stream
        try:
            host.drop(self._readers, self._not_here(stream))
        except UnavailableError as error:
            _log.warning("shard %d cannot be deleted yet: %s", stream, error)
            return
        key = stream, host.member.raft.core.id
        del self._hosts[key]
        self._dirty.pop(key, None)
        self._serve(stream)
        if host.place is not None:
            self._tell(host.place, "shard_dropped", "no member any more")

    def _forget(self, stream: int, member: int) -> None:
        try:
            delete(self._store, stream, member)
        except UnavailableError as error:
            _log.warning("shard %d cannot be deleted yet: %s", stream, error)
            return
        del self._unreadable[stream, member]

    def _complain(self, stream: int, error: LogError) -> None:
        _log.error(
            "the log of shard %d cannot be read on this node, and is replaced: %s",
            stream,
            error.message,
            extra={"stream": stream},
        )

    def _break(self, host: ShardHost, error: CorruptionError) -> None:
        """Go on without a member that has to read what cannot be read."""
        self._complain(host.stream, error)
        host.give_up(self._readers, self._not_here(host.stream))
        self._serve(host.stream)

    def _tell(self, place: Place, name: str, what: str) -> None:
        text = f"this node is {what} of shard {place.stream} of {place.name}"
        fields: dict[str, int | str] = {"stream": place.stream, "log": place.name}
        tell(_log, self._node, Event(name, text, fields))  # type: ignore[arg-type]

    # --- what clients say

    def append(
        self,
        message: Append,
        requests: Sequence[Request],
        batches: Sequence[bytes | memoryview],
    ) -> None:
        """Append batches that came together."""
        host = self._awake(message.stream)
        if requests:
            try:
                self._waiting.take(requests[0].session, len(requests))
            except NotReadyError as error:
                for request in requests:
                    request.fail(error)
                return
        group = [(r, bytes(b)) for r, b in zip(requests, batches, strict=True)]
        host.member.append(group, repeat=message.repeat)

    def take(
        self, request: Request, message: ShardRequest | Read, payload: memoryview
    ) -> None:
        """Take any other request.

        Raises:
            NotReadyError: the shard has no member here, or the connection has as many
                requests waiting as it may have.
        """
        if isinstance(message, Read):
            host = self._awake(message.stream)
            self._readers.read(host.readers, request, message, self._clock())
            return
        host = self._awake(message.stream)
        self._waiting.take(request.session)
        asked = Plain(request)
        match message:
            case AppendTo(_, writer, expected, repeat):
                host.member.append(
                    [(asked, bytes(payload))],
                    writer=writer,
                    expected=expected or None,
                    repeat=repeat,
                )
            case Acquire(_, owner, ttl_ms, expected, force):
                host.member.acquire(
                    asked, owner, ttl_ms=ttl_ms, expected=expected, force=force
                )
            case Release(_, writer):
                host.member.release(asked, writer)
            case GetTimestamps(_, count, wall):
                floor = self._wall_clock() if wall else 0
                host.member.timestamps(asked, count, floor)
            case GetShardEnd(_, writer):
                if writer:
                    host.member.renew(asked, writer)
                else:
                    host.member.find_end(asked)
                host.asked = True

    def _awake(self, stream: int) -> ShardHost:
        host = self._serving.get(stream)
        if host is None or host.broken:
            raise self._not_here(stream)
        host.wake()
        self._touch(host)
        return host

    def _not_here(self, stream: int) -> LogError:
        return NotReadyError(f"node {self._node} is no member of shard {stream}")

    # --- what peers say

    def consensus(self, group: int, data: bytes) -> None:
        """Take a message of a group.

        Raises:
            RaftMessageError: it is malformed or for somebody else.
        """
        stream = group - SHARD_GROUPS
        if (said := decode_quiet(data)) is not None:
            receiver, *stands = said
            if (host := self._hosts.get((stream, receiver))) is not None:
                host.rests_with(*stands)
            return
        host = self._hosts.get((stream, codec.receiver_of(data)))
        if host is None or host.broken:
            return  # It was deleted, or this node has not heard of it yet.
        host.heard()
        try:
            host.member.step(data)
        except CorruptionError as error:
            self._break(host, error)
            return
        self._touch(host)

    def lost(self, node: int) -> None:
        """Note that the connection to a node broke."""
        for host in self._hosts.values():
            for member in host.member.raft.core.membership.electors:
                if node_of(member) == node:
                    host.wake()
                    host.member.lost(member)
                    self._touch(host)

    # --- time and disk

    def tick(self, now: float) -> None:
        """Let time pass."""
        for host in self._hosts.values():
            if host.broken:
                continue
            if host.tick(now):
                for peer in host.member.raft.core.log.peers:
                    self._send(host.stream, peer, host.silence(peer))
            if host.member.stirred:
                self._touch(host)
            if host.readers.waiting:
                self._readers.wake(host.readers, now, due_only=True)
        if now >= self._note_at:
            self._note_at = now + _NOTE_S
            self._note()

    def synced(self, durable: int) -> None:
        """Note what is durable."""
        for host in self._hosts.values():
            if host.broken:
                continue
            if host.writes.stored and (number := host.writes.durable(durable)):
                host.member.durable(number)
                self._touch(host)

    def damaged(self, streams: set[int]) -> set[int]:
        """Note damage in logs, numbered as in the store; return which are of shards."""
        found: set[int] = set()
        for host in self._hosts.values():
            number = host.log.stored_as
            if number in streams:
                found.add(number)
                host.damaged = True
                self._touch(host)
        return found

    # --- effects

    def flush(self, now: float) -> bool:
        """Do what the members ask for; tell whether there was anything."""
        dirty, self._dirty = self._dirty, {}
        for key in dirty:
            host = self._hosts.get(key)
            if host is None or host.broken:
                continue
            try:
                self._carry_out(host, now)
            except CorruptionError as error:
                self._break(host, error)
        return bool(dirty)

    def _carry_out(self, host: ShardHost, now: float) -> None:
        member, stream = host.member, host.stream
        if (place := host.place) is not None:
            if member.state.first < place.trim:
                member.truncate(min(place.trim, member.state.next))
            if member.state.plan < place.plan:
                member.follow(place.plan, place.wanted)
        led, part = member.leads, host.takes_part
        effects = member.effects()
        for peer, data in effects.messages:
            self._send(stream, peer, data)
        if effects.writes or host.writes.lacks_room:
            if effects.messages:
                # The others work while this node writes.
                self._peers.flush()
            host.writes.put(effects.writes)
            if host.writes.lacks_room:
                self._hand_over(host)
        if effects.answers:
            host.answer(effects.answers)
        if effects.advanced:
            self._readers.wake(host.readers, now)
        if member.leads and (not led or host.asked):
            # Clients look for it, or are about to name a position there.
            self._note()
        host.asked = False
        if not host.writes.lacks_room:
            host.save()
        host.damaged = host.damaged or host.replica.damaged
        if host.damaged and member.leads:
            # Whoever follows may need what cannot be read.
            self._hand_over(host)
        if host.takes_part != part:
            self._serve(stream)

    def _send(self, stream: int, peer: int, data: bytes) -> None:
        message, node = Consensus(SHARD_GROUPS + stream), node_of(peer)
        if node != self._node:
            self._peers.send(node, message, (data,))
            return
        host = self._hosts.get((stream, peer))
        if host is not None and not host.broken:
            # A member that takes the place of an earlier one on the same node.
            host.wake()
            host.member.step(data)
            self._touch(host)

    def _hand_over(self, host: ShardHost) -> None:
        core = host.member.raft.core
        able = [
            each
            for each in core.log.peers
            if each in core.membership.voters and self._is_near(node_of(each))
        ]
        if host.member.leads and able and not core.transfer:
            host.member.transfer(max(able, key=core.log.matched))

    def _is_near(self, node: int) -> bool:
        return node == self._node or self._peers.is_connected(node)

    def _note(self) -> None:
        """Tell the repository where the shards end that this node leads."""
        news: list[tuple[ShardHost, Standing]] = []
        for host in self._hosts.values():
            if not host.member.leads or host.noting or host.broken:
                continue
            if host.quiet and host.is_noted:
                continue
            standing = host.member.standing()
            host.is_noted = standing == host.noted
            if not host.is_noted:
                news.append((host, standing))
                host.noting = True
        damaged = frozenset(self._unreadable) | {
            key for key, host in self._hosts.items() if host.damaged
        }
        if not news and damaged <= self._told:
            return
        shards = tuple(
            commands.ShardNews(host.stream, *msgspec.structs.astuple(each))
            for host, each in news
        )
        command = commands.ReportShards(self._node, shards, tuple(sorted(damaged)))

        def answered(answer: Message | LogError, _: memoryview) -> None:
            for host, each in news:
                host.noting = False
                if not isinstance(answer, LogError):
                    host.noted = each
            if not isinstance(answer, LogError):
                self._told = damaged

        self._execute(b"", commands.encode(command), answered)

    # --- to look at

    def retained(self) -> Iterator[Retained]:
        """Return the shards that this node leads, as retention looks at them."""
        for host in self._hosts.values():
            if (shard := host.retained) is not None:
                yield shard

    def status(self) -> Iterator[ReplicaStatus]:
        """Return the members as they are now, in the order of their shards."""
        for _, host in sorted(self._hosts.items()):
            yield host.status()
