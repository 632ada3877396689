"""The replicas of a node: which there are, and what goes to which of them.

Inputs are handed on at once; what comes of them is gathered by `flush` at the end of a
turn of the loop. So a socket read, or a sync, that concerns many requests of many
streams costs one round of effects.
"""
# One file: every input of a replica passes here on its way to a core.

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import starmap
from typing import Any, Final

from braidlog._native import Lane
from braidlog.errors import (
    CorruptionError,
    LogError,
    NotReadyError,
    TooLargeError,
    UnavailableError,
)
from braidlog.logstream.effects import Answer, Limits
from braidlog.logstream.replica import Replica
from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.events import Event, Value
from braidlog.metarepo.machine.adoption import about
from braidlog.node.metrics.event_log import tell
from braidlog.node.metrics.latency import Latencies
from braidlog.node.metrics.status import ReplicaStatus
from braidlog.node.peers.links import Peers
from braidlog.node.replication.primary import Primary
from braidlog.node.replication.reader import Readers, StreamReaders
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.node.replication.replica_trouble import ReplicaTrouble
from braidlog.serving.sessions import Request, Session, told
from braidlog.store.node_store import NodeStore
from braidlog.wire import codec
from braidlog.wire.commands import StoredReplica
from braidlog.wire.messages import (
    Append,
    Commit,
    Configure,
    Entries,
    Fetch,
    LogCut,
    Read,
    Replicate,
    StreamConfig,
    StreamReport,
)
from braidlog.wire.server import AppendRow

_log = logging.getLogger(__name__)

GROUP_BYTES_MAX: Final = 8 << 20
"""Batches that are placed and replicated together; one larger batch goes alone."""
_ENTERED: Final = (ReplicaState.RUNNING, ReplicaState.SEALED)


@dataclass(frozen=True, slots=True)
class Counters:
    """Totals since the start."""

    appends: int = 0
    append_bytes: int = 0
    acknowledged: int = 0
    refused: int = 0


class _Hosted:
    """One replica and who waits for it."""

    def __init__(
        self, replica: Replica, storage: ReplicaStore, touch: Callable[[], None]
    ) -> None:
        self.replica = replica
        self.storage = storage
        self.config: StreamConfig | None = None
        self.remembered: StreamConfig | None = None
        """What was stored beside the replica since the start."""
        self.told = ""
        """The role that the operator was told last."""
        self.trouble = ReplicaTrouble(replica)
        self.waits = False
        """Whether there is no room to store under which configuration it is here."""
        self.readers = StreamReaders(replica, touch)


