"""Who should belong to a shard, case by case."""

from __future__ import annotations

import pytest

from braidlog.errors import FencedError, InvalidArgumentError
from braidlog.metarepo.leader.shard_repair import ShardRepair
from braidlog.metarepo.machine.state import ShardPlace
from braidlog.wire import commands
from braidlog.wire.commands import (
    AlterLog,
    DropLearner,
    MoveReplica,
    PlaceShard,
    ReportShards,
    ShardNews,
)
from braidlog.wire.members import generation_of, member_of, node_of, nodes_of
from braidlog.wire.messages import LogKind
from braidlog.wire.results import Done, Refused, Trimmed
from unit.metarepo.bench import LOG, Bench

PATIENCE = 30.0


class Shard(Bench):
    """A bench with one shard, whose leader does what it should and says so."""

    def __init__(self, *members: int, nodes: int = 5) -> None:
        super().__init__(nodes)
        made = commands.CreateLog(
            LOG,
            "log",
            1,
            len(members),
            1,
            placement=(members,),
            kind=LogKind.SHARD,
        )
        assert not isinstance(self.do(made), Refused)
        self.repair = ShardRepair(PATIENCE)
        self.now = 0.0
        self.dead: set[int] = set()
        self.epoch = 0
        self.say()

    @property
    def place(self) -> ShardPlace:
        return self.repository.state.shards[1]

    def decide(self, wait: float = 0.0) -> list[PlaceShard]:
        self.now += wait
        return self.repair.decide(
            self.repository.state, self.dead.__contains__, self.now
        )

    def one(self, wait: float = 0.0) -> PlaceShard:
        (command,) = self.decide(wait)
        assert self.do(command) == Done()
        return command

    def say(self, *, voters: tuple[int, ...] = (), plan: int | None = None) -> None:
        """Have the leader say that the group is as it was decided."""
        place = self.place
        self.epoch += 1
        told = place.plan if plan is None else plan
        news = ShardNews(1, 1, 1)
        if told:
            news = ShardNews(
                1,
                1,
                1,
                told,
                place.wanted,
                self.epoch,
                voters or place.wanted,
                (),
                max(map(generation_of, place.kept)),
            )
        assert self.do(ReportShards(node_of(place.voters[0]), (news,))) == Done()

    def on(self) -> set[int]:
        return {*nodes_of(self.place.wanted)}


def test_nothing_to_do_is_nothing_done() -> None:
    shard = Shard(1, 2, 3)
    assert shard.decide() == []
    assert shard.repair.calm


def test_a_dead_member_is_replaced_after_a_while_and_not_before() -> None:
    shard = Shard(1, 2, 3)
    shard.dead = {3}
    assert shard.decide() == []
    assert not shard.repair.calm
    assert shard.decide(PATIENCE - 1) == []
    made = shard.one(1)
    assert (made.drop, len(made.add)) == ((3,), 1)
    # It is there until the group says that it is not.
    assert 3 in shard.place.kept
    assert shard.decide(1) == []
    shard.say(voters=(1, 2, 3))
    assert 3 in shard.place.kept
    shard.say()
    assert 3 not in shard.place.kept
    assert shard.decide(1) == []


def test_a_node_that_is_back_in_time_stays() -> None:
    shard = Shard(1, 2, 3)
    shard.dead = {3}
    shard.decide()
    shard.dead = set()
    assert shard.decide(PATIENCE + 1) == []
    shard.dead = {3}
    assert shard.decide(1) == []


def test_a_drained_member_goes_at_once_and_only_if_another_can_come() -> None:
    shard = Shard(1, 2, 3)
    shard.do(commands.DrainNode(2))
    assert shard.one().drop == (2,)
    alone = Shard(1, 2, 3, nodes=3)
    alone.do(commands.DrainNode(2))
    assert alone.decide(100) == []
    assert alone.repair.lacking(1, alone.now)[1]


def test_a_lost_directory_gets_its_member_anew_where_nobody_else_can() -> None:
    shard = Shard(1, 2, 3, nodes=3)
    shard.do(commands.RegisterNode(3, "host:3", 2, b"i" * 16))
    assert shard.do(commands.ReadmitNode(3)) == Done()
    assert shard.decide(100) == []
    assert shard.do(commands.AdmitNode(3)) == Done()
    made = shard.one()
    assert (made.add, made.drop) == ((3,), (3,))
    assert set(shard.place.wanted) == {1, 2, member_of(3, 1)}
    shard.say()
    assert set(shard.place.kept) == {1, 2, member_of(3, 1)}
    assert shard.place.lost == ()


def test_who_was_to_come_and_cannot_is_replaced_by_who_was_to_leave() -> None:
    shard = Shard(1, 2, 3, nodes=4)
    assert shard.do(MoveReplica(1, 3, 4)) == Done()
    shard.say(voters=(1, 2, 3))
    shard.dead = {4}
    assert shard.decide() == []
    made = shard.one(PATIENCE)
    assert made.add == (3,)
    assert set(shard.place.wanted) == {1, 2, 3}


def test_more_and_fewer_members_are_what_the_log_asks_for() -> None:
    shard = Shard(1, 2, 3)
    shard.do(AlterLog(LOG, replication=5))
    assert len(shard.one().add) == 2
    shard.say()
    shard.do(AlterLog(LOG, replication=2))
    made = shard.one()
    assert len(made.drop) == 3
    assert 1 not in made.drop, "the leader goes last"
    shard.say()
    assert len(shard.place.kept) == 2


