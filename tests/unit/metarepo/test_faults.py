"""The configuration of the cluster: who is listed, and what a rescue adopts."""

from __future__ import annotations

import pytest

from braidlog.faultlog.configuration import Configuration
from braidlog.metarepo.leader.fault_recording import FaultRecording
from braidlog.metarepo.machine.adoption import about
from braidlog.metarepo.machine.faults import first, holds, listable
from braidlog.metarepo.machine.repository import Repository
from braidlog.metarepo.machine.state import FaultState
from braidlog.wire import commands
from braidlog.wire.commands import ChangeFaults, OfferReplicas, StoredReplica
from braidlog.wire.messages import Faults, Recorded, Report, StreamConfig, StreamStatus
from braidlog.wire.results import Done, Refused
from unit.metarepo.bench import LOG, Bench


class Cluster(Bench):
    """A bench with a guard; nodes record what they are told, if they live."""

    def __init__(self, nodes: int = 3) -> None:
        super().__init__(nodes)
        self.guard = FaultRecording()
        self.nodes = set(range(1, nodes + 1))
        self.dead: set[int] = set()
        self.deaf: set[int] = set()
        self.now = 0.0
        self.told: list[tuple[int, Faults]] = []
        for node in self.nodes:
            self.reports += 1
            self.collector.take(Report(node, 1, self.reports, True, ()))

    @property
    def faults(self) -> FaultState:
        known = self.repository.state.faults
        assert known is not None
        return known

    def step(self) -> None:
        """Decide once, and let everybody who hears record."""
        self.now += 1
        state = self.repository.state
        change = self.guard.decide(
            state, self.dead.__contains__, lambda node: node not in self.dead
        )
        if change is not None:
            assert isinstance(self.do(change), Done)
        for node, told in list(self.guard.messages(state, self.collector, self.now)):
            self.told.append((node, told))
            if node not in self.dead | self.deaf:
                self.guard.take(
                    Recorded(
                        node,
                        told.epoch,
                        told.sequence,
                        told.viable or self._stays(node, told),
                    )
                )

    def _stays(self, node: int, told: Faults) -> bool:
        return node in self.faults.viable and node not in told.failed

    def settle(self) -> None:
        for _ in range(10):
            self.step()


@pytest.fixture
def cluster() -> Cluster:
    made = Cluster()
    made.settle()
    assert made.faults.viable == (1, 2, 3)
    made.create((1, 2, 3))
    for node in (1, 2, 3):
        made.tell(node, 1, 1)
    return made


def test_all_nodes_begin_as_viable_members(cluster: Cluster) -> None:
    assert cluster.faults.members == (1, 2, 3)
    assert cluster.faults.failed == ()
    assert all(cluster.guard.knows(cluster.repository.state, n) for n in (1, 2, 3))


def test_a_dead_node_is_listed_and_comes_back_in_the_order_that_is_due(
    cluster: Cluster,
) -> None:
    cluster.dead = {3}
    cluster.settle()
    assert (cluster.faults.failed, cluster.faults.viable) == ((3,), (1, 2))
    cluster.dead, cluster.deaf = set(), {2}
    cluster.told.clear()
    number = cluster.faults.number
    cluster.guard._recorded.pop(2)
    cluster.settle()
    # Node 2 is viable and did not record it, so node 3 is told nothing.
    assert {node for node, _ in cluster.told} == {2}
    cluster.deaf = set()
    cluster.settle()
    assert (cluster.faults.failed, cluster.faults.viable) == ((), (1, 2, 3))
    told = [each for node, each in cluster.told if node == 3]
    steps = [(each.sequence, each.failed, each.viable) for each in told]
    _, sequence = number
    assert steps == [
        (sequence, (3,), False),
        (sequence + 1, (), False),
        (sequence + 1, (), True),
    ]


def test_a_second_failure_comes_before_the_first_is_recorded(cluster: Cluster) -> None:
    """Node 3 dies when it should record that node 2 did; both of them come back."""
    cluster.dead, cluster.deaf = {2}, {3}
    cluster.step()
    assert [*cluster.faults.failed] == [2]
    cluster.dead = {2, 3}
    cluster.told.clear()
    cluster.settle()
    assert [*cluster.faults.failed] == [2, 3]
    assert [*cluster.faults.viable] == [1]
    assert [told.failed for node, told in cluster.told if node == 1][-1] == (2, 3)
    cluster.dead, cluster.deaf = set(), set()
    cluster.settle()
    assert (cluster.faults.failed, cluster.faults.viable) == ((), (1, 2, 3))


def test_a_copy_that_is_not_complete_is_not_viable(cluster: Cluster) -> None:
    cluster.dead = {3}
    cluster.settle()
    reconfigure = commands.Reconfigure(
        1, 1, (1, 2), (3,), StreamStatus.RUNNING, entered=(1, 2)
    )
    assert not isinstance(cluster.do(reconfigure), Refused)
    cluster.dead = set()
    cluster.settle()
    assert (cluster.faults.failed, cluster.faults.viable) == ((), (1, 2))


def test_the_last_viable_holder_is_never_listed(cluster: Cluster) -> None:
    state = cluster.repository.state
    cluster.dead = {2, 3}
    cluster.settle()
    assert cluster.faults.failed == (2, 3)
    assert not listable(state, (1,))
    cluster.dead = {1}
    cluster.step()
    assert cluster.faults.failed == (2, 3)


