"""The virtual loop does what asyncio's own does, for small programs of all kinds."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from sim.loop import VirtualLoop
from sim.network import Network

Log = list[object]
Program = Callable[[Log], Awaitable[object]]


async def gather(log: Log) -> object:
    async def part(name: str, seconds: float) -> str:
        log.append(f"{name} begins")
        await asyncio.sleep(seconds)
        log.append(f"{name} ends")
        return name

    return await asyncio.gather(part("a", 0.03), part("b", 0.01), part("c", 0))


async def gather_with_errors(log: Log) -> object:
    async def fails() -> None:
        await asyncio.sleep(0)
        raise ValueError("no")

    results = await asyncio.gather(fails(), asyncio.sleep(0, 5), return_exceptions=True)
    return [repr(result) for result in results]


async def timeouts(log: Log) -> object:
    try:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(10)
    except TimeoutError:
        log.append("late")
    async with asyncio.timeout(10) as within:
        await asyncio.sleep(0.001)
    try:
        await asyncio.wait_for(asyncio.Event().wait(), 0.01)
    except TimeoutError:
        log.append("late again")
    return within.expired()


async def queues(log: Log) -> object:
    queue: asyncio.Queue[int] = asyncio.Queue(2)

    async def produce() -> None:
        for number in range(6):
            await queue.put(number)
            log.append(f"put {number}")

    async def consume(name: str) -> None:
        while True:
            number = await queue.get()
            log.append(f"{name} got {number}")
            queue.task_done()

    consumers = [asyncio.create_task(consume(name)) for name in "xy"]
    await produce()
    await queue.join()
    for task in consumers:
        task.cancel()
    return [
        type(r).__name__
        for r in await asyncio.gather(*consumers, return_exceptions=True)
    ]


async def cancellation(log: Log) -> object:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            log.append("cancelled")
            await asyncio.sleep(0)
            log.append("cleaned up")
            raise
        return "never"

    begun = asyncio.create_task(stubborn())
    unbegun = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    late = asyncio.create_task(stubborn())
    for task in (begun, unbegun, late):
        task.cancel()
    done, pending = await asyncio.wait([begun, unbegun, late])
    return len(done), len(pending), [t.cancelled() for t in (begun, unbegun, late)]


async def locks(log: Log) -> object:
    lock, condition = asyncio.Lock(), asyncio.Condition()
    slots = asyncio.Semaphore(2)

    async def worker(name: str) -> None:
        async with slots:
            async with lock:
                log.append(f"{name} locks")
                await asyncio.sleep(0)
                log.append(f"{name} unlocks")
            async with condition:
                condition.notify_all()

    async def watcher() -> None:
        async with condition:
            await condition.wait()
            log.append("notified")

    await asyncio.gather(watcher(), *(worker(name) for name in "abc"))
    return lock.locked()


async def groups(log: Log) -> object:
    async def fails() -> None:
        await asyncio.sleep(0.01)
        raise KeyError("k")

    async def waits() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            log.append("stopped")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(waits())
            group.create_task(fails())
    except* KeyError as errors:
        log.extend(repr(error) for error in errors.exceptions)
    return None


async def callbacks(log: Log) -> object:
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    loop.call_soon(log.append, 1)
    loop.call_later(0.02, log.append, 5)
    loop.call_later(0.01, log.append, 4)
    loop.call_later(0, log.append, 3)
    loop.call_soon_threadsafe(log.append, 2)
    loop.call_later(0.015, log.append, "never").cancel()
    loop.call_at(loop.time() + 0.03, done.set_result, "done")
    done.add_done_callback(lambda future: log.append(future.result()))
    first = await loop.run_in_executor(None, lambda: 42)
    return first, await done


async def generators(log: Log) -> object:
    async def numbers() -> Any:
        try:
            for number in range(10):
                yield number
                await asyncio.sleep(0)
        finally:
            log.append("closed")

    async for number in numbers():
        if number == 3:
            break
    await asyncio.sleep(0.01)
    return [number async for number in numbers()]


async def streams(log: Log) -> object:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line.upper())
            await writer.drain()
        log.append("server sees the end")
        writer.write(b"bye")
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for word in (b"one\n", b"two\n", b"x" * 50_000 + b"\n"):
        writer.write(word)
        await writer.drain()
        log.append(len(await reader.readuntil(b"\n")))
    writer.write_eof()
    log.append(await reader.read())
    writer.close()
    await writer.wait_closed()
    server.close()
    await server.wait_closed()
    try:
        await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        log.append("refused")
    return writer.get_extra_info("peername")[0] != "", server.is_serving()


class Echo(asyncio.Protocol):
    """Says every call of the transport; sends back what it gets."""

    def __init__(self, log: Log, name: str, greeting: bytes = b"") -> None:
        self.log, self.name, self.greeting = log, name, greeting
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.log.append(f"{self.name} made")
        if self.greeting:
            transport.write(self.greeting)
            transport.write_eof()

    def data_received(self, data: bytes) -> None:
        self.received += data
        if not self.greeting:
            self.transport.write(data)

    def eof_received(self) -> bool:
        self.log.append(f"{self.name} end of {self.received!r}")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.log.append(f"{self.name} lost {exc!r}")
        self.lost.set_result(None)


async def protocols(log: Log) -> object:
    loop = asyncio.get_running_loop()
    made: list[Echo] = []

    def factory() -> Echo:
        made.append(Echo(log, "server"))
        return made[-1]

    server = await loop.create_server(factory, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport, client = await loop.create_connection(
        lambda: Echo(log, "client", b"hello"), "127.0.0.1", port
    )
    await client.lost
    await made[0].lost
    server.close()
    # Which side hears first is a matter of the kernel.
    log.sort(key=str)
    return transport.is_closing(), client.received


PROGRAMS = [
    gather,
    gather_with_errors,
    timeouts,
    queues,
    cancellation,
    locks,
    groups,
    callbacks,
    generators,
    streams,
    protocols,
]


def run_real(program: Program) -> tuple[object, Log]:
    log: Log = []

    async def main() -> object:
        return await program(log)

    return asyncio.run(main()), log


def run_virtual(program: Program, seed: int = 1) -> tuple[object, Log, str]:
    log: Log = []
    loop = VirtualLoop()
    Network(loop, Random(seed))

    async def main() -> object:
        return await program(log)

    try:
        result = loop.run_until_complete(main())
        assert loop.pending() == []
        return result, log, loop.trace.digest()
    finally:
        loop.close()


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_programs_do_what_they_do_on_the_real_loop(program: Program) -> None:
    result, log, _ = run_virtual(program)
    assert (result, log) == run_real(program)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_program_run_twice_leaves_one_trace(program: Program) -> None:
    assert run_virtual(program) == run_virtual(program)


def test_hours_pass_at_once_and_in_order() -> None:
    async def program(log: Log) -> object:
        loop = asyncio.get_running_loop()
        for hours in (3, 1, 2):
            loop.call_later(hours * 3600, log.append, hours)
        await asyncio.sleep(4 * 3600)
        return loop.time()

    result, log, _ = run_virtual(program)
    assert (result, log) == (4 * 3600, [1, 2, 3])


def test_sets_of_tasks_have_one_order() -> None:
    """A task group cancels in the order of a set; addresses must not count."""

    async def program(log: Log) -> object:
        ballast = [object() for _ in range(len(ballasts) * 777)]
        ballasts.append(ballast)

        async def waits(number: int) -> None:
            padding = bytearray(number * 100 + len(ballasts) * 64)
            try:
                await asyncio.sleep(10)
            finally:
                log.append((number, len(padding) > 0))

        async def fails() -> None:
            await asyncio.sleep(1)
            raise KeyError

        try:
            async with asyncio.TaskGroup() as group:
                for number in range(40):
                    group.create_task(waits(number))
                group.create_task(fails())
        except* KeyError:
            pass
        return None

    ballasts: list[list[object]] = []
    logs = [run_virtual(program)[1] for _ in range(4)]
    assert logs[1:] == logs[:-1]
