"""Repair, case by case."""
# One file: the cases of one controller, on one bench.

from braidlog.logstream.states import ReplicaState
from braidlog.metarepo.leader.controller import Controller, ControllerSettings
from braidlog.metarepo.leader.liveness import Liveness, LivenessSettings
from braidlog.metarepo.machine.state import REPLICAS_MAX
from braidlog.wire import commands
from braidlog.wire.commands import AddLearner, DropLearner, Reconfigure
from braidlog.wire.messages import Report, StreamReport, StreamStatus
from braidlog.wire.results import Refused
from unit.metarepo.bench import Bench


class Repair(Bench):
    """A bench with a controller; decisions are executed unless they only show."""

    def __init__(self, nodes: int = 4) -> None:
        super().__init__(nodes)
        self.controller = Controller(ControllerSettings())
        self.now = 100.0
        self.dead: set[int] = set()

    def run_all(self, stream: int, *nodes: int) -> None:
        known = self.repository.state.streams[stream]
        for node in nodes:
            self.tell(
                node,
                stream,
                known.committed,
                epoch=known.epoch,
                committed=known.committed,
            )

    def idle(self, *nodes: int) -> None:
        for node in nodes:
            self.reports += 1
            self.collector.take(Report(node, 1, self.reports, True, ()))

    def decide(self, wait: float = 0.0) -> list[commands.Command]:
        self.now += wait
        return self.controller.decide(
            self.repository.state, self.collector, self.dead.__contains__, self.now
        )

    def is_calm(self) -> bool:
        return self.controller.calm

    def one(self, wait: float = 0.0) -> commands.Command:
        (command,) = self.decide(wait)
        assert not isinstance(self.do(command), Refused)
        return command

    def learned(self, node: int, epoch: int) -> Reconfigure:
        """See that a node is made a learner; return what follows when it is one."""
        assert self.one(1) == AddLearner(1, node)
        assert self.decide(1) == []
        self.tell(node, 1, 1, epoch=epoch, state=ReplicaState.LEARNING)
        made = self.one(1)
        assert isinstance(made, Reconfigure)
        return made


def repair(*replicas: int, fewest: int = 1, nodes: int = 4) -> Repair:
    bench = Repair(nodes)
    bench.create(replicas, replication=len(replicas), fewest=fewest)
    bench.run_all(1, *replicas)
    bench.idle(*(n for n in range(1, nodes + 1) if n not in replicas))
    return bench


def test_nothing_to_do_is_nothing_done() -> None:
    assert repair(1, 2, 3).decide() == []


def test_it_is_calm_as_long_as_nothing_can_become_due() -> None:
    bench = repair(1, 2, 3)
    bench.decide()
    assert bench.is_calm()
    bench.dead = {3}
    bench.one()
    assert not bench.is_calm()
    # Node 4 learns, and becomes a member: both take looks that nothing announces.
    bench.run_all(1, 1, 2)
    assert isinstance(bench.one(wait=60.0), AddLearner)
    bench.decide()
    assert not bench.is_calm()


def test_a_replica_that_a_full_report_lacks_is_news() -> None:
    bench = repair(1, 2, 3)
    for node, stirred in ((4, False), (3, True)):
        bench.collector.stirred = False
        bench.idle(node)
        assert bench.collector.stirred is stirred


def test_a_dead_primary_is_replaced_by_a_survivor_then_by_a_learner() -> None:
    bench = repair(1, 2, 3)
    bench.dead = {1}
    first = bench.one()
    assert isinstance(first, Reconfigure)
    assert set(first.replicas) == {2, 3}
    assert first.learners == ()
    bench.run_all(1, 2, 3)
    assert bench.one() == AddLearner(1, 4)
    assert bench.decide(1) == []
    bench.tell(4, 1, 1, state=ReplicaState.LEARNING)
    joined = bench.one(1)
    assert isinstance(joined, Reconfigure)
    assert set(joined.replicas) == {2, 3, 4}
    assert joined.replicas[0] in (2, 3)


def test_too_few_survivors_do_not_go_on() -> None:
    bench = repair(1, 2, fewest=2, nodes=2)
    bench.dead = {1}
    assert bench.decide(10) == []


def test_a_learner_makes_up_the_number_of_survivors() -> None:
    bench = repair(1, 2, fewest=2, nodes=3)
    assert not isinstance(bench.do(AddLearner(1, 3)), Refused)
    bench.dead = {1}
    assert bench.decide() == []
    bench.tell(3, 1, 1, state=ReplicaState.LEARNING)
    made = bench.one()
    assert isinstance(made, Reconfigure)
    assert (set(made.replicas), made.replicas[0]) == ({2, 3}, 2)
    assert made.learners == ()


