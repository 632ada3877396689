"""How fast is a log read from its start, and when does its reader see a new record?"""

import asyncio
from contextlib import ExitStack
from functools import partial
from time import perf_counter_ns

from benchmarks import data
from benchmarks.cluster import load, rows
from benchmarks.cluster.plan import Plan
from benchmarks.cluster.systems import OURS, PEERS, braidlog
from benchmarks.cluster.systems import opened as open_system
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better
from benchmarks.timing import Figures, summary

NAME = "reading"
_TAIL = "braidlog tail"


def contestants(plan: Plan) -> list[Contestant]:
    """Return ours and the peers; the floor keeps nothing."""
    kinds = {OURS: Kind.OURS, **dict.fromkeys(PEERS, Kind.PEER)}
    return [
        *(
            Contestant(name, kind, partial(_from_start, name, plan))
            for name, kind in kinds.items()
        ),
        Contestant(_TAIL, Kind.OURS, partial(_at_the_tail, plan)),
    ]


def _from_start(name: str, plan: Plan, stack: ExitStack) -> Measure:
    loop, system, _ = open_system(name, plan, NAME, stack)
    loop.run(load.fill(system, data.value(plan.seed, 128), plan.read))
    return lambda: loop.run(load.read(system, plan.read))


def _at_the_tail(plan: Plan, stack: ExitStack) -> Measure:
    loop, system, _ = open_system(OURS, plan, f"{NAME}-tail", stack)
    assert isinstance(system, braidlog.Braidlog)
    return lambda: loop.run(_follow(system, plan))


async def _follow(system: braidlog.Braidlog, plan: Plan) -> Figures:
    """Append one at a time; measure until a subscriber has it."""
    value = data.value(plan.seed, 128)
    first = await system.log.append(value)
    seen: asyncio.Queue[int] = asyncio.Queue()

    async def subscriber() -> None:
        async for record in system.log.subscribe(first):
            seen.put_nowait(record.position)

    async with asyncio.TaskGroup() as group:
        task = group.create_task(subscriber())
        await seen.get()
        took = []
        begun = perf_counter_ns()
        for _ in range(plan.single):
            before = perf_counter_ns()
            position = await system.log.append(value)
            while await seen.get() != position:
                pass
            took.append((perf_counter_ns() - before) / 1e3)
        seconds = (perf_counter_ns() - begun) / 1e9
        task.cancel()
    return summary(took, seconds)


def comparisons(plan: Plan) -> list[Comparison]:
    """Return the rate from the start, and the time at the tail."""
    tail = "append to receipt at the tail, 128 B"
    return [
        rows.row(
            f"from the start, {plan.read:,} x 128 B",
            "per_second",
            "/s",
            Better.HIGHER,
            None,
        ),
        Comparison(tail, "p50_us", "us", Better.LOWER, ours=_TAIL),
        Comparison(tail, "p99_us", "us", Better.LOWER, ours=_TAIL),
    ]
