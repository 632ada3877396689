"""When does a reader of ours see a new record?"""

import asyncio
from contextlib import ExitStack
from functools import partial
from time import perf_counter_ns

from benchmarks import data
from benchmarks.cluster.fleet import Run
from benchmarks.cluster.systems import OURS, braidlog
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better
from benchmarks.timing import Figures, summary

NAME = "tail"


def contestants(run: Run) -> list[Contestant]:
    """Return ours."""
    return [Contestant(OURS, Kind.OURS, partial(_start, run))]


def _start(run: Run, stack: ExitStack) -> Measure:
    client = run.fleet.open(OURS, NAME, 1, stack)
    assert isinstance(client, braidlog.Braidlog)
    value = data.value(run.plan.seed, 128)
    return lambda: run.fleet.loop.run(_follow(client, value, run.plan.single))


async def _follow(client: braidlog.Braidlog, value: bytes, count: int) -> Figures:
    """Append one at a time; measure until a subscriber has it."""
    first = await client.log.append(value)
    seen: asyncio.Queue[int] = asyncio.Queue()

    async def subscriber() -> None:
        async for record in client.log.subscribe(first):
            seen.put_nowait(record.position)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(subscriber())
        await seen.get()
        took = []
        begun = perf_counter_ns()
        for _ in range(count):
            before = perf_counter_ns()
            position = await client.log.append(value)
            while await seen.get() != position:
                pass
            took.append((perf_counter_ns() - before) / 1e3)
        seconds = (perf_counter_ns() - begun) / 1e9
        task.cancel()
    return summary(took, seconds)


def comparisons(_: Run) -> list[Comparison]:
    """Return the time at the tail."""
    what = "append to receipt at the tail, 128 B"
    return [
        Comparison(what, "p50_us", "us", Better.LOWER, ours=OURS),
        Comparison(what, "p99_us", "us", Better.LOWER, ours=OURS),
    ]
