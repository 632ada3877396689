"""A node: what comes in goes to its replicas and its member of the repository.

*One turn.* Everything that comes in within one turn of the event loop is handed to the
cores at once, and only marks what it touched. `_carry_out` runs once at the end of the
turn (`braidlog.node.flush_scheduler`): it carries out all effects, so that many
requests share a write, a sync, a message and a system call. What is sent leaves before
anything is synced, and what a sync lets go leaves at once. Nothing here decides
anything.
"""
# One file: it joins the parts of a node, and has the order in which a turn runs them.

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, TypeAlias

from braidlog.errors import ClosedError, LogError, NotReadyError
from braidlog.node.config import NodeConfig, replica_limits
from braidlog.node.errors import begun_anew
from braidlog.node.flush_scheduler import FlushScheduler
from braidlog.node.input_guard import InputGuard
from braidlog.node.leader.registration import Registration
from braidlog.node.leader.replica_offer import ReplicaOffer
from braidlog.node.leader.reporting import Reporting
from braidlog.node.leader.retention import Retained, Retention
from braidlog.node.leader.sync_times import SyncTimes
from braidlog.node.metrics.status import NodeStatus, Observed
from braidlog.node.observer import Observer
from braidlog.node.peers.directory import Directory
from braidlog.node.peers.identity import begin_incarnation, write_again
from braidlog.node.peers.links import LinkSettings, Peers
from braidlog.node.peers.peer_identity import PeerIdentity
from braidlog.node.poll_handler import PollHandler
from braidlog.node.readiness import Readiness
from braidlog.node.reload import ReloadCounters
from braidlog.node.replication.replicas import Replicas
from braidlog.node.replication.scrub import Scrub
from braidlog.node.repository.member import (
    FIRST_GROUP,
    HEARTBEAT_TICKS,
    RepositoryMember,
    end_groups,
)
from braidlog.node.repository.raft_log import GroupLog
from braidlog.node.repository.route import RepositoryRoute
from braidlog.node.requests.requests import Requests
from braidlog.node.rescue.fault_log import FaultLog
from braidlog.node.rescue.faults import FaultRecorder
from braidlog.node.rescue.group_base import begin_base
from braidlog.node.shards.places import knows_start, places_in, places_of
from braidlog.node.shards.shards import SHARD_GROUPS, SHARD_REQUESTS, Shards
from braidlog.node.syncer import Syncer, ThreadSyncer
from braidlog.node.tables.tables import TABLE_REQUESTS, Tables, TableWork
from braidlog.node.tick_schedule import TickSchedule
from braidlog.serving.admission import Capacity
from braidlog.serving.descriptors import places
from braidlog.serving.sessions import Request, Session, Sessions
from braidlog.serving.shares import ShareBounds, Shares
from braidlog.serving.transport import Outbox, Wire
from braidlog.store.node_store import GROUP_PREFIX, NodeStore
from braidlog.wire import codec
from braidlog.wire.connection import VERSION_MAX, VERSION_MIN, Poll
from braidlog.wire.events import Appends, Received, Requested, Taken
from braidlog.wire.messages import (
    FEATURES,
    FEATURES_OF_TABLES,
    Append,
    Commit,
    Configure,
    Consensus,
    Entries,
    Faults,
    Feature,
    Fetch,
    GetShardEnd,
    Hello,
    Message,
    Read,
    Recorded,
    Reload,
    Replicate,
    Report,
)
from braidlog.wire.proof import Challenger
from braidlog.wire.roles import Role
from braidlog.wire.server import Authorizer, ServerSettings

_log = logging.getLogger(__name__)

_NOTHING: Final = memoryview(b"")


def _features(*, tables: bool, core: bool) -> Feature:
    """Return what this node knows."""
    found = FEATURES | (FEATURES_OF_TABLES if tables else Feature(0))
    return found | (Feature.CORE_SOCKETS if core else Feature(0))


Part: TypeAlias = Callable[[int, Any, memoryview], None]
"""Takes a message of a node, and its payload."""


