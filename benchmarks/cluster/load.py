"""What is done with every system, in the same way: callers that append, a reader.

All systems of a run share one event loop in the measuring process, so that their
clients cost the same. It stands still between two measurements.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from time import monotonic, perf_counter, perf_counter_ns
from typing import Any, Protocol, TypeVar

import uvloop

from benchmarks.timing import Figures, summary

T = TypeVar("T")

APPENDS = "appends"
"""Among the figures of a workload: how many appends it took, those that warm up too."""

WARM = 50
"""Appends that do not count, before those one at a time, at most."""


_FILL_S = 60.0


class Client(Protocol):
    """A client of a running cluster."""

    async def open(self, log: str, streams: int, *, make: bool) -> None:
        """Connect to a log, after making it and waiting for its three replicas."""

    async def append(self, value: bytes) -> None:
        """Append one record; return when it is acknowledged."""

    async def append_many(self, values: Sequence[bytes]) -> None:
        """Append records, together if the system can; return when all are."""

    async def read(self, count: int) -> int:
        """Read `count` records from the start, in their order; return how many."""

    async def leader(self) -> int:
        """Return which node takes the appends, counted from 0."""

    async def recover(self) -> None:
        """Do what an application does after an append failed: connect elsewhere."""

    async def close(self) -> None:
        """Disconnect."""


@dataclass(frozen=True, slots=True)
class Bound:
    """When a workload ends: after so many calls, or after so long."""

    calls: int
    seconds: float


@dataclass(slots=True)
class Run:
    """What callers did: when it began and ended, by the clock of all processes.

    Where it ended because time was over, calls that were under way then are not in the
    rate: the last may wait for what only others would set off.
    """

    begin: float
    end: float = 0.0
    done: int = 0
    """How many calls returned until the end."""
    took_us: list[float] = field(default_factory=list)
    """How long each call took, those under way at the end as well."""

    def figures(self, records: int = 1) -> Figures:
        """Return rate and times; a call appended so many records."""
        made = summary(self.took_us, self.end - self.begin)
        made["per_second"] = self.done * records / (self.end - self.begin)
        return {**made, APPENDS: len(self.took_us) * records}


class Loop:
    """The event loop of the clients."""

    def __init__(self, stack: ExitStack) -> None:
        """Run until the stack closes."""
        runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._runner = stack.enter_context(runner)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do one thing and return what comes of it."""
        return self._runner.run(work)


async def one_at_a_time(client: Client, value: bytes, bound: Bound) -> Figures:
    """Append one after the other; times of each in microseconds."""
    warm = await callers(client, value, Bound(WARM, bound.seconds / 2), 1)
    run = await callers(client, value, bound, 1)
    return {**run.figures(), APPENDS: len(warm.took_us) + len(run.took_us)}


async def callers(client: Client, value: bytes, bound: Bound, tasks: int) -> Run:
    """Append from so many callers that wait for each of theirs."""
    return await _calls(lambda: client.append(value), bound, tasks)


async def batches(
    client: Client, values: Sequence[bytes], bound: Bound, tasks: int
) -> Run:
    """Append the same batch from so many callers."""
    return await _calls(lambda: client.append_many(values), bound, tasks)


async def _calls(call: Callable[[], Awaitable[None]], bound: Bound, tasks: int) -> Run:
    run = Run(monotonic())
    until = run.begin + bound.seconds

    async def caller(turns: int) -> None:
        for _ in range(turns):
            before = perf_counter_ns()
            await call()
            run.took_us.append((perf_counter_ns() - before) / 1e3)
            if monotonic() > until:
                return
            run.done += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(tasks):
            group.create_task(caller(max(1, bound.calls // tasks)))
    run.end = min(monotonic(), until)
    return run


async def fill(client: Client, value: bytes, count: int) -> None:
    """Append `count` records, a multiple of 1,000, in batches of 100."""
    bound = Bound(count // 100, _FILL_S)
    await batches(client, [value] * 100, bound, 10)


async def read(client: Client, count: int) -> Figures:
    """Read from the start."""
    begun = perf_counter()
    found = await client.read(count)
    seconds = perf_counter() - begun
    if found != count:
        raise RuntimeError(f"{found} of {count} records were read")
    return {"per_second": count / seconds}
