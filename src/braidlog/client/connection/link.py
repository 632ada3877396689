"""A connection to a node, as the rest of the client sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from braidlog.wire.messages import Message

Answer: TypeAlias = tuple[Message, memoryview]
"""The message of an answer and its payload."""


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

    async def close(self) -> None:
        """Close the connection; what is under way fails. Idempotent."""


Connector: TypeAlias = Callable[[str], Awaitable[Link]]
"""Opens a connection to an address; raises `ConnectionLostError` or what the node
says."""
