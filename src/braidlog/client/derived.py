"""Blocking classes, derived from the async ones call by call.

Nothing is done twice: each call of a blocking class is the call of the async class of
the same name and arguments, run on a loop in a thread of its own. So it can be used
from many threads.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from types import TracebackType
from typing import (
    Any,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
)

from braidlog.client.background import BackgroundLoop
from braidlog.errors import ClosedError

__all__ = [
    "Blocking",
    "BlockingOwner",
    "blocking_call",
    "blocking_iterator",
    "blocking_maker",
]

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
A_co = TypeVar("A_co", covariant=True)


class Blocking(Generic[A_co]):
    """Something of the async client, and the loop that it lives on."""

    def __init__(self, loop: BackgroundLoop, target: A_co) -> None:
        """Users get these from a `Client`."""
        self._loop = loop
        self._target = target

    def __repr__(self) -> str:
        """Show what is delegated to."""
        return f"<{type(self).__name__} of {self._target!r}>"


def blocking_call(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[A], P], T]:
    """Make a blocking method of an async one."""

    @functools.wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **keywords: P.kwargs) -> T:
        return self._loop.run(method(self._target, *args, **keywords))

    return call


def blocking_maker(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
    kind: Callable[[BackgroundLoop, T], B],
) -> Callable[Concatenate[Blocking[A], P], B]:
    """Make a blocking method of an async one whose result lives on the loop, too."""

    @functools.wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **keywords: P.kwargs) -> B:
        found = self._loop.run(method(self._target, *args, **keywords))
        return kind(self._loop, found)

    return call


def blocking_iterator(
    method: Callable[Concatenate[A, P], AsyncGenerator[list[T], None]],
) -> Callable[Concatenate[Blocking[A], P], Iterator[T]]:
    """Make a blocking iterator of an async one that gives chunks."""

    @functools.wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **keywords: P.kwargs) -> Iterator[T]:
        chunks = method(self._target, *args, **keywords)
        try:
            while (chunk := self._loop.run(_next(chunks))) is not None:
                yield from chunk
        finally:
            # After a close the loop has ended it.
            with contextlib.suppress(ClosedError):
                self._loop.end(chunks.aclose())

    return call


async def _next(chunks: AsyncGenerator[T, None]) -> T | None:
    return await anext(chunks, None)


class Owned(Protocol):
    """Something of the async client that connects, and is closed."""

    async def __aenter__(self) -> Any:
        """Connect."""

    async def close(self) -> None:
        """Close all connections."""


O_co = TypeVar("O_co", bound=Owned, covariant=True)


class BlockingOwner(Blocking[O_co]):
    """One that owns its loop: a context manager that connects and closes."""

    def __enter__(self) -> Self:
        """Connect; raises what entering the async class raises."""
        try:
            self._loop.run(self._target.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()

    def close(self) -> None:
        """Close all connections and the loop. Idempotent."""
        if self._loop.alive:
            self._loop.finish(self._target.close())
        self._loop.close()
