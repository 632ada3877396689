"""What who begins with TLS meets in the simulated network."""

import asyncio
import ssl

import pytest
from sim.tls import HANDSHAKE_TIMEOUT_S
from sim.world import World

from braidlog.client.listeners import NO_TLS
from simulated import PORT, Handler, client, ignore, serve


async def shaken(host: str, port: int) -> str:
    """Begin a handshake of TLS; return how it ended."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    loop = asyncio.get_running_loop()
    try:
        await loop.create_connection(asyncio.Protocol, host, port, ssl=context)
    except ssl.SSLError as error:
        return "no TLS" if error.reason in NO_TLS else str(error)
    except OSError as error:
        return type(error).__name__
    return "connected"


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(3)
    writer.write(b"\x08\0\0\0 no frame of TLS")
    writer.close()


async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(1 << 16)
    writer.close()


async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readexactly(3)
    writer.transport.abort()


@pytest.mark.parametrize(
    ("handler", "end"),
    [
        (answer, "no TLS"),
        (hang_up, "ConnectionResetError"),
        (reset, "ConnectionResetError"),
    ],
)
def test_who_begins_with_tls_learns_what_a_real_network_says(
    world: World, handler: Handler, end: str
) -> None:
    async def real() -> str:
        server = await asyncio.start_server(handler, "127.0.0.1", 0)
        async with server:
            return await shaken(*server.sockets[0].getsockname())

    serve(world, "s", handler)
    assert client(world, lambda: shaken("s", PORT)) == end == asyncio.run(real())


def test_a_handshake_that_nobody_answers_is_given_up(world: World) -> None:
    serve(world, "s", ignore)
    begun = world.now
    end = client(world, lambda: shaken("s", PORT))
    assert end == "ConnectionAbortedError"
    assert world.now - begun >= HANDSHAKE_TIMEOUT_S


def test_a_handshake_is_not_waited_for_in_vain(world: World) -> None:
    serve(world, "s", ignore)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await shaken("s", PORT)

    client(world, main)
    assert world.network.between("c", "s") == []
