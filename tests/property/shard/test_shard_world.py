"""Random histories of a shard, against what every client was told."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from braidlog.errors import FencedError, InvalidArgumentError, LogError
from braidlog.shard.member import Ended, Granted, Placed
from braidlog.shard.stamps import STAMP_END, Stamped
from braidlog.wire.commands import MoveReplica, PlaceShard
from braidlog.wire.members import node_of, nodes_of
from property.shard.shard_world import World, batch, read_all


class Client:
    """One producer: sends one batch at a time, again until it is known."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.sequence = 1
        self.sent: tuple[int, bytes, int] | None = None
        self.repeat = False
        self.placed: dict[bytes, int] = {}
        self.lows: dict[int, int] = {}

    def act(self) -> None:
        world = self.world
        if self.sent is not None:
            request, value, low = self.sent
            answer = world.answers.get(request)
            if answer is None and world.chance.random() < 0.98:
                return
            if isinstance(answer, Placed):
                assert answer.position >= low, "a position that was given before"
                self.placed[value] = answer.position
                self.sent, self.repeat = None, False
                self.sequence += 1
                return
            self.repeat = self.repeat or answer is None or _unknown(answer)
        else:
            value = f"{self.number}:{self.sequence}".encode()
        member = world.chance.choice([*world.members.values()] or [None])
        if member is None:
            return
        request = world.request()
        # Whatever was answered before this is asked has a lower position.
        low = max((p for c in CLIENTS for p in c.placed.values()), default=0) + 1
        low = self.sent[2] if self.sent is not None else low
        self.sent = request, value, low
        data = batch([value], self.number, self.sequence)
        member.append([(request, data)], repeat=self.repeat)


CLIENTS: list[Client] = []


def _unknown(answer: object) -> bool:
    return isinstance(answer, LogError) and answer.outcome == "unknown"


def check_stamps(world: World, asked: list[tuple[int, int, int]]) -> None:
    """Check (request, count, all that was given before it was asked)."""
    given: list[tuple[int, int]] = []
    for request, count, low in asked:
        answer = world.answers.get(request)
        if isinstance(answer, Stamped):
            assert answer.first >= low, "a timestamp that is less than an earlier one"
            given.append((answer.first, answer.first + count))
    given.sort()
    for (_, end), (first, _) in pairwise(given):
        assert end <= first, "a timestamp was given twice"
    assert given


def comes_to_rest(world: World) -> bool:
    """Tell whether the group becomes what it should be."""
    for _ in range(8):
        place = world.place
        if {*place.voters} == {*place.wanted} == {*place.kept} == {*world.disks}:
            return True
        world.settle(1500)
    return False


def change_members(world: World, chance: random.Random) -> None:
    """Decide that somebody comes or goes."""
    place = world.place
    wanted, kept = nodes_of(place.wanted), nodes_of(place.kept)
    free = [node for node in world.repository.nodes if node not in kept]
    # Who is about to leave may stay after all.
    free += [node_of(each) for each in place.voters if each not in place.wanted]
    kind = chance.random()
    command: MoveReplica | PlaceShard
    if kind < 0.6 and free:
        command = MoveReplica(1, chance.choice(wanted), chance.choice(free))
    elif kind < 0.8 and free:
        command = PlaceShard(1, place.plan, add=(chance.choice(free),))
    elif len(wanted) > 1:
        command = PlaceShard(1, place.plan, drop=(chance.choice(place.wanted),))
    else:
        return
    world.plan(command)


