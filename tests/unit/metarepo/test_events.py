"""Each change of state is told once, with its reason."""

from __future__ import annotations

from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.events import Elections, Event
from braidlog.raft import Role, SoftState
from braidlog.wire import commands
from braidlog.wire.commands import ChangeTables, SettleHost
from braidlog.wire.messages import StreamReport
from braidlog.wire.tables import (
    CreateIndex,
    CreateTable,
    DropTable,
    ReplaceTable,
    SettleIndex,
)
from unit.metarepo.bench import LOG
from unit.metarepo.test_group import Lone


class Cluster(Lone):
    """One voter that hears three nodes, which do what they are told."""

    def __init__(self) -> None:
        super().__init__()
        self.silent: set[int] = set()
        self.starts = {1: 1, 2: 1, 3: 1}
        for node in (1, 2, 3):
            self.result(commands.RegisterNode(node, f"host:{node}", 1))
            self.say(node)
        self.result(commands.CreateLog(LOG, "orders", 1, 3, 2))
        self.go(1.0)
        assert self.told() == [
            "election_begun",
            "leader_elected",
            "node_joined",
            "node_joined",
            "node_joined",
            "log_created",
        ]

    def say(self, node: int, state: ReplicaState = ReplicaState.RUNNING) -> None:
        streams = self.group.repository.state.streams.values()
        told = tuple(
            StreamReport(
                each.stream,
                each.epoch,
                0,
                1,
                1,
                ReplicaState.LEARNING if node in each.learners else state,
            )
            for each in streams
            if node in (*each.replicas, *each.learners)
        )
        self.tell(*told, node=node, incarnation=self.starts[node])

    def go(self, seconds: float) -> None:
        for _ in range(round(seconds / 0.05)):
            self.wait(0.05)
            for node in {1, 2, 3} - self.silent:
                self.say(node)

    def told(self) -> list[str]:
        events, self.events = self.events, []
        self.last = {each.name: each for each in events}
        return [each.name for each in events]


def test_a_failover_and_the_way_back() -> None:
    cluster = Cluster()
    primary = cluster.group.repository.state.streams[1].replicas[0]
    cluster.silent = {primary}
    cluster.go(3.0)
    assert cluster.told() == ["node_lost", "stream_degraded", "epoch_begun"]
    lost, begun = cluster.last["node_lost"], cluster.last["epoch_begun"]
    assert lost.warning
    assert lost.fields["peer"] == primary
    assert cluster.last["stream_degraded"].warning
    assert begun.fields["log"] == "orders"
    assert (begun.fields["stream"], begun.fields["epoch"]) == (1, 2)
    assert begun.fields["primary_before"] == primary
    assert begun.fields["left"] == [primary]
    assert begun.fields["reason"] == f"node {primary} is down"
    assert not begun.warning

    cluster.silent = set()
    cluster.starts[primary] = 2
    cluster.result(commands.RegisterNode(primary, f"host:{primary}", 2))
    cluster.go(3.0)
    assert cluster.told() == [
        "node_started",
        "node_back",
        "learner_begun",
        "epoch_begun",
        "stream_whole",
    ]
    joined = cluster.last["epoch_begun"]
    assert joined.fields["joined"] == [primary]
    assert (
        joined.fields["reason"]
        == f"node {primary} has copied the records that it lacked"
    )


def test_too_few_replicas_are_told_once() -> None:
    cluster = Cluster()
    others = {1, 2, 3} - {cluster.group.repository.state.streams[1].replicas[0]}
    cluster.silent = others
    cluster.go(5.0)
    assert cluster.told() == ["node_lost", "node_lost", "stream_unavailable"]
    reason = cluster.last["stream_unavailable"].fields["reason"]
    assert reason == ", ".join(f"node {node} is down" for node in sorted(others))


def test_what_operators_ask_for() -> None:
    cluster = Cluster()
    cluster.result(commands.Unseal(1))
    cluster.do(commands.Seal(1))
    cluster.go(0.2)
    assert cluster.told() == ["stream_sealed"]
    assert cluster.last["stream_sealed"].fields["epoch"] == 2
    cluster.result(commands.Unseal(1))
    cluster.go(0.2)
    assert cluster.told() == ["stream_unsealed"]
    cluster.result(commands.DrainNode(2))
    cluster.result(commands.DrainNode(2))
    cluster.result(commands.DrainNode(2, draining=False))
    cluster.go(0.2)
    assert cluster.told() == ["drain_begun", "drain_ended"]
    cluster.result(commands.SetCursor(LOG, "c", 1))
    assert cluster.told() == []
    cluster.result(commands.DeleteLog(LOG))
    assert cluster.told() == ["log_deleted"]


def test_a_drain_is_told_from_its_begin_to_its_end() -> None:
    cluster = Cluster()
    cluster.starts[4] = 1
    cluster.result(commands.RegisterNode(4, "host:4", 1))
    cluster.result(commands.DrainNode(2))
    for _ in range(40):
        cluster.go(0.05)
        cluster.say(4)
    assert cluster.told() == [
        "node_joined",
        "drain_begun",
        "learner_begun",
        "epoch_begun",
        "drain_done",
    ]
    assert cluster.last["learner_begun"].fields["reason"] == "node 2 is being drained"
    assert cluster.last["epoch_begun"].fields["left"] == [2]


