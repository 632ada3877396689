"""Members of a group and dumb replicas, with faults, in steps of 10 ms."""

from __future__ import annotations

import heapq
from random import Random

from braidlog.errors import LogError
from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.group import MetadataMember
from braidlog.metarepo.leader.settings import GroupSettings
from braidlog.metarepo.machine.repository import Repository
from braidlog.raft import Base, Membership, RaftConfig, Stored
from braidlog.wire import commands
from braidlog.wire.commands import Command
from braidlog.wire.messages import (
    Commit,
    Configure,
    Consensus,
    Message,
    Report,
    StreamStatus,
)
from braidlog.wire.results import Result
from property.metarepo.checker import Checker, require
from property.metarepo.disk import Disk
from property.metarepo.model import Replica

STEP = 0.01
MEMBERS = (1, 2, 3)
NODES = (1, 2, 3, 4, 5)
LOGS = (b"a" * 16, b"b" * 16)


class Watched(Repository):
    """A repository whose every step is checked."""

    world: Simulation

    def apply(self, index: int, data: bytes) -> Result:
        checker = self.world.checker
        first = checker.before(index, data)
        epochs = {
            each.stream: (
                each.epoch,
                each.replicas,
                each.status is StreamStatus.RUNNING,
            )
            for each in self.state.streams.values()
        }
        result = super().apply(index, data)
        if first:
            checker.cut(data, result, epochs, self.world.replicas())
        checker.after(self)
        return result


class Store:
    def __init__(self, world: Simulation, number: int) -> None:
        self.world = world
        self.number = number
        self.replicas: dict[int, Replica] = {}
        self.incarnation = 0
        self.reports = 0
        self.up = False
        self.group: MetadataMember | None = None
        member = number in MEMBERS
        self.disk = Disk(Base(membership=Membership(MEMBERS))) if member else None

    def start(self) -> None:
        self.up = True
        self.incarnation += 1
        self.reports = 0
        for replica in self.replicas.values():
            replica.restart()
        if self.disk is not None:
            self.group = self._group(self.disk.crash())

    def _group(self, stored: Stored) -> MetadataMember:
        world = self.world
        config = RaftConfig(
            id=self.number,
            incarnation=self.incarnation,
            jitter=lambda: world.random.randrange(11),
            # As a node has it, but that the lag is soon reached.
            commit_lag=20,
            eager_commit=False,
        )
        settings = GroupSettings(tick=0.02, fold_entries=60)
        group = MetadataMember(settings, config, stored, world.now)
        watched = Watched()
        watched.world = world
        watched.state = group.repository.state
        group.repository = watched
        return group

    def crash(self) -> None:
        self.up = False
        self.group = None

    # --- one step

    def step(self) -> None:
        world = self.world
        if self.disk is not None and self.group is not None:
            if world.random.random() < 0.7 and (number := self.disk.sync()):
                self.group.durable(number)
            self.group.tick(world.now)
            self.run()
        for replica in list(self.replicas.values()):
            self._step_replica(replica)
        world.beat(self)

    def run(self) -> None:
        group, disk = self.group, self.disk
        if group is None or disk is None:
            return
        effects = group.effects()
        disk.pending += effects.writes
        for out in effects.messages:
            self.world.send(self.number, out.node, out.message, out.payload)
        for answer in effects.answers:
            self.world.answered(answer.request, answer.error)

    def _step_replica(self, replica: Replica) -> None:
        world = self.world
        room = replica.held.end - replica.held.committed < 50
        if replica.primary and room and world.writing and world.random.random() < 0.4:
            world.value += 1
            replica.held.values.append(world.value)
        if world.random.random() < 0.5:
            sources = world.sources(replica)
            if sources:
                replica.fetch(world.random.choice(sources))
        if world.random.random() < 0.6:
            replica.sync()
        world.checker.replica(replica)
        if replica.primary:
            world.acknowledge(replica)

    def take(self, sender: int, message: Message, payload: bytes) -> None:
        if isinstance(message, Consensus) and self.group is not None:
            self.group.step(payload, sender, self.world.now)
        elif isinstance(message, Report) and self.group is not None:
            self.group.report(message, self.world.now)
        elif isinstance(message, Commit):
            for cut in message.cuts:
                for replica in self.replicas.values():
                    if replica.held.log == cut.log:
                        replica.commit(cut)
        elif isinstance(message, Configure):
            self._configure(message)

    def _configure(self, message: Configure) -> None:
        for config in message.streams:
            if self.number not in (*config.replicas, *config.learners):
                continue
            if config.stream not in self.replicas:
                replica = Replica(self.number, config.stream, config.log)
                self.replicas[config.stream] = replica
            self.replicas[config.stream].configure(config)
        for stream in message.dropped:
            known = self.replicas.get(stream)
            newest = known.config.epoch if known and known.config else 0
            if known and newest <= self.world.newest_epoch(stream):
                del self.replicas[stream]

    def report(self) -> Report:
        self.reports += 1
        streams = tuple(each.report() for each in self.replicas.values())
        return Report(self.number, self.incarnation, self.reports, True, streams)


