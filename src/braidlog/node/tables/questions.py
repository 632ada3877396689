"""Questions of this node to others, and to the repository, that a task waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

from braidlog.errors import DeadlineError, LogError, RemoteProtocolError
from braidlog.node.requests.forwarding import Answer, Execution, Send
from braidlog.wire.commands import Command, encode
from braidlog.wire.messages import Executed, Message
from braidlog.wire.results import Refused, decode_result

__all__ = ["Questions", "Reply"]

Reply: TypeAlias = tuple[Message, bytes]


class Questions:
    """Asks nodes, and executes commands, with an end to the waiting."""

    def __init__(self, send: Send, execute: Execution, patience: float) -> None:
        """Ask by ``send``; ``execute`` executes a command on the leader."""
        self._send = send
        self._execute = execute
        self.patience = patience
        """Seconds in which an answer has to come."""

    async def node(
        self, node: int, message: Message, *, within: float | None = None
    ) -> Reply:
        """Ask a node.

        Raises:
            LogError: its answer, or that none came.
        """
        what = f"node {node} did not answer {type(message).__name__}"
        return await self._answer(
            lambda answer: self._send(node, message, (), answer),
            self.patience if within is None else within,
            what,
        )

    async def command(self, command: Command) -> None:
        """Execute a command; it may be executed although this raises.

        Raises:
            LogError: why not.
        """
        answer, payload = await self._answer(
            lambda answer: self._execute(b"", encode(command), answer),
            self.patience,
            f"the leader did not answer {type(command).__name__}",
        )
        if not isinstance(answer, Executed):
            msg = f"{type(answer).__name__} is no answer to Execute"
            raise RemoteProtocolError(msg)
        result = decode_result(payload)
        if isinstance(result, Refused):
            raise result.error()

    async def _answer(
        self, ask: Callable[[Answer], None], within: float, late: str
    ) -> Reply:
        done: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def answered(answer: Message | LogError, payload: memoryview) -> None:
            if done.done():
                return
            if isinstance(answer, LogError):
                done.set_exception(answer)
            else:
                # What was received is overwritten by what is received next.
                done.set_result((answer, bytes(payload)))

        ask(answered)
        try:
            async with asyncio.timeout(within):
                return await done
        except DeadlineError:
            raise
        except TimeoutError as error:
            raise DeadlineError(f"{late} within {within:g} seconds") from error
