"""Connections by address: made when they are needed, made again when they broke."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Final

from braidlog.client.connection.attempts import shared
from braidlog.client.connection.link import Answer, Connector, Link
from braidlog.client.retry import Backoff
from braidlog.errors import (
    ClosedError,
    ConnectionLostError,
    DeadlineError,
    LogError,
    QuotaExceededError,
)
from braidlog.wire.messages import Message

_LATE_S: Final = 0.001
"""A loop may wake a moment early, and there must be no attempt without time."""


class Links:
    """One connection to each address; all who ask for one share it."""

    def __init__(
        self,
        connector: Connector,
        connect_timeout_s: float,
        share: Callable[[], float] = float,
    ) -> None:
        """Connect to nothing yet; ``share`` gives random numbers in 0..1."""
        self.closed = False
        self._connector = connector
        self._timeout_s = connect_timeout_s
        self._share = share
        self._links: dict[str, Link] = {}
        self._connecting: dict[str, asyncio.Task[Link]] = {}

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        self.closed = True
        tasks = [*self._connecting.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        links, self._links = self._links, {}
        # All at a time: one that hangs is waited for.
        await asyncio.gather(*(link.close() for link in links.values()))

    def _check_open(self) -> None:
        if self.closed:
            raise ClosedError("the client is closed")

    async def link(self, address: str) -> Link:
        """Return the connection to an address, a new one if there is none.

        Raises:
            ConnectionLostError: nobody answers there.
        """
        self._check_open()
        link = self._links.get(address)
        if link is not None and not link.closed:
            return link
        connecting = self._connecting.get(address)
        if connecting is None:
            connecting = asyncio.create_task(self._connect(address))
            self._connecting[address] = connecting
            connecting.add_done_callback(lambda done: self._connected(address, done))
        return await shared(connecting, self._check_open)

    def _connected(self, address: str, connecting: asyncio.Task[Link]) -> None:
        self._connecting.pop(address, None)
        # Those who waited have the error; if all were cancelled nobody needs it.
        if not connecting.cancelled():
            connecting.exception()

    async def _connect(self, address: str) -> Link:
        try:
            async with asyncio.timeout(self._timeout_s):
                link = await self._connector(address)
        except TimeoutError as error:
            if isinstance(error, LogError):
                raise
            msg = f"{address} did not answer within {self._timeout_s:.3g} seconds"
            raise _never_sent(msg) from error
        except OSError as error:
            if isinstance(error, LogError):
                raise
            msg = f"cannot connect to {address}: {_reason(error)}"
            raise _never_sent(msg) from error
        if self.closed:
            await link.close()
            self._check_open()
        self._links[address] = link
        return link

    async def ask(
        self, address: str, message: Message, payload: bytes = b"", *, within: float
    ) -> Answer:
        """Send one request and return the answer.

        What a quota refuses is sent again when the other side says, as long as there is
        time: another node would let it through, but have to ask this one for the rest.

        Raises:
            DeadlineError: not ``within`` so many seconds.
            LogError: what the other side says, or the connection.
        """
        loop, backoff = asyncio.get_running_loop(), Backoff()
        deadline = loop.time() + within
        while True:
            left = max(0.0, deadline - loop.time())
            try:
                return await self._ask_once(address, message, payload, left)
            except QuotaExceededError as error:
                left = max(0.0, deadline - loop.time())
                pause = backoff.pause_of_quota(error, self._share())
                await asyncio.sleep(min(pause, left + _LATE_S))
                if pause >= left:
                    raise

    async def _ask_once(
        self, address: str, message: Message, payload: bytes, within: float
    ) -> Answer:
        try:
            async with asyncio.timeout(within):
                link = await self.link(address)
                return await link.request(message, payload)
        except TimeoutError as error:
            if isinstance(error, LogError):
                raise
            msg = f"{address} did not answer within {within:.3g} seconds"
            raise DeadlineError(msg) from error


def _never_sent(message: str) -> LogError:
    """Return the error of a connection that was not made: nothing can have happened."""
    error: LogError = ConnectionLostError(message)
    error.outcome = "not_stored"
    return error


def _reason(error: OSError) -> str:
    """Return the words of the system; event loops have their own, and repeat more."""
    number = error.errno or 0
    return os.strerror(number) if number > 0 else error.strerror or str(error)
