"""Methods for asyncio, made of blocking ones: each runs in a worker thread."""

from __future__ import annotations

import functools
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeVar

from braidlog.store.threads import in_thread

__all__ = ["Blocking", "call_of", "iterate_of"]

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)

# Records handed to the loop at a time.
CHUNK: Final = 1024


class Blocking(Protocol[A_co]):
    """Something for asyncio that stands for something that blocks."""

    @property
    def blocking(self) -> A_co:
        """The blocking one."""


def call_of(
    method: Callable[Concatenate[A, P], T],
) -> Callable[Concatenate[Blocking[A], P], Coroutine[Any, Any, T]]:
    """Make a method for asyncio of a blocking one, which runs in a thread."""

    @functools.wraps(method)
    async def call(self: Blocking[A], /, *args: P.args, **keywords: P.kwargs) -> T:
        return await in_thread(method, self.blocking, *args, **keywords)

    return call


def iterate_of(
    method: Callable[Concatenate[A, P], Iterator[T]], chunk: int = CHUNK
) -> Callable[Concatenate[Blocking[A], P], AsyncIterator[T]]:
    """Make an iterator for asyncio of a blocking one, read in chunks in a thread."""

    @functools.wraps(method)
    async def call(
        self: Blocking[A], /, *args: P.args, **keywords: P.kwargs
    ) -> AsyncIterator[T]:
        # Called in the thread too: it may look for an archive, which may be far away.
        items = await in_thread(method, self.blocking, *args, **keywords)
        while True:
            found, error = await in_thread(_take, items, chunk)
            for item in found:
                yield item
            if error is not None:
                raise error
            if len(found) < chunk:
                return

    return call


def _take(items: Iterator[T], count: int) -> tuple[list[T], Exception | None]:
    """Return the next items, and what was raised behind them."""
    found: list[T] = []
    try:
        found.extend(itertools.islice(items, count))
    except Exception as error:
        return found, error
    return found, None
