"""A connection to a node, as the rest of the client sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from braidlog.errors import LogError
from braidlog.wire.messages import Message

Answer: TypeAlias = tuple[Message, memoryview]
"""The message of an answer and its payload."""


class Taker(Protocol):
    """Takes the answer to a request when it comes; it must not use the link then."""

    @property
    def gone(self) -> bool:
        """Whether nobody wants the answer any more."""

    def answered(self, message: Message, payload: memoryview) -> None:
        """Take the answer of the node."""

    def failed(self, error: LogError) -> None:
        """Take the error of the node, or `ConnectionLostError`."""


class Link(Protocol):
    """An open connection; any number of requests may be under way."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""

    def request(self, message: Message, payload: bytes = b"") -> asyncio.Future[Answer]:
        """Send a request behind all earlier ones; the future gives its answer.

        The future fails with the error of the node, or with `ConnectionLostError`.
        Cancelling it forgets the answer; the request may be executed all the same.
        """

    def send(self, message: Message, payload: bytes, taker: Taker) -> None:
        """Send a request as `request` does, at the next `flush`.

        Raises:
            LogError: it cannot be sent; then the taker is told nothing.
        """

    def flush(self) -> None:
        """Write what was sent."""

    async def close(self) -> None:
        """Close the connection; what is under way fails. Idempotent."""


Connector: TypeAlias = Callable[[str], Awaitable[Link]]
"""Opens a connection to an address; raises `ConnectionLostError` or what the node
says."""