def test_an_epoch_keeps_a_viable_holder(cluster: Cluster) -> None:
    cluster.dead = {3}
    cluster.settle()
    stream = cluster.repository.state.streams[1]
    assert not holds(cluster.repository.state, stream, (3,))
    only = commands.Reconfigure(
        1, 1, (3,), (), StreamStatus.RUNNING, forced=True, entered=(1, 2, 3)
    )
    cluster.refused(only)


def test_a_node_that_joins_late_has_nothing_that_counts(cluster: Cluster) -> None:
    cluster.do(commands.RegisterNode(4, "host:4", 1))
    cluster.step()
    assert cluster.faults.members == (1, 2, 3, 4)
    assert cluster.faults.failed == (4,)


def test_a_new_leader_lets_a_complete_node_become_viable(cluster: Cluster) -> None:
    """The other viable nodes died before it heard of them."""
    cluster.dead = {3}
    cluster.settle()
    cluster.dead = set()
    for _ in range(20):
        cluster.step()
        if 3 not in cluster.faults.failed and cluster.guard.knows(
            cluster.repository.state, 3
        ):
            break
    said = Recorded(3, *cluster.faults.number, False)
    cluster.faults.viable = (1, 2)
    cluster.guard = FaultRecording()
    cluster.guard.take(said)
    cluster.dead = {1, 2}
    cluster.settle()
    assert 3 in cluster.faults.viable


# --- after a rescue


def config(epoch: int, *replicas: int, start: int = 1) -> StreamConfig:
    return StreamConfig(
        1,
        LOG,
        "log",
        epoch,
        StreamStatus.RUNNING,
        replicas,
        (),
        start,
        (),
        0,
        0,
        1,
        b"options",
        replication=3,
        min_replicas=2,
        created=7,
    )


def rescued(*live: int) -> Bench:
    bench = Bench(0)
    configuration = Configuration(2, 0, (1, 2, 3), tuple({1, 2, 3} - set(live)))
    bench.repository.state.faults = first(configuration, live)
    for node in live:
        bench.do(commands.RegisterNode(node, f"host:{node}", 9))
    return bench


def stored(
    made: StreamConfig | None, *, end: int, committed: int, epoch: int = 0
) -> StoredReplica:
    entered = epoch or (made.epoch if made else 0)
    text = about(made) if made else b""
    return StoredReplica(1, entered, text, committed, end, 5, 20)


def test_what_all_members_hold_is_committed_and_the_stream_goes_on() -> None:
    bench = rescued(2, 3)
    newest = config(4, 2, 3, start=3)
    bench.do(OfferReplicas(2, 2, 0, 1, (stored(newest, end=12, committed=8),)))
    refused = bench.do(commands.CreateLog(b"m" * 16, "other", 1, 1, 1))
    assert isinstance(refused, Refused)
    bench.do(OfferReplicas(3, 2, 0, 1, (stored(newest, end=10, committed=6),)))
    state = bench.repository.state
    stream, log = state.streams[1], state.logs[LOG]
    assert (stream.epoch, stream.start, stream.committed) == (5, 10, 10)
    assert stream.replicas == stream.holders == (2, 3)
    assert stream.epochs == ((4, 3),)
    assert (log.name, log.options, log.created) == ("log", b"options", 7)
    assert (log.replication, log.min_replicas) == (3, 2)
    (cut,) = log.history
    (run,) = cut.runs
    assert (cut.version, cut.high_watermark) == (6, 22)
    assert (run.llsn_begin, run.glsn_begin, run.length, run.epoch) == (8, 21, 2, 4)
    assert not isinstance(
        bench.do(commands.CreateLog(b"m" * 16, "other", 1, 1, 1)), Refused
    )
    assert Repository(bench.repository.snapshot()).state == state


def test_copies_and_older_members_do_not_decide() -> None:
    bench = rescued(1, 2, 3)
    old, new = config(3, 1, 2), config(4, 2)
    bench.do(OfferReplicas(1, 2, 0, 1, (stored(old, end=30, committed=1),)))
    bench.do(OfferReplicas(2, 2, 0, 1, (stored(new, end=9, committed=9),)))
    # A learner of epoch 6, which nobody is left of.
    copy = stored(old, end=2, committed=2, epoch=6)
    bench.do(OfferReplicas(3, 2, 0, 1, (copy,)))
    stream = bench.repository.state.streams[1]
    assert (stream.replicas, stream.start, stream.epoch) == ((2,), 9, 7)


def test_what_nobody_was_a_member_of_stays_where_it_is() -> None:
    bench = rescued(1)
    copy = stored(None, end=2, committed=2, epoch=6)
    bench.do(OfferReplicas(1, 2, 0, 2, (copy,)))
    assert bench.repository.state.faults is not None
    assert bench.repository.state.faults.awaited == (1,)
    bench.do(OfferReplicas(1, 2, 1, 2, ()))
    state = bench.repository.state
    assert (state.streams, state.orphans) == ({}, (1,))
    assert state.stream_next > 1


def test_changes_are_of_the_current_configuration(cluster: Cluster) -> None:
    epoch, sequence = cluster.faults.number
    cluster.refused(ChangeFaults(epoch, sequence - 1, failed=(3,)))
    cluster.refused(ChangeFaults(epoch, sequence, failed=(9,)))
    cluster.refused(ChangeFaults(epoch, sequence, back=(3,)))