class Replicas:
    """All replicas of a node."""

    def __init__(
        self,
        node: int,
        store: NodeStore,
        peers: Peers,
        limits: Limits,
        changed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        connections: Callable[[], int] = lambda: 1,
        soon: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """Load what the disk has; `changed` asks for a flush soon.

        `clock` gives the time of the loop, `connections` how many share what there is;
        `soon` has something done in another turn of the loop.
        """
        self._node = node
        self._store = store
        self._peers = peers
        self._limits = limits
        self._changed = changed
        self._hosted: dict[int, _Hosted] = {}
        self.lane = Lane(store.native, clock)
        """Does what every append does to replicas to which nothing else happens."""
        self.raft_due = self.lead_due = False
        """Whether the node's member of the repository has something to do that is not
        in the lane: in its Raft group, or for those whom it leads."""
        self.unsent: list[tuple[int, int, bytes, bytes | None]] = []
        """Messages of the member that the lane could not send, as node, kind, head and
        payload; whoever sends them empties the list."""
        self.dirty: dict[int, None] = {}  # dicts, for their order
        """Streams of which `flush` has something to do, beside those of the lane."""
        self._unsynced: dict[int, None] = {}
        self._configured = 0
        self._refused = 0
        self.latencies = Latencies()
        latency = self.latencies.read
        self.readers = Readers(limits.fetch_bytes_max, connections, latency, soon)
        for stream in store.streams():
            self._host(stream)

    def _host(self, stream: int) -> _Hosted:
        storage = ReplicaStore(self._store, stream)
        replica = Replica(self._node, stream, storage, self._limits)
        hosted = _Hosted(replica, storage, lambda: self._touch(stream))
        self._hosted[stream] = hosted
        self.lane.host(stream, replica.core)
        self._touch(stream)
        return hosted

    def _touch(self, stream: int) -> None:
        self.dirty[stream] = None
        # What was written may be synced before the turn ends.
        self._unsynced[stream] = None
        self._changed()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._hosted)

    # --- what the metadata repository says

    def log_of(self, stream: int) -> str:
        """Return the name of the log of a stream here; empty if it is not known."""
        hosted = self._hosted.get(stream)
        config = hosted.config if hosted is not None else None
        return config.name if config is not None else ""

    def configure(self, message: Configure) -> None:
        """Become what the repository decided; an older decision is ignored.

        What finds no room is left as it is: the repository says it again, because the
        reports show it. The other streams of the message must not wait for it.
        """
        if message.index < self._configured:
            return
        self._configured = message.index
        for config in message.streams:
            with _room_needed(config.stream):
                self._configure(config)
        for stream in message.dropped:
            self._drop(stream)

    def _configure(self, config: StreamConfig) -> None:
        hosted = self._hosted.get(config.stream)
        if hosted is None:
            ReplicaStore.create(self._store, config.stream)
            hosted = self._host(config.stream)
        self.lane.of_log(config.stream, config.log)
        hosted.storage.share_order(config.log)
        hosted.config = config
        hosted.replica.configure(config)
        if self._node in config.learners:
            self._tell_role(hosted, config)
        self._touch(config.stream)

    def _drop(self, stream: int) -> None:
        hosted = self._hosted.get(stream)
        if hosted is None:
            return
        hosted.replica.drop()
        self._carry_out(stream, hosted)
        self.readers.drop(hosted.readers, self._not_here(stream))
        del self._hosted[stream]
        self.lane.drop(stream)
        try:
            hosted.storage.delete()
        except UnavailableError as error:
            # It is here as after a start, so it is reported, and dropped again or used.
            _log.warning(
                "the replica of stream %d cannot be deleted yet: %s", stream, error
            )
            self._host(stream)
            return
        name = hosted.config.name if hosted.config is not None else ""
        fields: dict[str, Value] = {"stream": stream, "log": name}
        text = (
            f"the replica of stream {stream} is no longer needed on this node "
            "and was deleted"
        )
        tell(_log, self._node, Event("replica_dropped", text, fields))

    def commit(self, message: Commit) -> None:
        """Apply cuts, in their order, to the replicas of their logs."""
        if self.lane.commit(codec.encode(message)):
            return
        for cut in message.cuts:
            self._commit(cut)

    def _commit(self, cut: LogCut) -> None:
        for stream in self.lane.streams_of(cut.log):
            self._touch(stream)
            self._hosted[stream].replica.commit(cut)

    # --- what peers say

    # What breaks a rule unsettles a replica too, so each is looked at afterwards.

    def replicate(self, _: int, message: Replicate, payload: memoryview) -> None:
        """Take batches of a primary."""
        hosted = self._hosted.get(message.stream)
        if hosted is not None:
            self._touch(message.stream)
            hosted.replica.replicate(message, codec.split(payload, message.sizes))

    def fetch(self, node: int, message: Fetch, _: memoryview) -> None:
        """Answer a replica that lacks something."""
        hosted = self._hosted.get(message.stream)
        if hosted is not None:
            self._touch(message.stream)
            hosted.replica.fetch(node, message)

    def entries(self, node: int, message: Entries, payload: memoryview) -> None:
        """Take what was fetched."""
        hosted = self._hosted.get(message.stream)
        if hosted is not None:
            self._touch(message.stream)
            hosted.replica.entries(node, message, codec.split(payload, message.sizes))

    # --- what clients say

    def append(
        self,
        message: Append,
        requests: Sequence[Request],
        batches: Sequence[bytes | memoryview],
    ) -> None:
        """Append batches that came together.

        A bug that changed nothing is the answer; one that did ends the node.
        """
        stream = message.stream
        hosted = self._hosted.get(stream)
        self.lane.count(len(requests), sum(map(len, batches)))
        if hosted is None:
            for request in requests:
                request.fail(self._not_here(stream))
            return
        if not message.repeat:
            done = self.lane.append(stream, message.epoch, requests, batches)
            if done is not None:
                self.placed(stream, *done)
                return
        for part in _parts(requests, batches):
            group = [(each, message.epoch, batch) for each, batch in part]
            mark = hosted.replica.mark()
            try:
                hosted.replica.append(group, repeat=message.repeat)
            except Exception as error:
                if not _harmless(error) or not hosted.replica.untouched(mark):
                    raise
                for request, _ in part:
                    request.fail(told(error, "Append"))
        self._touch(stream)

    def placed(
        self,
        stream: int,
        llsn: int,
        batches: Sequence[bytes | memoryview],
        repeats: Sequence[tuple[Request, int, int]],
        left: Sequence[int],
    ) -> None:
        """Go on after the lane has placed batches, and sent them to most backups."""
        hosted = self._hosted[stream]
        config = hosted.config
        if left and config is not None:
            message = Replicate(stream, config.epoch, llsn, tuple(map(len, batches)))
            for node in left:
                self._peers.send(node, message, batches)
        for request, llsn, count in repeats:
            hosted.replica.repeated(request, llsn, count)
            self._touch(stream)
        self._changed()

    def read(self, request: Request, message: Read, now: float) -> None:
        """Answer a read, now or when there is something to read."""
        hosted = self._hosted.get(message.stream)
        if hosted is None:
            request.fail(self._not_here(message.stream))
        else:
            self.readers.read(hosted.readers, request, message, now)

    def _not_here(self, stream: int) -> LogError:
        # Not yet, or no longer: whether there is such a stream the repository knows.
        return NotReadyError(f"node {self._node} has no replica of stream {stream}")

    # --- time and disk

    def synced(self, ticket: int) -> None:
        """Note what is durable."""
        self.lane.synced(ticket)
        if not self._unsynced:
            return
        unsynced, self._unsynced = self._unsynced, {}
        for stream in unsynced:
            hosted = self._hosted.get(stream)
            if hosted is not None:
                hosted.replica.synced(ticket)
                self._touch(stream)

    def tick(self, now: float) -> None:
        """Let time pass."""
        for stream, hosted in self._hosted.items():
            if hosted.replica.tick(now):
                self._touch(stream)
            self.readers.wake(hosted.readers, now, due_only=True)

    def damaged(self, error: CorruptionError, lost: Mapping[int, int]) -> set[int]:
        """Let the replicas be repaired that have lost records.

        `lost` has streams as they are numbered in the node's log, and the first LLSN
        that cannot be read. Returns those that are no replicas.
        """
        others = set(lost)
        for stream, hosted in self._hosted.items():
            number = hosted.storage.stored_as
            if number in others:
                others.discard(number)
                hosted.replica.damaged(error)
                self._touch(stream)
        return others

    # --- effects

    def flush(self, now: float) -> list[StreamReport]:
        """Do what the replicas ask for; return the reports that should go now."""
        reports: list[StreamReport] = []
        waiting = []
        if self.lane.stirred:
            reports = self.ended(self.lane.turn(), now)
        while self.dirty:
            stream = next(iter(self.dirty))
            del self.dirty[stream]
            hosted = self._hosted.get(stream)
            if hosted is None:
                continue
            known = hosted.config is hosted.remembered
            if not known and not self._remember(stream, hosted):
                waiting.append(stream)
                continue
            report = self._carry_out(stream, hosted, now)
            if report is not None:
                reports.append(report)
        self.dirty.update(dict.fromkeys(waiting))
        return reports

    def ended(self, ended: Any, now: float) -> list[StreamReport]:
        """Do what the lane has left of a turn, as `Lane.turn` says it."""
        due, advanced, answers, came, said, wires = ended
        if wires:
            self._peers.outbox.wires.update(dict.fromkeys(wires))
        unsent, raft_due, lead_due = said
        self.raft_due = self.raft_due or raft_due
        self.lead_due = self.lead_due or lead_due
        if unsent:
            self.unsent += unsent
        self.wake(advanced, now)
        if answers:
            self.measure(came)
            for session, rows in answers:
                self.lane.count(0, 0, len(rows))
                session.answer_appends(rows)
        return list(starmap(StreamReport, due)) if due else []

    def wake(self, streams: Iterable[int], now: float) -> None:
        """Look at reads that wait for streams of which more can be read."""
        for stream in streams:
            self.readers.wake(self._hosted[stream].readers, now)

    def _carry_out(
        self, stream: int, hosted: _Hosted, now: float = 0.0
    ) -> StreamReport | None:
        effects = hosted.replica.effects()
        if effects.trouble != hosted.trouble.seen:
            hosted.trouble.look(stream, effects.trouble)
        if not effects.unsynced:
            self._unsynced.pop(stream, None)
        for node, message, batches in effects.messages:
            self._peers.send(node, message, batches)
        if effects.answers:
            self._answer(effects.answers)
        if effects.advanced:
            self.readers.wake(hosted.readers, now)
        return effects.report

    def _answer(self, answers: Sequence[Answer]) -> None:
        """Answer appends: those of a connection that were committed all at once."""
        placed: dict[Session, list[AppendRow]] = {}
        came: dict[float, int] = {}
        for request, answer in answers:
            assert isinstance(request, Request)  # noqa: S101, RUF100
            came[request.began] = came.get(request.began, 0) + 1
            if isinstance(answer, LogError):
                self._refused += 1
                request.fail(answer)
            else:
                self.lane.count(0, 0, 1)
                of_session = placed.setdefault(request.session, [])
                place = answer.llsn, answer.glsn, answer.count, answer.version
                of_session.append((request.number, *place))
        self.measure(came.items())
        for session, each in placed.items():
            session.answer_appends(each)

    def measure(self, came: Iterable[tuple[float, int]]) -> None:
        """Note how long appends took: when they came, and how many then."""
        now, observe = time.monotonic(), self.latencies.append.observe
        for begun, count in came:
            observe(now - begun, count)

    def _remember(self, stream: int, hosted: _Hosted) -> bool:
        """Store under which configuration the replica is a member of its epoch.

        It is durable before anything in that epoch is acknowledged: without room for
        it, which False says, nothing of what the replica asks for may be done yet.
        """
        config, replica = hosted.config, hosted.replica
        if config is None:
            return True
        entered = replica.state in _ENTERED and replica.report().epoch == config.epoch
        if not entered or self._node not in config.replicas:
            return True
        if config != hosted.remembered:
            try:
                hosted.storage.set_options(about(config))
            except TooLargeError as error:
                msg = (
                    "the options of stream %d are too large to store beside the "
                    "replica, so a rescue would not know its log: %s"
                )
                _log.error(msg, stream, error, extra={"stream": stream})
            except UnavailableError as error:
                if not hosted.waits:
                    _log.error(
                        "the replica of stream %d waits for disk space: %s",
                        stream,
                        error,
                    )
                hosted.waits = True
                return False
        hosted.waits = False
        hosted.remembered = config
        self._tell_role(hosted, config)
        return True

    def _tell_role(self, hosted: _Hosted, config: StreamConfig) -> None:
        """Log which part this node has in a stream, if it is another one than before.

        Which epochs there are says the leader of the repository, and why.
        """
        role = _role(self._node, config)
        if role == hosted.told:
            return
        hosted.told = role
        text = f"stream {config.stream} of {config.name}, epoch {config.epoch}"
        fields: dict[str, Value] = {
            "stream": config.stream,
            "log": config.name,
            "epoch": config.epoch,
            "role": role,
        }
        event = Event("replica_role", f"{role} of {text}", fields)
        tell(_log, self._node, event)

    def stored(self) -> tuple[StoredReplica, ...]:
        """Return what is on the disk of each replica."""
        return tuple(
            _stored(stream, hosted.storage)
            for stream, hosted in sorted(self._hosted.items())
        )

    # --- to look at

    @property
    def waits_for_sync(self) -> bool:
        """Whether something is to be synced that is not in the lane."""
        return bool(self._unsynced)

    @property
    def counters(self) -> Counters:
        """Return the totals since the start."""
        lane = self.lane
        counted = lane.appends, lane.append_bytes, lane.acknowledged
        return Counters(*counted, self._refused)

    def reports(self) -> tuple[StreamReport, ...]:
        """Return the report of every replica, as it is on the disk."""
        return tuple(each.replica.report() for each in self._hosted.values())

    def unanswered(self) -> int:
        """Return how many appends wait for their commit."""
        return sum(each.replica.waiting for each in self._hosted.values())

    def primaries(self) -> Iterator[Primary]:
        """Return the streams that this node is primary of."""
        for stream, hosted in self._hosted.items():
            config = hosted.config
            # A removed stream is sealed, and lets its records go as others do.
            serves = hosted.replica.state in (ReplicaState.RUNNING, ReplicaState.SEALED)
            if config is not None and serves and config.replicas[0] == self._node:
                yield Primary(stream, hosted.replica, hosted.storage, config.options)

    def status(self) -> Iterator[ReplicaStatus]:
        """Return the replicas as they are now."""
        for stream, hosted in sorted(self._hosted.items()):
            config, replica = hosted.config, hosted.replica
            report = replica.report()
            yield ReplicaStatus(
                stream=stream,
                log=config.name if config else "",
                state=replica.state.name.lower(),
                role=_role(self._node, config),
                epoch=report.epoch,
                low=replica.low,
                committed=report.committed,
                end=report.end,
                version=report.version,
                high_watermark=replica.high_watermark,
                waiting=replica.waiting,
            )


