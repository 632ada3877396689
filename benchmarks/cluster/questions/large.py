"""How many MiB a second go in as records of 4 KiB, 16 in a batch?"""

from benchmarks import data
from benchmarks.cluster import load, rows
from benchmarks.cluster.plan import Plan
from benchmarks.contest import Comparison, Contestant
from benchmarks.rows import Better

NAME = "large"
_TASKS = 16


def contestants(plan: Plan) -> list[Contestant]:
    """Return all."""
    values = [data.value(plan.seed + i, 4096) for i in range(16)]
    return rows.contestants(
        plan, NAME, lambda system: load.batches(system, values, plan.large, _TASKS)
    )


def comparisons(plan: Plan) -> list[Comparison]:
    """Return the rate."""
    what = f"batches of 16 x 4 KiB, {_TASKS} outstanding"
    return [rows.row(what, "mib_per_second", "MiB/s", Better.HIGHER, 200)]
