"""Connections of the simulated network, whole and broken."""

import asyncio
import contextlib
import socket
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from sim.errors import MisuseError
from sim.network import LinkSettings
from sim.world import Life, World

PORT = 7400


# Writers live as long as the world: one that is dropped open is a warning.
KEPT: list[asyncio.StreamWriter] = []


@pytest.fixture
def world() -> Iterator[World]:
    with World(7) as world:
        yield world
    KEPT.clear()


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


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1000):
            writer.write(data)
            await writer.drain()
    writer.close()


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


def test_bytes_arrive_whole_and_in_order(world: World) -> None:
    serve(world, "s", echo)
    sent = bytes(range(256)) * 4000

    async def main() -> bytes:
        reader, writer = await opened()

        async def write() -> None:
            for at in range(0, len(sent), 7001):
                writer.write(sent[at : at + 7001])
                await writer.drain()
            writer.write_eof()

        task = asyncio.create_task(write())
        data = await reader.read()
        await task
        writer.close()
        return data

    assert client(world, main) == sent
    assert world.now > len(sent) / 100e6


def test_a_writer_is_stopped_by_a_reader_that_does_not_read(world: World) -> None:
    serve(world, "s", ignore)

    async def main() -> tuple[int, int]:
        _, writer = await opened()
        transport: Any = writer.transport
        transport.set_write_buffer_limits(high=1000, low=10)
        written = 0
        with pytest.raises(TimeoutError):  # noqa: PT012
            async with asyncio.timeout(60):
                while True:
                    writer.write(b"x" * 10_000)
                    written += 10_000
                    await writer.drain()
        transport.abort()
        return written, transport.get_write_buffer_size()

    written, rest = client(world, main)
    assert (300_000 < written < 800_000, rest) == (True, 0)