def test_nobody_decides_on_what_was_changed_meanwhile() -> None:
    shard = Shard(1, 2, 3)
    assert shard.do(MoveReplica(1, 3, 4, 0)) == Done()
    late = shard.refused(PlaceShard(1, 0, add=(5,)))
    assert late.code == FencedError.code
    assert shard.refused(MoveReplica(1, 2, 5, 0)).code == FencedError.code


@pytest.mark.parametrize(
    "command",
    [
        MoveReplica(1, 4, 5),
        MoveReplica(1, 3, 2),
        PlaceShard(1, 0, drop=(1, 2, 3)),
        PlaceShard(1, 0, drop=(4,)),
        PlaceShard(1, 0, add=(1,)),
        PlaceShard(1, 0, add=(4, 4)),
        DropLearner(1, 3),
        commands.AddLearner(1, 4),
        commands.Seal(1),
    ],
)
def test_what_cannot_be_is_refused(command: commands.Command) -> None:
    shard = Shard(1, 2, 3)
    assert shard.refused(command).code == InvalidArgumentError.code


def test_a_move_is_given_up_as_long_as_nobody_has_left() -> None:
    shard = Shard(1, 2, 3)
    assert shard.do(MoveReplica(1, 3, 4)) == Done()
    assert shard.do(MoveReplica(1, 3, 4)) == Done()
    assert shard.on() == {1, 2, 4}
    assert shard.do(DropLearner(1, 4)) == Done()
    assert set(shard.place.wanted) == {1, 2, 3}
    # Its leader knows better: it had left before the group heard of it.
    gone = ShardNews(1, 1, 1, 2, (1, 2), 9, (1, 2, member_of(4, 1)), (), 1)
    assert shard.do(ReportShards(1, (gone,))) == Done()
    assert (shard.place.plan, shard.place.wanted) == (3, (1, 2))
    assert not shard.place.settled
    shard.epoch = 9
    shard.say()
    assert len(shard.one().add) == 1


def test_a_leader_that_knows_of_a_later_plan_is_believed() -> None:
    shard = Shard(1, 2, 3)
    later = ShardNews(1, 2, 1, 7, (1, 2, member_of(5, 4)), 9, (1, 2, 3), (), 4)
    assert shard.do(ReportShards(1, (later,))) == Done()
    assert shard.place.plan == 7
    assert shard.place.generation == 4
    assert set(shard.place.kept) == {1, 2, 3, member_of(5, 4)}


def test_a_node_with_a_member_is_not_removed() -> None:
    shard = Shard(1, 2, 3)
    assert shard.refused(commands.RemoveNode(3)).code == InvalidArgumentError.code
    shard.do(MoveReplica(1, 3, 4))
    assert shard.refused(commands.RemoveNode(3)).code == InvalidArgumentError.code
    shard.say()
    assert shard.do(commands.RemoveNode(3)) == Done()


def test_what_a_shard_lacks_is_told_once() -> None:
    shard = Shard(1, 2, 3)
    shard.dead = {2, 3}
    shard.decide()
    (event,) = shard.repair.take_events()
    assert event.name == "stream_unavailable"
    shard.decide(1)
    assert shard.repair.take_events() == []
    assert shard.repair.lacking(1, shard.now)[0] == 1
    shard.dead = set()
    shard.decide(1)
    (event,) = shard.repair.take_events()
    assert event.name == "stream_whole"


def test_retention_lets_go_of_what_the_leader_says() -> None:
    shard = Shard(1, 2, 3)
    assert shard.do(ReportShards(1, (ShardNews(1, 1, 101),))) == Done()
    sizes = ((1, 1000), (40, 600), (80, 200))
    assert shard.do(commands.Retain(1, b"", 20)) == Trimmed(20)
    assert shard.do(commands.Retain(1, b"other", 90)) == Trimmed(20)
    assert shard.do(commands.Retain(1, b"", 0, 500, sizes)) == Trimmed(40)
    assert shard.do(commands.Retain(1, b"", 1000)) == Trimmed(101)


def test_a_damaged_member_is_replaced_by_another_node_or_begins_anew() -> None:
    shard = Shard(1, 2, 3)
    said = ReportShards(3, (), ((1, 3), (1, 2), (9, 3)))
    assert shard.do(said) == Done()
    # Nobody speaks for members of other nodes.
    assert list(shard.place.damaged) == [3]
    made = shard.one()
    assert made.drop == (3,)
    assert made.add[0] in (4, 5)
    shard.say()
    assert not shard.place.damaged
    alone = Shard(1, 2, 3, nodes=3)
    alone.do(said)
    made = alone.one()
    assert (made.add, made.drop) == ((3,), (3,))
    assert set(alone.place.kept) == {1, 2, 3, member_of(3, 1)}
    alone.say()
    assert set(alone.place.kept) == {1, 2, member_of(3, 1)}


def test_the_only_member_is_kept_damaged_or_not() -> None:
    shard = Shard(1)
    shard.do(ReportShards(1, (), ((1, 1),)))
    assert shard.decide(100) == []
    assert "damaged" in shard.repair.lacking(1, shard.now)[1]
