"""Asks several nodes for one thing, without waiting long for any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final, TypeVar

from braidlog.client.retry import Verdict, verdict_of
from braidlog.errors import (
    ConnectionLostError,
    DeadlineError,
    LogError,
    NotReadyError,
    QuotaExceededError,
)

_T = TypeVar("_T")

UNREACHED: Final = "Check the addresses, and whether the nodes are running"
_SHOWN: Final = 8
"""Nodes whose words an error repeats."""


class Said:
    """What each address said last."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self._errors: dict[str, LogError] = {}

    def note(self, address: str, error: LogError, *, whole: bool) -> None:
        """Remember an error; ``whole`` says whether its attempt had the usual time.

        That the last attempt had no time left says nothing of the node: what it had
        said before does.
        """
        timeout = isinstance(error, DeadlineError)
        if whole or not timeout or address not in self._errors:
            self._errors[address] = error

    @property
    def quota(self) -> QuotaExceededError | None:
        """Return the refusal of a node whose quota is used up, if one is."""
        for error in self._errors.values():
            if isinstance(error, QuotaExceededError):
                return error
        return None

    @property
    def all_refused(self) -> bool:
        """Whether every address refuses connections, as far as they were tried."""
        return bool(self._errors) and all(map(_is_refused, self._errors.values()))

    def unreached(self, what: str) -> LogError:
        """Return the error of who has found nobody: nothing can have happened."""
        error: LogError = ConnectionLostError(f"no {what} can be reached: {self}")
        error.outcome = "not_stored"
        error.hint = UNREACHED
        return error

    def __str__(self) -> str:
        """Return it as one line."""
        parts = [
            error.message if address in error.message else f"{address}: {error.message}"
            for address, error in self._errors.items()
        ]
        if len(parts) > _SHOWN:
            parts[_SHOWN:] = [f"and {len(parts) - _SHOWN} more"]
        return "; ".join(parts)


def _is_refused(error: LogError) -> bool:
    """Tell whether no connection was made because the system said at once why not.

    Nothing listens there, or there is no way to that host. Who does not answer may
    only be slow.
    """
    cause = error.__cause__
    by_system = isinstance(cause, OSError) and not isinstance(cause, TimeoutError)
    sent = error.outcome != "not_stored"
    return by_system and not sent and isinstance(error, ConnectionLostError)


async def first_of(
    attempts: Iterable[Callable[[], Coroutine[Any, Any, _T]]], pause_s: float
) -> _T:
    """Return the first result of attempts that may all be made.

    The next one begins when one failed, or when ``pause_s`` seconds passed: a node that
    hangs, or a network that swallows everything, must not hold up what others can
    answer. What is still under way at the end is cancelled.

    Raises:
        LogError: the answer, if one of them got an error that is; else the last error.
    """
    under_way: set[asyncio.Task[_T]] = set()
    last: LogError = NotReadyError("the client knows no node of the cluster")
    left = list(attempts)
    try:
        while left or under_way:
            if left:
                under_way.add(asyncio.create_task(left.pop(0)()))
            done, under_way = await asyncio.wait(
                under_way,
                timeout=pause_s if left else None,
                return_when=asyncio.FIRST_COMPLETED,
            )
            for task in done:
                try:
                    return task.result()
                except LogError as error:
                    if verdict_of(error) is Verdict.FINAL:
                        raise
                    last = error
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
    raise last


async def shared(task: asyncio.Task[_T], check_open: Callable[[], None]) -> _T:
    """Return the result of a task that others wait for too, and nobody cancels.

    Closing the client does. That is no cancellation of who waits: it would look as if
    somebody had asked for it, and who waits for the waiter would never hear of it.

    Raises:
        ClosedError: the task ended because the client was closed.
    """
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        me = asyncio.current_task()
        if me is None or not me.cancelling():
            check_open()
        raise
