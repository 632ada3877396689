"""What a node tells its operator: each change of state once, as a value.

*Theory of operation.* The cores of the repository have no logger. They yield events,
and the shell logs them. What every member sees, who leads, each of them tells of
itself. What happens to nodes and streams the leader tells when the entry is applied,
because only it knows the reason; the others apply the same entry and say nothing.

*Invariants.* An event is yielded when something has changed, not as long as it is so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from braidlog.metarepo.machine.state import LogState, State, StreamState
from braidlog.raft import Role, SoftState
from braidlog.wire import commands
from braidlog.wire.commands import Command
from braidlog.wire.messages import StreamStatus
from braidlog.wire.tables import IndexStatus, TableInfo

_LEADERLESS_S: Final = 3.0
"""An election that takes so long does not come to an end by itself."""

EventName: TypeAlias = Literal[
    "node_listens",
    "settings_reloaded",
    "reload_refused",
    "node_registered",
    "node_stops",
    "node_stopped",
    "election_begun",
    "leader_elected",
    "leader_followed",
    "leader_lost",
    "leader_resigned",
    "majority_lost",
    "voters_changed",
    "node_joined",
    "node_started",
    "node_back",
    "node_lost",
    "node_slow",
    "node_fast",
    "lead_given_away",
    "drain_begun",
    "drain_ended",
    "drain_done",
    "node_removed",
    "node_readmitted",
    "node_given_up",
    "log_created",
    "log_altered",
    "log_deleted",
    "log_trimmed",
    "epoch_begun",
    "stream_sealed",
    "stream_unsealed",
    "learner_begun",
    "learner_dropped",
    "move_begun",
    "move_done",
    "move_given_up",
    "stream_degraded",
    "stream_unavailable",
    "stream_whole",
    "replica_role",
    "replica_dropped",
    "replica_damaged",
    "table_created",
    "table_altered",
    "table_dropped",
    "index_built",
    "index_aborted",
    "hosts_changed",
    "host_joined",
    "host_damaged",
    "table_copied",
    "table_damaged",
]
"""Names never change: programs look for them. docs/operating/cluster.md lists them."""

Value: TypeAlias = "int | str | list[int]"


@dataclass(frozen=True, slots=True)
class Event:
    """One change of state."""

    name: EventName
    text: str
    fields: Mapping[str, Value] = field(default_factory=dict)
    warning: bool = False


# --- who leads


class Elections:
    """What one member sees of the leader."""

    def __init__(self, node: int, now: float) -> None:
        """Begin without a leader."""
        self._node = node
        self._seen = SoftState(Role.FOLLOWER, 0, 0, 0, 0)
        self._followed = 0, 0
        self._alone_since: float | None = now
        self._voters: tuple[int, ...] = ()

    def see(
        self,
        soft: SoftState,
        now: float,
        *,
        elected_by: tuple[int, ...],
        voters: tuple[int, ...],
        broke: bool,
    ) -> Iterator[Event]:
        """Yield what is news; `broke` says that the connection to the leader broke."""
        last, self._seen = self._seen, soft
        if soft.leader and not last.leader:
            self._alone_since = None
        elif not soft.leader and last.leader:
            self._alone_since = now
        if soft.role is not last.role or soft.term != last.term:
            yield from self._role(last, soft, elected_by, broke=broke)
        if soft.leader not in (0, self._node):
            yield from self._follow(soft)
        if voters != self._voters:
            if self._voters and soft.role is Role.LEADER:
                yield Event(
                    "voters_changed",
                    f"{_nodes(voters)} vote in the metadata repository",
                    {"voters": list(voters)},
                )
            self._voters = voters

    def _role(
        self,
        last: SoftState,
        soft: SoftState,
        elected_by: tuple[int, ...],
        *,
        broke: bool,
    ) -> Iterator[Event]:
        leader, term = last.leader, soft.term
        standing = (Role.PRE_CANDIDATE, Role.CANDIDATE)
        if (
            last.role is Role.LEADER
            and soft.role is not Role.LEADER
            and not soft.leader
        ):
            if soft.term == last.term:
                reason = "it cannot reach a majority of the voters"
                yield Event(
                    "leader_resigned",
                    "this node is no longer the leader of the metadata repository: "
                    f"{reason}",
                    {"term": term, "reason": reason},
                    warning=True,
                )
        elif soft.role in standing and leader not in (0, self._node):
            reason = "the connection to it broke" if broke else "it was silent"
            yield Event(
                "leader_lost",
                f"node {leader}, the leader of the metadata repository, is down: "
                f"{reason}",
                {"leader": leader, "term": last.term, "reason": reason},
                warning=True,
            )
        if soft.role is Role.CANDIDATE:
            yield Event(
                "election_begun",
                f"this node starts an election for term {term}",
                {"term": term},
            )
        if soft.role is Role.LEADER:
            self._followed = self._node, term
            yield Event(
                "leader_elected",
                f"this node leads the metadata repository in term {term}, elected by"
                f" {_nodes(elected_by)}",
                {"leader": self._node, "term": term, "votes": list(elected_by)},
            )

    def _follow(self, soft: SoftState) -> Iterator[Event]:
        if self._followed == (soft.leader, soft.term):
            return
        self._followed = soft.leader, soft.term
        yield Event(
            "leader_followed",
            f"node {soft.leader} leads the metadata repository in term {soft.term}",
            {"leader": soft.leader, "term": soft.term},
        )

    def tick(self, now: float) -> Iterator[Event]:
        """Yield that nobody has led for long, once."""
        since = self._alone_since
        if since is None or now - since < _LEADERLESS_S or not self._voters:
            return
        self._alone_since = None
        yield Event(
            "majority_lost",
            f"no node has led the metadata repository for {now - since:.0f} s: a"
            f" majority of the voters, {_nodes(self._voters)}, has to run and to reach"
            " one another",
            {"voters": list(self._voters)},
            warning=True,
        )


# --- what an entry changes

_OF_TABLES: Final = (commands.ChangeTables, commands.PlaceHosts, commands.SettleHost)


@dataclass(frozen=True, slots=True)
class Facts:
    """What an entry may change, as it was before it was applied."""

    stream: tuple[int, tuple[int, ...], tuple[int, ...], StreamStatus] | None = None
    move: tuple[int, int] | None = None
    incarnation: int = 0
    draining: bool = False
    trim: int = 0
    name: str = ""
    known: bool = False
    tables: Mapping[bytes, TableInfo] = field(default_factory=dict)
    """Before a command about them; replaced by it, not changed."""
    revision: int = 0


def facts_of(state: State, command: Command) -> Facts:
    """Return what `happened` has to know of the state before a command."""
    if isinstance(command, _OF_TABLES):
        return Facts(tables=state.tables, known=True)
    if (stream := _stream(state, command)) is not None:
        log = state.logs[stream.log]
        standing = stream.epoch, stream.replicas, stream.learners, stream.status
        return Facts(standing, stream.move, trim=log.trim, name=log.name, known=True)
    node = state.nodes.get(getattr(command, "node", 0))
    if node is not None:
        return Facts(incarnation=node.incarnation, draining=node.draining, known=True)
    log_of = state.logs.get(getattr(command, "log", b""))
    if log_of is not None:
        revision = log_of.revision
        return Facts(trim=log_of.trim, name=log_of.name, known=True, revision=revision)
    return Facts()


def _stream(state: State, command: Command) -> StreamState | None:
    return state.streams.get(getattr(command, "stream", 0))


def happened(
    state: State, command: Command, facts: Facts, reason: str
) -> Iterator[Event]:
    """Yield what a command that was applied has changed."""
    if isinstance(command, _OF_TABLES):
        yield from _of_tables(state, facts.tables)
        return
    stream = _stream(state, command)
    if stream is not None and facts.stream is not None:
        yield from _of_stream(state, stream, facts, reason)
    match command:
        case commands.RegisterNode(node=node, address=address):
            if not facts.known:
                text = f"node {node} joined the cluster at {address}"
                yield Event("node_joined", text, {"peer": node})
            elif state.nodes[node].incarnation != facts.incarnation:
                text = f"node {node} was restarted"
                yield Event("node_started", text, {"peer": node})
        case commands.DrainNode(node=node, draining=draining):
            if draining != facts.draining:
                begins: EventName = "drain_begun" if draining else "drain_ended"
                what = "is being drained" if draining else "is no longer being drained"
                yield Event(begins, f"node {node} {what}", {"peer": node})
        case commands.RemoveNode(node=node) if facts.known:
            yield Event(
                "node_removed",
                f"node {node} was removed from the cluster",
                {"peer": node},
            )
        case commands.ReadmitNode(node=node):
            text = f"the directory of node {node} was given up"
            yield Event("node_given_up", text, {"peer": node}, warning=True)
        case commands.AdmitNode(node=node):
            text = f"node {node} may now start with an empty directory"
            yield Event("node_readmitted", text, {"peer": node})
        case commands.CreateLog(log=key) if not facts.known and key in state.logs:
            yield _created(state.logs[key])
        case commands.DeleteLog() if facts.known:
            text = f"the log {facts.name!r} was deleted"
            yield Event("log_deleted", text, {"log": facts.name})
        case commands.AlterLog(log=key) if key in state.logs:
            name = state.logs[key].name
            yield Event(
                "log_altered",
                f"the settings of log {name!r} were changed",
                {"log": name},
            )
        case commands.SetStreams(log=key) if key in state.logs:
            yield from _of_spread(state.logs[key], facts)
        case commands.Retain() if stream is not None:
            log = state.logs[stream.log]
            if log.trim > facts.trim:
                yield _trimmed(log, facts.trim)


def _of_spread(log: LogState, facts: Facts) -> Iterator[Event]:
    """Yield a change of the streams of a log, if it was one."""
    if log.spread is None or log.revision == facts.revision:
        return
    count, removed = len(log.spread.keyed), [each for each, _ in log.spread.removed]
    text = f"log {log.name!r} has {count} stream{'s' if count != 1 else ''} now"
    fields: dict[str, Value] = {"log": log.name, "streams": list(log.spread.keyed)}
    if removed:
        fields["removed"] = removed
    yield Event("log_altered", text, fields)


def _of_tables(state: State, before: Mapping[bytes, TableInfo]) -> Iterator[Event]:
    """Yield what differs between two catalogs."""
    for key in before.keys() - state.tables.keys():
        name = before[key].name
        if all(table.name != name for table in state.tables.values()):
            text = f"the table {name} was dropped"
            yield Event("table_dropped", text, {"table": name})
    for key, table in state.tables.items():
        known = before.get(key)
        log = state.logs[table.log].name
        fields: dict[str, Value] = {
            "table": table.name,
            "log": log,
            "hosts": list(table.hosts),
        }
        if known is None:
            text = (
                f"the table {table.name} over {log} begins at position {table.begin}"
                f" on {_nodes(table.hosts)}"
            )
            yield Event("table_created", text, fields)
        elif known != table:
            yield from _of_table(known, table, fields)


def _of_table(
    known: TableInfo, table: TableInfo, fields: dict[str, Value]
) -> Iterator[Event]:
    if known.hosts != table.hosts:
        text = f"the table {table.name} is to be kept by {_nodes(table.hosts)}"
        yield Event("hosts_changed", text, fields)
    for node in table.hosts:
        joined, was = node in table.joined, node in known.joined
        if joined and not was:
            text = f"node {node} has all of table {table.name}"
            yield Event("host_joined", text, fields | {"peer": node})
        elif was and not joined:
            text = f"node {node} lost some of table {table.name} and copies it again"
            yield Event("host_damaged", text, fields | {"peer": node}, warning=True)
    before = {each.tree: each.status for each in known.indexes}
    for index in table.indexes:
        if index.status is before.get(index.tree, index.status):
            continue
        more = fields | {"index": index.name, "reason": index.reason}
        text = f"index {index.name} of table {table.name}"
        if index.status is IndexStatus.ACTIVE:
            yield Event("index_built", f"{text} is built", more)
        else:
            text += f" could not be built: {index.reason}"
            yield Event("index_aborted", text, more, warning=True)
    names = [[each.name, each.tree] for each in (*known.indexes,)]
    if known.name != table.name or names != [[e.name, e.tree] for e in table.indexes]:
        text = f"the table {table.name} was changed"
        yield Event("table_altered", text, fields)


def _created(log: LogState) -> Event:
    count = len(log.streams)
    text = (
        f"the log {log.name} is created with {count} stream{'s' * (count != 1)} of"
        f" {log.replication} replica{'s' * (log.replication != 1)}"
    )
    return Event("log_created", text, {"log": log.name, "streams": list(log.streams)})


def _trimmed(log: LogState, before: int) -> Event:
    text = f"the log {log.name} begins at {log.trim}, {log.trim - before} records later"
    fields: dict[str, Value] = {
        "log": log.name,
        "first": log.trim,
        "reason": "retention",
    }
    return Event("log_trimmed", f"{text}: retention", fields)


def _of_stream(
    state: State, stream: StreamState, facts: Facts, reason: str
) -> Iterator[Event]:
    assert facts.stream is not None  # noqa: S101, RUF100
    epoch, replicas, learners, status = facts.stream
    name = f"stream {stream.stream} of {facts.name}"
    fields: dict[str, Value] = {
        "stream": stream.stream,
        "log": facts.name,
        "epoch": stream.epoch,
        "reason": reason,
    }
    if stream.status is not status:
        sealed = stream.status is StreamStatus.SEALED
        text = f"{name} is {'sealed' if sealed else 'unsealed'} in epoch {stream.epoch}"
        kind: EventName = "stream_sealed" if sealed else "stream_unsealed"
        yield Event(kind, text + _because(reason), fields)
    elif stream.epoch != epoch:
        yield _epoch(stream, replicas, name, fields, reason)
    for node in stream.learners:
        if node not in (*learners, *replicas):
            text = f"node {node} starts to copy {name}{_because(reason)}"
            yield Event("learner_begun", text, fields | {"learner": node})
    for node in learners:
        if node not in (*stream.learners, *stream.replicas):
            text = f"node {node} stops copying {name}{_because(reason)}"
            yield Event("learner_dropped", text, fields | {"learner": node})
    if stream.move != facts.move:
        yield _moved(stream, facts.move, name, fields)


def _epoch(
    stream: StreamState,
    before: tuple[int, ...],
    name: str,
    fields: dict[str, Value],
    reason: str,
) -> Event:
    primary = stream.replicas[0]
    text = f"{name} begins epoch {stream.epoch} on {_nodes(stream.replicas)}"
    if primary != before[0]:
        text += f", node {primary} is its primary in place of node {before[0]}"
    more: dict[str, Value] = {
        "primary": primary,
        "primary_before": before[0],
        "replicas": list(stream.replicas),
        "joined": [node for node in stream.replicas if node not in before],
        "left": [node for node in before if node not in stream.replicas],
    }
    return Event("epoch_begun", text + _because(reason), fields | more)


def _moved(
    stream: StreamState,
    before: tuple[int, int] | None,
    name: str,
    fields: dict[str, Value],
) -> Event:
    source, target = stream.move or before or (0, 0)
    route = f"of {name} from node {source} to node {target}"
    ends: dict[str, Value] = {"source": source, "target": target}
    if stream.move is not None:
        return Event("move_begun", f"the move {route} starts", fields | ends)
    if target in stream.replicas:
        return Event("move_done", f"the move {route} is done", fields | ends)
    text = f"the move {route} was cancelled"
    return Event("move_given_up", text, fields | ends, warning=True)


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


def _nodes(nodes: tuple[int, ...]) -> str:
    if not nodes:
        return "no node"
    return f"node{'s' * (len(nodes) != 1)} {', '.join(map(str, nodes))}"
