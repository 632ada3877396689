"""Servers and clients in a simulated world."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sim.world import Life, World

PORT = 7400


# Writers live as long as the world: one that is dropped open is a warning.
KEPT: list[asyncio.StreamWriter] = []


async def opened(
    name: str = "s",
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(name, PORT)
    KEPT.append(writer)
    return reader, writer


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def serve(world: World, name: str, handler: Handler) -> None:
    async def node(life: Life) -> None:
        server = await asyncio.start_server(handler, "0.0.0.0", PORT)
        async with server:
            await server.serve_forever()

    world.start(name, node)


async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


def client(world: World, coroutine: Callable[[], Awaitable[object]]) -> Any:
    """Run a coroutine as the node `c` and return its result."""

    async def main() -> object:
        await asyncio.sleep(0.1)
        done = world.loop.create_future()

        async def node(life: Life) -> None:
            done.set_result(await coroutine())

        world.start("c", node)
        return await done

    return world.run(main())
