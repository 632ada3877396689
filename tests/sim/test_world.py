"""Lives of nodes: crashes, pauses, restarts, clocks, signals, and what remains."""

import asyncio
import errno
import signal
from collections.abc import Iterator
from random import Random

import pytest
from sim.disk import FaultyDisk, MemoryDisk
from sim.errors import MisuseError, UnhandledError
from sim.trace import Trace
from sim.world import Life, World


@pytest.fixture
def world() -> Iterator[World]:
    with World(5) as world:
        yield world


def test_a_crash_runs_no_more_code_of_the_node(world: World) -> None:
    log: list[str] = []

    async def worker() -> None:
        try:
            while True:
                log.append("work")
                await asyncio.sleep(1)
        finally:
            log.append("clean up")

    async def node(life: Life) -> None:
        life.world.loop.call_later(3.5, log.append, "timer")
        async with asyncio.TaskGroup() as group:
            group.create_task(worker())
            group.create_task(asyncio.Event().wait())

    world.start("n", node)
    world.loop.call_later(2.5, world.crash, "n")
    world.run(asyncio.sleep(10))
    assert log == ["work"] * 3


def test_a_node_may_not_die_twice_nor_start_alive(world: World) -> None:
    async def node(life: Life) -> None:
        await asyncio.Event().wait()

    world.start("n", node)
    with pytest.raises(MisuseError, match="alive"):
        world.restart("n")
    with pytest.raises(MisuseError, match="already"):
        world.start("n", node)
    world.crash("n")
    for call in (world.crash, world.pause, world.resume):
        with pytest.raises(MisuseError, match="not alive"):
            call("n")


def test_memory_goes_and_the_disk_stays(world: World) -> None:
    lives: list[tuple[int, list[bytes], float]] = []

    async def node(life: Life) -> None:
        memory = [*life.disk.read("log")]
        lives.append((life.number, memory, life.random.random()))
        life.disk.append("log", str(life.number).encode())
        await life.disk.sync("log")
        await asyncio.Event().wait()

    async def main() -> None:
        world.start("n", node, disk=MemoryDisk(Random(1)))
        for _ in range(2):
            await asyncio.sleep(1)
            world.crash("n", power=False)
            world.restart("n")
        await asyncio.sleep(1)

    world.run(main())
    assert [life[:2] for life in lives] == [(1, []), (2, [b"1"]), (3, [b"1", b"2"])]
    assert len({life[2] for life in lives}) == 3


def test_a_paused_node_catches_up_in_order(world: World) -> None:
    log: list[tuple[str, float]] = []

    async def node(life: Life) -> None:
        for number in range(4):
            log.append((f"tick {number}", world.now))
            await asyncio.sleep(1)

    async def main() -> None:
        world.start("n", node)
        await asyncio.sleep(1.5)
        world.pause("n")
        await asyncio.sleep(5)
        world.resume("n")
        await asyncio.sleep(5)

    world.run(main())
    assert log == [
        ("tick 0", 0.0),
        ("tick 1", 1.0),
        ("tick 2", 6.5),
        ("tick 3", 7.5),
    ]


