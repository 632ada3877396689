"""What all nodes of a cluster know: who says it, who hears of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from braidlog.errors import OlderNodesError
from braidlog.metarepo.leader.publisher import Publisher, PublisherSettings
from braidlog.metarepo.machine.repository import Repository
from braidlog.wire import commands
from braidlog.wire.messages import FEATURES, Configure, Report
from braidlog.wire.results import Created, Done
from unit.metarepo.bench import Bench
from unit.metarepo.test_group import Lone


def register(node: int, features: int, start: int = 1) -> commands.RegisterNode:
    return commands.RegisterNode(node, f"host:{node}", start, b"", features)


def test_only_what_every_node_knows_may_be_used() -> None:
    bench = Bench(3)
    bench.create((1, 2, 3), replication=3, fewest=1)
    for node in (1, 2, 3):
        assert bench.repository.config(1).features == 0
        before = bench.repository.revision
        bench.do(register(node, FEATURES))
        assert bench.repository.revision > before
    assert bench.repository.config(1).features == FEATURES
    restored = Repository(bench.repository.snapshot())
    assert restored.config(1).features == FEATURES
    # A node goes back to an earlier version, and another one of it joins.
    bench.do(register(2, 0, start=2))
    assert bench.repository.config(1).features == 0
    bench.do(register(2, FEATURES, start=3))
    bench.do(register(4, 0))
    assert bench.repository.config(1).features == 0
    nodes = bench.repository.nodes(lambda _: True, frozenset(), lambda _: 0)
    assert [each.features for each in nodes] == [FEATURES, FEATURES, FEATURES, 0]
    bench.do(commands.RemoveNode(4))
    assert bench.repository.config(1).features == FEATURES


def test_replicas_are_told_again_when_the_last_node_knows_it() -> None:
    bench, publisher = Bench(2), Publisher(PublisherSettings())
    bench.create((1, 2), replication=2, fewest=1)
    for node in (1, 2):
        bench.tell(node, 1, 1, epoch=1)
    told = []
    for node in (1, 2, 2):
        bench.do(register(node, FEATURES))
        sent = publisher.configure(bench.repository, bench.collector, 1, 0.0)
        told.append(sent and [each.features for each in sent.streams])
    assert told == [[0], [FEATURES], None]


@dataclass
class Reports:
    lone: Lone
    number: int = field(default=1000)

    def say(self, features: int) -> None:
        self.number += 1
        self.lone.group.report(Report(1, 1, self.number, True, (), features), 0.0)
        self.lone.wait(0.3)


def test_a_leader_that_did_not_keep_the_features_hears_of_them_in_reports() -> None:
    lone = Lone().prepared()
    state = lone.group.repository.state
    assert not state.nodes[1].features & FEATURES
    reports = Reports(lone)
    reports.say(FEATURES)
    assert state.nodes[1].features == FEATURES
    last = state.index
    reports.say(FEATURES)
    assert state.index == last, "it is logged once"
    assert lone.group.repository.config(1).features == FEATURES
    sent = [each for each in lone.sent if isinstance(each, Configure)]
    assert sent[-1].streams[0].features == FEATURES


def test_streams_change_when_all_nodes_know_that() -> None:
    lone = Lone().prepared()
    reports, state = Reports(lone), lone.group.repository.state
    [log] = state.logs.values()
    reports.say(0)
    change = commands.SetStreams(log.log, len(log.streams) + 1)
    for early in (change, commands.AlterLog(log.log, name="x", expected=0)):
        answer = lone.do(early)
        assert answer is not None
        assert type(answer.error) is OlderNodesError
    lone.result(commands.AlterLog(log.log, name="x"))
    assert log.revision == 0, "an earlier version does not count it"
    reports.say(FEATURES)
    made = lone.result(change)
    assert isinstance(made, Created)
    assert made.streams == log.streams
    assert lone.events[-1].text == f"log 'x' has {len(log.streams)} streams now"
    lone.result(commands.AlterLog(log.log, name="y"))
    assert log.revision > 0
    # From now on who does not know it stays outside.
    answer = lone.do(register(9, 0))
    assert answer is not None
    assert type(answer.error) is OlderNodesError
    assert lone.result(register(9, FEATURES)) == Done()
