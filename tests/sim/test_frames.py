"""Frames of peers are lost, repeated and overtaken as wholes, and only those."""

import asyncio
import struct
from random import Random

import pytest
from sim.errors import MisuseError
from sim.frames import Fate, FrameFaults, FrameFilter
from sim.world import Life, World

HEADER = struct.Struct("<IIBBHII")


def frame(number: int, request: int = 0, kind: int = 1) -> bytes:
    body = struct.pack("<I", number) * (1 + number % 5)
    return HEADER.pack(len(body), 0, kind, 0, 0, request, 0) + body


def fates(filter_: FrameFilter, data: bytes, step: int) -> list[tuple[Fate, bytes]]:
    found = []
    for at in range(0, len(data), step):
        found += filter_.feed(data[at : at + step])
    return found


@pytest.mark.parametrize("step", [1, 7, 64, 100_000])
def test_frames_are_found_however_the_bytes_are_cut(step: int) -> None:
    frames = [frame(number) for number in range(50)]
    filter_ = FrameFilter(FrameFaults, Random(1))
    found = fates(filter_, b"".join(frames) + b"half", step)
    assert found == [(Fate.PASS, each) for each in frames]
    assert (filter_.rest(), filter_.rest()) == (b"half", b"")


def test_only_one_way_frames_behind_the_first_are_touched() -> None:
    faults = FrameFaults(loss=1.0, kinds=frozenset({1, 2}))
    filter_ = FrameFilter(lambda: faults, Random(1))
    frames = [frame(0), frame(1), frame(2, request=9), frame(3, kind=3), frame(4)]
    lost = [fate is Fate.LOSE for fate, _ in filter_.feed(b"".join(frames))]
    assert lost == [False, True, False, False, True]


def test_shares_are_about_what_was_asked_for() -> None:
    faults = FrameFaults(loss=0.1, repeat=0.2, delay=0.3)
    filter_ = FrameFilter(lambda: faults, Random(1))
    found = [fate for fate, _ in filter_.feed(frame(1) * 5000)]
    shares = [found.count(fate) / 5000 for fate in (Fate.LOSE, Fate.REPEAT, Fate.DELAY)]
    assert shares == pytest.approx([0.1, 0.2, 0.3], abs=0.03)


def test_bytes_that_are_no_frames_are_refused() -> None:
    with pytest.raises(MisuseError, match="does not speak frames"):
        FrameFilter(FrameFaults, Random(1)).feed(b"\xff" * 20)


@pytest.mark.parametrize("hello", [b"HEAD / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x02" * 9])
@pytest.mark.parametrize("step", [1, 3, 100])
def test_who_speaks_something_else_is_let_through(hello: bytes, step: int) -> None:
    """So that a node can answer; what is shorter than a frame is not held back."""
    filter_ = FrameFilter(lambda: FrameFaults(loss=1.0), Random(1))
    found = fates(filter_, hello, step)
    assert b"".join(data for _, data in found) == hello
    assert {fate for fate, _ in found} == {Fate.PASS}


def numbers(data: bytes) -> list[int]:
    found = []
    while data:
        size = HEADER.unpack_from(data)[0] + HEADER.size
        assert len(data) >= size
        assert data[:size] == frame(struct.unpack_from("<I", data, 20)[0])
        found.append(struct.unpack_from("<I", data, 20)[0])
        data = data[size:]
    return found


def exchange(faults: FrameFaults) -> list[int]:
    """Send 500 frames over a link with these faults; return those that arrived."""
    received = bytearray()

    async def handler(r: asyncio.StreamReader, w: asyncio.StreamWriter) -> None:
        while data := await r.read(1000):
            received.extend(data)

    async def server(life: Life) -> None:
        await (await asyncio.start_server(handler, None, 7400)).serve_forever()

    async def main() -> None:
        await asyncio.sleep(0.1)
        _, writer = await asyncio.open_connection("s", 7400)
        for number in range(500):
            writer.write(frame(number))
            await asyncio.sleep(0.01)
        await asyncio.sleep(2)
        writer.close()
        await asyncio.sleep(1)

    with World(3) as world:
        world.network.framed_ports[7400] = None
        world.network.frame_faults = faults
        world.start("s", server)
        world.run(main())
    return numbers(bytes(received))


def test_without_faults_all_arrive_once_and_in_order() -> None:
    assert exchange(FrameFaults()) == list(range(500))


def test_lost_frames_are_missing_and_the_rest_is_in_order() -> None:
    found = exchange(FrameFaults(loss=0.1))
    assert found == sorted(set(found))
    assert 400 < len(found) < 480


def test_repeated_frames_come_twice() -> None:
    found = exchange(FrameFaults(repeat=0.1))
    assert set(found) == set(range(500))
    assert 520 < len(found) < 600


def test_delayed_frames_are_overtaken() -> None:
    found = exchange(FrameFaults(delay=0.1))
    assert sorted(found) == list(range(500))
    assert found != sorted(found)
