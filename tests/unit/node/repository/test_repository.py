"""The node's member of the metadata repository, and a link that is too full."""

import random
from types import SimpleNamespace
from typing import Any

from braidlog import _native
from braidlog.logstream.states import ReplicaState
from braidlog.node.config import parse
from braidlog.node.repository.member import RepositoryMember
from braidlog.node.repository.raft_log import GroupLog
from braidlog.raft import Base, Membership
from braidlog.store.node_store import NodeStore
from braidlog.wire import commands
from braidlog.wire.messages import Commit, Configure, Message, Report, StreamReport
from unit.metarepo.bench import LOG

SETTINGS = """
[node]
id = 1
data = "/n"
[cluster]
name = "test"
[cluster.voters]
1 = "n1:7400"
"""


class Bench:
    """Node 1 leads alone and tells node 2, which has the only replica."""

    def __init__(self) -> None:
        self.full = False
        self.told: list[Configure] = []
        self.cuts: list[Commit] = []
        self.now = 0.0
        self.reports = 0
        self.held: tuple[StreamReport, ...] = ()
        self.store = NodeStore("/n", entropy=1, disk=_native.MemoryDisk())
        peers: Any = SimpleNamespace(
            send=self.send,
            has_room=lambda _: not self.full,
            flush=lambda: None,
            know=lambda _: None,
        )
        self.member = RepositoryMember(
            parse(SETTINGS, {}),
            GroupLog.create(self.store, 1, Base(membership=Membership((1,)))),
            peers,
            incarnation=1,
            chance=random.Random(1),
            now=0.0,
            wall=lambda: 0,
            to_self=lambda _: None,
        )
        self.wait(3.0)
        assert self.member.leads
        for node in (1, 2):
            self.do(commands.RegisterNode(node, f"n{node}:7400", 1))
        self.wait(0.1)
        self.do(commands.CreateLog(LOG, "log", 1, 1, 1, placement=((2,),)))
        self.hold(5, 1)

    def send(self, node: int, message: Message, payload: object) -> bool:
        if isinstance(message, Configure) and not self.full:
            self.told.append(message)
        if isinstance(message, Commit) and not self.full:
            self.cuts.append(message)
        return not self.full

    def wait(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.now += 0.05
            self.member.group.tick(self.now)
            self.reports += 1
            report = Report(2, 1, self.reports, True, self.held)
            self.member.report(report, self.now)
            self.settle()

    def hold(self, end: int, committed: int) -> None:
        """Let the replica report that; what it knows to be committed is not synced."""
        running = ReplicaState.RUNNING
        self.held = (StreamReport(1, 1, 0, committed, end, running),)

    def settle(self) -> None:
        while self.member.flush():
            self.store.sync()
            self.member.synced(self.store.durable())
        self.store.sync()
        self.member.synced(self.store.durable())
        self.member.flush()

    def do(self, command: commands.Command) -> None:
        answers: list[Any] = []
        self.member.execute(b"", commands.encode(command), answers.append)
        self.settle()
        [answer] = answers
        assert answer.error is None


def test_a_trim_that_a_full_link_lost_is_told_again() -> None:
    """The epoch that the replica reports does not show that it missed one."""
    bench = Bench()
    bench.wait(0.5)
    bench.told.clear()
    bench.wait(2.0)
    assert bench.told == []
    bench.full = True
    bench.do(commands.Trim(LOG, 3))
    bench.wait(0.5)
    bench.full = False
    bench.wait(0.2)
    assert [told.streams[0].trim for told in bench.told] == [3]
    bench.store.close()


def test_a_cut_that_a_full_link_lost_is_told_again() -> None:
    """If it gave the replica nothing, its report does not show that it missed it."""
    bench = Bench()
    bench.wait(0.5)
    bench.hold(9, 9)
    bench.full = True
    bench.wait(3.0)
    bench.cuts.clear()
    bench.full = False
    bench.wait(0.3)
    assert {cut.high_watermark for told in bench.cuts for cut in told.cuts} >= {8}
    bench.store.close()