def test_who_was_left_out_learns_when_too_few_survive() -> None:
    bench = repair(1, 2, 3, fewest=2, nodes=3)
    bench.dead = {3}
    left = bench.one()
    assert isinstance(left, Reconfigure)
    assert set(left.replicas) == {1, 2}
    bench.run_all(1, 1, 2)
    # Node 3 is back after that, and of the two that went on one is damaged.
    bench.dead = set()
    bench.tell(3, 1, 1, state=ReplicaState.STARTING)
    bench.tell(2, 1, 1, epoch=2, state=ReplicaState.INVALID)
    made = bench.learned(3, epoch=2)
    assert (made.replicas, made.learners) == ((1, 3), ())


def test_another_node_learns_when_too_few_survive() -> None:
    bench = repair(1, 2, 3, fewest=2)
    bench.dead = {2, 3}
    assert bench.learned(4, epoch=1).replicas == (1, 4)


def test_nobody_learns_where_nobody_is_left_who_has_everything() -> None:
    bench = repair(1, 2, 3, fewest=2, nodes=5)
    bench.dead = {1, 2, 3}
    assert bench.decide(1) == []


def test_a_restarted_replica_and_a_learner_make_up_the_number() -> None:
    bench = repair(1, 2, fewest=2, nodes=3)
    bench.tell(1, 1, 1, state=ReplicaState.STARTING)
    bench.tell(2, 1, 1, state=ReplicaState.INVALID)
    # Node 1 has to hear what was committed before anybody can learn it all from there.
    woken = bench.one()
    assert isinstance(woken, Reconfigure)
    assert (set(woken.replicas), woken.learners) == ({1, 2}, ())
    bench.run_all(1, 1)
    bench.tell(2, 1, 1, state=ReplicaState.INVALID)
    made = bench.learned(3, epoch=2)
    assert (made.replicas, made.learners) == ((1, 3), ())


def test_a_learner_that_lacks_something_is_not_counted_on() -> None:
    """It would have to get that from a replica that may be damaged as well."""
    bench = repair(1, 2, fewest=2, nodes=3)
    for node in (1, 2):
        bench.tell(node, 1, 4, committed=1)
    assert bench.cut()
    bench.run_all(1, 1, 2)
    assert not isinstance(bench.do(AddLearner(1, 3)), Refused)
    bench.dead = {2}
    bench.tell(3, 1, 3, committed=3, state=ReplicaState.LEARNING)
    assert bench.decide() == []
    bench.tell(3, 1, 4, committed=4, state=ReplicaState.LEARNING)
    made = bench.one()
    assert isinstance(made, Reconfigure)
    assert made.replicas == (1, 3)


def test_a_restarted_replica_becomes_a_learner_if_others_can_go_on() -> None:
    bench = repair(1, 2, 3)
    bench.tell(1, 1, 1, state=ReplicaState.STARTING)
    made = bench.one()
    assert isinstance(made, Reconfigure)
    assert (set(made.replicas), made.learners) == ({2, 3}, (1,))


def test_restarted_replicas_make_up_the_number() -> None:
    bench = repair(1, 2, 3)
    for node in (1, 2, 3):
        bench.tell(node, 1, 1, state=ReplicaState.STARTING)
    made = bench.one()
    assert isinstance(made, Reconfigure)
    assert set(made.replicas) == {1, 2, 3}
    # They have an older epoch now: they will enter, and nothing more is to be decided.
    assert bench.decide(0.5) == []


def test_nothing_is_decided_about_replicas_that_were_not_heard_of() -> None:
    bench = Repair()
    bench.create((1, 2, 3))
    bench.run_all(1, 1)
    bench.dead = {2}
    assert bench.decide() == []
    bench.dead = {2, 3}
    made = bench.one()
    assert isinstance(made, Reconfigure)
    assert made.replicas == (1,)


def test_a_replica_that_never_enters_is_dropped_and_learns() -> None:
    bench = repair(1, 2, 3)
    bench.do(commands.Seal(1))
    bench.run_all(1, 1, 2)
    assert bench.decide() == []
    made = bench.one(4)
    assert isinstance(made, Reconfigure)
    assert (set(made.replicas), made.learners) == ({1, 2}, (3,))
    assert made.status is StreamStatus.SEALED