class ClusterNode:
    """One node on an open store; the server gives it sockets."""

    reload: Callable[[Request], None] | None = None
    """Reads the settings again for who asks; None: nobody has any."""

    def __init__(
        self,
        config: NodeConfig,
        store: NodeStore,
        syncer: Syncer,
        *,
        authorize: Authorizer,
        tls: ssl.SSLContext | None,
        token: str,
        seed: int,
        faults: FaultLog | None = None,
        challenger: Challenger | None = None,
        shares: ShareBounds | None = None,
        files_max: int = 0,
        tables: TableWork | None = None,
        clock: Callable[[], float] = time.monotonic,
        poll: Poll | None = None,
    ) -> None:
        """Load what the store has; nothing runs before `start`.

        ``poll`` is what the loop waits with, if that can end turns. ``files_max`` is
        how many files may be open, 0: what the system says. Without ``tables`` the node
        keeps none, and says so. ``clock`` measures syncs.
        """
        self.config = config
        self.id = config.node.id
        self._store = store
        self._syncer = syncer
        self._loop = asyncio.get_running_loop()
        self._chance = random.Random(seed)
        self._closed = False
        self._guard = InputGuard(self.id)
        self.failed = self._guard.failed  # Set when the node cannot go on.
        self.reloads = ReloadCounters()
        self._faults = self._keep_faults(faults)
        self._era = self._begin_era()
        who = begin_incarnation(store, self._chance.randbytes)
        self.incarnation, self.identity = who.incarnation, who.directory
        self.peer_identity = PeerIdentity(store, self.id, who, self._era)
        self._poll = poll if isinstance(syncer, ThreadSyncer) else None
        self._outbox = Outbox(self._poll)
        self._flushes = FlushScheduler(self._outbox, self._carry_out, syncer.wake)
        self.peers = self._make_peers(token, tls)
        self.directory = self._make_directory()
        self._route = RepositoryRoute(self.id, self.peers, self.directory)
        self.replicas = self._make_replicas()
        self.lane = self.peers.lane = self.replicas.lane
        self._sync_times = self._make_sync_times(clock)
        self._route.member = self._open_member()
        end_groups(store, before=self._era)
        self.peer_identity.repository = lambda: (
            self.member.group.repository if self.member is not None else None
        )
        self.peer_identity.part = self._part
        self._features = _features(tables=bool(tables), core=self._poll is not None)
        self.lane.identify(self.id, self.incarnation, self._features)
        self._reporting = self._make_reporting()
        self.requests = self._make_requests()
        execute = self.requests.execute
        self.tables = self._make_tables(tables) if tables is not None else None
        self.shards = self._make_shards()
        self._registration = Registration(config, who, execute, self._features)
        self._replica_offer = ReplicaOffer(self.id, store, self._era, execute)
        self._retention = self._make_retention()
        self._scrub = self._make_scrub()
        self._parts = self._make_parts()
        capacity = places(config.limits.connections_max, files_max)
        self.sessions: Sessions = self._make_sessions(
            authorize, challenger, capacity, Shares(shares)
        )
        self._readiness = Readiness(
            self._route, self._registration, self.peer_identity, self.failed, self.now
        )
        self._observer = self._make_observer()
        self._ticks = self._make_ticks()

    def _serve_by_poll(self) -> None:
        poll, syncer = self._poll, self._syncer
        if poll is None or not isinstance(syncer, ThreadSyncer):
            return
        handler = PollHandler(
            self.replicas,
            self._reporting,
            self._sync_times,
            syncer,
            self._flushes,
            self._guard,
            self._loop.time,
            self._stored_by_group,
        )
        poll.serve(self.lane, self._store.native, handler, Request, syncer.event)

    def _stored_by_group(self, number: int) -> None:
        if (member := self._route.member) is not None:
            member.group.durable(number)

    def _make_ticks(self) -> TickSchedule:
        timing = self.config.timing
        return TickSchedule(
            self._tick,
            tick_s=timing.tick_ms / 1000,
            heartbeat_ticks=HEARTBEAT_TICKS,
            rest_max_s=timing.heartbeat_ms / 1000,
        )

    def _make_peers(self, token: str, tls: ssl.SSLContext | None) -> Peers:
        name, versions = self.config.cluster.name, (VERSION_MIN, VERSION_MAX)
        proves = token if self.config.security.peer_proof else ""
        given = "" if proves else token
        hello = Hello(*versions, name, self.id, given, "braidlog", self.identity)
        return Peers(
            LinkSettings(
                hello=hello,
                frame_bytes_max=self.config.limits.frame_bytes_max,
                unsent_bytes_max=self.config.limits.link_bytes_max,
                tls=tls,
                token=proves,
            ),
            seed=self._chance.getrandbits(64),
            on_message=self.received,
            on_connected=self._peer_connected,
            on_lost=self._peer_lost,
            outbox=self._outbox,
            on_refused=self.peer_identity.refused,
            holds=self.peer_identity.holds,
            bound=self.peer_identity.bound,
        )

    def _make_parts(self) -> dict[type[Message], Part]:
        return {
            Replicate: self.replicas.replicate,
            Fetch: self.replicas.fetch,
            Entries: self.replicas.entries,
            Commit: self._commit,
            Configure: self._configure,
            Report: self._report,
            Consensus: self._consensus,
            Faults: self._take_faults,
            Recorded: self._take_recorded,
        }

    def _make_directory(self) -> Directory:
        return Directory(
            self.id,
            self.config.cluster.voters,
            self.peers,
            learn=self.peer_identity.learn,
            is_member=lambda: self.member is not None,
            changed=self.changed,
        )

    def _make_replicas(self) -> Replicas:
        return Replicas(
            self.id,
            self._store,
            self.peers,
            replica_limits(self.config),
            self._flushes.soon,
            self._loop.time,
            lambda: len(self.sessions),
            self.soon,
        )

    def _make_reporting(self) -> Reporting:
        return Reporting(
            self.config,
            self.incarnation,
            self._route,
            self.peers,
            stored=self.replicas.reports,
            says=self.says,
            features=self._features,
            syncs=lambda: self._sync_times.said,
            number=self.lane.next_report,
        )

    def _make_tables(self, work: TableWork) -> Tables:
        return Tables(
            work,
            self._route,
            self.peers,
            execute=self.requests.execute,
            read=self._read,
            share=self._chance.random,
            connections=lambda: len(self.sessions),
            # No number of an earlier start comes again.
            first_pin=self.incarnation << 32,
        )

    def _read(self, request: Request, read: Read) -> None:
        if read.stream in self.shards:
            self.shards.take(request, read, _NOTHING)
        else:
            self.replicas.read(request, read, self.now)

    def _make_shards(self) -> Shards:
        return Shards(
            self.id,
            self._store,
            self.peers,
            self.replicas.readers,
            incarnation=self.incarnation,
            chance=self._chance,
            tick_s=self.config.timing.tick_ms / 1000,
            clock=self._loop.time,
            wall_clock=self.wall_clock,
            changed=self._flushes.soon,
            execute=self.requests.execute,
            connections=lambda: len(self.sessions),
        )

    def _make_requests(self) -> Requests:
        return Requests(
            self._route,
            self.peers,
            self.replicas,
            patience=self.config.timing.forward_ms / 1000,
            loop=self,
            full=lambda: self.sessions.full,
        )

    def _make_sessions(
        self,
        authorize: Authorizer,
        challenger: Challenger | None,
        capacity: Capacity,
        shares: Shares,
    ) -> Sessions:
        return Sessions(
            ServerSettings(
                self.config.cluster.name,
                self.id,
                self.peer_identity.guarded(authorize),
                self.config.limits.window_bytes,
                self.config.limits.frame_bytes_max,
                append_bytes_max=self.config.limits.append_bytes_max,
                identity=self.identity,
                bound=self.peer_identity.bound,
                challenger=challenger,
                lane=self.lane,
            ),
            self,
            capacity,
            self.config.limits.incoming_bytes_max,
            self._outbox,
            shares=shares,
        )

    def _make_sync_times(self, clock: Callable[[], float]) -> SyncTimes:
        # Half of what a lag has to be: the bound by which a slow node is fast again.
        least = self.config.timing.slow_ms / 2000
        observe = self.replicas.latencies.sync.observe
        return SyncTimes(self._probe_disk, least, clock, observe)

    def _make_retention(self) -> Retention:
        def led() -> Iterator[Retained]:
            yield from self.replicas.primaries()
            yield from self.shards.retained()

        return Retention(self.config, led, self.wall_clock, self.requests.execute)

    def _make_scrub(self) -> Scrub:
        life = f"{self.id} {self.incarnation}"
        return Scrub(self.config, self._store, self.replicas, life, self._mend_group)

    def _make_observer(self) -> Observer:
        return Observer(
            self.config,
            self._store,
            self.incarnation,
            readiness=self._readiness,
            route=self._route,
            peers=self.peers,
            replicas=self.replicas,
            shards=self.shards,
            requests=self.requests,
            scrub=self._scrub,
            sessions=self.sessions,
            tables=self.tables,
            reloads=self.reloads,
        )

    def _keep_faults(self, log: FaultLog | None) -> FaultRecorder | None:
        if log is None:
            return None
        return FaultRecorder(log, recorded=self._recorded, failed=self._guard.fail)

    def _recorded(self, said: Recorded) -> None:
        self._reporting.recorded(said)
        self.changed()

    def _begin_era(self) -> int:
        """Return the fault epoch, which is the number of the Raft group.

        A rescue begins one. What the group of an earlier one says is not heard in it.
        """
        newest = self._faults.newest if self._faults is not None else None
        return newest.configuration.epoch if newest is not None else FIRST_GROUP

    def _open_member(self) -> RepositoryMember | None:
        if self._store.options(f"{GROUP_PREFIX}{self._era}"):
            return self._make_member(GroupLog(self._store, self._era))
        newest = self._faults.newest if self._faults is not None else None
        base = begin_base(self.config, newest)
        if base is None or self.id not in base.membership.voters:
            return None
        return self._make_member(GroupLog.create(self._store, self._era, base))

    def _make_member(self, log: GroupLog) -> RepositoryMember:
        member = RepositoryMember(
            self.config,
            log,
            self.peers,
            incarnation=self.incarnation,
            chance=self._chance,
            now=self._loop.time(),
            wall=self.wall_clock,
            to_self=self._to_self,
            number=self._era,
            fault_logs=self._faults is not None,
        )
        self.lane.join(codec.encode(Consensus(self._era)), member.group.raft.core.log)
        return member

    # --- life

    async def start(self) -> None:
        """Begin to tick, to sync and to talk to the others."""
        voters = dict(self.config.cluster.voters)
        voters.pop(self.id, None)
        self.peers.know(voters)
        if self.member is not None:
            # Members that joined later are in the log alone.
            self.peers.know(self.member.addresses())
        # Somebody waits for what a sync lets go; what came in meanwhile goes with it.
        self._syncer.start(partial(self._flushes.now, self._note_durable))
        self._serve_by_poll()
        self._registration.start()
        self._replica_offer.start(self.replicas.stored)
        self.directory.start()
        self._tick()

    def drain(self) -> None:
        """Take no new requests, and hand leadership over."""
        self._readiness.draining = True
        if self._poll is not None:
            self._poll.drain()
        self._registration.close()
        if self.member is not None:
            self.member.hand_over()
        self.changed()

    @property
    def now(self) -> float:
        """Return the time of the loop."""
        return self._loop.time()

    def wall_clock(self) -> int:
        """Return the time in microseconds since the epoch."""
        return self._store.clock()

    @property
    def unanswered(self) -> int:
        """Return how many appends and other requests are open."""
        return self.replicas.unanswered()

    async def close_faults(self) -> None:
        """Let go of the fault log, when what is written into it is durable."""
        if self._faults is not None:
            await self._faults.close()

    async def close_tables(self) -> None:
        """Stop to keep tables; what was not flushed is applied again."""
        if self.tables is not None:
            await self.tables.close()

    def close(self) -> None:
        """Stop all timers and links; the store is closed by who opened it."""
        self._closed = True
        if self._poll is not None:
            self._poll.release()
        self._registration.close()
        self._replica_offer.close()
        self.directory.close()
        self._flushes.close()
        self._ticks.close()
        self.peers.close()

    # --- what comes in

    def appends(self, session: Session, event: Appends) -> None:
        """Take the appends of one socket read to one stream."""
        # Once for all that came together: a clock costs as much as what is done here.
        now = time.monotonic()
        requests = [Request(session, number, now) for number in event.requests]
        if self._readiness.draining:
            for request in requests:
                request.fail(NotReadyError(f"node {self.id} is shutting down"))
            return
        if (rights := session.rights).grants:
            try:
                self._catch_up()
                check = self.requests.permission.stream
                check(event.stream, rights, Role.APPEND, "Append")
            except LogError as error:
                for request in requests:
                    request.fail(error)
                return
        append = Append(event.stream, event.epoch, event.repeat)
        shard = event.stream in self.shards
        take = self.shards.append if shard else self.replicas.append
        self._guard.run(take, append, requests, event.payloads)

    def requested(self, request: Request, event: Requested, role: Role) -> None:
        """Take any other request.

        Raises:
            Exception: it is refused, or a bug was met; it is the session's to answer.
        """
        self._catch_up()
        rights = request.session.rights
        # Who only reads may ask where a shard ends, but not as its writer.
        if rights.grants or isinstance(event.message, GetShardEnd):
            self.requests.permission.check(event.message, rights)
        try:
            if isinstance(event.message, Reload) and self.reload is not None:
                self.reload(request)
            elif self.tables is not None and isinstance(event.message, TABLE_REQUESTS):
                self.tables.take(request, event.message)
            elif isinstance(event.message, SHARD_REQUESTS) or (
                isinstance(event.message, Read) and event.message.stream in self.shards
            ):
                self.shards.take(request, event.message, event.payload)
                self.changed()
            else:
                self.requests.take(request, event.message, event.payload, role)
        except (ClosedError, AssertionError) as error:
            # The state is broken, whoever asked.
            self._guard.stop(error)
            raise

    def received(self, wire: Wire, event: Received) -> None:
        """Take a message of a peer."""
        node, message = wire.node, event.message
        try:
            peer = self.peers.known.get(node)
            if peer is None or peer.link is None:
                self._meet(node)
            self._parts[type(message)](node, message, event.payload)
        except Exception as error:
            self._guard.bear(error)

    def taken(self, wire: Wire, event: Taken) -> None:
        """Go on after the lane of the replicas took what a peer said."""
        node = wire.node
        peer = self.peers.known.get(node)
        if peer is None or peer.link is None:
            self._meet(node)
        if event.commits:
            self._heard_leader(node)
        if event.consensus and self._ticks.awaits:
            self._ticks.heard()
        if event.stirs:
            self._flushes.soon()

    def gone(self, session: Session) -> None:
        """Forget what a connection that ended waits for."""
        self.requests.answers.gone(session)
        # If it was another node, it may doubt that this one is there.
        self._reporting.again()
        if session.node:
            self._ticks.hurry()
            if self.member is not None:
                self._guard.run(self.member.group.left, session.node, self.now)
                self.changed()

    def soon(self, call: Callable[[], None], seconds: float = 0.0) -> None:
        """Call something in another turn of the loop, with other work between."""

        def guarded() -> None:
            if not self._closed:
                self._guard.run(call)

        self._loop.call_later(seconds, guarded)

    def _meet(self, node: int) -> None:
        """Connect to a node that has spoken, or ask where it is."""
        if not self.peers.heard(node) and node != self.id:
            self.directory.seek(node)

    def _heard_leader(self, node: int) -> None:
        self._route.leader_heard = self.lane.leader_heard = node

    def _commit(self, node: int, message: Commit, _: memoryview) -> None:
        self._heard_leader(node)
        self.replicas.commit(message)

    def _configure(self, node: int, message: Configure, _: memoryview) -> None:
        self._heard_leader(node)
        self.replicas.configure(message)

    def _report(self, _: int, message: Report, __: memoryview) -> None:
        member = self._route.member
        if member is not None:
            member.group.report(message, self._loop.time())
            # Nothing follows from most reports and answers, all but the last that was
            # waited for, and a turn that does nothing costs as much as one that does.
            if member.group.stirred:
                self._flushes.soon()

    def _take_faults(self, _: int, message: Faults, __: memoryview) -> None:
        if self._faults is not None:
            self._faults.take(message)

    def _take_recorded(self, node: int, message: Recorded, _: memoryview) -> None:
        if self._faults is not None and (told := self._faults.answer(message)):
            self.peers.send(node, told)
        elif self.member is not None and message.epoch > self._era:
            # An empty voter has begun a cluster of its own.
            self._guard.fail(begun_anew(self.id, message.epoch))
        elif self.member is not None:
            self.member.recorded(message)
        self.changed()

    def says(self) -> Recorded | None:
        """Return what the fault log has recorded, None if there is no such log."""
        return self._faults.says() if self._faults is not None else None

    def _mend_group(self, streams: set[int]) -> bool:
        rest = streams - self.shards.damaged(streams)
        if not rest:
            return True
        mends = self.member is not None and self.member.damaged(rest)
        if mends:
            self.changed()
        return mends

    def _consensus(self, node: int, message: Consensus, payload: memoryview) -> None:
        if message.group >= SHARD_GROUPS:
            self.shards.consensus(message.group, bytes(payload))
            return
        member = self._route.member
        if member is None and message.group > self._era:
            # A node that joins a cluster that was rescued before.
            self._era = message.group
        if message.group != self._era:
            return
        if member is None:
            # The group has made this node a member: it begins with an empty log.
            log = GroupLog.create(self._store, self._era)
            member = self._route.member = self._make_member(log)
        if self._ticks.awaits:
            self._ticks.heard()
        member.group.step(bytes(payload), node, self._loop.time())
        if member.group.stirred:
            self._flushes.soon()

    def _to_self(self, message: Message) -> None:
        self._guard.run(self._parts[type(message)], self.id, message, _NOTHING)

    def _part(self) -> None:
        """Close the connections of nodes whose ids belong to other directories now."""
        self.sessions.recheck(self.peer_identity.holds)
        self.peers.recheck(self.peer_identity.vacant)

    def _peer_connected(self, node: int) -> None:
        if (said := self.says()) is not None:
            self.peers.send(node, said)
        self.peer_identity.connected(node)
        self._reporting.again()
        if self.member is not None:
            self._guard.run(self.member.group.unsent, node)
        self._ticks.hurry()
        self.changed()

    def _peer_lost(self, node: int) -> None:
        self._ticks.hurry()
        self._guard.run(self.shards.lost, node)
        if self.member is not None:
            self._guard.run(self.member.group.lost, node, self._loop.time())
            self.changed()

    # --- time and disk

    def _tick(self) -> None:
        now = self._loop.time()
        self._readiness.ticked(now)
        self._observer.ticked()
        self._guard.run(self._let_pass, now)
        member = self._route.member
        # For groups that are at work time has to pass evenly.
        works = now if self.shards.busy else 0.0
        standing = self._reporting.standing
        seen = self._sync_times.written, standing, self._route.revision, works
        heartbeats = member is not None and member.hears_heartbeats()
        self._ticks.again(seen, heartbeats=heartbeats)
        self.lane.awaits_heartbeat = self._ticks.awaits

    def _let_pass(self, now: float) -> None:
        self._flushes.wrote = True  # Commits, which nobody waits for.
        self.replicas.tick(now)
        self.shards.tick(now)
        if self.member is not None:
            self.member.group.heard(*self.lane.take_heard(), now)
            self.member.group.tick(now, self._ticks.late(now))
        self._sync_times.tick()
        self._reporting.tick(now)
        self._retention.tick(now)
        self._scrub.tick(now)
        self.requests.tick(now)
        self.sessions.tick(now)
        if self.tables is not None:
            self.tables.tick(now)
        self.changed()

    def _note_durable(self) -> None:
        try:
            durable = self._store.durable()
            self._sync_times.synced(durable)
            self.replicas.synced(durable)
            self.shards.synced(durable)
            member = self._route.member
            if member is not None:
                if number := self.lane.take_stored():
                    self._stored_by_group(number)
                if member.writes.stored:
                    member.synced(durable)
        except Exception as error:
            self._guard.bear(error)

    def _probe_disk(self) -> None:
        with contextlib.suppress(LogError):  # Who has to write hears of it, and acts.
            write_again(self._store)

    # --- what goes out

    def changed(self) -> None:
        """Ask for a flush at the end of this turn."""
        self._flushes.soon()

    def _carry_out(self) -> None:
        # At the end of each turn, so each call counts, also one that does nothing.
        turns, route, now = self._flushes, self._route, self._loop.time()
        replicas, lane = self.replicas, self.lane
        turns.stirred = True
        try:
            while turns.stirred:
                turns.stirred = False
                stirs = replicas.dirty or lane.stirred
                if stirs and (reports := replicas.flush(now)):
                    self._reporting.durable(tuple(reports), now)
                if self.shards.flush(now):
                    turns.stirred = True
                member = route.member
                if member is None:
                    continue
                group = member.group
                if replicas.raft_due or replicas.lead_due or replicas.unsent:
                    self._take_over(member)
                if not (group.stirred or member.waits):
                    continue  # Most turns are those of replicas.
                if member.flush():
                    turns.stirred = True
                lane.write_into(member.lane_writes)
                if (leads := group.leadership) is not None:
                    if leads.ready:
                        leads.let(lane, group.repository.state)
                    else:
                        lane.resign()
            if member is None:
                revision = route.revision
                lane.reports_to = route.leader_heard
            else:
                revision = member.group.repository.state.revision
                if member.group.standing is not self._reporting.standing:
                    lane.reports_to = member.leader
                    if member.group.leadership is None:
                        lane.resign()
                    self._reporting.led(now)
            waits = replicas.waits_for_sync or self.shards.waits
            lane.calm = not (waits or self._group_is_due(member))
            # Most turns bring no news, and many write nothing.
            if revision != route.seen:
                self._look_at_news()
            try:
                ticket, hurried = self._store.ticket(), self._store.hurried()
            except LogError:
                return  # Who writes next hears of it, and acts.
            times = self._sync_times
            # What joins a group that was written before has its ticket.
            if hurried != times.hurried or ticket > times.written:
                times.wrote(ticket, hurried)
                turns.wrote = True
        except Exception as error:
            self._guard.bear(error)

    @staticmethod
    def _group_is_due(member: RepositoryMember | None) -> bool:
        """Tell whether something of the group waits that is not in the lane."""
        if member is None:
            return False
        return member.group.stirred or member.waits or bool(member.writes.stored)

    def _take_over(self, member: RepositoryMember) -> None:
        """Do for the group what is not in the lane."""
        replicas = self.replicas
        if replicas.raft_due:
            replicas.raft_due = False
            member.group.stir()
        if replicas.lead_due:
            replicas.lead_due = False
            member.group.stirred = True
        if not replicas.unsent:
            return
        unsent, replicas.unsent = replicas.unsent, []
        for node, kind, head, data in unsent:
            message = codec.decode(kind, head, memoryview(data or b""))
            if node == self.id:
                self._to_self(message)
            elif not self.peers.send(node, message, (data,) if data else ()):
                member.lost(node, message)

    def _look_at_news(self) -> None:
        revision = self._route.revision
        self._reporting.again()
        self.peer_identity.look(self._era)
        self.requests.answers.look()
        if self.tables is not None:
            self.tables.look()
        self._look_at_shards()
        # If one of them fails, for instance for want of room, all look again.
        self._route.seen = revision

    def _look_at_shards(self) -> None:
        """Tell the shards where they are placed, as this node knows it."""
        member, heard = self._route.member, self.directory.metadata
        # After a rescue what is not listed may exist.
        rescued = self._era > FIRST_GROUP
        if member is not None:
            state = member.group.repository.state
            given = 0 if rescued else state.stream_next
            fresh = knows_start(state, self.id, self.incarnation)
            self.shards.look(places_in(state), given, fresh=fresh)
        elif heard is not None:
            numbers = [s.stream for log in heard.logs for s in log.streams]
            given = 0 if rescued else max(numbers, default=0)
            fresh = knows_start(heard, self.id, self.incarnation)
            self.shards.look(places_of(heard), given, fresh=fresh)

    @property
    def leader(self) -> int:
        """Return the leader of the repository, 0 if none is known."""
        return self._route.leader

    @property
    def member(self) -> RepositoryMember | None:
        """Return the node's member of the repository, None if it has none."""
        return self._route.member

    # --- to look at

    def _catch_up(self) -> None:
        """Apply what the lane has left: who asks sees all that is committed here."""
        if self.lane.behind and self.member is not None:
            self.member.group.stir()
            # What is to be written, sent and synced waits for the end of the turn: who
            # asks often must not cost everybody a sync each time.
            self._carry_out()
            self._flushes.soon()

    def status(self) -> NodeStatus:
        """Return what the node says of itself."""
        self._catch_up()
        return self._observer.status(self.now)

    def observed(self) -> Observed:
        """Return what metrics are made of."""
        self._catch_up()
        return self._observer.observed(self.now)
