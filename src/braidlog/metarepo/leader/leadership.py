"""What makes a member the leader: soft state of one term.

*Theory of operation.* Reports, liveness, what was sent and which changes are under way
are forgotten with the term. Commands of clients are completed here with what only the
leader knows: which nodes are alive, which replicas entered.

*Invariants.* A stream of which a change is in the log gets no cut and no second change
until that is applied. Nothing is decided before the state is up to date.
"""
# One file: what a leader knows, from the begin of its term to its end.

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from braidlog.errors import (
    InvalidArgumentError,
    NotReadyError,
    OlderNodesError,
    UnauthorizedError,
    UnavailableError,
)
from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.admission import (
    StateBudget,
    require_names,
    require_no_table,
)
from braidlog.metarepo.events import Event, Facts, Value, facts_of, happened
from braidlog.metarepo.leader.collector import Collector
from braidlog.metarepo.leader.controller import Controller
from braidlog.metarepo.leader.fault_recording import FaultRecording
from braidlog.metarepo.leader.hosting import Hosting
from braidlog.metarepo.leader.leases import Leases
from braidlog.metarepo.leader.liveness import Liveness
from braidlog.metarepo.leader.publisher import Publisher
from braidlog.metarepo.leader.registration import registrations_due
from braidlog.metarepo.leader.settings import GroupSettings
from braidlog.metarepo.leader.shard_repair import ShardRepair
from braidlog.metarepo.leader.slow_nodes import SlowNodes
from braidlog.metarepo.leader.voters import next_change
from braidlog.metarepo.machine import tables
from braidlog.metarepo.machine.logs import require_shape
from braidlog.metarepo.machine.placement import place, require_nodes
from braidlog.metarepo.machine.readmission import is_free
from braidlog.metarepo.machine.repository import Repository
from braidlog.metarepo.machine.spread import missing_streams
from braidlog.metarepo.machine.state import (
    STREAMS_OF_LOG_MAX,
    ShardPlace,
    State,
    StreamState,
)
from braidlog.metarepo.machine.views import Standing
from braidlog.raft import (
    ChangeRefusedError,
    Entry,
    Membership,
    NotLeaderError,
    RaftNode,
    TransferringError,
)
from braidlog.wire import commands
from braidlog.wire.commands import Command
from braidlog.wire.connection import Lane
from braidlog.wire.members import nodes_of
from braidlog.wire.messages import (
    Feature,
    LogKind,
    Message,
    Recorded,
    Report,
    StreamReport,
)
from braidlog.wire.results import Refused, Result
from braidlog.wire.tables import CreateTable, TableChange

LOOK_SECONDS: Final = 0.1
"""Between looks at all nodes and streams, if nothing happens."""
REST_SECONDS: Final = 0.5
"""Between two looks when nobody is missed and nothing followed from the last ones."""
_VAIN: Final = 20
"""Looks in vain before that."""
YIELD_SECONDS: Final = 2.0
"""Between attempts to give the lead away."""

_OF_STREAM = (
    commands.Reconfigure,
    commands.AddLearner,
    commands.DropLearner,
    commands.MoveReplica,
    commands.Seal,
    commands.Unseal,
    commands.PlaceShard,
)
_UNTOLD = (
    commands.Trim,
    commands.SetCursor,
    commands.DeleteCursor,
    commands.GetCursors,
    commands.ChangeFaults,
    commands.ReportShards,
)
"""What happens all the time, and what concerns one client alone."""