def test_an_invalid_replica_is_dropped_and_not_taken_before_it_is_gone() -> None:
    bench = repair(1, 2, 3, nodes=3)
    bench.tell(3, 1, 1, state=ReplicaState.INVALID)
    made = bench.one()
    assert isinstance(made, Reconfigure)
    assert (set(made.replicas), made.learners) == ({1, 2}, ())
    bench.run_all(1, 1, 2)
    assert bench.decide(1) == []
    bench.idle(3)
    assert bench.one(1) == AddLearner(1, 3)


def test_a_drained_node_is_left_only_for_a_replacement() -> None:
    bench = repair(1, 2, 3)
    bench.do(commands.DrainNode(1))
    assert bench.one() == AddLearner(1, 4)
    bench.tell(4, 1, 1, state=ReplicaState.LEARNING)
    made = bench.one(1)
    assert isinstance(made, Reconfigure)
    assert set(made.replicas) == {2, 3, 4}


def test_a_single_replica_moves_in_two_epochs() -> None:
    """The learner has to hold everything before the source may leave."""
    bench = repair(1)
    bench.do(commands.MoveReplica(1, 1, 2))
    bench.tell(2, 1, 1, state=ReplicaState.LEARNING)
    both = bench.one()
    assert isinstance(both, Reconfigure)
    assert set(both.replicas) == {1, 2}
    assert bench.decide(1) == []
    bench.run_all(1, 1, 2)
    last = bench.one(1)
    assert isinstance(last, Reconfigure)
    assert last.replicas == (2,)


def test_a_drained_replica_stays_until_enough_others_hold_everything() -> None:
    bench = repair(1, 2, fewest=2, nodes=3)
    bench.do(commands.DrainNode(1))
    assert bench.one() == AddLearner(1, 3)
    bench.tell(3, 1, 1, state=ReplicaState.LEARNING)
    three = bench.one(1)
    assert isinstance(three, Reconfigure)
    assert set(three.replicas) == {1, 2, 3}
    bench.run_all(1, 1, 2)
    assert bench.decide(1) == []
    bench.run_all(1, 3)
    last = bench.one(1)
    assert isinstance(last, Reconfigure)
    assert set(last.replicas) == {2, 3}


def test_a_damaged_replica_stays_until_another_one_has_everything() -> None:
    bench = repair(1, 2, 3)
    assert bench.decide() == []
    assert bench.is_calm()
    bench.tell(1, 1, 1, damaged=True)
    assert bench.collector.stirred
    assert bench.one() == AddLearner(1, 4)
    bench.tell(4, 1, 1, state=ReplicaState.LEARNING)
    made = bench.one(1)
    assert isinstance(made, Reconfigure)
    assert set(made.replicas) == {2, 3, 4}


def test_without_another_node_a_damaged_replica_begins_anew_where_it_is() -> None:
    bench = repair(1, 2, 3, fewest=2, nodes=3)
    bench.tell(2, 1, 1, damaged=True)
    made = bench.one()
    assert isinstance(made, Reconfigure)
    assert (set(made.replicas), made.learners) == ({1, 3}, ())
    bench.run_all(1, 1, 3)
    bench.idle(2)
    assert bench.one(1) == AddLearner(1, 2)


def test_damaged_replicas_stay_where_too_few_whole_ones_are() -> None:
    for damaged, fewest in (((1,), 2), ((1, 2), 1)):
        bench = repair(1, 2, fewest=fewest, nodes=2)
        for node in damaged:
            bench.tell(node, 1, 1, damaged=True)
        assert bench.decide(1) == []
    alone = repair(1, nodes=2)
    alone.tell(1, 1, 1, damaged=True)
    assert alone.decide(1) == []
    assert alone.is_calm()


def test_the_only_whole_replica_is_waited_for() -> None:
    """It would be told to forget what nobody else can read."""
    bench = repair(1, 2, fewest=2, nodes=3)
    stream = bench.repository.state.streams[1]
    for node in (1, 2):
        bench.tell(node, 1, 20, committed=1)
    assert bench.cut()
    bench.tell(1, 1, 20, committed=20, damaged=True)
    bench.tell(2, 1, 20, committed=20)
    assert bench.one() == AddLearner(1, 3)
    bench.tell(3, 1, 19, committed=19, state=ReplicaState.LEARNING)
    made = bench.one()
    assert isinstance(made, Reconfigure)
    assert set(made.replicas) == {1, 2, 3}
    # The one that is whole restarts before the newcomer has what it lacks.
    epoch = stream.epoch
    bench.tell(1, 1, 20, committed=20, epoch=epoch, damaged=True)
    bench.tell(3, 1, 19, committed=19, state=ReplicaState.CATCHING_UP)
    bench.tell(2, 1, 20, committed=20, state=ReplicaState.STARTING)
    for command in bench.decide():
        assert not isinstance(command, Reconfigure) or 2 in command.replicas
    bench.dead = {2}
    assert not any(isinstance(each, Reconfigure) for each in bench.decide(1))