class Simulation:
    def __init__(self, seed: int, *, faults: int = 600, patience: int = 30) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.checker = Checker()
        self.value = 0
        self.writing = True
        self.loss = self.random.choice([0.0, 0.02, 0.1])
        self.cut: set[tuple[int, int]] = set()
        self._queue: list[tuple[float, int, int, int, Message, bytes]] = []
        self._sent = 0
        self._requests = 0
        self._outcomes: dict[int, LogError | None] = {}
        self.faults = faults
        self.patience = patience
        self.nodes = {number: Store(self, number) for number in NODES}

    # --- what the nodes use

    def replicas(self) -> dict[tuple[int, int], Replica]:
        return {
            (node.number, stream): replica
            for node in self.nodes.values()
            for stream, replica in node.replicas.items()
        }

    def sources(self, replica: Replica) -> list[Replica]:
        config = replica.config
        if config is None:
            return []
        return [
            self.nodes[number].replicas[replica.stream]
            for number in config.replicas
            if number != replica.node
            and self.nodes[number].up
            and (number, replica.node) not in self.cut
            and replica.stream in self.nodes[number].replicas
        ]

    def newest_epoch(self, stream: int) -> int:
        return max(
            group.repository.state.streams[stream].epoch
            if stream in group.repository.state.streams
            else 1 << 60
            for group in self.groups()
        )

    def acknowledge(self, replica: Replica) -> None:
        for llsn in range(max(1, replica.held.committed - 20), replica.held.committed):
            value = replica.held.values[llsn - 1]
            self.checker.acknowledged.setdefault((replica.stream, llsn), value)

    def send(
        self, sender: int, to: int, message: Message, payload: bytes = b""
    ) -> None:
        if (sender, to) in self.cut or self.random.random() < self.loss:
            return
        for _ in range(2 if self.random.random() < self.loss else 1):
            self._sent += 1
            long = self.random.random() < self.loss
            at = self.now + STEP * self.random.randrange(30 if long else 2)
            entry = at, self._sent, sender, to, message, payload
            heapq.heappush(self._queue, entry)

    def beat(self, node: Store) -> None:
        if self.random.random() < 0.4:
            report = node.report()
            for member in MEMBERS:
                self.send(node.number, member, report)

    # --- requests

    def groups(self) -> list[MetadataMember]:
        return [node.group for node in self.nodes.values() if node.group is not None]

    def leader(self) -> MetadataMember | None:
        leading = [group for group in self.groups() if group.leads]
        return max(leading, key=lambda group: group.raft.core.term, default=None)

    def execute(self, command: Command, call: bytes = b"") -> int:
        self._requests += 1
        leader = self.leader()
        if leader is not None:
            leader.execute(self._requests, call, commands.encode(command), 0)
        return self._requests

    def answered(self, request: int, error: LogError | None) -> None:
        require(request not in self._outcomes, "a request is answered twice")
        self._outcomes[request] = error

    def insist(self, command: Command) -> None:
        """Repeat a command with one identity until it is executed."""
        call = self.random.randbytes(16)
        for _ in range(40):
            request = self.execute(command, call)
            self.run(15)
            if request in self._outcomes and self._outcomes[request] is None:
                return
        raise AssertionError(f"{command} was never executed")

    # --- the course of things

    def step(self) -> None:
        self.now += STEP
        while self._queue and self._queue[0][0] <= self.now:
            _, _, sender, to, message, payload = heapq.heappop(self._queue)
            node = self.nodes[to]
            if node.up and (sender, to) not in self.cut:
                node.take(sender, message, payload)
        for node in self.nodes.values():
            if node.up:
                node.step()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()

    def begin(self) -> None:
        for node in self.nodes.values():
            node.start()
        self.run(60)
        for number in NODES:
            self.insist(commands.RegisterNode(number, f"host:{number}", 1))
        self.run(30)
        self.insist(commands.CreateLog(LOGS[0], "a", 3, 3, 1))
        self.insist(commands.CreateLog(LOGS[1], "b", 2, 3, 2))

    def disturb(self) -> None:
        random = self.random
        node = self.nodes[random.choice(NODES)]
        kind = random.randrange(8)
        if kind <= 2 and node.up:
            node.crash()
        elif kind <= 4 and not node.up:
            node.start()
        elif kind == 5:
            side = {number for number in NODES if random.random() < 0.4}
            ways = random.choice([(True, True), (True, False), (False, True)])
            for a in side:
                for b in set(NODES) - side:
                    self.cut |= {(a, b)} if ways[0] else set()
                    self.cut |= {(b, a)} if ways[1] else set()
        elif kind == 6:
            self.cut.clear()
        else:
            self.execute(self._operation())

    def _operation(self) -> Command:
        random = self.random
        stream, node = random.randrange(1, 6), random.choice(NODES)
        operations: list[Command] = [
            commands.Seal(stream),
            commands.Unseal(stream),
            commands.DrainNode(node, random.random() < 0.4),
            commands.MoveReplica(stream, node, random.choice(NODES)),
            commands.Trim(random.choice(LOGS), random.randrange(1, 200)),
            commands.AlterLog(LOGS[0], replication=random.choice([2, 3])),
            commands.SetCursor(LOGS[0], "reader", random.randrange(1, 50), True),
            commands.GetCursors(LOGS[0]),
        ]
        return random.choice(operations)

    def trouble(self) -> None:
        for _ in range(self.faults):
            if self.random.random() < 0.03:
                self.disturb()
            self.step()

    def calm(self) -> None:
        """Let faults end; everything has to come to rest."""
        self.cut.clear()
        self.loss = 0.0
        for node in self.nodes.values():
            if not node.up:
                node.start()
        self.run(150)
        for number in NODES:
            self.insist(commands.DrainNode(number, False))
        self.insist(commands.AlterLog(LOGS[0], replication=3))
        for stream in range(1, 6):
            self.insist(commands.Unseal(stream))
        self.run(100)
        self.writing = False
        for _ in range(self.patience):
            self.run(100)
            if not self.unrest():
                break
        require(not self.unrest(), f"no rest: {self.unrest()}")
        for replica in self.replicas().values():
            self.checker.complete(replica)

    def unrest(self) -> list[str]:
        leader = self.leader()
        if leader is None:
            return ["nobody leads"]
        found = []
        for stream in leader.repository.state.streams.values():
            if len(stream.replicas) != 3 or stream.learners or stream.move:
                found.append(f"{stream.stream}: {stream.replicas} {stream.learners}")
            for number in stream.replicas:
                replica = self.nodes[number].replicas.get(stream.stream)
                if replica is None or replica.state is not ReplicaState.RUNNING:
                    found.append(f"{stream.stream}@{number}: not running")
                elif not (
                    replica.held.epoch == stream.epoch
                    and replica.held.committed == replica.held.end == stream.committed
                ):
                    found.append(f"{stream.stream}@{number}: not committed")
        for number, at in self.replicas():
            if number not in leader.repository.state.streams[at].replicas:
                found.append(f"{at}@{number}: left over")
        return found

    def play(self) -> None:
        self.begin()
        self.trouble()
        self.calm()
