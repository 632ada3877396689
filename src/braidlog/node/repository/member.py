"""The node's member of the metadata repository: its log on the disk, its requests."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Final, TypeAlias

from braidlog.metarepo.group import MetadataMember
from braidlog.metarepo.leader.liveness import LivenessSettings
from braidlog.metarepo.leader.settings import GroupSettings
from braidlog.metarepo.leader.slowness import SlownessSettings
from braidlog.metarepo.pending import Answer
from braidlog.node.config import NodeConfig
from braidlog.node.metrics.event_log import tell
from braidlog.node.metrics.latency import Histogram
from braidlog.node.metrics.status import GroupStatus
from braidlog.node.peers.links import Peers
from braidlog.node.repository.group_writes import GroupWrites
from braidlog.node.repository.raft_log import GroupLog
from braidlog.raft import RaftConfig, Role
from braidlog.store.node_store import NodeStore
from braidlog.wire.messages import (
    Commit,
    Configure,
    Feature,
    GetMetadata,
    Message,
    Metadata,
    Recorded,
    Report,
)

_log = logging.getLogger(__name__)

FIRST_GROUP: Final = 1
"""Number of the first Raft group of the metadata repository; a rescue begins more."""
ELECTION_TICKS: Final = 10
HEARTBEAT_TICKS: Final = 2
"""Five heartbeats of the leader may be lost before anybody stands for election."""

Done: TypeAlias = Callable[[Answer], None]
"""Called once with what a request came to."""


class RepositoryMember:
    """Drives a `MetadataMember`: writes what it writes, sends what it sends."""

    def __init__(
        self,
        config: NodeConfig,
        log: GroupLog,
        peers: Peers,
        *,
        incarnation: int,
        chance: random.Random,
        now: float,
        wall: Callable[[], int],
        to_self: Callable[[Message], None],
        number: int = 1,
        fault_logs: bool = False,
    ) -> None:
        """Start from what the disk holds; `to_self` gets what goes to this node.

        `wall` gives the time of day: commands have that of the node that leads.

        Raises:
            CorruptionError, RaftInvariantError: what is stored cannot be.
        """
        self._node = config.node.id
        self._peers = peers
        self._wall = wall
        self._to_self = to_self
        self.writes = GroupWrites(log)
        self.waits = False
        """Whether something waits for room, on the disk or in a link."""
        self._done: dict[int, Done] = {}
        self._requests = 0
        self._complained = 0
        self._cut_latency = Histogram()
        self._untold: set[int] = set()
        """Nodes whose link was too full for what the leader decided."""
        self._addresses: dict[int, str] = {}
        self._addressed = -1
        """Revision of the metadata that these addresses are of."""
        raft = RaftConfig(
            id=self._node,
            incarnation=incarnation,
            jitter=lambda: chance.randint(0, ELECTION_TICKS),
            election_ticks=ELECTION_TICKS,
            # A cut is an entry: each would cost an option of the log, and a message to
            # every follower that brings nothing but a number.
            commit_lag=256,
            eager_commit=False,
            heartbeat_ticks=HEARTBEAT_TICKS,
        )
        settings = _settings(config, number, fault_logs=fault_logs)
        self._log = log
        self.group = MetadataMember(settings, raft, log.load(), now)

    @property
    def leads(self) -> bool:
        """Tell whether this node decides."""
        return self.group.leads

    @property
    def leader(self) -> int:
        """Return the node that leads, 0 if none is known."""
        return self.group.raft.core.leader

    def is_kept(self) -> bool:
        """Tell whether what it answers in the group keeps this node alive.

        That is so while a leader is heard that knows of it.
        """
        core = self.group.raft.core
        known = self.group.repository.state.nodes.get(core.leader)
        settings = self.group.settings
        answers_s = 2 * HEARTBEAT_TICKS * settings.tick
        rare = answers_s > settings.liveness.failure_timeout
        if known is None or rare or not known.features & Feature.LIFE_SIGNS:
            return False
        return core.role is Role.LEADER or core.elapsed <= 2 * HEARTBEAT_TICKS

    def hears_heartbeats(self) -> bool:
        """Tell whether a leader's heartbeats have come until now."""
        core = self.group.raft.core
        follows = core.role is Role.FOLLOWER and core.leader != 0
        return follows and core.elapsed <= 2 * HEARTBEAT_TICKS

    def leads_now(self) -> tuple[int, int]:
        """Return the node that leads, 0 if none is known, and the term."""
        return self.group.leader, self.group.raft.core.term

    @property
    def lacks_room(self) -> bool:
        """Whether the metadata waits for room on the disk of this node."""
        return self.writes.lacks_room

    @property
    def version(self) -> tuple[int, int]:
        """Return what changes with the metadata, but for who lives."""
        return self.group.repository.index, self.group.leader

    def metadata(self, *, judged: bool = False) -> Metadata:
        """Return the metadata as of the last applied entry."""
        return self.group.metadata(judged=judged)

    def execute(self, call: bytes, command: bytes, done: Done) -> None:
        """Execute a command, if this node leads."""
        self.group.execute(self._ask(done), call, command, self._wall())

    def read(self, message: GetMetadata, now: float, done: Done) -> None:
        """Wait for metadata; the answer says when `metadata` is what was asked for."""
        self.group.read_metadata(
            self._ask(done),
            now,
            known=message.known,
            wait=message.wait_ms / 1000,
            linearizable=message.linearizable,
        )

    def _ask(self, done: Done) -> int:
        self._requests += 1
        self._done[self._requests] = done
        return self._requests

    def hand_over(self) -> None:
        """Give leadership to a voter that can be reached, if this node has it."""
        core = self.group.raft.core
        able = [
            node
            for node in core.membership.voters
            if node != self._node and self._peers.is_connected(node)
        ]
        if core.role is Role.LEADER and able:
            best = max(able, key=core.log.matched)
            self.group.transfer(best)

    def report(self, report: Report, now: float) -> None:
        """Take the report of a node."""
        self.group.report(report, now)

    def recorded(self, message: Recorded) -> None:
        """Take what a node says of its fault log."""
        self.group.recorded(message)

    def damaged(self, streams: set[int]) -> bool:
        """Mend the log of the group if it is among these, as numbered in the store."""
        mends = self._log.stored_as in streams
        if mends:
            self.group.damaged()
        return mends

    def synced(self, durable: int) -> None:
        """Note what is durable."""
        if number := self.writes.durable(durable):
            self.group.durable(number)

    @property
    def lane_writes(self) -> int:
        """Return the log of the store that a lane may write into; 0: it may not.

        It leaves cuts to be applied later, which nobody may wait for, and writes
        nothing before what waits for room.
        """
        waits = self.waits or self.group.reads_wait or self.writes.lacks_room
        return 0 if waits else self._log.stored_as

    def flush(self) -> bool:
        """Do what the group asks for; tell whether more may follow from it here.

        There is nothing to do unless the group is stirred, or something waits.
        """
        if self.waits:
            self._tell_again()
        effects = self.group.effects()
        if self.group.leadership is not None:
            self._measure()
        for event in effects.events:
            tell(_log, self._node, event)
        if self.group.unfolded_bytes != self._complained:
            self._complain()
        back = bool(effects.answers or effects.committed)
        own: list[Message] = []
        for each in effects.messages:
            node, message, data = each.node, each.message, each.payload
            if node == self._node:
                own.append(message)
            elif not self._peers.send(node, message, (data,) if data else ()):
                self.lost(node, message)
        # The others work while this node writes and applies.
        if effects.writes or own:
            self._peers.flush()
        if effects.writes or self.writes.lacks_room:
            self.writes.put(effects.writes)
        if self.writes.lacks_room:
            # A leader applies only what it has stored: the others need another one.
            self.hand_over()
        for message in own:
            back = True
            self._to_self(message)
        for answer in effects.answers:
            self._done.pop(answer.request)(answer)
        if effects.committed:
            if self._addressed != self.group.repository.state.revision:
                self._addressed = self.group.repository.state.revision
                self._addresses = self.addresses()
            # Each time: an old answer of a voter may have taken a newer one back.
            self._peers.know(self._addresses)
        self.waits = self.writes.lacks_room or len(self._untold) > 0
        return back

    def _measure(self) -> None:
        """Note how long cuts took from their proposal until they were told."""
        if (leads := self.group.leadership) is not None:
            for seconds in leads.collector.take_latencies():
                self._cut_latency.observe(seconds)

    @property
    def cut_latency(self) -> Histogram:
        """Return how long cuts took from their proposal until they were told."""
        self._measure()
        return self._cut_latency

    def lost(self, node: int, message: Message) -> None:
        """Note that what a node was sent is lost, because too much waits for it."""
        # Reports show what is missing of epochs and records, but neither trims and
        # options nor the last cuts that gave nothing to a stream.
        if isinstance(message, Configure | Commit):
            self._untold.add(node)

    def _tell_again(self) -> None:
        for node in [each for each in self._untold if self._peers.has_room(each)]:
            self._untold.discard(node)
            self.group.unsent(node)

    def _complain(self) -> None:
        size = self.group.unfolded_bytes
        if size:
            limit = self.group.settings.state_bytes_max
            msg = (
                "the metadata of the cluster has %d bytes but at most %d can be "
                "stored, so its log keeps growing: delete unused logs or cursors"
            )
            _log.error(msg, size, limit)
        self._complained = size

    def addresses(self) -> dict[int, str]:
        """Return where the other nodes are, as far as they are registered."""
        known = self.group.repository.state.nodes.values()
        return {each.node: each.address for each in known if each.node != self._node}

    def status(self) -> GroupStatus:
        """Return where the member stands."""
        core = self.group.raft.core
        return GroupStatus(
            role=core.role.value,
            term=core.term,
            leader=core.leader,
            commit=core.log.commit,
            applied=core.log.applied,
            voters=core.membership.voters,
            lags={
                node: max(0, core.log.last - progress.match)
                for node, progress in core.progress.items()
                if node != self._node
            },
        )

    @property
    def waiting(self) -> int:
        """Return how many requests wait for the repository."""
        return len(self._done)

    def copying(self) -> dict[int, int]:
        """Return the records that nodes have to copy, as the leader knows."""
        leads = self.group.leadership
        if leads is None:
            return {}
        return leads.collector.copying(self.group.repository.state)

    def answer_times(self) -> dict[int, float]:
        """Return how long nodes took to answer, in seconds, as the leader knows."""
        leads = self.group.leadership
        return leads.slow_nodes.answers() if leads is not None else {}

    @property
    def cuts_in_flight(self) -> int:
        """Return how many cuts are on their way through Raft."""
        leads = self.group.leadership
        return leads.collector.in_flight if leads is not None else 0


def _settings(config: NodeConfig, number: int, *, fault_logs: bool) -> GroupSettings:
    timing = config.timing
    return GroupSettings(
        cluster=config.cluster.name,
        group=number,
        fault_logs=fault_logs,
        tick=timing.tick_ms / 1000,
        state_bytes_max=config.limits.state_bytes_max,
        host_patience=timing.table_repair_ms / 1000,
        shard_patience=timing.shard_repair_ms / 1000,
        liveness=LivenessSettings(failure_timeout=timing.failure_ms / 1000),
        slowness=SlownessSettings(
            floor=timing.slow_ms / 1000,
            enter=timing.slow_after_ms / 1000,
            leave=timing.slow_back_ms / 1000,
        ),
    )


def end_groups(store: NodeStore, *, before: int) -> None:
    """Delete the groups before this one, which has what is needed of them."""
    for old in store.groups():
        if old < before:
            _log.warning(
                (
                    "the cluster was rescued, so the log of its earlier Raft group %d "
                    "is deleted"
                ),
                old,
            )
            GroupLog(store, old).delete()