def test_retention_is_told_when_it_trims() -> None:
    cluster = Cluster()
    state = cluster.group.repository.state
    log = state.logs[LOG]
    log.high_watermark = 100
    for _ in range(2):
        cluster.result(commands.Retain(1, log.options, 41))
    assert cluster.told() == ["log_trimmed"]
    trimmed = cluster.last["log_trimmed"].fields
    assert (trimmed["first"], trimmed["reason"]) == (41, "retention")


class Member:
    """What one member sees of elections."""

    def __init__(self) -> None:
        self.elections = Elections(1, 0.0)

    def see(
        self,
        role: Role,
        term: int,
        leader: int,
        now: float = 0.0,
        *,
        broke: bool = False,
    ) -> list[Event]:
        soft = SoftState(role, term, leader, 0, 0)
        return list(
            self.elections.see(
                soft, now, elected_by=(1, 2), voters=(1, 2, 3), broke=broke
            )
        )


def test_a_follower_tells_whom_it_follows_and_whom_it_lost() -> None:
    member = Member()
    [followed] = member.see(Role.FOLLOWER, 4, 2)
    assert followed.fields == {"leader": 2, "term": 4}
    assert member.see(Role.FOLLOWER, 4, 2) == []
    [lost] = member.see(Role.PRE_CANDIDATE, 4, 0, broke=True)
    assert (lost.name, lost.warning) == ("leader_lost", True)
    assert lost.fields["reason"] == "the connection to it broke"
    [stands] = member.see(Role.CANDIDATE, 5, 0)
    assert stands.name == "election_begun"
    [elected] = member.see(Role.LEADER, 5, 1)
    assert elected.fields == {"leader": 1, "term": 5, "votes": [1, 2]}


def test_a_leader_that_hands_over_lost_nothing() -> None:
    member = Member()
    member.see(Role.LEADER, 5, 1)
    assert member.see(Role.FOLLOWER, 6, 0) == []
    [followed] = member.see(Role.FOLLOWER, 6, 3)
    assert followed.name == "leader_followed"


def test_a_lost_majority_is_told_once_until_somebody_leads() -> None:
    member = Member()
    member.see(Role.LEADER, 5, 1)
    [resigned] = member.see(Role.FOLLOWER, 5, 0, now=10.0)
    assert (resigned.name, resigned.warning) == ("leader_resigned", True)
    assert list(member.elections.tick(12.9)) == []
    [lost] = member.elections.tick(13.0)
    assert (lost.name, lost.warning) == ("majority_lost", True)
    assert list(member.elections.tick(99.0)) == []
    member.see(Role.FOLLOWER, 6, 2, now=100.0)
    member.see(Role.PRE_CANDIDATE, 6, 0, now=200.0)
    assert [each.name for each in member.elections.tick(203.0)] == ["majority_lost"]


def test_what_happens_to_tables_is_told() -> None:
    cluster = Cluster()
    table, tree, index = b"t" * 16, b"p" * 16, b"i" * 16
    cluster.result(ChangeTables((CreateTable(table, tree, "stock", LOG, 2),)))
    cluster.result(ChangeTables((CreateIndex(table, index, "city", b"f"),)))
    cluster.result(ChangeTables((SettleIndex(table, index, active=True),)))
    assert cluster.told() == ["table_created", "table_altered", "index_built"]
    cluster.result(commands.DrainNode(1))
    cluster.go(0.5)
    cluster.result(SettleHost(table, 3, joined=True))
    cluster.go(0.5)
    told = cluster.told()
    assert [name for name in told if name.startswith("host")] == [
        "hosts_changed",
        "host_joined",
        "hosts_changed",
    ]
    assert cluster.last["hosts_changed"].fields["hosts"] == [2, 3]
    cluster.result(SettleHost(table, 2, joined=False))
    trees = (b"q" * 16, b"j" * 16)
    empty = ReplaceTable(table, b"u" * 16, trees, empty=True)
    cluster.result(ChangeTables((empty,)))
    cluster.result(ChangeTables((DropTable(b"u" * 16),)))
    assert cluster.told() == ["host_damaged", "table_created", "table_dropped"]


def test_a_host_that_stays_away_is_replaced() -> None:
    cluster = Cluster()
    table = CreateTable(b"t" * 16, b"p" * 16, "stock", LOG, 2)
    cluster.result(ChangeTables((table,)))
    cluster.silent = {1}
    cluster.go(20)
    state = cluster.group.repository.state
    assert state.tables[table.table].hosts == (1, 2)
    cluster.go(15)
    assert state.tables[table.table].hosts == (1, 2, 3)
    cluster.result(SettleHost(table.table, 3, joined=True))
    cluster.go(1)
    assert cluster.group.repository.state.tables[table.table].hosts == (2, 3)
