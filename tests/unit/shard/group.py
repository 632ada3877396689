"""A group of shard members in one process, where nothing is left to chance.

A disk syncs at once unless it is held. Messages arrive in their order, unless the way
is cut. Time passes only when it is told to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from braidlog.errors import LogError
from braidlog.node.shards.shard_reading import ShardReplica
from braidlog.raft import Base, Membership, RaftConfig
from braidlog.shard import ShardMember, ShardSettings
from braidlog.wire import commands
from braidlog.wire.commands import ReportShards, ShardNews
from braidlog.wire.members import node_of
from braidlog.wire.messages import LogKind, Read, Records
from braidlog.wire.results import Refused, Result
from property.shard.shard_world import TICK, Disk
from unit.metarepo.bench import LOG, Bench

ROUNDS_MAX = 1000


class Group:
    """Members, their disks, what is on its way between them, and the repository."""

    def __init__(
        self,
        founders: tuple[int, ...],
        settings: dict[str, Any],
        say: Callable[..., None],
    ) -> None:
        self.say = say
        self.now = 0.0
        mine = {key for key in ShardSettings.__dataclass_fields__ if key in settings}
        self.settings = ShardSettings(tick=TICK, **{key: settings[key] for key in mine})
        self.raft = {key: settings[key] for key in settings if key not in mine}
        base = Base(membership=Membership(voters=founders))
        self.disks = {member: Disk(base) for member in founders}
        self.starts = dict.fromkeys(founders, 0)
        self.members: dict[int, ShardMember] = {}
        self.flying: list[tuple[int, int, bytes]] = []
        self.cuts: set[tuple[int, int]] = set()
        self.held: set[int] = set()
        self.asleep: set[int] = set()
        """Processes that stand still; what comes waits for them."""
        self.plan: tuple[int, tuple[int, ...]] = (0, ())
        self.leads: int = 0
        self.repository = Bench(6)
        made = self.repository.do(
            commands.CreateLog(
                LOG,
                "log",
                1,
                len(founders),
                1,
                placement=(founders,),
                kind=LogKind.SHARD,
            )
        )
        assert not isinstance(made, Refused), made
        for member in founders:
            self.start(member)

    # --- members

    def start(self, member: int) -> None:
        """Start a member from its disk; an empty one if it has none."""
        disk = self.disks.setdefault(member, Disk(Base()))
        self.starts[member] = self.starts.get(member, 0) + 1
        config = RaftConfig(
            id=member,
            incarnation=self.starts[member],
            # Who has the lower number stands first.
            jitter=lambda: min(2 * node_of(member) - 2, 10),
            **self.raft,
        )
        self.members[member] = ShardMember(
            self.settings, config, disk.stored(), disk, self.now, disk.saved
        )

    def crash(self, member: int) -> None:
        """Stop a member; what its disk has not synced is lost."""
        self.members.pop(member, None)
        self.disks[member].crash(0)
        self.flying = [each for each in self.flying if member not in each[:2]]

    def save(self, member: int) -> None:
        """Store a checkpoint of a member, behind all that it has written."""
        self.disks[member].write(self.members[member].checkpoint())

    def leader(self) -> ShardMember | None:
        """Return the member that leads with the greatest term, if there is one."""
        leads = [each for each in self.members.values() if each.leads]
        return max(leads, key=lambda each: each.raft.core.term, default=None)

    def decide(self, wanted: tuple[int, ...]) -> None:
        """Decide who should vote; every leader hears of it with each tick."""
        self.plan = self.plan[0] + 1, wanted
        for member in wanted:
            if member not in self.disks:
                self.start(member)

    # --- time

    def tick(self) -> None:
        """Let one tick pass, and everything that follows from it."""
        self.now += TICK
        for member, each in list(self.members.items()):
            if member in self.asleep:
                continue
            self.guarded(member, each.tick, self.now)
            if self.plan[0]:
                each.follow(*self.plan)
        self.settle()

    def settle(self) -> None:
        """Let happen what follows without time."""
        for _ in range(ROUNDS_MAX):
            busy = [self._flush(member) for member in list(self.members)]
            flying = [each for each in self.flying if each[1] not in self.asleep]
            self.flying = [each for each in self.flying if each[1] in self.asleep]
            for sender, receiver, data in flying:
                lost = (sender, receiver) in self.cuts
                if receiver in self.members and not lost:
                    self.guarded(receiver, self.members[receiver].step, data)
            if not flying and not any(busy):
                break
        else:
            self.say("! it does not come to rest")
        leader = self.leader()
        leads = 0 if leader is None else leader.raft.core.id
        if leads != self.leads and leader is not None:
            self.say(f"{member_text(leads)} leads in term {leader.raft.core.term}")
        self.leads = leads

    def guarded(
        self, member: int, call: Callable[..., None], *arguments: object
    ) -> None:
        """Give a member an input; it stops if it has to."""
        try:
            call(*arguments)
        except LogError as error:
            self.members.pop(member, None)
            name = member_text(member)
            self.say(f"{name} stops: {type(error).__name__}: {error.message}")

    def _flush(self, member: int) -> bool:
        busy = False

        def flush() -> None:
            nonlocal busy
            each, disk = self.members[member], self.disks[member]
            while each.stirred:
                effects = each.effects()
                if not (effects.writes or effects.messages or effects.answers):
                    break
                busy = True
                for write in effects.writes:
                    disk.write(write)
                for receiver, data in effects.messages:
                    self.flying.append((member, receiver, data))
                for request, answer in effects.answers:
                    self.say(request, answer)
            if each.saves:
                self.save(member)
            if member not in self.held and disk.unsynced:
                busy = True
                if number := disk.sync():
                    each.durable(number)

        if member in self.members and member not in self.asleep:
            self.guarded(member, flush)
        return busy

    # --- readers

    def read(
        self, member: int, begin: int, bytes_max: int, *, expired: bool
    ) -> tuple[Records, tuple[bytes, ...]] | None:
        """Read a page as a node does it; see `ShardReplica.read`."""
        # It asks of a log only what a disk has, too.
        replica = ShardReplica(1, self.members[member], self.disks[member])  # type: ignore[arg-type]
        return replica.read(Read(1, begin, False, bytes_max, 0), expired=expired)

    # --- the repository

    def ask(self, command: commands.Command) -> Result:
        """Have the repository decide, with what the leader has told it."""
        leader = self.leader()
        if leader is not None:
            standing = leader.standing()
            fields = (getattr(standing, name) for name in standing.__struct_fields__)
            node = node_of(leader.raft.core.id)
            self.repository.do(ReportShards(node, (ShardNews(1, *fields),)))
        return self.repository.do(command)

    @property
    def micros(self) -> int:
        """Return the time in microseconds, as leases of pins have it."""
        return round(self.now * 1e6)


def member_text(member: int) -> str:
    """Return a member as scripts name it: its node, and which of its memberships."""
    generation = member >> 32
    return f"{node_of(member)}.{generation}" if generation else str(member)


def members_text(members: Iterable[int]) -> str:
    """Return members as scripts name them."""
    return ",".join(map(member_text, sorted(members))) or "-"
