"""The nemesis breaks what its storm names, within bounds, and puts it all right."""

import asyncio
from random import Random

import pytest
from sim.disk import MemoryDisk
from sim.faults import FAULTS, STORMS, Nemesis, Storm
from sim.frames import FrameFaults
from sim.world import Life, World

NODES = ["n1", "n2", "n3", "n4", "n5"]


async def node(life: Life) -> None:
    async def handler(r: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        await r.read()
        w.close()

    server = await asyncio.start_server(handler, None, 7400)
    await server.serve_forever()


def start(world: World) -> None:
    for name in NODES:
        world.start(name, node, disk=MemoryDisk(Random(name)))


def broken(world: World) -> list[str]:
    """Say all that is not as it should be."""
    hosts = world.network.hosts.values()
    found = [f"{n.name} down" for n in world.nodes.values() if not n.alive or n.paused]
    found += [f"{n.name} drifts" for n in world.nodes.values() if n.rate != 1.0]
    found += [f"{host.name} refuses" for host in hosts if host.refusing or not host.up]
    found += [
        f"{one.name} cut from {other.name}"
        for one in hosts
        for other in hosts
        if world.network.blocked(one, other)
    ]
    for each in world.nodes.values():
        disk = each.disk
        assert isinstance(disk, MemoryDisk)
        if disk._slow or disk._failing or disk._full:
            found.append(f"disk of {each.name}")
    found += [f"{name} is deaf" for name in world.network.deaf]
    if world.network.frame_faults != FrameFaults():
        found.append("frames")
    return found


@pytest.mark.parametrize("kind", sorted(FAULTS))
def test_each_fault_happens_and_is_put_right(kind: str) -> None:
    with World(11) as world:
        start(world)
        storm = Storm(
            "one",
            {kind: 1},
            seconds=20,
            every_s=0.5,
            lasts_s=(1, 2),
            unheard=frozenset({38}),
        )
        during: list[str] = []

        def rot(_: Random) -> bool:
            during.append("rot")
            return len(during) % 2 == 0

        groups = [["n2", "n3"]]
        nemesis = Nemesis(world, NODES, storm, ["c"], lambda: groups, rot)

        async def main() -> None:
            task = asyncio.create_task(nemesis.run())
            while not task.done():
                during.extend(broken(world))
                await asyncio.sleep(0.1)
            await task

        world.run(main())
        assert nemesis.applied[kind] > 5
        assert during or kind in ("reset", "half-open")
        assert broken(world) == []
        assert world.calm.is_set()
        world.run(asyncio.sleep(60))
        assert broken(world) == []


def test_a_minority_is_down_at_a_time() -> None:
    storm = Storm("down", {"crash": 1, "power": 1, "pause": 1}, every_s=0.1)
    down: set[int] = set()
    with World(12) as world:
        start(world)
        nemesis = Nemesis(world, NODES, storm)

        async def main() -> None:
            task = asyncio.create_task(nemesis.run())
            while not task.done():
                down.add(len(NODES) - len(nemesis.living()))
                await asyncio.sleep(0.01)
            await task

        world.run(main())
    assert down == {0, 1, 2}


def test_an_outage_of_nodes_that_came_later_ends_with_the_storm() -> None:
    storm = Storm("outages", {"outage": 1}, every_s=1.0, lasts_s=(60, 60))
    with World(14) as world:
        start(world)
        # The nemesis breaks two of them by itself; the streams have moved to all.
        nemesis = Nemesis(world, NODES[:2], storm, groups=lambda: [NODES[2:]])
        world.run(nemesis.run())
        assert nemesis.applied["outage"]
        assert broken(world) == []


def test_storms_name_faults_that_exist() -> None:
    for storm in STORMS.values():
        assert set(storm.weights) <= set(FAULTS)
    assert set(STORMS["all"].weights) == set(FAULTS) - {"rot"}


def test_a_storm_is_drawn_from_the_seed() -> None:
    def events(seed: int) -> list[str]:
        with World(seed) as world:
            start(world)
            world.run(Nemesis(world, NODES, STORMS["all"], ["c"]).run())
            return world.trace.tail()

    assert events(1) == events(1)
    assert events(1) != events(2)


def test_an_outage_takes_a_whole_group_at_once() -> None:
    storm = Storm("outages", {"outage": 1}, every_s=1.0)
    down: set[frozenset[str]] = set()
    groups = [["n1", "n4", "n5"], ["n2", "n3"]]
    with World(13) as world:
        start(world)
        nemesis = Nemesis(world, NODES, storm, groups=lambda: groups)

        async def main() -> None:
            task = asyncio.create_task(nemesis.run())
            while not task.done() and len(down) < 3:
                down.add(frozenset(NODES) - set(nemesis.living()))
                await asyncio.sleep(0.01)
            task.cancel()

        world.run(main())
    assert down >= {frozenset(), frozenset(groups[0]), frozenset(groups[1])}
