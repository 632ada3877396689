"""The end of a turn of the event loop, when what was appended in it is sent."""

from __future__ import annotations

import asyncio
from typing import Protocol

from braidlog._native import Line
from braidlog.client.connection.link import Link


class AppendStream(Protocol):
    """A stream."""

    line: Line[asyncio.Future[int]]

    def pump(self) -> Link | None:
        """Send what there is to send; return the link that has to be flushed."""


class Flush:
    """Lets streams send once in a turn, and their links write once."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin with nothing to do."""
        self._loop = loop
        self._streams: list[AppendStream] = []

    def add(self, stream: AppendStream) -> None:
        """Have a stream send when this turn ends."""
        stream.line.scheduled = True
        if not self._streams:
            self._loop.call_soon(self._end)
        self._streams.append(stream)

    def _end(self) -> None:
        # The first is the last of the list.
        streams, self._streams = self._streams[::-1], []
        links: list[Link] = []
        try:
            while streams:
                link = streams.pop().pump()
                if link is not None and link not in links:
                    links.append(link)
        finally:
            for stream in streams:
                self.add(stream)
            for link in links:
                link.flush()
