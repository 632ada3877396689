"""Who does what may block: threads in a node, the loop itself in the simulation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

__all__ = ["InlineWorker", "ThreadWorker", "Worker"]

T = TypeVar("T")


class Worker(Protocol):
    """Makes calls that touch disks or take long."""

    async def run(self, call: Callable[[], T]) -> T:
        """Make a call and return its result; a cancel leaves it to end by itself."""

    def close(self) -> None:
        """Wait for what is under way, and take no more."""


class ThreadWorker:
    """Makes calls in a few threads. Who asks bounds how many wait."""

    def __init__(self, threads: int) -> None:
        """Begin without a thread: each starts when it is needed."""
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="braidlog-table")

    async def run(self, call: Callable[[], T]) -> T:
        """Make a call in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, call)

    def close(self) -> None:
        """Wait for the calls that threads are at; drop those that wait."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class InlineWorker:
    """Makes calls at once, in another turn of the loop."""

    async def run(self, call: Callable[[], T]) -> T:
        """Make a call."""
        await asyncio.sleep(0)
        return call()

    def close(self) -> None:
        """Do nothing: no call outlives its turn."""
