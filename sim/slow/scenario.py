"""A cluster under steady load whose disks become slow by a plan, and the judgement."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from braidlog.errors import LogError
from sim.cluster.clients import opened
from sim.cluster.disk import ClusterDisk
from sim.cluster.node import name_of
from sim.cluster.scenario import ClusterScenario
from sim.cluster.shape import Shape
from sim.errors import ViolationError
from sim.faults import Storm
from sim.slow.plans import PLANS, Plan
from sim.world import Life, World

if TYPE_CHECKING:
    from braidlog.client.log import AsyncClusterLog
    from braidlog.metarepo.machine.state import State, StreamState

__all__ = ["Feeder", "SlowScenario", "feeders"]

_LOG = "log"
_WARM_S = 5.0
_PAUSE_S = 0.1
_LOOK_S = 0.05
# After so long appends have to be as fast as before, but for this factor.
_RECOVERY_S = 5.0
_SLOWER_MAX = 1.5
_SPAN_S = 2.0
_KEYS_MAX = 1000


@dataclass(slots=True)
class Feeder:
    """Appends to one stream, one record after the other."""

    stream: int
    key: bytes
    pause_s: float
    # When each append began and ended.
    times: list[tuple[float, float]] = field(default_factory=list)

    async def run(self, world: World, log: AsyncClusterLog) -> None:
        """Append for ever."""
        while True:
            begun = world.now
            await log.append(b"x" * 64, key=self.key)
            self.times.append((begun, world.now))
            await asyncio.sleep(self.pause_s)


def feeders(log: AsyncClusterLog, pause_s: float) -> Iterator[Feeder]:
    """Return one for each stream, with a key that goes there."""
    routes = log._cluster.routes
    found: set[int] = set()
    for number in range(_KEYS_MAX):
        key = b"key-%d" % number
        stream = routes.stream_of(bytes.fromhex(log.id), key)
        if stream not in found:
            found.add(stream)
            yield Feeder(stream, key, pause_s)


class Sightings:
    """What the metadata says while the plan runs: who leaves which stream."""

    def __init__(self) -> None:
        """Have seen nothing."""
        self.left: dict[tuple[int, int], int] = {}
        self._before: dict[int, tuple[int, ...]] = {}

    def look(self, state: State, slow: frozenset[int]) -> None:
        """Compare with the look before.

        Raises:
            ViolationError: a stream has too few replicas, or too many nodes are slow.
        """
        for stream in state.streams.values():
            self._look(state, stream)
        if slow and 2 * len(slow) >= len(state.nodes):
            raise ViolationError(f"nodes {sorted(slow)} of {len(state.nodes)} are slow")

    def _look(self, state: State, stream: StreamState) -> None:
        fewest = state.logs[stream.log].min_replicas
        if len(stream.replicas) < fewest:
            raise ViolationError(f"stream {stream.stream} has {stream.replicas}")
        before = self._before.get(stream.stream, ())
        for node in {*before} - {*stream.replicas}:
            key = node, stream.stream
            self.left[key] = self.left.get(key, 0) + 1
        self._before[stream.stream] = stream.replicas


class SlowScenario(ClusterScenario):
    """See the module."""

    pause_s = _PAUSE_S

    def build(self, world: World, storm: Storm) -> None:
        """Start the nodes."""
        super().build(world, storm)
        random = world.random("plan")
        self._plan = self._planned(storm.name, random)
        world.note("world", f"{self._plan}")
        self._sightings = Sightings()
        self._feeders: list[Feeder] = []

    def _planned(self, storm: str, random: Random) -> Plan:
        return PLANS[storm](random, self._shape.nodes)

    def _draw(self, random: Random) -> Shape:
        many = random.random() < 0.3
        nodes = (1, 2, 3, 4, 5) if many else (1, 2, 3)
        return Shape(
            nodes=nodes,
            voters=nodes if random.random() < 0.5 else (1, 2, 3),
            streams=3 if many else 2,
            replication=3,
            min_replicas=random.choice([1, 2, 2]),
            clients=1,
            apart=False,
        )

    async def workload(self, world: World) -> None:
        """Load the cluster, follow the plan, judge."""
        done = self._run(world, "c1", self._feed)
        looking = asyncio.create_task(self._watch_it(world))
        waiting = asyncio.create_task(done.wait())
        await asyncio.wait({looking, waiting}, return_when=asyncio.FIRST_COMPLETED)
        looking.cancel()
        if looking.done() and not looking.cancelled():
            looking.result()
        await waiting

    async def _watch_it(self, world: World) -> None:
        while True:
            self.watch.look()
            state = self.watch.state()
            if state is not None:
                self._sightings.look(state, self._slow())
            await asyncio.sleep(_LOOK_S)

    def _slow(self) -> frozenset[int]:
        """Return the nodes that the leader takes for slow."""
        for live in self.watch.living():
            member = live.node.member
            if member is not None and member.leads and member.group.leadership:
                return member.group.leadership.slow_nodes.slow
        return frozenset()

    def _leads(self) -> int:
        led = (live.node.leader for live in self.watch.living())
        return max(led, default=0)

    async def _feed(self, life: Life) -> None:
        world = life.world
        async with opened(life, self.shared) as client:
            await self._created(client)
            log = await client.log(_LOG)
            await log.append(b"first")
            self._feeders = list(feeders(log, self.pause_s))
            tasks = [
                asyncio.create_task(each.run(world, log)) for each in self._feeders
            ]
            steps = asyncio.create_task(self._follow(world))
            await asyncio.wait({*tasks, steps}, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            steps.result()

    async def _created(self, client: object) -> None:
        shape = self._shape
        while True:
            try:
                nodes = await client.nodes()  # type: ignore[attr-defined]
                if sum(node.alive for node in nodes) == len(shape.nodes):
                    await client.create_log(  # type: ignore[attr-defined]
                        _LOG,
                        exist_ok=True,
                        streams=shape.streams,
                        replication=shape.replication,
                        min_replicas=shape.min_replicas,
                    )
                    return
            except LogError as error:
                self.shared.failed("c1", error)
            await asyncio.sleep(0.2)

    # The plan.

    async def _follow(self, world: World) -> None:
        await asyncio.sleep(_WARM_S)
        begun = world.now
        before = self._placed()
        if self._sightings.left or self._slow():
            raise ViolationError(f"replicas left before: {self._sightings.left}")
        for seconds, delay in self._plan.phases:
            self._delay(world, delay)
            if self._plan.recovers:
                await self._recovered(world, seconds)
            else:
                await asyncio.sleep(seconds)
        self._delay(world, 0.0)
        self._check_left(before)
        await self._whole(world, world.now)
        self._check_times(begun)

    def _placed(self) -> dict[int, tuple[int, ...]]:
        state = self.watch.state()
        assert state is not None
        return {each.stream: each.replicas for each in state.streams.values()}

    def _delay(self, world: World, delay: float) -> None:
        for node in self._plan.nodes:
            world.note("world", f"syncs of node {node} take {delay} s longer")
            disk = world.nodes[name_of(node)].disk
            assert isinstance(disk, ClusterDisk)
            disk.delay(delay)

    async def _recovered(self, world: World, seconds: float) -> None:
        """Wait, and see that a slow node is out in time and stays there."""
        end = world.now + seconds
        await asyncio.sleep(_RECOVERY_S)
        while world.now < end:
            for node in self._plan.nodes:
                placed = [s for s, there in self._placed().items() if node in there]
                if placed or self._leads() == node:
                    raise ViolationError(
                        f"slow node {node} is in streams {placed}, the leader is"
                        f" {self._leads()}, slow are {sorted(self._slow())}"
                    )
            await asyncio.sleep(_LOOK_S)

    def _check_left(self, before: dict[int, tuple[int, ...]]) -> None:
        plan, left = self._plan, self._sightings.left
        for (node, stream), count in left.items():
            most = plan.leaves_max if node in plan.nodes else 0
            if count > most:
                raise ViolationError(f"node {node} left stream {stream} {count} times")
        for node in plan.nodes if plan.leaves_min else ():
            for stream, there in before.items():
                count = left.get((node, stream), 0)
                if node in there and count < plan.leaves_min:
                    raise ViolationError(f"node {node} never left stream {stream}")

    async def _whole(self, world: World, since: float) -> None:
        """Wait until all streams have all their replicas and nobody is slow.

        Raises:
            ViolationError: that takes too long.
        """
        while True:
            state = self.watch.state()
            assert state is not None
            lacks = [
                (each.stream, each.replicas, each.learners)
                for each in state.streams.values()
                if len(each.replicas) < self._shape.replication or each.learners
            ]
            if not lacks and not self._slow():
                return
            if world.now - since > self._plan.rest_s:
                raise ViolationError(
                    f"after {self._plan.rest_s} s {sorted(self._slow())} are slow,"
                    f" and streams lack replicas: {lacks}"
                )
            await asyncio.sleep(_LOOK_S)

    def _check_times(self, begun: float) -> None:
        """Compare how long appends took with how long they took before."""
        if not self._plan.recovers:
            return
        usual = self._median(begun - _WARM_S / 2, begun)
        end = begun + self._plan.phases[0][0]
        at = begun + _RECOVERY_S
        while at + _SPAN_S <= end:
            took = self._median(at, at + _SPAN_S)
            if took > _SLOWER_MAX * usual:
                raise ViolationError(
                    f"appends take {took * 1e3:.1f} ms {at - begun:.0f} s after a disk"
                    f" became slow, {usual * 1e3:.1f} ms before"
                )
            at += _SPAN_S

    def _median(self, begin: float, end: float) -> float:
        took = [
            ended - begun
            for feeder in self._feeders
            for begun, ended in feeder.times
            if begin <= begun < end
        ]
        if not took:
            raise ViolationError(f"no append between {begin} and {end}")
        return statistics.median(took)