def history(seed: int, steps: int, size: int = 3, *, changes: bool = False) -> World:
    world = World(seed, size, fold_pause=0.2, fold_bytes=200, checkpoint_bytes=900)
    CLIENTS[:] = [Client(world, number) for number in range(1, 5)]
    chance = random.Random(seed + 1)
    ends: list[tuple[int, int]] = []
    stamps: list[tuple[int, int, int]] = []
    for _ in range(steps):
        world.step(lossy=True)
        CLIENTS[chance.randrange(4)].act()
        kind = chance.random()
        if changes and chance.random() < 0.03:
            world.administer()
            if chance.random() < 0.15:
                change_members(world, chance)
        if kind < 0.002 and len(world.members) > 1:
            world.crash(chance.choice(list(world.members)))
        elif kind < 0.01:
            for node in world.disks:
                if node not in world.members:
                    world.start(node)
        elif kind < 0.012:
            world.cut_off = {chance.choice(list(world.disks))}
        elif kind < 0.02:
            world.cut_off = set()
        elif kind < 0.022:
            world.slow = {chance.choice(list(world.disks))}
        elif kind < 0.024 and world.members:
            member = chance.choice(list(world.members.values()))
            member.truncate(member.state.next // 2)
        elif kind < 0.05 and world.members:
            told = max((p for c in CLIENTS for p in c.placed.values()), default=0)
            request = world.request()
            ends.append((request, told))
            chance.choice(list(world.members.values())).find_end(request)
        elif kind < 0.09 and world.members:
            latest = max(
                (
                    answer.first + count
                    for request, count, _ in stamps
                    if isinstance(answer := world.answers.get(request), Stamped)
                ),
                default=0,
            )
            request, count = world.request(), chance.choice([1, 10, 1_000_000])
            stamps.append((request, count, latest))
            floor = chance.choice([0, int(world.now * 1e6)])
            chance.choice(list(world.members.values())).timestamps(
                request, count, floor
            )
    world.settle()
    check_stamps(world, stamps)
    for request, told in ends:
        answer = world.answers.get(request)
        if isinstance(answer, Ended):
            assert answer.next > told, "a read that does not see what was acknowledged"
    return world


def check(world: World) -> None:
    logs = {}
    for node, member in world.members.items():
        found = read_all(member, world.disks[node])
        first = member.state.first
        assert [p for p, _ in found] == list(range(first, member.state.next))
        logs[node] = dict(found)
    whole: dict[int, bytes] = {}
    for log in logs.values():
        assert all(whole.get(each, value) == value for each, value in log.items())
        whole |= log
    values = [whole[position] for position in sorted(whole)]
    assert len(values) == len(set(values)), "a record is there twice"
    first = max(member.state.first for member in world.members.values())
    for client in CLIENTS:
        for value, position in client.placed.items():
            if position >= first:
                assert whole[position] == value, "an acknowledged record is lost"
        mine = [v for v in values if v.startswith(b"%d:" % client.number)]
        numbers = [int(v.split(b":")[1]) for v in mine]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("seed", range(12))
def test_every_acknowledged_record_is_there_once(seed: int) -> None:
    world = history(seed, 6000)
    check(world)
    assert sum(len(client.placed) for client in CLIENTS) > 20


@pytest.mark.parametrize("seed", range(12))
def test_no_record_is_lost_while_members_change(seed: int) -> None:
    world = history(seed, 6000, changes=True)
    check(world)
    assert sum(len(client.placed) for client in CLIENTS) > 20
    assert world.place.plan > 3
    assert comes_to_rest(world), (
        f"its members are not what they should be: {world.place}"
    )


def test_all_killed_at_once_and_every_record_is_there() -> None:
    world = history(77, 3000, 5)
    for node in list(world.members):
        world.crash(node)
    world.settle()
    check(world)


def test_of_two_writers_the_earlier_is_fenced_for_good() -> None:
    world = World(5)
    world.until(lambda: world.leader() is not None)
    leader = world.leader()
    assert leader is not None
    first, second, third = world.request(), world.request(), world.request()
    leader.acquire(first, "one")
    world.until(lambda: first in world.answers)
    granted = world.answers[first]
    assert isinstance(granted, Granted)
    leader.acquire(second, "two")
    leader.acquire(third, "two", expected=granted.epoch)
    world.until(lambda: third in world.answers)
    assert isinstance(world.answers[second], FencedError)
    later = world.answers[third]
    assert isinstance(later, Granted)
    assert later.epoch > granted.epoch
    old, new, none = world.request(), world.request(), world.request()
    leader.append([(old, batch([b"old"]))], writer=granted.epoch)
    leader.append([(new, batch([b"new"]))], writer=later.epoch)
    leader.append([(none, batch([b"none"]))])
    world.until(lambda: new in world.answers)
    assert isinstance(world.answers[old], FencedError)
    assert isinstance(world.answers[none], FencedError)
    assert isinstance(world.answers[new], Placed)
    world.settle()
    assert world.members[1].state.next == 2, "what was refused took a position"


def check_a_leader_that_slept() -> None:
    """Replace a leader that does not know of it, and ask it for timestamps."""
    world = World(3)
    world.until(lambda: world.leader() is not None)
    old = world.leader()
    assert old is not None
    first, second, late = world.request(), world.request(), world.request()
    old.timestamps(first, 1)
    world.until(lambda: first in world.answers)
    number = old.raft.core.id
    del world.members[number]
    world.until(lambda: world.leader() is not None)
    new = world.leader()
    assert new is not None
    new.timestamps(second, 1)
    world.until(lambda: second in world.answers)
    one, two = world.answers[first], world.answers[second]
    assert isinstance(one, Stamped)
    assert isinstance(two, Stamped)
    assert two.first > one.first
    world.members[number] = old
    old.timestamps(late, 1)
    world.settle()
    assert not isinstance(world.answers[late], Stamped), "it gave what it may not"


def test_a_leader_that_slept_gives_no_timestamps() -> None:
    check_a_leader_that_slept()


def test_timestamps_do_not_run_over() -> None:
    world = World(4)
    world.until(lambda: world.leader() is not None)
    leader = world.leader()
    assert leader is not None
    for count, floor in ((0, 0), (-1, 0), (1 << 33, 0), (2, STAMP_END - 1)):
        request = world.request()
        leader.timestamps(request, count, floor)
        world.settle(300)
        assert isinstance(world.answers[request], InvalidArgumentError)
    request = world.request()
    leader.timestamps(request, 5, 1_000_000)
    world.until(lambda: request in world.answers)
    assert world.answers[request] == Stamped(1_000_000)