def test_bytes_wait_for_a_paused_node(world: World) -> None:
    received: list[tuple[float, bytes]] = []

    async def handler(r: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        while data := await r.read(100):
            received.append((world.now, data))
        w.close()

    async def node(life: Life) -> None:
        server = await asyncio.start_server(handler, "n", 1)
        await server.serve_forever()

    async def main() -> None:
        world.start("n", node)
        await asyncio.sleep(1)
        world.pause("n")
        # The kernel takes the connection and the bytes.
        _, writer = await asyncio.open_connection("n", 1)
        writer.write(b"hello")
        await asyncio.sleep(5)
        assert received == []
        world.resume("n")
        await asyncio.sleep(1)
        writer.close()

    world.run(main())
    assert [data for _, data in received] == [b"hello"]
    assert received[0][0] > 6


def test_a_paused_node_can_be_killed(world: World) -> None:
    async def node(life: Life) -> None:
        await asyncio.sleep(1)
        raise AssertionError("it was killed")

    async def main() -> None:
        world.start("n", node)
        await asyncio.sleep(0.5)
        world.pause("n")
        await asyncio.sleep(1)
        world.crash("n")
        await asyncio.sleep(5)

    world.run(main())


def test_an_error_of_a_node_fails_the_run_unless_it_may_happen(world: World) -> None:
    async def node(life: Life) -> None:
        raise OSError(errno.EIO, "disk")

    world.start("tolerated", node, tolerated=(OSError,))
    world.run(asyncio.sleep(1))
    assert not world.nodes["tolerated"].alive
    world.restart("tolerated")
    world.start("n", node)
    with pytest.raises(UnhandledError, match="n ended"):
        world.run(asyncio.sleep(1))


def test_a_node_that_returns_is_over_with_all_it_started(world: World) -> None:
    log: list[str] = []

    async def later() -> None:
        await asyncio.sleep(1)
        log.append("still there")

    async def node(life: Life) -> None:
        keep.append(asyncio.create_task(later()))

    keep: list[asyncio.Task[None]] = []
    world.start("n", node)
    world.run(asyncio.sleep(3))
    assert (log, world.nodes["n"].alive) == ([], False)


def test_clocks_drift_and_stay_so_after_a_restart(world: World) -> None:
    shown: list[float] = []

    async def node(life: Life) -> None:
        begin, wall = world.loop.time(), life.wall_s()
        await asyncio.sleep(11)
        shown.append(world.now)
        assert world.loop.time() - begin == pytest.approx(11)
        assert life.wall_s() - wall == pytest.approx(11)

    world.start("n", node)
    world.drift("n", 1.1)
    world.run(asyncio.sleep(20))
    world.restart("n")
    world.run(asyncio.sleep(20))
    assert shown == pytest.approx([10.0, 30.0])


def test_signals(world: World) -> None:
    async def node(life: Life) -> None:
        stop = asyncio.Event()
        world.loop.add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()

    async def main() -> None:
        world.start("n", node)
        await asyncio.sleep(1)
        with pytest.raises(MisuseError):
            world.signal("n", signal.SIGHUP)
        world.signal("n", signal.SIGTERM)
        await asyncio.sleep(1)

    world.run(main())
    assert not world.nodes["n"].alive


def test_names_of_generators_do_not_depend_on_one_another() -> None:
    with World(1) as one, World(1) as other:
        one.random("x").random()
        assert one.random("y").random() == other.random("y").random()
        assert one.random("x").random() != one.random("y").random()


def test_a_disk_loses_only_what_was_not_synced() -> None:
    kept = set()
    for seed in range(40):
        disk = MemoryDisk(Random(seed))
        disk.append("f", b"1")
        with World(seed) as world:
            world.run(disk.sync("f"))
        for record in (b"2", b"3", b"4"):
            disk.append("f", record)
        disk.on_crash(power=True)
        assert len(disk.read("f")) == 4
        disk.on_crash(power=False)
        kept.add(b"".join(disk.read("f")))
    assert kept == {b"1", b"12", b"123", b"1234"}


def test_a_disk_fails_as_told(world: World) -> None:
    disk = MemoryDisk(Random(1))
    assert isinstance(disk, FaultyDisk)
    disk.fill(True)
    with pytest.raises(OSError, match="space"):
        disk.append("f", b"1")
    disk.fill(False)
    disk.append("f", b"1")
    disk.fail_syncs(True)
    with pytest.raises(OSError, match="error"):
        world.run(disk.sync("f"))
    disk.fail_syncs(False)
    disk.slow(10.0)
    begin = world.now
    world.run(disk.sync("f"))
    assert world.now - begin >= 5


def test_a_trace_keeps_the_last_lines_and_hashes_all() -> None:
    one, other = Trace(lines_max=2), Trace(lines_max=2)
    for trace in (one, other):
        for number in range(3):
            trace.event(0.5 * number, "n", f"event {number}")
    assert one.tail() == other.tail()
    assert [line.split()[-1] for line in one.tail()] == ["1", "2"]
    assert one.digest() == other.digest()
    other.step(2.0, 1)
    assert one.digest() != other.digest()
    one.step(2.5, 1)
    assert one.digest() != other.digest()
