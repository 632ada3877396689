"""Asking several nodes for one thing."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from braidlog.client.attempts import first_of
from braidlog.errors import InvalidArgumentError, LogError, NotReadyError

Attempt = Callable[[], Coroutine[Any, Any, str]]


def gives(result: str | LogError | None) -> Attempt:
    """Return an attempt with a result or an error; None hangs."""

    async def attempt() -> str:
        if result is None:
            await asyncio.Event().wait()
        if isinstance(result, LogError):
            raise result
        return str(result)

    return attempt


async def test_a_node_that_hangs_is_not_waited_for() -> None:
    assert await first_of([gives(None), gives(None), gives("c")], 0.001) == "c"
    assert len(asyncio.all_tasks()) == 1


async def test_a_node_that_fails_is_followed_by_the_next_at_once() -> None:
    failing = gives(NotReadyError("not yet"))
    assert await first_of([failing, failing, gives("c")], 1e9) == "c"


async def test_an_answer_that_is_an_error_ends_it() -> None:
    wrong = gives(InvalidArgumentError("wrong"))
    with pytest.raises(InvalidArgumentError):
        await first_of([gives(NotReadyError("not yet")), wrong, gives("c")], 1e9)


async def test_the_last_error_is_told() -> None:
    with pytest.raises(NotReadyError, match="second"):
        await first_of([gives(NotReadyError(each)) for each in ("first", "second")], 1)
    with pytest.raises(NotReadyError, match="no node"):
        await first_of([], 1)
