"""How fast are appends from one process: alone, many at once, in batches, of 4 KiB?"""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks import data
from benchmarks.cluster import load, rows
from benchmarks.cluster.fleet import Run
from benchmarks.cluster.load import Bound, Client
from benchmarks.cluster.plan import Plan
from benchmarks.contest import Comparison, Contestant
from benchmarks.rows import Better
from benchmarks.timing import Figures


@dataclass(frozen=True, slots=True)
class Appends:
    """One workload for all systems."""

    NAME: str
    what: str
    work: Callable[[Client, Plan], Coroutine[Any, Any, Figures]]
    metrics: Sequence[tuple[str, str, Better, float | None]]
    """Metric, unit, which way it improves, and the promise."""
    processor: bool = False

    def contestants(self, run: Run) -> list[Contestant]:
        """Return all."""
        return rows.contestants(
            run, self.NAME, lambda client: self.work(client, run.plan)
        )

    def comparisons(self, _: Run) -> list[Comparison]:
        """Return the rows."""
        made = [rows.row(self.what, *each) for each in self.metrics]
        return [*made, *(rows.processor_rows(self.what) if self.processor else ())]


def _outstanding(tasks: int, promise: float) -> Appends:
    async def work(client: Client, plan: Plan) -> Figures:
        value = data.value(plan.seed, 128)
        bound = Bound(plan.appends, plan.seconds)
        return (await load.callers(client, value, bound, tasks)).figures()

    return Appends(
        f"outstanding-{tasks}",
        f"128 B, {tasks} outstanding",
        work,
        [
            ("per_second", "/s", Better.HIGHER, promise),
            ("p99_us", "us", Better.LOWER, None),
        ],
        processor=True,
    )


async def _one_at_a_time(client: Client, plan: Plan) -> Figures:
    value = data.value(plan.seed, 128)
    # Twice as long as others: there are to be enough of them for the 99th percentile.
    return await load.one_at_a_time(client, value, Bound(plan.single, 2 * plan.seconds))


async def _batches(client: Client, plan: Plan) -> Figures:
    values = [data.value(plan.seed + i, 128) for i in range(100)]
    bound = Bound(plan.batches, plan.seconds)
    return (await load.batches(client, values, bound, 64)).figures(len(values))


async def _large(client: Client, plan: Plan) -> Figures:
    value = data.value(plan.seed, 4096)
    bound = Bound(plan.large, plan.seconds)
    return (await load.callers(client, value, bound, 16)).figures()


async def _large_batches(client: Client, plan: Plan) -> Figures:
    values = [data.value(plan.seed + i, 4096) for i in range(16)]
    bound = Bound(plan.large_batches, plan.seconds)
    figures = (await load.batches(client, values, bound, 16)).figures(len(values))
    return {**figures, "mib_per_second": figures["per_second"] * 4096 / (1 << 20)}


ONE_AT_A_TIME = Appends(
    "one_at_a_time",
    "128 B, one at a time",
    _one_at_a_time,
    [("p50_us", "us", Better.LOWER, 600), ("p99_us", "us", Better.LOWER, None)],
    processor=True,
)
OUTSTANDING_16 = _outstanding(16, 40_000)
OUTSTANDING_64 = _outstanding(64, 100_000)
BATCHES = Appends(
    "batches",
    "batches of 100 x 128 B, 64 outstanding",
    _batches,
    [("per_second", "/s", Better.HIGHER, 1_500_000)],
    processor=True,
)
LARGE = Appends(
    "large",
    "4 KiB, 16 outstanding",
    _large,
    [("per_second", "/s", Better.HIGHER, 25_000)],
)
LARGE_BATCHES = Appends(
    "large_batches",
    "batches of 16 x 4 KiB, 16 outstanding",
    _large_batches,
    [("mib_per_second", "MiB/s", Better.HIGHER, 200)],
)