class Leadership:
    """Soft state of a leader; see the module."""

    def __init__(self, settings: GroupSettings, term: int, now: float) -> None:
        """Begin a term."""
        self.term = term
        self.ready = False
        """Whether an entry of this term is applied."""
        self._leases: Leases | None = None
        self.collector = Collector(settings.cuts_in_flight)
        self.liveness = Liveness(settings.liveness, now)
        self.publisher = Publisher(settings.publisher)
        self.fault_recording = FaultRecording()
        self._room = StateBudget(settings.state_bytes_max)
        self._fault_logs = settings.fault_logs
        self.slow_nodes = SlowNodes(settings.slowness, self.collector, now)
        self._controller = Controller(settings.controller)
        self._hosting = Hosting(settings.host_patience)
        self._shard_repair = ShardRepair(settings.shard_patience)
        self._placing: set[int] = set()
        """Changes of hosts that are under way, by entry."""
        self._changing: dict[int, int] = {}
        self._admitting: dict[int, int] = {}
        self._registering: dict[int, int] = {}
        self.messages: list[tuple[int, Message]] = []
        """What is to be sent to nodes; whoever sends it empties the list."""
        self.looked = now - 1.0
        self.pause = LOOK_SECONDS
        """How long after a look there may be another one, if nothing happens."""
        self._vain = 0
        """Looks in a row from which nothing followed."""
        self.stirred = True
        """Whether something happened that a look may act on."""
        self._news = True
        self.gone: frozenset[int] = frozenset()
        """Nodes that were taken for dead at the last look."""
        self.told: dict[int, tuple[Command, str]] = {}
        """Commands whose effect the operator is told, by entry, with the reason."""
        self._full: set[int] = set()
        """Nodes that are drained and not empty yet."""
        self._lost: frozenset[int] = frozenset()
        """Nodes of which the operator was told that they are lost."""
        self._awaited: set[int] = set()
        """Nodes that registered in this term and have not reported yet."""
        self.events: list[Event] = []
        """What the operator has to be told; whoever tells it empties the list."""
        self._yielded = now - YIELD_SECONDS

    def begin(self, repository: Repository, now: float) -> None:
        """Begin to lead: the first entry of this term is about to be applied."""
        self.ready = True
        self._leases = Leases(repository.state, now)

    def dead(self, node: int, now: float) -> bool:
        """Tell whether a node is taken for dead."""
        return self.liveness.dead(node, now)

    def silent_ms(self, node: int, now: float) -> int:
        """Return for how long a node that is taken for dead was not heard."""
        return _ms(self.liveness.silence(node, now)) if self.dead(node, now) else 0

    def standing(self, stream: StreamState | ShardPlace, now: float) -> Standing:
        """Return how a stream or a shard stands."""
        if isinstance(stream, ShardPlace):
            return self._shard_standing(stream, now)
        # One that is restarted is out of sync before it is taken for dead.
        live = [
            node
            for node in stream.replicas
            if not self.dead(node, now) and not self.liveness.doubted(node)
        ]
        entered = self.collector.entered(stream)
        lacking, why = self._controller.lacking(stream.stream, now)
        reports = {n: self.collector.report(n, stream.stream) for n in stream.replicas}
        return Standing(
            in_sync=tuple(node for node in live if node in entered),
            damaged=tuple(n for n, report in reports.items() if _is_damaged(report)),
            lacking_ms=_ms(lacking),
            lacking_why=why,
        )

    def _shard_standing(self, shard: ShardPlace, now: float) -> Standing:
        live = [
            node
            for node in nodes_of(
                each for each in shard.voters if each not in shard.lost
            )
            if not self.dead(node, now) and not self.liveness.doubted(node)
        ]
        lacking, why = self._shard_repair.lacking(shard.stream, now)
        return Standing(in_sync=tuple(live), lacking_ms=_ms(lacking), lacking_why=why)

    @property
    def changing(self) -> set[int]:
        """Return the streams of which a change is under way."""
        return set(self._changing.values())

    # --- inputs

    def report(self, repository: Repository, report: Report, now: float) -> bool:
        """Take a report; tell whether something follows from it."""
        state, collector = repository.state, self.collector
        known = state.nodes.get(report.node)
        if known is None or known.incarnation > report.incarnation:
            return False
        if not collector.take(report):
            return False
        self.liveness.heard(report.node, now)
        if self.slow_nodes.measures:
            collector.measure(state, report, now)
            if report.full:
                self.slow_nodes.says(report)
        if self.ready:
            self.messages += self.publisher.reported(repository, report, now)
        # Of the reports of all replicas of a stream only the last one lets a cut.
        ripe = collector.ripe(state, self._changing.values())
        return ripe or collector.stirred or bool(self.messages)

    def let(self, lane: Lane, state: State) -> None:
        """Let a lane take reports, make cuts of them, and tell what is committed."""
        changing, measures = self._changing.values(), self.slow_nodes.measures
        lane.lead(self.collector, state, changing, self.gone, measures)

    def recorded(self, message: Recorded) -> None:
        """Take what a node says of its fault log."""
        if self.fault_recording.take(message):
            self.stirred = True

    def lost(self, node: int, now: float) -> None:
        """Note that the connection to a node broke."""
        self.liveness.lost(node, now)
        self.pause = LOOK_SECONDS

    def passed(self, repository: Repository, now: float, late: float) -> None:
        """Let time pass; it was to pass ``late`` seconds ago."""
        self.liveness.called(now)
        self.pause = LOOK_SECONDS
        if self.liveness.due(now):
            self.stirred = True
        state = repository.state
        alive = partial(self.liveness.alive, now=now)
        if self.slow_nodes.passed(state, alive, now, late):
            self.stirred = True
        self.events += self.slow_nodes.take_events()

    def cut(self, state: State, raft: RaftNode) -> None:
        """Log what can be committed."""
        collector, excluded = self.collector, self._changing.values()
        while collector.has_fresh:
            data = collector.cut(state, excluded, self.gone)
            if data is None:
                return
            try:
                index = raft.propose([data]).begin
            except UnavailableError:
                collector.dropped()
                return
            collector.proposed(index)

    def begun(self, index: int, command: Command) -> None:
        """Note a command that was logged; the collector notes cuts."""
        self._vain = 0
        if not isinstance(command, _UNTOLD):
            self.told[index] = command, self._reason(command)
        if isinstance(command, commands.ChangeFaults):
            self.fault_recording.begun(index)
        elif isinstance(command, commands.AdmitNode):
            self._admitting[index] = command.node
        elif isinstance(command, commands.PlaceHosts):
            self._placing.add(index)
        elif isinstance(command, commands.RegisterNode):
            self._registering[index] = command.node
            self._room.begun(index, command)
        elif isinstance(command, _OF_STREAM):
            # A client may name any number. There is no stream below 1, and who makes
            # cuts takes none for one.
            if command.stream > 0:
                self._changing[index] = command.stream
        else:
            self._room.begun(index, command)

    def facts(self, repository: Repository, index: int) -> Facts | None:
        """Return what an entry may change, None if nobody is told of it."""
        told = self.told.get(index)
        return facts_of(repository.state, told[0]) if told is not None else None

    def happened(
        self, repository: Repository, index: int, facts: Facts | None, result: Result
    ) -> None:
        """Tell what an entry has changed."""
        command, reason = self.told.pop(index, (None, ""))
        if isinstance(command, commands.RegisterNode):
            self._awaited.add(command.node)
        if command is None or facts is None or isinstance(result, Refused):
            return
        self.events += happened(repository.state, command, facts, reason)

    def applied(
        self, repository: Repository, entry: Entry, result: Result, raft: RaftNode
    ) -> None:
        """Note a command that was applied."""
        refused = isinstance(result, Refused)
        logs = self.collector.settled(entry.index, refused=refused)
        if logs is None:
            self._changing.pop(entry.index, None)
            self._placing.discard(entry.index)
            self._registering.pop(entry.index, None)
            self._room.applied(entry.index, len(entry.data))
            self.fault_recording.applied(entry.index)
            self.stirred = True
            self._admitted(repository, entry.index, raft)
            return
        if not refused:
            cuts = [repository.state.logs[log].history[-1] for log in logs]
            self.messages += self.publisher.applied(repository, cuts)

    def _admitted(self, repository: Repository, index: int, raft: RaftNode) -> None:
        """Forget what a lost directory said: the next one counts from 1 again."""
        node = self._admitting.pop(index, None)
        if node is None:
            return
        others = repository.state.nodes.keys() - {node}
        self.collector.forget_nodes(others)
        self.liveness.forget(others)
        self.fault_recording.forget(node)
        self.publisher.unsent(node)
        raft.forget(node)

    # --- decisions

    def prepare(
        self,
        repository: Repository,
        command: Command,
        now: float,
        membership: Membership,
    ) -> Command:
        """Complete a command of a client with what only the leader knows.

        Raises:
            UnauthorizedError: it is not for clients.
            LogInUseError, TablePinError: a table needs what it takes away.
            OlderNodesError: some node would apply it otherwise.
            UnavailableError: too few nodes are alive.
            InvalidArgumentError: the node is still needed, or alive; or a new name
                cannot be one.
            NotReadyError: whether a node is alive is not known yet.
            MetadataFullError: there is no room for what it would add.
        """
        if command.ROLE == "leader":
            raise UnauthorizedError("only the metadata repository itself makes cuts")
        require_names(repository.state, command)
        require_no_table(repository.state, command)
        prepared = self._prepared(repository, command, now, membership)
        self._room.require(repository, prepared, now)
        return prepared

    def _prepared(
        self,
        repository: Repository,
        command: Command,
        now: float,
        membership: Membership,
    ) -> Command:
        if isinstance(command, commands.CreateLog):
            return self._placed(repository, command, now, membership)
        if _changes_shard(repository.state, command):
            what = "members and retention of shards"
            self._require(repository.state, Feature.SHARD_PLANS, what)
        if isinstance(command, commands.Trim | commands.Retain):
            return self._leased(repository.state, command, now)
        of_leader = isinstance(command, commands.Reconfigure)
        if not of_leader and getattr(command, "expected", None) is not None:
            self._require_changes(repository.state)
        if isinstance(command, commands.AlterLog):
            _require_raised(repository.state, command, membership)
            return self._counted(repository.state, command)
        if isinstance(command, commands.RegisterNode):
            _require_version(repository.state, command)
        if isinstance(command, commands.SetStreams):
            return self._spread(repository.state, command, now)
        if isinstance(command, commands.ReadmitNode):
            return self._given_up(command, now, membership)
        if isinstance(command, commands.ChangeTables):
            return self._hosted(repository.state, command, now)
        if (
            isinstance(command, commands.RemoveNode)
            and command.node in membership.electors
        ):
            raise InvalidArgumentError(
                f"node {command.node} is a voter of the metadata repository: end "
                "that first with `braidlog node voter --off`"
            )
        return command

    def _leased(
        self, state: State, command: commands.Trim | commands.Retain, now: float
    ) -> Command:
        """Have leases count that an earlier leader gave."""
        assert self._leases is not None, "only who leads prepares"
        if isinstance(command, commands.Trim):
            name = command.log
        else:
            stream = state.streams.get(command.stream)
            place = stream or state.shards.get(command.stream)
            name = place.log if place is not None else b""
        log = state.logs.get(name)
        if log is None:
            return command
        at = self._leases.time(log.cursors.values(), command.now, now)
        return msgspec.structs.replace(command, now=at)

    def _placed(
        self,
        repository: Repository,
        command: commands.CreateLog,
        now: float,
        membership: Membership,
    ) -> commands.CreateLog:
        state = repository.state
        if command.placement or command.log in state.logs:
            return command
        if not 1 <= command.streams <= STREAMS_OF_LOG_MAX:
            return command
        if command.kind is LogKind.SHARD:
            self._require(state, Feature.SHARDS, "shards")
        # Places are looked for before the command is judged with all its fields.
        require_shape(command.replication, command.min_replicas, command.options)
        require_nodes(
            takers(state, membership),
            command.replication,
            command.min_replicas,
            allow_missing=command.allow_missing,
        )
        placement = self._places(
            state, command.streams, command.replication, command.min_replicas, now
        )
        return msgspec.structs.replace(command, placement=placement)

    def _places(
        self, state: State, streams: int, replication: int, fewest: int, now: float
    ) -> tuple[tuple[int, ...], ...]:
        """Return replicas for new streams, on nodes that are alive and not slow."""
        listed = state.faults.failed if state.faults else ()
        alive = [
            node
            for node in state.nodes
            if node not in listed and self.liveness.alive(node, now)
        ]
        fast = [node for node in alive if node not in self.slow_nodes.slow]
        if len(fast) >= fewest:
            # It gets its other replicas when they are fast again.
            alive = fast
        return place(state, alive, streams, replication, fewest)

    def _spread(
        self, state: State, command: commands.SetStreams, now: float
    ) -> commands.SetStreams:
        """Give the streams that a log is to get their places."""
        self._require_changes(state)
        log = state.logs.get(command.log)
        if log is None or not 1 <= command.streams <= STREAMS_OF_LOG_MAX:
            return command
        count = missing_streams(log, command.streams)
        if not count:
            return command
        placement = self._places(state, count, log.replication, log.min_replicas, now)
        return msgspec.structs.replace(command, placement=placement)

    def _counted(self, state: State, command: commands.AlterLog) -> commands.AlterLog:
        """Let a change be a new revision, if all nodes know what that is."""
        try:
            self._require_changes(state)
        except (OlderNodesError, NotReadyError):
            return command
        return msgspec.structs.replace(command, counted=True)

    def _require_changes(self, state: State) -> None:
        self._require(state, Feature.STREAM_CHANGES, "changes of streams")

    def _hosted(
        self, state: State, command: commands.ChangeTables, now: float
    ) -> commands.ChangeTables:
        """Give each new table hosts that live."""
        self._require(state, Feature.TABLES, "tables")
        if any(getattr(change, "begin", 0) for change in command.changes):
            what = "tables that begin behind the first record of their log"
            self._require(state, Feature.TABLE_TASKS, what)
        alive = [node for node in state.nodes if self.liveness.alive(node, now)]
        placed = [table.hosts for table in state.tables.values()]
        changes: list[TableChange] = []
        for each in command.changes:
            change = each
            if isinstance(each, CreateTable) and each.log in state.logs:
                count = each.replicas or state.logs[each.log].replication
                hosts = tables.place(state, placed, alive, count)
                change = msgspec.structs.replace(each, hosts=hosts)
                placed.append(hosts)
            changes.append(change)
        return msgspec.structs.replace(command, changes=tuple(changes))

    def _require(self, state: State, features: Feature, what: str) -> None:
        """Refuse what some node would apply to nothing, or to something else.

        Raises:
            OlderNodesError: there is such a node.
            NotReadyError: whether there is one is not known yet.
        """
        for node, known in state.nodes.items():
            # One that is away is what it registered as: it says so when it is back.
            report = self.collector.node(node)
            said = known.features if report is None else report.features
            if not features & ~said:
                continue
            if report is None:
                msg = f"the leader does not know yet which version node {node} runs"
                raise NotReadyError(msg)
            raise OlderNodesError(
                f"node {node} runs a version that does not know {what}: upgrade all "
                "nodes first",
                nodes=(node,),
            )

    def _given_up(
        self, command: commands.ReadmitNode, now: float, membership: Membership
    ) -> commands.ReadmitNode:
        if self.liveness.alive(command.node, now):
            raise InvalidArgumentError(
                f"node {command.node} is alive: stop it before you give up its "
                "directory"
            )
        if not self.liveness.dead(command.node, now):
            msg = f"the leader does not know yet whether node {command.node} is alive"
            raise NotReadyError(msg)
        votes = command.node in membership.electors
        return msgspec.structs.replace(command, votes=votes)

    def look(self, now: float) -> bool:
        """Tell whether it is time to look at all nodes and streams."""
        stirred = self.stirred or self.collector.stirred
        if not stirred and self._rests(now - self.looked, now):
            # The next tick asks again: somebody may be missed by then.
            self.pause = REST_SECONDS
            return False
        self._vain = 0 if stirred else self._vain + 1
        self.looked, self.stirred, self.collector.stirred = now, False, False
        self._news |= stirred
        return True

    def _rests(self, passed: float, now: float) -> bool:
        calm = self._vain >= _VAIN and not self.gone and not self.liveness.misses(now)
        return calm and passed < REST_SECONDS

    def _reason(self, command: Command) -> str:
        if isinstance(command, commands.Seal | commands.Unseal | commands.MoveReplica):
            return "an operator asked for it"
        stream = getattr(command, "stream", 0)
        return self._controller.reason(stream)

    def _tell_of_nodes(self, state: State, dead: frozenset[int], now: float) -> None:
        """Tell which nodes were lost, are back, or are empty."""
        self._awaited = {n for n in self._awaited if not self.liveness.known(n)}
        lost, before = dead - (self._awaited - self._lost), self._lost
        self._lost = lost
        for node in sorted(lost - before):
            seconds = self.liveness.silence(node, now)
            reason = f"it was silent for {seconds:.1f} s"
            if self.liveness.doubted(node):
                reason = "the connection to it broke"
            elif not seconds:
                reason = "it has not contacted this leader yet"
            fields: dict[str, Value] = {"peer": node, "reason": reason}
            text = f"node {node} is down: {reason}"
            self.events.append(Event("node_lost", text, fields, warning=True))
        for node in sorted((before & state.nodes.keys()) - lost):
            self.events.append(
                Event("node_back", f"node {node} is up again", {"peer": node})
            )
        draining = {each.node for each in state.nodes.values() if each.draining}
        if not draining and not self._full:
            return
        used = {
            node
            for stream in state.streams.values()
            for node in (*stream.replicas, *stream.learners)
        }
        used.update(node for each in state.shards.values() for node in each.nodes)
        used.update(node for table in state.tables.values() for node in table.hosts)
        for node in sorted(self._full & draining - used):
            text = f"node {node} is drained: it holds no replicas any more"
            self.events.append(Event("drain_done", text, {"peer": node}))
        self._full = draining & used

    def decide(self, repository: Repository, now: float) -> list[Command]:
        """Return repairs."""
        known = set(repository.state.nodes)
        self.liveness.forget(known)
        self.collector.forget_nodes(known)
        self.slow_nodes.forget(known)
        state = repository.state
        if state.faults is not None and state.faults.awaited:
            return []
        dead = frozenset(node for node in known if self.liveness.dead(node, now))
        # An idle cluster would be looked at in vain, all streams ten times in a second.
        calm = self._controller.calm and self._hosting.calm
        calm = calm and self._shard_repair.calm
        quiet = calm and not self._news and dead == self.gone
        repairs: list[Command] = []
        if not quiet:
            self._tell_of_nodes(state, dead, now)
            repairs = self._controller.decide(
                state,
                self.collector,
                dead.__contains__,
                now,
                self.changing,
                slow=self.slow_nodes.slow,
                unfit=self.slow_nodes.unfit(now, state.nodes),
            )
            self.events += self._controller.take_events()
            repairs += self._place_shards(state, dead, now)
            if not self._placing:
                repairs += self._hosting.decide(state, dead.__contains__, now)
        self.gone, self._news = dead, False
        if not self._fault_logs:
            return repairs
        change = self.fault_recording.decide(
            state, dead.__contains__, lambda node: self.liveness.alive(node, now)
        )
        return [change, *repairs] if change is not None else repairs

    def _place_shards(
        self, state: State, dead: frozenset[int], now: float
    ) -> list[Command]:
        placed = self._shard_repair.decide(
            state,
            dead.__contains__,
            now,
            self.changing,
            unfit=self.slow_nodes.unfit(now, state.nodes),
        )
        self.events += self._shard_repair.take_events()
        try:
            self._require(state, Feature.SHARD_PLANS, "changes of shards")
        except (OlderNodesError, NotReadyError):
            return []
        return list(placed)

    def lead_members(self, repository: Repository, raft: RaftNode) -> None:
        """Bring the membership of the group one step nearer to what was asked for."""
        change = next_change(repository.state, raft.core)
        if change is None:
            return
        try:
            raft.change_membership(change)
        except (ChangeRefusedError, TransferringError, NotLeaderError):
            # It is computed anew at the next look.
            return

    def successor(self, raft: RaftNode, now: float) -> int:
        """Return the voter that should lead in place of this node; 0: it goes on.

        Every cut waits for the disk of the leader, so one that is slow lets another
        lead, when the streams that go on without it do.
        """
        core, slow = raft.core, self.slow_nodes
        waits = self._changing or now - self._yielded < YIELD_SECONDS
        if core.id not in slow.slow or waits:
            return 0
        unfit = slow.unfit(now, core.membership.voters)
        able = [
            node
            for node in core.membership.voters
            if node not in unfit and node in core.progress and not self.dead(node, now)
        ]
        if not able:
            return 0
        self._yielded = now
        best = max(able, key=lambda node: (core.progress[node].match, -node))
        text = f"this node is slow, so node {best} is to lead the metadata repository"
        self.events.append(Event("lead_given_away", text, {"leader": best}))
        return best

    def registrations(self, repository: Repository) -> list[Command]:
        """Return what brings the features of the nodes up to what they report."""
        under_way = self._registering.values()
        reports = self.collector.reports
        return registrations_due(repository.state, reports, under_way)

    def admissions(self, repository: Repository, raft: RaftNode) -> list[Command]:
        """Return what lets ids come back of which nothing is relied on any more."""
        state, core = repository.state, raft.core
        # A demotion counts when it is committed.
        settled = core.membership.epoch <= core.log.commit
        return [
            commands.AdmitNode(each.node)
            for each in state.nodes.values()
            if each.readmitting
            and settled
            and each.node not in core.membership.electors
            and each.node not in self._admitting.values()
            and is_free(state, each.node)
        ]

    def configure(self, repository: Repository, now: float) -> None:
        """Send configurations to nodes that were heard of."""
        state = repository.state
        self.messages += self.fault_recording.messages(state, self.collector, now)
        for node in self.collector.reports:
            if self._fault_logs and not self.fault_recording.knows(state, node):
                continue
            message = self.publisher.configure(repository, self.collector, node, now)
            if message is not None:
                self.messages.append((node, message))
        if self.messages:
            self._vain = 0

    def sealed(
        self, repository: Repository, number: int, epoch: int, now: float
    ) -> bool:
        """Tell whether all live replicas of a stream have entered an epoch."""
        stream = repository.state.streams.get(number)
        if stream is None:
            return True
        for node in stream.replicas:
            report = self.collector.report(node, number)
            entered = (
                report is not None
                and report.epoch >= epoch
                and report.state != ReplicaState.STARTING
            )
            if not entered and not self.liveness.dead(node, now):
                return False
        return True


