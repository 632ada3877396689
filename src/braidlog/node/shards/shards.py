"""The shards of a node: which there are, and what goes to which of them.

*Theory of operation.* Where a shard is, the metadata says; a node makes its part of it
when it first hears of it, and from then on the members need nobody. A leader tells the
repository who leads and where the log ends, seldom, so that clients find it. A group in
which nothing is under way goes quiet: its leader says so once, and time does not count
for its members until something comes, or the leader's node is lost.

Inputs are handed on at once; `flush` gathers what follows at the end of a turn.

*Invariants.* A member is dropped only when the metadata has given its number and no
longer has its log.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from braidlog.errors import (
    LogError,
    NotReadyError,
    UnavailableError,
)
from braidlog.metarepo.events import Event
from braidlog.node.metrics.event_log import tell
from braidlog.node.peers.links import Peers
from braidlog.node.replication.reader import Readers
from braidlog.node.requests.forwarding import Answer as PeerAnswer
from braidlog.node.shards.shard_host import (
    Place,
    Plain,
    ShardHost,
    create,
    decode_quiet,
)
from braidlog.serving.sessions import Request
from braidlog.store.node_store import SHARD_PREFIX, NodeStore
from braidlog.wire import commands
from braidlog.wire.messages import (
    Acquire,
    Append,
    AppendTo,
    Consensus,
    GetShardEnd,
    Message,
    Read,
    Release,
)

_log = logging.getLogger(__name__)

SHARD_GROUPS: Final = 1 << 40
"""Numbers of groups from here on are those of shards, by the number of the stream."""
SHARD_REQUESTS: Final = (AppendTo, Acquire, Release, GetShardEnd)
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
        changed: Callable[[], None],
        execute: Execution,
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
        self._changed = changed
        self._execute = execute
        self._hosts: dict[int, ShardHost] = {}
        self._dirty: dict[int, None] = {}  # dicts, for their order
        self._note_at = 0.0
        for stream in store.groups(SHARD_PREFIX):
            self._host(stream)

    def _host(self, stream: int) -> ShardHost:
        host = self._hosts[stream] = ShardHost(
            stream,
            self._store,
            self._node,
            incarnation=self._incarnation,
            chance=self._chance,
            tick_s=self._tick_s,
            now=self._clock(),
            touch=lambda: self._touch(stream),
        )
        self._touch(stream)
        return host

    def _touch(self, stream: int) -> None:
        self._dirty[stream] = None
        self._changed()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._hosts)

    def __contains__(self, stream: int) -> bool:
        """Tell whether a stream is a shard that this node is a member of."""
        return stream in self._hosts

    @property
    def busy(self) -> bool:
        """Whether time counts for some of them."""
        return any(not host.quiet for host in self._hosts.values())

    @property
    def waits(self) -> bool:
        """Whether something of them is not durable, or not done."""
        return bool(self._dirty) or any(
            host.writes.stored or host.writes.lacks_room
            for host in self._hosts.values()
        )

    # --- what the metadata repository says

    def look(self, places: Iterable[Place], given: int) -> None:
        """Become a member of the shards that are placed here.

        Of the streams below ``given`` the places are all there are: others, whose
        numbers are never given again, were deleted.
        """
        found = {each.stream: each for each in places if self._node in each.voters}
        for stream, place in found.items():
            host = self._hosts.get(stream)
            if host is None:
                try:
                    create(self._store, place)
                except UnavailableError as error:
                    _log.warning("shard %d waits for disk space: %s", stream, error)
                    continue
                host = self._host(stream)
                self._tell(place, "shard_member", "a member")
            if host.place != place:
                host.place = place
                host.wake()
                self._touch(stream)
        for stream in sorted(self._hosts.keys() - found.keys()):
            if stream < given:
                self._drop(stream, self._hosts[stream])

    def _drop(self, stream: int, host: ShardHost) -> None:
        try:
            host.drop(self._readers, self._not_here(stream))
        except UnavailableError as error:
            _log.warning("shard %d cannot be deleted yet: %s", stream, error)
            return
        del self._hosts[stream]
        self._dirty.pop(stream, None)
        if host.place is not None:
            self._tell(host.place, "shard_dropped", "no member any more")

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
        group = [(r, bytes(b)) for r, b in zip(requests, batches, strict=True)]
        host.member.append(group, repeat=message.repeat)

    def take(self, request: Request, message: Message, payload: memoryview) -> None:
        """Take any other request.

        Raises:
            NotReadyError: the shard has no member here.
        """
        asked = Plain(request)
        match message:
            case Read(stream=stream):
                host = self._hosts[stream]
                self._readers.read(host.readers, request, message, self._clock())
            case AppendTo(stream, writer, expected, repeat):
                self._awake(stream).member.append(
                    [(asked, bytes(payload))],
                    writer=writer,
                    expected=expected or None,
                    repeat=repeat,
                )
            case Acquire(stream, owner, ttl_ms, expected, force):
                self._awake(stream).member.acquire(
                    asked, owner, ttl_ms=ttl_ms, expected=expected, force=force
                )
            case Release(stream, writer):
                self._awake(stream).member.release(asked, writer)
            case GetShardEnd(stream, writer):
                host = self._awake(stream)
                if writer:
                    host.member.renew(asked, writer)
                else:
                    host.member.find_end(asked)
                host.asked = True

    def _awake(self, stream: int) -> ShardHost:
        host = self._hosts.get(stream)
        if host is None:
            raise self._not_here(stream)
        host.wake()
        self._touch(stream)
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
        host = self._hosts.get(stream)
        if host is None:
            return  # It was deleted, or this node has not heard of it yet.
        if (said := decode_quiet(data)) is not None:
            host.rests_with(*said)
            return
        host.wake()
        host.member.step(data)
        self._touch(stream)

    def lost(self, node: int) -> None:
        """Note that the connection to a node broke."""
        for stream, host in self._hosts.items():
            core = host.member.raft.core
            if node in core.membership.electors:
                host.wake()
                host.member.lost(node)
                self._touch(stream)

    # --- time and disk

    def tick(self, now: float) -> None:
        """Let time pass."""
        for stream, host in self._hosts.items():
            if host.tick(now):
                silence = host.silence()
                for peer in host.member.raft.core.log.peers:
                    self._send(stream, peer, silence)
            if host.member.stirred:
                self._touch(stream)
            if host.readers.waiting:
                self._readers.wake(host.readers, now, due_only=True)
        if now >= self._note_at:
            self._note_at = now + _NOTE_S
            self._note()

    def synced(self, durable: int) -> None:
        """Note what is durable."""
        for stream, host in self._hosts.items():
            if host.writes.stored and (number := host.writes.durable(durable)):
                host.member.durable(number)
                self._touch(stream)

    def damaged(self, streams: set[int]) -> None:
        """Say of which shards the log has damage, numbered as in the store."""
        for stream, host in self._hosts.items():
            if host.log.stored_as in streams:
                _log.error(
                    "entries of shard %d cannot be read on this node",
                    stream,
                    extra={"stream": stream},
                )

    # --- effects

    def flush(self, now: float) -> bool:
        """Do what the members ask for; tell whether there was anything."""
        dirty, self._dirty = self._dirty, {}
        for stream in dirty:
            host = self._hosts.get(stream)
            if host is not None:
                self._carry_out(stream, host, now)
        return bool(dirty)

    def _carry_out(self, stream: int, host: ShardHost, now: float) -> None:
        member = host.member
        if host.place is not None and member.state.first < host.place.trim:
            member.truncate(min(host.place.trim, member.state.next))
        led = member.leads
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

    def _send(self, stream: int, peer: int, data: bytes) -> None:
        self._peers.send(peer, Consensus(SHARD_GROUPS + stream), (data,))

    def _hand_over(self, host: ShardHost) -> None:
        core = host.member.raft.core
        able = [each for each in core.log.peers if self._peers.is_connected(each)]
        if host.member.leads and able and not core.transfer:
            host.member.transfer(max(able, key=core.log.matched))

    def _note(self) -> None:
        """Tell the repository where the shards end that this node leads."""
        news: list[tuple[ShardHost, commands.ShardNews]] = []
        for stream, host in self._hosts.items():
            stands = host.member.raft.core.term, host.member.state.next
            if host.member.leads and stands != host.noted and not host.noting:
                news.append((host, commands.ShardNews(stream, *stands)))
                host.noting = True
        if not news:
            return
        command = commands.ReportShards(self._node, tuple(each for _, each in news))

        def answered(answer: Message | LogError, _: memoryview) -> None:
            for host, each in news:
                host.noting = False
                if not isinstance(answer, LogError):
                    host.noted = each.term, each.next

        self._execute(b"", commands.encode(command), answered)

    # --- to look at

    def status(self) -> Iterator[ShardHost]:
        """Return all, in the order of their numbers."""
        for _, host in sorted(self._hosts.items()):
            yield host
