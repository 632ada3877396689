"""Threads where there may be room for none: the limits of users and containers."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from typing import ParamSpec, TypeVar, cast

from braidlog.errors import UnavailableError

P = ParamSpec("P")
T = TypeVar("T")


def no_thread(what: str, reason: RuntimeError) -> UnavailableError:
    """Return the error for a thread that cannot start."""
    return UnavailableError(
        f"the system refused this process a thread {what}: {reason}. Raise "
        "the limit (`ulimit -u`, or `pids.max` of the container), or stop "
        "other processes"
    )


def start_thread(name: str, target: Callable[[], object]) -> threading.Thread:
    """Start a thread that does not keep the process alive; its name says what for.

    Raises:
        UnavailableError: the system gives no more threads. Nothing was started.
    """
    thread = threading.Thread(target=target, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        raise no_thread(f"for {name}", error) from error
    return thread


class _Once:
    """A call that can be taken back as long as no thread has begun it."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._lock = threading.Lock()
        self._gone = False

    def __call__(self) -> object:
        with self._lock:
            if self._gone:
                return None
            self._gone = True
        return self._call()

    def take_back(self) -> None:
        with self._lock:
            self._gone = True


def _begin(pool: Executor | None, once: _Once) -> asyncio.Future[object]:
    try:
        return asyncio.get_running_loop().run_in_executor(pool, once)
    except RuntimeError as error:
        # A pool that cannot grow keeps the call, for a thread that is busy now.
        once.take_back()
        raise no_thread("for blocking calls", error) from error


def begin_in(pool: Executor, function: Callable[[], T]) -> asyncio.Future[T]:
    """Begin a call in a thread of a pool.

    Raises:
        UnavailableError: the system gives no more threads. The function was not called,
            and will not be.
    """
    return cast("asyncio.Future[T]", _begin(pool, _Once(function)))


async def in_thread(
    function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs
) -> T:
    """Call what may block in a thread, as `asyncio.to_thread` does.

    Raises:
        UnavailableError: the system gives no more threads. The function was not called,
            and will not be.
    """
    context = contextvars.copy_context()
    call = functools.partial(context.run, function, *args, **keywords)
    return cast("T", await _begin(None, _Once(call)))


async def close_in_thread(close: Callable[[], object]) -> None:
    """Close something in a thread, or here if the system gives no more threads.

    What is locked must become free, also if the loop has to wait for it.
    """
    try:
        closing = _begin(None, _Once(close))
    except UnavailableError:
        close()
        return
    await closing
