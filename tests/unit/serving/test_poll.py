"""The selector of nodes says what that of the standard library says."""

from __future__ import annotations

import asyncio
import os
import selectors
import socket
import threading
import time
from contextlib import ExitStack, suppress
from random import Random
from typing import Any

import pytest

from braidlog.serving.poll import LaneSelector

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


@pytest.mark.parametrize("seed", range(20))
def test_it_says_what_epoll_says(seed: int) -> None:
    rng = Random(seed)
    with ExitStack() as stack:
        ends: list[socket.socket] = []
        for _ in range(6):
            for each in socket.socketpair():
                each.setblocking(False)
                ends.append(stack.enter_context(each))
        both = LaneSelector(), selectors.EpollSelector()
        for selector in both:
            stack.callback(selector.close)
        for _ in range(300):
            end = rng.choice(ends)
            match rng.randrange(6):
                case 0:
                    _same(both, "register", end, rng.choice([READ, WRITE, 3, 0, 4]), 7)
                case 1:
                    _same(both, "unregister", end)
                case 2:
                    _same(both, "modify", end, rng.choice([READ, WRITE, 3]), 8)
                case 3:
                    _ignore_full(end.send, b"x" * rng.choice([1, 1 << 18]))
                case 4:
                    _ignore_full(end.recv, rng.choice([1, 1 << 20]))
                case _ if rng.random() < 0.05:
                    _ignore_full(end.shutdown, socket.SHUT_WR)
            ours, theirs = (
                sorted((key.fd, events, key.data) for key, events in each.select(0))
                for each in both
            )
            assert ours == theirs
            ours_map, theirs_map = (dict(each.get_map()) for each in both)
            assert ours_map == theirs_map


def _same(both: tuple[Any, ...], name: str, *given: Any) -> None:
    said: list[Any] = []
    for each in both:
        try:
            said.append(getattr(each, name)(*given))
        except (KeyError, ValueError) as error:
            said.append(type(error))
    assert said[0] == said[1]


def _ignore_full(call: Any, given: Any) -> None:
    with suppress(OSError):
        call(given)


def test_a_descriptor_that_is_not_open_is_refused() -> None:
    selector = LaneSelector()
    one, other = socket.socketpair()
    number = one.fileno()
    one.close()
    other.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        selector.register(number, READ)
    with pytest.raises(KeyError):
        selector.get_key(number)
    selector.close()


def test_a_descriptor_that_was_closed_does_not_stay_in_the_way() -> None:
    selector = LaneSelector()
    one, other = socket.socketpair()
    selector.register(one, READ)
    number = one.fileno()
    one.close()
    with pytest.raises(OSError, match=r"No such file|Bad file"):
        selector.modify(number, READ | WRITE)
    with other, socket.socket(fileno=os.dup2(other.fileno(), number)) as again:
        assert again.fileno() == number
        selector.register(again, WRITE)
        assert [key.fd for key, _ in selector.select(1)] == [number]
    selector.close()


def test_without_appends_it_does_not_spin() -> None:
    selector = LaneSelector(10_000)
    assert selector.select(0.05) == []
    assert selector.poll.spun == 0
    selector.close()


def test_a_loop_with_it_runs_timers_threads_and_sockets() -> None:
    async def main() -> list[str]:
        loop, done = asyncio.get_running_loop(), asyncio.Event()
        said: list[str] = []

        def end() -> None:
            said.append("thread")
            done.set()

        async def serve(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            writer.write(await reader.readexactly(1 << 20))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"x" * (1 << 20))
        assert len(await reader.readexactly(1 << 20)) == 1 << 20
        loop.call_later(0.02, said.append, "timer")
        await asyncio.sleep(0.05)

        def call() -> None:
            time.sleep(0.05)
            loop.call_soon_threadsafe(end)

        thread = threading.Thread(target=call)
        thread.start()
        await done.wait()
        thread.join()
        writer.close()
        server.close()
        return said

    with asyncio.Runner(
        loop_factory=lambda: asyncio.SelectorEventLoop(LaneSelector())
    ) as runner:
        assert runner.run(main()) == ["timer", "thread"]
