"""A group of shard members in one process: messages are lost, disks forget, time jumps.

Everything follows from a seed. The disk of a member keeps what was synced, and a crash
loses a random part of the rest.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import msgspec

from braidlog import _native
from braidlog.metarepo.machine import shards
from braidlog.metarepo.machine.state import LogState, NodeState, ShardPlace, State
from braidlog.raft import Base, Entry, HardState, Membership, RaftConfig, Stored, Write
from braidlog.shard import ShardMember, ShardSettings
from braidlog.shard.checkpoint import Checkpoint
from braidlog.shard.member import Answer
from braidlog.wire.commands import MoveReplica, PlaceShard, ReportShards, ShardNews
from braidlog.wire.members import node_of

TICK = 0.05


@dataclass
class Disk:
    """What a member has written, and how much of it is durable."""

    base: Base
    hard: HardState = field(default_factory=HardState)
    log: dict[int, Entry] = field(default_factory=dict)
    unsynced: list[Write | Checkpoint] = field(default_factory=list)
    saved: Checkpoint | None = None

    def write(self, write: Write | Checkpoint) -> None:
        self.unsynced.append(write)

    def sync(self) -> int:
        number = 0
        for write in self.unsynced:
            self._take(write)
            if isinstance(write, Write):
                number = write.number
        self.unsynced = []
        return number

    def crash(self, kept: int) -> None:
        for write in self.unsynced[:kept]:
            self._take(write)
        self.unsynced = []

    def _take(self, write: Write | Checkpoint) -> None:
        if isinstance(write, Checkpoint):
            self.saved = Checkpoint.decode(write.encode())
            return
        if write.reset:
            self.log = {}
        if write.base is not None:
            self.base = write.base
            self.log = {i: e for i, e in self.log.items() if i > write.base.index}
        if write.entries:
            first = write.entries[0].index
            self.log = {i: e for i, e in self.log.items() if i < first}
            self.log |= {entry.index: entry for entry in write.entries}
        if write.hard_state is not None:
            self.hard = write.hard_state

    def read(self, begin: int, end: int, bytes_max: int) -> Sequence[Entry]:
        seen = dict(self.log)
        for write in self.unsynced:
            if isinstance(write, Checkpoint):
                continue
            seen |= {entry.index: entry for entry in write.entries}
        found: list[Entry] = []
        size = 0
        for index in range(begin, end):
            entry = seen[index]
            if found and size + entry.size > bytes_max:
                break
            size += entry.size
            found.append(entry)
        return found

    def stored(self) -> Stored:
        behind = 0 if self.saved is None else self.saved.mark.index
        entries = [self.log[index] for index in sorted(self.log) if index > behind]
        return Stored(self.base, entries, self.hard)


def batch(values: list[bytes], producer: int = 0, sequence: int = 0) -> bytes:
    """Encode records as a client does."""
    if not producer:
        return _native.encode_batch(values, timestamps=1)
    return _native.encode_batch(
        values, timestamps=1, producer=(producer, 0), sequence=sequence
    )


class World:
    """The members, what is on its way between them, and what clients were told."""

    def __init__(self, seed: int, size: int = 3, **settings: object) -> None:
        self.chance = random.Random(seed)
        self.now = 0.0
        self.settings = ShardSettings(tick=TICK, **settings)  # type: ignore[arg-type]
        founders = tuple(range(1, size + 1))
        base = Base(membership=Membership(voters=founders))
        self.disks = {node: Disk(base) for node in founders}
        self.repository = State(
            nodes={node: NodeState(node, f"n{node}", 1) for node in range(1, 7)},
            logs={b"log": LogState(b"log", "log", size, 1, b"", 0, (1,))},
            shards={1: ShardPlace(1, b"log", founders)},
        )
        self.reports: list[ReportShards] = []
        """On their way to the repository."""
        self.starts = dict.fromkeys(self.disks, 0)
        self.members: dict[int, ShardMember] = {}
        self.flying: list[tuple[int, int, bytes]] = []
        self.cut_off: set[int] = set()
        self.slow: set[int] = set()
        self.answers: dict[object, Answer | None] = {}
        self.requests = 0
        for node in self.disks:
            self.start(node)

    def start(self, node: int) -> None:
        self.starts[node] = self.starts.get(node, 0) + 1
        config = RaftConfig(
            id=node,
            incarnation=self.starts[node],
            jitter=lambda: self.chance.randint(0, 10),
            commit_lag=64,
            heartbeat_ticks=2,
            cache_bytes_max=1 << 12,
        )
        disk = self.disks[node]
        self.members[node] = ShardMember(
            self.settings, config, disk.stored(), disk, self.now, disk.saved
        )

    def crash(self, node: int) -> None:
        self.members.pop(node, None)
        disk = self.disks[node]
        disk.crash(self.chance.randint(0, len(disk.unsynced)))
        self.flying = [each for each in self.flying if node not in each[:2]]

    def request(self) -> int:
        self.requests += 1
        return self.requests

    def leader(self) -> ShardMember | None:
        leads = [each for each in self.members.values() if each.leads]
        return max(leads, key=lambda each: each.raft.core.term, default=None)

    def flush(self, node: int) -> None:
        member = self.members[node]
        while member.stirred:
            effects = member.effects()
            if not (effects.writes or effects.messages or effects.answers):
                break
            for write in effects.writes:
                self.disks[node].write(write)
            if member.saves:
                self.disks[node].write(member.checkpoint())
            for receiver, data in effects.messages:
                self.flying.append((node, receiver, data))
            for request, answer in effects.answers:
                assert request not in self.answers, "answered twice"
                self.answers[request] = answer

    @property
    def place(self) -> ShardPlace:
        return self.repository.shards[1]

    def plan(self, command: PlaceShard | MoveReplica) -> None:
        """Have the repository decide on the members; it may refuse."""
        repository = self.repository
        repository.index += 1
        if isinstance(command, MoveReplica):
            shards.move(repository, repository.index, command)
        else:
            shards.place(repository, repository.index, command)

    def administer(self) -> None:
        """Let members hear of the plan, and the repository of the members."""
        place = self.place
        for new in place.wanted:
            if new not in self.disks:
                self.disks[new] = Disk(Base())
                self.start(new)
        for gone in [each for each in self.disks if each not in place.kept]:
            self.crash(gone)
            del self.disks[gone]
        for number, member in self.members.items():
            # Some hear late.
            if number not in self.cut_off and self.chance.random() < 0.4:
                member.follow(place.plan, place.wanted)
            if member.leads and number not in self.cut_off:
                news = ShardNews(1, *msgspec.structs.astuple(member.standing()))
                self.reports.append(ReportShards(node_of(number), (news,)))
        while self.reports and self.chance.random() < 0.7:
            at = self.chance.randrange(len(self.reports))
            self.repository.index += 1
            shards.note(self.repository, self.repository.index, self.reports.pop(at))

    def sync(self, node: int) -> None:
        if number := self.disks[node].sync():
            self.members[node].durable(number)

    def step(self, *, lossy: bool = False) -> None:
        """Let something happen somewhere."""
        for node in list(self.members):
            self.flush(node)
        kind = self.chance.random()
        if kind < 0.6 and self.flying:
            at = self.chance.randrange(len(self.flying))
            if not lossy:
                at = 0
            sender, receiver, data = self.flying.pop(at)
            lost = {sender, receiver} & self.cut_off
            lost_by_chance = lossy and self.chance.random() < 0.1
            if receiver in self.members and not lost and not lost_by_chance:
                self.members[receiver].step(data)
        elif kind < 0.9 and self.members:
            node = self.chance.choice(list(self.members))
            if node not in self.slow or self.chance.random() < 0.05:
                self.sync(node)
        else:
            self.now += TICK
            for member in self.members.values():
                member.tick(self.now)

    def settle(self, steps: int = 3000) -> None:
        """Let everything arrive, with all members there."""
        self.cut_off, self.slow = set(), set()
        for node in self.disks:
            if node not in self.members:
                self.start(node)
        for at in range(steps):
            self.step()
            if at % 50 == 0:
                self.administer()

    def until(self, done: object, steps: int = 20000) -> None:
        """Go on until something holds."""
        for _ in range(steps):
            if done():  # type: ignore[operator]
                return
            self.step()
        raise AssertionError("it never came")


def read_all(member: ShardMember, disk: Disk) -> list[tuple[int, bytes]]:
    """Return every record that a member has applied and kept, with its position."""
    from braidlog.shard.entries import HEAD_BYTES, place_of

    core = member.raft.core
    found: list[tuple[int, bytes]] = []
    index = core.log.base.index + 1
    while index <= core.log.applied:
        for entry in disk.read(index, core.log.applied + 1, 1 << 16):
            index = entry.index + 1
            if entry.kind.value != 1 or (place := place_of(entry.data)) is None:
                continue
            for record in _native.Batch(entry.data[HEAD_BYTES:]).records(place[0]):
                assert record.value is not None
                if record.position >= member.state.first:
                    found.append((record.position, bytes(record.value)))
    return found


__all__ = ["World", "batch", "read_all", "replace"]
