"""Reads a log for the tables of this node: from its own replicas, or from others'."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, cast

from braidlog.client.connection.link import Answer
from braidlog.client.connection.routing import Routes
from braidlog.client.retry import Backoff
from braidlog.client.settings import ClientSettings
from braidlog.errors import ClosedError, DeadlineError, LogError
from braidlog.node.tables.questions import Questions
from braidlog.node.tables.view import CatalogView, NodeRoutes
from braidlog.wire.messages import Message, Read

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from braidlog.serving.sessions import Request

__all__ = ["Feed"]

_PREFETCH_BYTES: Final = 4 << 20
"""Of each stream of a log, for each table."""

_Read = Callable[["Request", Read], None]


class _OwnRead:
    """A read of this node itself: what a `Request` is to the replicas.

    It is its own session: one read at a time, and nobody who does not take the answer.
    """

    gone = False
    crowded = False

    def __init__(self) -> None:
        self.done: asyncio.Future[Answer]
        self.done = asyncio.get_running_loop().create_future()
        self.readers = 0
        self.session = self

    def answer(self, message: Message, payload: Sequence[Buffer] = ()) -> None:
        if not self.done.done():
            self.done.set_result((message, memoryview(b"".join(payload))))

    def fail(self, error: LogError) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def park(self) -> None:
        """Wait like any other."""


class Feed:
    """What a `MergeReader` needs of a cluster, as this node reaches it."""

    def __init__(
        self,
        node: int,
        view: CatalogView,
        questions: Questions,
        read: _Read,
        share: Callable[[], float],
    ) -> None:
        """Read own replicas by ``read``; ``share`` draws a number in 0..1."""
        self._node = node
        self._view = view
        self._questions = questions
        self._read = read
        self.settings = ClientSettings(
            prefetch_bytes=_PREFETCH_BYTES,
            entropy=lambda size: int(share() * 65535).to_bytes(size, "little"),
        )
        self.closed = False

    def check_open(self) -> None:
        """Raise `ClosedError` when the node stops."""
        if self.closed:
            raise ClosedError("the node is shutting down")

    @property
    def routes(self) -> NodeRoutes:
        """The newest metadata that this node knows."""
        return self._view.routes

    def end(self, log: bytes) -> int:
        """Return the last position of a log that is known; 0 if it is not."""
        return self._view.end(log)

    def listen(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` whenever the routes have changed."""
        self._view.listeners.append(listener)

    def unlisten(self, listener: Callable[[], None]) -> None:
        """Call it no more."""
        self._view.listeners.remove(listener)

    def backoff(self) -> Backoff:
        """Return pauses between attempts."""
        return Backoff(self.settings.retry_first_s, self.settings.retry_max_s)

    def streams_of(self, log: bytes) -> Iterable[int]:
        """Return the streams of a log."""
        return (info.stream for info in self.routes.log(log).streams)

    async def refresh(self) -> Routes:
        """Return what is known: news comes by itself."""
        return self._view.routes

    async def linearize(self, log: bytes | None = None) -> Routes:
        """Return the metadata as it is now or later."""
        return await self._view.confirm()

    async def ask_node(self, node: int, message: Read, *, within: float) -> Answer:
        """Read from this node or from another one."""
        if node != self._node:
            answer, payload = await self._questions.node(node, message, within=within)
            return answer, memoryview(payload)
        own = _OwnRead()
        # It has all that reading asks of one, and no socket.
        self._read(cast("Request", own), message)
        try:
            async with asyncio.timeout(within):
                return await own.done
        except TimeoutError as error:
            if isinstance(error, LogError):
                raise
            msg = f"stream {message.stream} on this node did not answer a read in time"
            raise DeadlineError(msg) from error
        finally:
            own.gone = True
