"""Who tells whom what is committed, in a group of three members."""

from __future__ import annotations

from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.effects import GroupEffects
from braidlog.metarepo.group import Group, GroupSettings
from braidlog.raft import Base, Membership, RaftConfig, Stored
from braidlog.wire import commands
from braidlog.wire.messages import Commit, Consensus, Report, StreamReport
from unit.metarepo.bench import LOG

NODES = (1, 2, 3)
LEADER = 1


class Trio:
    """Three members whose disks are always in time, as their messages are."""

    def __init__(self, *, disk_first: bool) -> None:
        base = Stored(Base(membership=Membership(NODES)))
        self.groups = {node: self.member(node, base) for node in NODES}
        self.told: list[tuple[int, int]] = []
        """From whom a commit came, and to whom."""
        self.numbers = 0
        self.now = 0.0
        while not self.groups[LEADER].leads:
            self.now += 0.05
            self.groups[LEADER].tick(self.now)
            self.settle()
        self.groups[LEADER].disk_first(disk_first)
        for node in NODES:
            self.execute(commands.RegisterNode(node, f"host:{node}", 1))
            self.report(node)
        self.execute(commands.CreateLog(LOG, "log", 1, 3, 1))

    @staticmethod
    def member(node: int, base: Stored) -> Group:
        raft = RaftConfig(id=node, incarnation=1, jitter=int, eager_commit=False)
        return Group(GroupSettings(cluster="test"), raft, base, 0.0)

    def settle(self) -> None:
        while any(self.carry_out(node) for node in NODES):
            pass

    def carry_out(self, node: int) -> GroupEffects:
        effects = self.groups[node].effects()
        for write in effects.writes:
            self.groups[node].durable(write.number)
        for each in effects.messages:
            if isinstance(each.message, Consensus):
                self.groups[each.node].step(each.payload)
            elif isinstance(each.message, Commit):
                self.told.append((node, each.node))
        return effects

    def execute(self, command: commands.Command) -> None:
        self.numbers += 1
        self.groups[LEADER].execute(self.numbers, b"", commands.encode(command))
        self.settle()

    def report(self, node: int, *streams: StreamReport) -> None:
        self.numbers += 1
        report = Report(node, 1, self.numbers, True, streams)
        self.groups[LEADER].report(report, self.now)
        self.settle()

    def cut(self) -> None:
        for node in NODES:
            self.report(node, StreamReport(1, 1, 0, 1, 9, ReplicaState.RUNNING))


def test_members_that_know_by_themselves_are_not_told() -> None:
    trio = Trio(disk_first=True)
    trio.cut()
    assert sorted(trio.told) == [(1, 1), (2, 2), (3, 3)]


def test_members_that_hear_it_late_are_told() -> None:
    trio = Trio(disk_first=False)
    trio.cut()
    assert sorted(trio.told) == [(1, 1), (1, 2), (1, 3)]


def test_a_member_gives_its_replicas_each_cut_once() -> None:
    trio = Trio(disk_first=True)
    trio.cut()
    trio.told.clear()
    trio.execute(commands.CreateLog(b"m" * 16, "other", 1, 3, 1))
    assert trio.told == []
