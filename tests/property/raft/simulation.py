"""A group of nodes on virtual time under a seed, with everything going wrong.

A run has a stormy part and a calm one. In the calm part the group must come to rest:
one leader, everything committed everywhere, no read without an answer.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from random import Random
from typing import Any

from braidlog.errors import LogError, UnavailableError
from braidlog.raft import (
    Change,
    Membership,
    MembershipError,
    Message,
    RaftInvariantError,
    Role,
)
from braidlog.raft.codec import encode
from property.raft.checkers import Facts, ViolationError, check
from property.raft.network import Network
from unit.raft.server import Server

SERVERS_MAX = 9
ELECTION_TICKS = 8


@dataclass(frozen=True)
class Storm:
    """How likely each thing is in one tick (of the group, or of each node)."""

    propose: float = 0.5
    read: float = 0.3
    change: float = 0.03
    transfer: float = 0.02
    truncate: float = 0.03
    save: float = 0.02
    crash: float = 0.01
    restart: float = 0.15
    partition: float = 0.01
    heal: float = 0.06
    sync: float = 0.5
    pause: float = 0.003
    pause_ticks_max: int = 60
    strike: float = 0.03
    """Cut a leader off, stop it or crash it."""
    drop: float = 0.0
    """Tell a node that its connection to its leader broke, whether it lives or not."""
    loss: float = 0.05
    repeat: float = 0.05


STORMS = {
    "everything": Storm(),
    "members": Storm(change=0.3, strike=0.05),
    "stale leaders": Storm(
        read=0.8, crash=0, partition=0, pause=0, sync=0.9, change=0, loss=0.02
    ),
    "elections": Storm(
        strike=0.08, restart=0.4, sync=0.4, heal=0.1, propose=0.8, change=0
    ),
    "slow disks": Storm(sync=0.2, crash=0.02, restart=0.3, loss=0.1, repeat=0.2),
    "broken connections": Storm(drop=0.2, strike=0.05, restart=0.4, change=0),
    "truncation": Storm(truncate=0.2, save=0.1, crash=0.03),
}


class Simulation:
    """One run; see the module."""

    def __init__(
        self,
        seed: int,
        storm: Storm | None = None,
        voters: int = 0,
        *,
        frames: bool = True,
    ) -> None:
        self.random = Random(seed)
        self.frames = frames
        self.storm = storm or Storm()
        voters = voters or self.random.choice([1, 2, 3, 3, 3, 4, 5])
        self.first = Membership(voters=tuple(range(1, voters + 1)))
        self.network = Network(
            self.random,
            loss=self.storm.loss,
            repeat=self.storm.repeat,
            wire=seed % 5 == 0,
        )
        self.servers: dict[int, Server] = {}
        self.speed: dict[int, float] = {}
        self.paused: dict[int, int] = {}
        self.facts = Facts()
        self.contexts = 0
        self.proposals = 0
        self.calm = False
        self.trace = sha256()
        for node in self.first.voters:
            self.add(node, self.first)

    def add(self, node: int, membership: Membership) -> None:
        small = self.random.random() < 0.5
        # Clocks run at different speeds.
        self.speed[node] = self.random.choice([0.6, 0.95, 1.0])
        settings: dict[str, Any] = {
            "commit_lag": self.random.choice((1, 4)),
            "eager_commit": self.random.random() < 0.5,
            "election_ticks": ELECTION_TICKS,
            "heartbeat_ticks": 2,
            "message_bytes_max": 200 if small else 1 << 20,
            "window_messages": self.random.choice([1, 3, 64]),
            "window_bytes": self.random.choice([100, 1 << 20]),
            "tail_bytes_max": 500,
            "apply_bytes_max": 300,
            "cache_bytes_max": 100,
        }
        self.servers[node] = Server(
            node,
            membership,
            lambda: self.random.randrange(ELECTION_TICKS),
            settings,
            cached=not small,
        )

    @property
    def live(self) -> list[Server]:
        return [
            server
            for node, server in self.servers.items()
            if server.up and node not in self.paused
        ]

    def leaders(self) -> list[Server]:
        return [s for s in self.live if s.node.core.role is Role.LEADER]

    # --- running

    def run(self, ticks: int) -> Facts:
        """Run the stormy part, then the calm one."""
        for _ in range(ticks):
            self.turn()
        self.rest()
        return self.facts

    def turn(self) -> None:
        """Let one tick pass."""
        self.network.now += 1
        for _ in range(3):
            for message in self.network.due():
                self.deliver(message)
        if not self.calm:
            self.faults()
        self.clients()
        self.resume()
        for server in self.live:
            if self.calm or self.chance(self.speed[server.id]):
                server.node.tick()
            self.pump(server)
            if self.calm or self.chance(self.storm.sync):
                server.sync(None if self.calm else self.random.randrange(1, 4))
                self.pump(server)

    def resume(self) -> None:
        """Let stopped nodes go on; clients and messages have waited for them."""
        for node in list(self.paused):
            self.paused[node] -= 1
            if not self.paused[node]:
                del self.paused[node]
                self.read(self.servers[node])
                self.pump(self.servers[node])
                self.servers[node].node.tick(self.random.randrange(4))

    def deliver(self, message: Message) -> None:
        server = self.servers.get(message.receiver)
        if server is None or not server.up:
            return
        if server.id in self.paused:
            self.network.hold(message, self.paused[server.id])
        else:
            # As nodes do: what every append needs is taken by the core.
            if self.frames:
                server.node.take(encode(message))
            else:
                server.node.step(message)
            if self.random.random() < 0.5:
                self.pump(server)

    def pump(self, server: Server) -> None:
        effects, messages = server.pump()
        check(self.facts, server, effects)
        if effects:
            soft = effects.soft_state
            self.trace.update(
                f"{self.network.now} {server.id} {soft} {effects.reads} "
                f"{len(messages)} {len(effects.committed)}".encode()
            )
        for message in messages:
            self.network.send(message)

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    # --- clients

    def clients(self) -> None:
        for leader in self.leaders():
            if self.chance(0.2 if self.calm else self.storm.propose):
                self.propose(leader)
            if self.chance(self.storm.change):
                self.change(leader)
            if self.chance(self.storm.transfer) and not self.calm:
                target = self.random.choice(leader.node.core.membership.voters)
                leader.node.transfer(target)
            if self.chance(self.storm.read):
                self.read(leader)
        if self.live and self.chance(self.storm.read):
            self.read(self.random.choice(self.live))
        for server in self.live:
            if self.chance(self.storm.truncate):
                self.truncate(server)
            if self.chance(self.storm.save):
                server.save()

    def propose(self, leader: Server) -> None:
        count = self.random.randrange(1, 4)
        data = [b"%d" % (self.proposals + i) for i in range(count)]
        self.proposals += count
        with suppress(UnavailableError):
            leader.node.propose(data)

    def read(self, server: Server) -> None:
        self.contexts += 1
        self.facts.reads[self.contexts] = self.facts.commit
        try:
            server.node.read(self.contexts)
        except LogError:
            del self.facts.reads[self.contexts]
            return
        server.contexts.add(self.contexts)

    def truncate(self, server: Server) -> None:
        log = server.node.core.log
        if not log.install_pending and log.applied > log.base.index:
            server.truncate(self.random.randrange(log.base.index, log.applied + 1))

    def change(self, leader: Server) -> None:
        now = leader.node.core.membership
        with suppress(UnavailableError, MembershipError):
            if now.joint:
                leader.node.leave_joint()
            elif not self.calm:
                leader.node.change_membership(self.random_change(now))
        for node in leader.node.core.membership.members - self.servers.keys():
            self.add(node, Membership())

    def random_change(self, now: Membership) -> Change:
        new = len(self.servers) + 1
        fresh = (new,) if new <= SERVERS_MAX else ()
        voter = self.random.choice(now.voters)
        learner = (self.random.choice(now.learners),) if now.learners else ()
        stay = self.random.random() < 0.2
        return self.random.choice(
            [
                Change(add_learners=fresh),
                Change(add_learners=fresh),
                Change(add_voters=fresh),
                Change(add_voters=learner),
                Change(add_voters=learner, remove=(voter,), stay_joint=stay),
                Change(add_voters=learner, add_learners=(voter,), stay_joint=stay),
                Change(remove=(voter,) if len(now.voters) > 2 else learner),
                Change(add_voters=fresh, remove=(voter,), stay_joint=stay),
            ]
        )

    # --- faults

    def faults(self) -> None:
        nodes = list(self.servers)
        if self.chance(self.storm.partition):
            self.network.partition(nodes)
        if self.network.cut and self.chance(self.storm.heal):
            self.network.cut.clear()
        if self.chance(self.storm.strike):
            self.strike()
        for server in self.servers.values():
            if not server.up:
                if self.chance(self.storm.restart):
                    server.start()
            elif self.storm.drop and self.chance(self.storm.drop):
                if leader := server.node.core.leader:
                    server.node.unreachable(leader)
            elif self.chance(self.storm.crash):
                self.crash(server)
            elif self.chance(self.storm.pause):
                self.pause(server)

    def strike(self) -> None:
        for leader in self.leaders():
            blow = self.random.choice([self.crash, self.pause, self.isolate])
            blow(leader)

    def isolate(self, server: Server) -> None:
        self.network.partition(list(self.servers), {server.id})

    def pause(self, server: Server) -> None:
        self.paused[server.id] = self.random.randrange(1, self.storm.pause_ticks_max)

    def crash(self, server: Server) -> None:
        self.paused.pop(server.id, None)
        keep = self.random.randrange(len(server.disk.pending) + 1)
        server.crash(keep, self.random.randrange(4))
        for context in server.contexts:
            self.facts.reads.pop(context, None)
        server.contexts.clear()

    # --- rest

    def rest(self) -> None:
        """Let the storm end; the group must come to rest."""
        self.calm = True
        self.network.calm()
        self.paused.clear()
        for server in self.servers.values():
            if not server.up:
                server.start()
        before = self.facts.commit
        for _ in range(30 * ELECTION_TICKS):
            self.turn()
            if self.settled(before):
                return
        raise ViolationError("liveness: " + self.describe())

    def settled(self, before: int) -> bool:
        leaders = self.leaders()
        if len(leaders) != 1 or self.network.now % 5:
            return False
        core = leaders[0].node.core
        members = [self.servers[node] for node in sorted(core.membership.members)]
        return (
            core.log.commit > before
            and not core.membership.joint
            and all(m.machine.index >= before for m in members)
            and self.facts.commit - min(m.machine.index for m in members) < 40
        )

    def describe(self) -> str:
        lines = []
        for server in self.servers.values():
            core = server.node.core
            log = core.log
            lines.append(
                f"{server.id} {core.role.value} term {core.term} "
                f"log {log.base.index}..{log.last} durable {log.durable} "
                f"commit {log.commit} applied {log.applied} {core.membership}"
            )
        return "\n".join(lines)


def run(
    seed: int, ticks: int = 250, storm: Storm | None = None, *, frames: bool = True
) -> Simulation:
    """Run a seed; a violation names it."""
    simulation = Simulation(seed, storm, frames=frames)
    try:
        simulation.run(ticks)
    except RaftInvariantError as error:
        msg = f"seed {seed}: invariant: {error.message}"
        raise ViolationError(msg) from error
    except ViolationError as error:
        msg = f"seed {seed}: {error}"
        raise ViolationError(msg) from error
    return simulation
