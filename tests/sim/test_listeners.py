"""A client that looks at what listens where a node is silent knows a node again.

Whatever happens to the node, and whenever: the client has its connection, or an error
after which it tries again, and then it gets one.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import pytest
from sim.cluster.disk import ClusterDisk
from sim.cluster.node import PORT, address, config_of, name_of, run_node
from sim.world import Life, World

from braidlog.client.connection.link import Link
from braidlog.client.connection.sockets import socket_connector
from braidlog.errors import LogError

NODE: Final = name_of(1)
CONNECT_S: Final = 3.0
SILENCE_S: Final = 1.0
"""After so long the client begins to look."""


def go_on(world: World) -> None:
    world.resume(NODE)


def is_killed(world: World) -> None:
    world.crash(NODE)


def loses_power(world: World) -> None:
    world.crash(NODE, power=False)


def goes_on_and_is_killed(world: World) -> None:
    world.resume(NODE)
    world.loop.call_later(0.002, world.crash, NODE)


def goes_on_cut_off(world: World) -> None:
    world.resume(NODE)
    world.network.cut(NODE, "c")


def is_reset(world: World) -> None:
    world.network.reset(NODE, "c")


def stays_silent(world: World) -> None:
    """Leave it paused."""


async def connected() -> Link:
    async with asyncio.timeout(CONNECT_S):
        return await socket_connector()(address(1))


async def attempt() -> Exception | None:
    """Connect; return the error if that failed."""
    try:
        link = await connected()
    except (LogError, OSError) as error:
        return error
    await link.close()
    return None


def retryable(error: Exception | None) -> bool:
    return not isinstance(error, LogError) or error.retryable


async def mended(world: World) -> None:
    await asyncio.sleep(0.1)
    world.network.heal()
    if world.nodes[NODE].paused:
        world.resume(NODE)
    elif not world.nodes[NODE].alive:
        world.restart(NODE)
    await asyncio.sleep(1.0)


def look(seed: int, happens: Callable[[World], None], after_s: float) -> int:
    """Let something happen to a paused node; return how often it was connected to."""
    with World(seed) as world:
        world.network.framed_ports[PORT] = None

        async def node(life: Life) -> None:
            await run_node(life, config_of(1, [1], 1 << 20), lambda *_: None)

        async def main() -> None:
            await asyncio.sleep(1.0)
            world.pause(NODE)
            done = asyncio.Event()

            async def client(life: Life) -> None:
                error = await attempt()
                assert retryable(error), repr(error)
                await mended(world)
                assert await attempt() is None
                done.set()

            world.start("c", client)
            await asyncio.sleep(after_s)
            happens(world)
            await done.wait()

        world.start(NODE, node, disk=ClusterDisk(world.random("disk")))
        world.run(main())
        return world.network.host("c").port_next - 32768


@pytest.mark.parametrize(
    "happens",
    [
        go_on,
        is_killed,
        loses_power,
        goes_on_and_is_killed,
        goes_on_cut_off,
        is_reset,
        stays_silent,
    ],
)
def test_a_node_in_trouble_is_a_node(happens: Callable[[World], None]) -> None:
    # While they connect to look, while they wait, and around the ends of their waits.
    moments = [SILENCE_S + step * 0.0004 for step in range(-2, 18)]
    moments += [SILENCE_S + late for late in (0.3, 0.999, 1.0, 1.001, 1.5)]
    connections = [look(seed, happens, at) for seed, at in enumerate(moments)]
    # The attempt, both looks, and the attempt at the end.
    assert 4 in connections
