"""Streams send once in a turn of the event loop, and links write once."""

from __future__ import annotations

import asyncio
from typing import Any

from braidlog._native import Line
from braidlog.client.append.flush import Flush


class Written:
    """A link that counts."""

    def __init__(self) -> None:
        self.flushed = 0

    def flush(self) -> None:
        self.flushed += 1


class Stream:
    """A stream with something to send."""

    def __init__(self, said: list[str], name: str, link: Any) -> None:
        self.line: Line[asyncio.Future[int]] = Line(1, 1)
        self.said, self.name, self.link = said, name, link

    def pump(self) -> Any:
        self.line.scheduled = False
        self.said.append(self.name)
        if self.link is None:
            raise OSError(self.name)
        return self.link


async def test_streams_send_in_their_order_and_a_link_writes_once() -> None:
    said: list[str] = []
    link, flush = Written(), Flush(asyncio.get_running_loop())
    for name in "abc":
        flush.add(Stream(said, name, link))
    assert (said, link.flushed) == ([], 0)
    await asyncio.sleep(0)
    assert (said, link.flushed) == (["a", "b", "c"], 1)


async def test_a_stream_that_fails_does_not_stop_the_others() -> None:
    said: list[str] = []
    errors: list[Any] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: errors.append(context["exception"]))
    link, flush = Written(), Flush(loop)
    for name, to in (("a", link), ("b", None), ("c", link)):
        flush.add(Stream(said, name, to))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (said, link.flushed) == (["a", "b", "c"], 2)
    assert [str(error) for error in errors] == ["b"]