def _harmless(error: Exception) -> bool:
    """Tell whether an error may be one of the call, and not of the state."""
    return not isinstance(error, LogError | AssertionError)


@contextmanager
def _room_needed(stream: int) -> Iterator[None]:
    """Go on without what there is no room for."""
    try:
        yield
    except (UnavailableError, TooLargeError) as error:
        msg = "a change of stream %d that the metadata repository decided waits: %s"
        _log.warning(msg, stream, error, extra={"stream": stream})


def _parts(
    requests: Sequence[Request], batches: Sequence[bytes | memoryview]
) -> Iterator[list[tuple[Request, bytes | memoryview]]]:
    """Cut a group so that each part fits one message to the backups."""
    part: list[tuple[Request, bytes | memoryview]] = []
    size = 0
    for request, batch in zip(requests, batches, strict=True):
        if part and size + len(batch) > GROUP_BYTES_MAX:
            yield part
            part, size = [], 0
        part.append((request, batch))
        size += len(batch)
    yield part


def _stored(stream: int, storage: ReplicaStore) -> StoredReplica:
    state = storage.state()
    return StoredReplica(
        stream,
        state.epoch,
        storage.options,
        state.committed,
        state.next,
        state.context.version,
        state.context.high_watermark,
    )


def _role(node: int, config: StreamConfig | None) -> str:
    if config is None:
        return "unknown"
    if node in config.replicas:
        return "primary" if config.replicas[0] == node else "backup"
    return "learner" if node in config.learners else "dropped"