def takers(state: State, membership: Membership) -> set[int]:
    """Return the nodes that take replicas, alive or not.

    Voters count before they have registered: they will, soon after the first start.
    """
    leaving = {n for n, node in state.nodes.items() if node.draining}
    return ({*state.nodes, *membership.electors} - leaving) - set(state.removed)


def _require_version(state: State, command: commands.RegisterNode) -> None:
    """Refuse a node that would apply commands about changed streams otherwise.

    Raises:
        OlderNodesError: it is of such a version.
    """
    changed = any(log.spread is not None for log in state.logs.values())
    if changed and not command.features & Feature.STREAM_CHANGES:
        raise OlderNodesError(
            f"node {command.node} runs a version that does not know changes of "
            "streams, and those of a log were changed: upgrade the node",
            nodes=(command.node,),
        )


def _changes_shard(state: State, command: Command) -> bool:
    """Tell whether a command is about a shard as earlier versions do not know them."""
    if isinstance(
        command, commands.MoveReplica | commands.DropLearner | commands.Retain
    ):
        return command.stream in state.shards
    if isinstance(command, commands.AlterLog) and command.replication is not None:
        log = state.logs.get(command.log)
        return log is not None and log.kind is LogKind.SHARD
    return False


def _require_raised(
    state: State, command: commands.AlterLog, membership: Membership
) -> None:
    """Refuse to raise the number of replicas beyond that of the nodes."""
    log = state.logs.get(command.log)
    if log is None:
        return
    replication = command.replication or 0
    fewest = command.min_replicas or 0
    require_nodes(
        takers(state, membership),
        replication if replication > log.replication else 0,
        fewest if fewest > log.min_replicas else 0,
        allow_missing=command.allow_missing,
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _is_damaged(report: StreamReport | None) -> bool:
    broken = (ReplicaState.INVALID, ReplicaState.FAILED)
    return report is not None and (report.damaged or report.state in broken)