def test_only_together_damaged_replicas_have_everything() -> None:
    """None goes before another one has all that they have."""
    bench = repair(1, 2, nodes=3)
    stream = bench.repository.state.streams[1]
    for node in (1, 2):
        bench.tell(node, 1, 20, committed=1, damaged=True)
    bench.cut()
    for node in (1, 2):
        bench.tell(node, 1, 20, committed=20, damaged=True)
    assert stream.committed == 20
    assert bench.one() == AddLearner(1, 3)
    bench.tell(3, 1, 19, committed=19, state=ReplicaState.LEARNING)
    assert bench.decide(1) == []
    bench.tell(3, 1, 20, committed=20, state=ReplicaState.LEARNING)
    made = bench.one(1)
    assert isinstance(made, Reconfigure)
    assert (set(made.replicas), made.learners) == ({2, 3}, ())


def test_the_largest_number_of_replicas_can_be_drained() -> None:
    most = range(1, REPLICAS_MAX + 1)
    bench = repair(*most, fewest=REPLICAS_MAX, nodes=REPLICAS_MAX + 1)
    bench.do(commands.DrainNode(1))
    assert bench.one() == AddLearner(1, REPLICAS_MAX + 1)
    bench.tell(REPLICAS_MAX + 1, 1, 1, state=ReplicaState.LEARNING)
    made = bench.one(1)
    assert isinstance(made, Reconfigure)
    assert set(made.replicas) == {*most, REPLICAS_MAX + 1} - {1}


def test_a_dead_learner_is_dropped() -> None:
    bench = repair(1, 2, 3)
    bench.do(commands.AddLearner(1, 4))
    bench.dead = {4}
    assert bench.one() == DropLearner(1, 4)


def test_a_learner_that_lacks_much_waits() -> None:
    bench = repair(1, 2, 3)
    bench.do(commands.DrainNode(1))
    bench.do(commands.AddLearner(1, 4))
    bench.repository.state.streams[1].committed = 100_000
    bench.tell(4, 1, 1, state=ReplicaState.LEARNING)
    assert bench.decide(1) == []


def test_changes_that_are_not_urgent_are_spaced_out() -> None:
    bench = repair(1, 2, 3)
    bench.do(commands.AlterLog(b"l" * 16, replication=4))
    waits = []
    for _ in range(7):
        waited = 0
        while not bench.decide():
            bench.now += 0.1
            waited += 1
        waits.append(waited)
    assert waits == sorted(waits)
    assert waits[-1] >= 8 * max(1, waits[1])


def test_silence_counts_only_while_the_leader_listened() -> None:
    live = Liveness(LivenessSettings(), 0.0)
    assert not live.dead(1, 0.9)
    assert live.dead(1, 1.0)
    live.heard(1, 1.0)
    live.called(1.0)
    assert not live.dead(1, 1.4)
    assert live.dead(1, 1.5)
    live.called(9.0)
    assert not live.dead(1, 9.4)
    assert live.dead(1, 9.5)


def test_a_broken_connection_is_confirmed_by_silence() -> None:
    live = Liveness(LivenessSettings(), 0.0)
    live.heard(1, 2.0)
    live.lost(1, 2.1)
    assert not live.dead(1, 2.2)
    assert live.dead(1, 2.26)
    live.heard(1, 2.3)
    assert not live.dead(1, 2.5)


def test_a_broken_connection_is_looked_at_when_it_is_time() -> None:
    live = Liveness(LivenessSettings(), 0.0)
    live.lost(1, 2.1)
    live.lost(2, 2.15)
    assert not live.due(2.24)
    assert live.due(2.26)
    assert not live.due(2.29)
    assert live.due(2.31)
    assert not live.due(99.0)


def test_who_has_reported_stays_alive_by_other_messages() -> None:
    live = Liveness(LivenessSettings(), 0.0)
    live.kept(1, 0.9)
    # What comes before a report may be of an earlier start.
    assert live.dead(1, 1.0)
    live.heard(1, 1.0)
    for tenth in range(11, 40):
        live.kept(1, tenth / 10)
    assert not live.dead(1, 4.3)
    assert live.dead(1, 4.5)
    live.lost(1, 4.5)
    live.kept(1, 4.6)
    # Only a report shows that the connection broke, and the node did not.
    assert live.dead(1, 4.7)


