"""Ours: the public Python API of an embedded log, and nothing below it."""

import asyncio
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from time import perf_counter_ns
from types import ModuleType
from typing import Any, ClassVar

from benchmarks.contest import Unavailable

LOG = "bench"


def api() -> ModuleType:
    """Return the package.

    Raises:
        Unavailable: It is not installed here, or has no embedded log yet.
    """
    try:
        package = import_module("braidlog")
    except ImportError as error:
        raise Unavailable(f"braidlog cannot be imported ({error})") from error
    if not hasattr(package, "open"):
        raise Unavailable("braidlog has no open()")
    return package


class Embedded:
    """One node with one log."""

    name: ClassVar[str] = "braidlog"

    def __init__(self, directory: Path) -> None:
        """Open or create the node in `directory`."""
        self.node: Any = api().open(directory / "node")
        self.log: Any = self.node.create_log(LOG, exist_ok=True)

    def append_group(self, values: Sequence[bytes]) -> None:
        """Append a list in one call; durable on return."""
        self.log.append_many(values)

    def last(self) -> int:
        """Return the newest position, 0 when empty, and read its record."""
        position = int(self.log.end) - 1
        if position >= self.log.first:
            self.log.get(position)
        return position

    def close(self) -> None:
        """Close the node."""
        self.node.close()


def submit_many_waits(log: Any, value: bytes, count: int, window: int) -> int:
    """Submit records one by one with at most `window` of them not known to be durable.

    Records become durable in order: waiting for the last of half a window settles that
    half.
    """
    half = max(1, window // 2)
    settled = waiting = None
    for begin in range(0, count, half):
        for _ in range(begin, min(begin + half, count)):
            waiting = log.submit(value)
        if settled is not None:
            settled.result()
        settled = waiting
    if settled is not None:
        settled.result()
    return count


def submit_every_result(log: Any, value: bytes, count: int, window: int) -> int:
    """Submit like `submit_many_waits`, and take the position of every record."""
    half = max(1, window // 2)
    before: list[Any] = []
    for begin in range(0, count, half):
        pending = [log.submit(value) for _ in range(begin, min(begin + half, count))]
        for each in before:
            each.result()
        before = pending
    for each in before:
        each.result()
    return count


async def append_from_tasks(
    log: Any, value: bytes, callers: int, each: int
) -> list[float]:
    """Append from tasks that each await their own; return latencies in us."""
    took: list[float] = []

    async def caller() -> None:
        for _ in range(each):
            begin = perf_counter_ns()
            await log.append(value)
            took.append((perf_counter_ns() - begin) / 1e3)

    async with asyncio.TaskGroup() as tasks:
        for _ in range(callers):
            tasks.create_task(caller())
    return took