def test_stopping_to_read_stops_the_other_side_till_reading_goes_on(
    world: World,
) -> None:
    received: list[int] = []

    class Slow(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.pause_reading()
            assert not transport.is_reading()
            asyncio.get_running_loop().call_later(5, transport.resume_reading)

        def data_received(self, data: bytes) -> None:
            received.append(len(data))

    async def node(life: Life) -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(Slow, None, PORT)
        await server.serve_forever()

    world.start("s", node)

    async def main() -> float:
        begin = world.now
        _, writer = await opened()
        writer.write(b"x" * 1_000_000)
        await writer.drain()
        await asyncio.sleep(1)
        return world.now - begin

    assert client(world, main) > 5
    assert sum(received) == 1_000_000


def test_buffered_protocols_get_all_bytes(world: World) -> None:
    received = bytearray()

    class Buffered(asyncio.BufferedProtocol):
        def get_buffer(self, sizehint: int) -> bytearray:
            self.buffer = bytearray(100)
            return self.buffer

        def buffer_updated(self, nbytes: int) -> None:
            received.extend(self.buffer[:nbytes])

    async def node(life: Life) -> None:
        server = await world.loop.create_server(Buffered, "10.0.0.2", PORT)
        await server.serve_forever()

    world.start("s", node)

    async def main() -> None:
        _, writer = await opened()
        writer.write(bytes(range(250)))
        await asyncio.sleep(1)

    client(world, main)
    assert bytes(received) == bytes(range(250))


async def connect_error() -> str:
    begin = asyncio.get_running_loop().time()
    try:
        await opened()
    except OSError as error:
        seconds = asyncio.get_running_loop().time() - begin
        return f"{type(error).__name__} {'late' if seconds > 5 else 'soon'}"
    return "connected"


def test_nobody_listens(world: World) -> None:
    world.network.host("s")
    assert client(world, connect_error) == "ConnectionRefusedError soon"


def test_a_host_that_refuses(world: World) -> None:
    serve(world, "s", echo)
    world.network.host("s").refusing = True
    assert client(world, connect_error) == "ConnectionRefusedError soon"


def test_a_host_without_power(world: World) -> None:
    serve(world, "s", echo)
    world.crash("s", power=False)
    assert client(world, connect_error) == "TimeoutError late"


def test_a_killed_node_refuses(world: World) -> None:
    serve(world, "s", echo)
    world.crash("s")
    assert client(world, connect_error) == "ConnectionRefusedError soon"


@pytest.mark.parametrize("link", [("c", "s"), ("s", "c")])
def test_connecting_over_a_link_that_is_cut_one_way(
    world: World, link: tuple[str, str]
) -> None:
    serve(world, "s", echo)
    world.network.cut(*link)
    assert client(world, connect_error) == "TimeoutError late"


def test_connecting_waits_for_a_short_cut(world: World) -> None:
    serve(world, "s", echo)
    world.network.cut("c", "s")
    world.loop.call_later(3, world.network.heal)
    assert client(world, connect_error) == "connected"


def test_names_are_looked_up_on_the_simulated_network(world: World) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        for name, host in (("s", "s"), ("localhost", "c")):
            address = world.network.host(host).address
            found = await loop.getaddrinfo(name, PORT)
            assert [where for *_, where in found] == [(address, PORT)]
        with pytest.raises(socket.gaierror):
            await loop.getaddrinfo("nowhere", PORT)

    client(world, main)


def test_unknown_hosts_and_what_the_network_cannot_do(world: World) -> None:
    async def main() -> None:
        with pytest.raises(socket.gaierror):
            await asyncio.open_connection("nowhere", PORT)
        with pytest.raises(MisuseError, match="ssl"):
            await asyncio.open_connection("s", PORT, ssl=True)
        with pytest.raises(ValueError, match="port"):
            await asyncio.open_connection("s")

    serve(world, "s", echo)
    client(world, main)


def test_a_port_is_listened_on_once(world: World) -> None:
    async def main() -> None:
        first = await asyncio.start_server(echo, "c", PORT)
        with pytest.raises(OSError, match="in use"):
            await asyncio.start_server(echo, "0.0.0.0", PORT)
        with pytest.raises(OSError, match="no address"):
            await asyncio.start_server(echo, "s", PORT)
        first.close()
        await asyncio.start_server(echo, "0.0.0.0", PORT)

    serve(world, "s", echo)
    client(world, main)


async def say(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float = 60.0
) -> str:
    """Say something and return what comes back, or how it ended."""
    try:
        async with asyncio.timeout(seconds):
            writer.write(b"hello")
            await writer.drain()
            return (await reader.readexactly(5)).decode()
    except asyncio.IncompleteReadError:
        return "end"
    except OSError as error:
        return type(error).__name__


def test_a_reset_reaches_both_sides(world: World) -> None:
    ends: list[str] = []

    async def handler(r: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        ends.append(await say(r, w))

    serve(world, "s", handler)

    async def main() -> str:
        reader, writer = await opened()
        world.loop.call_later(1, world.network.reset, "c", "s")
        return await say(reader, writer)

    assert client(world, main) == "hello"
    assert ends == []

    with World(8) as other:
        serve(other, "s", ignore)

        async def again() -> str:
            reader, writer = await opened()
            other.loop.call_later(1, other.network.reset, "c", "s")
            return await say(reader, writer)

        assert client(other, again) == "ConnectionResetError"


def test_a_killed_peer_resets(world: World) -> None:
    serve(world, "s", ignore)

    async def main() -> str:
        reader, writer = await opened()
        world.loop.call_later(1, world.crash, "s")
        return await say(reader, writer)

    assert client(world, main) == "ConnectionResetError"


def test_a_peer_without_power_is_silent_until_it_is_back(world: World) -> None:
    serve(world, "s", echo)

    async def main() -> list[str]:
        reader, writer = await opened()
        said = [await say(reader, writer)]
        world.crash("s", power=False)
        said.append(await say(reader, writer, 1.0))
        world.restart("s")
        said.append(await say(reader, writer))
        return said

    assert client(world, main) == ["hello", "TimeoutError", "ConnectionResetError"]


def test_a_cut_link_stalls_and_goes_on(world: World) -> None:
    serve(world, "s", echo)

    async def main() -> tuple[str, str]:
        reader, writer = await opened()
        world.network.partition(["c"], ["s"])
        begin = world.now
        world.loop.call_later(3, world.network.heal)
        said = await say(reader, writer)
        assert 3 < world.now - begin < 5
        return said, await say(reader, writer)

    assert client(world, main) == ("hello", "hello")


@pytest.mark.parametrize("link", [("c", "s"), ("s", "c")])
def test_a_cut_that_lasts_breaks_the_connection(
    world: World, link: tuple[str, str]
) -> None:
    """One way is enough: without the way back, nothing is acknowledged."""
    serve(world, "s", echo)

    async def main() -> tuple[str, float]:
        reader, writer = await opened()
        await say(reader, writer)
        world.network.cut(*link)
        begin = world.now
        ended = await say(reader, writer, 100)
        return ended, world.now - begin

    ended, seconds = client(world, main)
    assert ended == "TimeoutError"
    low, high = LinkSettings().stall_s
    assert low <= seconds <= high + 1


def test_a_half_open_connection_is_found_when_it_is_used(world: World) -> None:
    serve(world, "s", echo)

    async def main() -> list[str]:
        reader, writer = await opened()
        said = [await say(reader, writer)]
        assert world.network.forget_side("s", "c") == 1
        await asyncio.sleep(100)
        said.append(str(writer.transport.is_closing()))
        said.append(await say(reader, writer))
        return said

    assert client(world, main) == ["hello", "False", "ConnectionResetError"]


def test_cancelling_a_connect_leaves_no_connection(world: World) -> None:
    ended: list[bytes | str] = []

    async def handler(r: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        try:
            ended.append(await r.read())
        except ConnectionResetError:
            ended.append("reset")

    serve(world, "s", handler)

    async def main() -> None:
        for steps in range(60):
            task = asyncio.create_task(asyncio.open_connection("s", PORT))
            await asyncio.sleep(steps * 0.00005)
            if task.cancel():
                with contextlib.suppress(asyncio.CancelledError):
                    await task
            else:
                task.result()[1].close()
        await asyncio.sleep(1)

    client(world, main)
    assert "reset" in ended
    assert b"" in ended
    assert world.network.between("c", "s") == []


def test_a_close_with_unread_data_is_a_reset(world: World) -> None:
    async def handler(r: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        w.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.sleep(1)
        w.close()

    serve(world, "s", handler)

    async def main() -> str:
        reader, writer = await opened()
        return await say(reader, writer)

    assert client(world, main) == "ConnectionResetError"


def test_a_server_waits_for_its_last_connection(world: World) -> None:
    async def main() -> float:
        server = await asyncio.start_server(echo, "c", PORT)
        _, writer = await opened("c")
        await asyncio.sleep(1)
        world.loop.call_later(5, writer.close)
        server.close()
        assert not server.is_serving()
        await server.wait_closed()
        return world.now

    serve(world, "s", echo)
    assert client(world, main) > 6


def test_writing_behind_the_end_is_refused(world: World) -> None:
    serve(world, "s", echo)

    async def main() -> None:
        _, writer = await opened()
        assert writer.can_write_eof()
        writer.write_eof()
        with pytest.raises(RuntimeError, match="write_eof"):
            writer.write(b"x")
        text: Any = "text"
        with pytest.raises(TypeError):
            writer.write(text)

    client(world, main)


def test_addresses(world: World) -> None:
    found: list[Any] = []

    async def handler(r: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        found.append([w.get_extra_info("sockname"), w.get_extra_info("peername")])

    serve(world, "s", handler)

    async def main() -> None:
        _, writer = await opened(world.network.host("s").address)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.append([sock.getpeername(), sock.getsockname()])
        await asyncio.sleep(1)

    client(world, main)
    assert found[0] == found[1]
    assert found[0][0] == ("10.0.0.2", PORT)


def test_a_dead_peer_is_found_when_its_reset_gets_through_at_last(
    world: World,
) -> None:
    serve(world, "s", echo)

    async def main() -> list[str]:
        reader, writer = await opened()
        said = [await say(reader, writer)]
        # The way back is cut: neither the kernel's reset nor those that answer to
        # what is sent later arrive.
        world.network.cut("s", "c")
        world.crash("s")
        said.append(await say(reader, writer, 1.0))
        said.append(await say(reader, writer, 1.0))
        world.network.heal()
        said.append(await say(reader, writer))
        return said

    expected = ["hello", "TimeoutError", "TimeoutError", "ConnectionResetError"]
    assert client(world, main) == expected
