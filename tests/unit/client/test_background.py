"""Calls of threads on one loop: their order, their ends, and how they are given up."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial

import pytest

from braidlog.client.background import BackgroundLoop
from braidlog.errors import ClosedError


@pytest.fixture
def loop() -> Iterator[BackgroundLoop]:
    loop = BackgroundLoop()
    yield loop
    loop.close()


async def note(seen: list[str], what: str) -> str:
    seen.append(what)
    return what


def test_what_is_given_begins_in_that_order(loop: BackgroundLoop) -> None:
    seen: list[str] = []
    first = loop.begin(note(seen, "a"))
    loop.post(partial(seen.append, "b"))
    second = loop.begin(note(seen, "c"))
    assert loop.run(note(seen, "d")) == "d"
    assert (first.result(5), second.result(5)) == ("a", "c")
    assert seen == ["a", "b", "c", "d"]


def test_many_threads_get_what_they_asked_for(loop: BackgroundLoop) -> None:
    async def later(number: int) -> int:
        await asyncio.sleep(0)
        return number

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda n: loop.run(later(n)), range(500)))
    assert found == list(range(500))


def test_an_error_is_that_of_the_call(loop: BackgroundLoop) -> None:
    async def fails() -> None:
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        loop.run(fails())
    assert isinstance(loop.begin(fails()).exception(5), OSError)


def test_a_call_that_cancels_itself_says_so(loop: BackgroundLoop) -> None:
    async def cancels() -> None:
        raise asyncio.CancelledError

    with pytest.raises(CancelledError):
        loop.run(cancels())
    with pytest.raises(CancelledError):
        loop.begin(cancels()).result(5)


def test_cancelling_the_future_cancels_the_call(loop: BackgroundLoop) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    future = loop.begin(waits())
    assert begun.wait(5)
    assert future.cancel()
    assert ended.wait(5)


def test_an_interrupt_ends_who_waits_and_cancels_the_call(
    loop: BackgroundLoop,
) -> None:
    begun, ended = threading.Event(), threading.Event()

    async def waits() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(lambda: loop.run(waits()))
        assert begun.wait(5)
        loop.interrupt()
        with pytest.raises(ClosedError, match="interrupted"):
            waiting.result(5)
    assert ended.wait(5)
    with pytest.raises(ClosedError, match="interrupted"):
        loop.run(waits())


def test_nothing_begins_after_the_end(loop: BackgroundLoop) -> None:
    loop.close()
    for call in (loop.run, loop.begin, loop.finish):
        with pytest.raises(ClosedError):
            call(asyncio.sleep(0))
    with pytest.raises(ClosedError):
        loop.post(lambda: None)