def lose_and_take_back(bench: Repair, start: int) -> float:
    """Let node 3 die and come back; return how long the stream took to have it."""
    bench.dead = {3}
    left = bench.one()
    assert isinstance(left, Reconfigure)
    bench.run_all(1, 1, 2)
    bench.dead = set()
    epoch = left.expected + 1
    report = StreamReport(1, epoch - 1, 0, 1, 1, ReplicaState.STARTING)
    bench.reports += 1
    bench.collector.take(Report(3, start, bench.reports, True, (report,)))
    begin = bench.now
    learns = StreamReport(1, epoch, 0, 1, 1, ReplicaState.LEARNING)
    for _ in range(1000):
        for command in bench.decide(0.05):
            assert not isinstance(bench.do(command), Refused)
            if isinstance(command, Reconfigure):
                took = bench.now - begin
                bench.reports += 1
                ran = StreamReport(1, epoch + 1, 0, 1, 1, ReplicaState.RUNNING)
                bench.collector.take(Report(3, start, bench.reports, True, (ran,)))
                bench.run_all(1, 1, 2)
                return took
            assert command == AddLearner(1, 3)
            bench.reports += 1
            bench.collector.take(Report(3, start, bench.reports, True, (learns,)))
    raise AssertionError("the replica was not taken back")


def test_planned_restarts_are_not_spaced_out() -> None:
    bench = repair(1, 2, 3, nodes=3)
    times = [lose_and_take_back(bench, start) for start in range(2, 12)]
    assert max(times) < 0.2, times


def test_a_replica_that_flaps_by_itself_is_spaced_out() -> None:
    bench = repair(1, 2, 3, nodes=3)
    times = [lose_and_take_back(bench, 2) for _ in range(8)]
    # The process is the same each time: it is taken back later and later.
    assert times[0] < 0.2
    assert times[-1] > 5.0, times
    # A new start of it is taken back at once.
    assert lose_and_take_back(bench, 3) < 0.2


def test_a_move_waits_for_its_target() -> None:
    bench = repair(1, 2, 3)
    bench.dead = {4}
    assert not isinstance(bench.do(commands.MoveReplica(1, 3, 4)), Refused)
    assert bench.decide(1) == []
    assert bench.repository.state.streams[1].move == (3, 4)
    # Another replica is lost and left out meanwhile: the move is not forgotten.
    bench.dead = {2, 4}
    left = bench.one()
    assert isinstance(left, Reconfigure)
    assert (set(left.replicas), left.learners) == ({1, 3}, (4,))
    bench.run_all(1, 1, 3)
    bench.dead = {2}
    bench.tell(4, 1, 1, epoch=2, state=ReplicaState.LEARNING)
    joined = bench.one(1)
    assert isinstance(joined, Reconfigure)
    assert set(joined.replicas) >= {1, 4}
    bench.run_all(1, *joined.replicas)
    bench.dead = set()
    bench.idle(2)
    stream = bench.repository.state.streams[1]
    for _ in range(8):
        for command in bench.decide(5):
            bench.do(command)
        bench.run_all(1, *stream.replicas)
        for node in stream.learners:
            bench.tell(node, 1, 1, epoch=stream.epoch, state=ReplicaState.LEARNING)
    assert stream.move is None
    assert set(stream.replicas) == {1, 2, 4}


def test_a_move_to_a_node_that_is_gone_for_good_is_given_up() -> None:
    bench = repair(1, 2, 3)
    bench.do(commands.MoveReplica(1, 3, 4))
    bench.dead = {4}
    bench.do(commands.DrainNode(4))
    assert bench.one(1) == DropLearner(1, 4)
    assert bench.repository.state.streams[1].move is None


def test_a_target_that_is_down_does_not_count_as_a_learner() -> None:
    bench = repair(1, 2, 3, fewest=2, nodes=5)
    bench.do(commands.MoveReplica(1, 3, 4))
    bench.dead = {2, 3, 4}
    assert bench.one(1) == AddLearner(1, 5)


def test_replicas_that_are_all_damaged_are_told_with_the_cure() -> None:
    bench = repair(1, 2, fewest=2, nodes=2)
    for node in (1, 2):
        bench.tell(node, 1, 1, damaged=True)
    assert bench.decide(1) == []
    _, why = bench.controller.lacking(1, bench.now)
    assert "the replica on node 1 is damaged, the replica on node 2 is damaged" in why
    assert "add a node that copies the intact records" in why
    [told] = bench.controller.take_events()
    assert (told.name, told.warning) == ("stream_degraded", True)
