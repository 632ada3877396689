"""What is done with every system, in the same way: callers that append, a reader.

All systems of a run share one event loop in the measuring process, so that their
clients cost the same. It stands still between two measurements.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from time import perf_counter, perf_counter_ns
from typing import Any, Protocol, TypeVar

import uvloop

from benchmarks.timing import Figures, summary

T = TypeVar("T")

APPENDS = "appends"
"""Among the figures of a workload: how many appends it took, those that warm up too."""

WARM = 50
"""Appends that do not count, before those one at a time."""


class System(Protocol):
    """A running cluster with one empty log, and a client of it."""

    note: str
    """What a reader of the figures has to know."""

    async def open(self) -> None:
        """Connect, and make the log."""

    async def append(self, value: bytes) -> None:
        """Append one record; return when it is acknowledged."""

    async def append_many(self, values: Sequence[bytes]) -> None:
        """Append records, together if the system can; return when all are."""

    async def read(self, count: int) -> int:
        """Read `count` records from the start, in their order; return how many."""

    async def close(self) -> None:
        """Disconnect."""


class Loop:
    """The event loop of the clients."""

    def __init__(self, stack: ExitStack) -> None:
        """Run until the stack closes."""
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._runner = stack.enter_context(runner)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do one thing and return what comes of it."""
        return self._runner.run(work)


async def one_at_a_time(system: System, value: bytes, count: int) -> Figures:
    """Append one after the other; times of each in microseconds."""
    for _ in range(WARM):
        await system.append(value)
    took = []
    begun = perf_counter()
    for _ in range(count):
        before = perf_counter_ns()
        await system.append(value)
        took.append((perf_counter_ns() - before) / 1e3)
    return {**summary(took, perf_counter() - begun), APPENDS: WARM + count}


async def callers(system: System, value: bytes, count: int, tasks: int) -> Figures:
    """Append `count` records from so many callers that wait for each of theirs."""
    took: list[float] = []

    async def caller(turns: int) -> None:
        for _ in range(turns):
            before = perf_counter_ns()
            await system.append(value)
            took.append((perf_counter_ns() - before) / 1e3)

    begun = perf_counter()
    await _all(caller(count // tasks) for _ in range(tasks))
    return {**summary(took, perf_counter() - begun), APPENDS: len(took)}


async def batches(
    system: System, values: Sequence[bytes], count: int, tasks: int
) -> Figures:
    """Append the same batch `count` times from so many callers."""

    async def caller(turns: int) -> None:
        for _ in range(turns):
            await system.append_many(values)

    begun = perf_counter()
    await _all(caller(count // tasks) for _ in range(tasks))
    seconds = perf_counter() - begun
    records = count // tasks * tasks * len(values)
    return {
        "per_second": records / seconds,
        "mib_per_second": records * len(values[0]) / (1 << 20) / seconds,
    }


async def fill(system: System, value: bytes, count: int) -> None:
    """Append `count` records, in batches of 100."""
    for _ in range(0, count, 100):
        await system.append_many([value] * 100)


async def read(system: System, count: int) -> Figures:
    """Read from the start."""
    begun = perf_counter()
    found = await system.read(count)
    seconds = perf_counter() - begun
    if found != count:
        raise RuntimeError(f"{found} of {count} records were read")
    return {"per_second": count / seconds}


async def _all(work: Any) -> None:
    async with asyncio.TaskGroup() as group:
        for each in work:
            group.create_task(each)
