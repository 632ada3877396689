"""What repair does about replicas on slow nodes, case by case."""

from __future__ import annotations

from collections.abc import Collection

from braidlog.logstream.states import ReplicaState
from braidlog.wire import commands
from braidlog.wire.commands import AddLearner, Command, DropLearner, Reconfigure
from braidlog.wire.results import Refused
from unit.metarepo.test_controller import Repair


class Slow(Repair):
    """A bench with slow nodes."""

    slow: Collection[int] = ()
    unfit: Collection[int] = ()

    def decide(self, wait: float = 0.0) -> list[Command]:
        self.now += wait
        return self.controller.decide(
            self.repository.state,
            self.collector,
            self.dead.__contains__,
            self.now,
            slow=self.slow,
            unfit=self.unfit,
        )

    def left(self) -> Reconfigure:
        made = self.one()
        assert isinstance(made, Reconfigure)
        return made


def bench_of(*replicas: int, fewest: int = 1, nodes: int = 3) -> Slow:
    bench = Slow(nodes)
    bench.create(replicas, replication=len(replicas), fewest=fewest)
    bench.run_all(1, *replicas)
    bench.idle(*(n for n in range(1, nodes + 1) if n not in replicas))
    return bench


def test_a_slow_replica_leaves_and_copies_on() -> None:
    bench = bench_of(1, 2, 3, fewest=2)
    bench.slow = {3}
    made = bench.left()
    assert (made.replicas, made.learners) == ((1, 2), (3,))
    bench.run_all(1, 1, 2)
    bench.tell(3, 1, 1, state=ReplicaState.LEARNING)
    # It is not taken back while it is slow, however long that takes.
    assert bench.decide(60.0) == []
    assert not bench.is_calm()
    bench.slow = ()
    made = bench.left()
    assert set(made.replicas) == {1, 2, 3}
    assert made.learned == (3,)
    assert made.replicas[0] != 3


def test_a_slow_primary_is_replaced() -> None:
    bench = bench_of(1, 2, 3)
    bench.slow = {1}
    made = bench.left()
    assert set(made.replicas) == {2, 3}
    assert made.learners == (1,)


def test_never_fewer_than_enough_remain() -> None:
    bench = bench_of(1, 2, 3, fewest=3)
    bench.slow = {3}
    assert bench.decide(10.0) == []
    # One that fails goes first, and then too few are left.
    bench = bench_of(1, 2, 3, fewest=2)
    bench.dead, bench.slow = {1}, {3}
    made = bench.left()
    assert set(made.replicas) == {2, 3}
    bench.run_all(1, 2, 3)
    assert bench.decide(10.0) == []


def test_those_that_remain_are_whole_and_have_entered() -> None:
    bench = bench_of(1, 2, 3, fewest=2)
    bench.slow = {3}
    bench.tell(2, 1, 1, damaged=True)
    # The damaged one goes, and then the slow one is needed.
    assert set(bench.left().replicas) == {1, 3}
    bench = bench_of(1, 2, 3, fewest=2)
    assert not isinstance(bench.do(commands.Seal(1)), Refused)
    bench.slow = {3}
    bench.run_all(1, 1, 3)
    assert bench.decide() == []
    bench.run_all(1, 2)
    assert bench.left().replicas == (1, 2)


def test_another_node_takes_its_place() -> None:
    bench = bench_of(1, 2, 3, fewest=2, nodes=4)
    bench.slow = {3}
    bench.left()
    bench.run_all(1, 1, 2)
    assert bench.one(1) == AddLearner(1, 4)
    assert bench.decide(1) == []
    bench.tell(4, 1, 1, epoch=1, state=ReplicaState.LEARNING)
    made = bench.one(1)
    assert isinstance(made, Reconfigure)
    assert set(made.replicas) == {1, 2, 4}
    bench.run_all(1, 1, 2, 4)
    assert bench.one(1) == DropLearner(1, 3)
    assert bench.decide(60.0) == []
    assert bench.is_calm()


def test_a_slow_replica_that_is_needed_is_replaced_as_a_drained_one_is() -> None:
    bench = bench_of(1, 2, 3, fewest=3, nodes=4)
    bench.slow = {3}
    assert bench.one(1) == AddLearner(1, 4)
    bench.tell(4, 1, 1, epoch=1, state=ReplicaState.LEARNING)
    made = bench.one(1)
    assert isinstance(made, Reconfigure)
    assert set(made.replicas) == {1, 2, 3, 4}
    assert made.replicas[0] != 3
    bench.run_all(1, 1, 2, 3, 4)
    made = bench.one(1)
    assert isinstance(made, Reconfigure)
    assert set(made.replicas) == {1, 2, 4}


def test_the_only_replica_stays() -> None:
    bench = bench_of(1, nodes=2)
    bench.slow = {1}
    assert bench.decide(60.0) == []


def test_slow_nodes_are_given_no_replicas() -> None:
    bench = bench_of(1, 2, 3, nodes=5)
    bench.dead, bench.unfit = {3}, {4}
    bench.left()
    bench.run_all(1, 1, 2)
    assert bench.one(1) == AddLearner(1, 5)


def test_one_that_says_that_it_is_slow_is_not_promoted_yet() -> None:
    bench = bench_of(1, 2, 3)
    bench.tell(3, 1, 1, state=ReplicaState.STARTING)
    bench.left()
    bench.run_all(1, 1, 2)
    bench.tell(3, 1, 1, state=ReplicaState.LEARNING)
    bench.unfit = {3}
    assert bench.decide(1) == []
    bench.unfit = ()
    assert isinstance(bench.one(1), Reconfigure)
