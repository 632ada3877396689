"""Asking several nodes for one thing."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from braidlog.client.connection.attempts import Said, first_of
from braidlog.errors import (
    ConnectionLostError,
    DeadlineError,
    InvalidArgumentError,
    LogError,
    NotReadyError,
)

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


def test_an_attempt_without_time_does_not_hide_what_was_said() -> None:
    said = Said()
    said.note("a:1", ConnectionLostError("cannot connect to a:1: refused"), whole=True)
    said.note("a:1", DeadlineError("a:1 did not answer in 0 s"), whole=False)
    said.note("b:1", DeadlineError("b:1 did not answer in 0.1 s"), whole=False)
    said.note("c:1", NotReadyError("starts"), whole=False)
    assert str(said) == (
        "cannot connect to a:1: refused; b:1 did not answer in 0.1 s; c:1: starts"
    )
    said.note("a:1", DeadlineError("a:1 did not answer in 5 s"), whole=True)
    assert str(said).startswith("a:1 did not answer in 5 s; ")


def test_not_every_node_of_a_large_cluster_is_named() -> None:
    said = Said()
    for n in range(100):
        said.note(f"n{n}:1", NotReadyError("starts"), whole=True)
    assert str(said).endswith("; n7:1: starts; and 92 more")
