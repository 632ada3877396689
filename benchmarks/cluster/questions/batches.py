"""How many records a second go in in batches of 100?"""

from benchmarks import data
from benchmarks.cluster import load, rows
from benchmarks.cluster.plan import Plan
from benchmarks.contest import Comparison, Contestant
from benchmarks.rows import Better

NAME = "batches"


def contestants(plan: Plan) -> list[Contestant]:
    """Return all."""
    values = [data.value(plan.seed + i, 128) for i in range(100)]
    return rows.contestants(
        plan,
        NAME,
        lambda system: load.batches(system, values, plan.batches, plan.outstanding),
    )


def comparisons(plan: Plan) -> list[Comparison]:
    """Return the rate."""
    what = f"batches of 100 x 128 B, {plan.outstanding} outstanding"
    return [rows.row(what, "per_second", "/s", Better.HIGHER, 1_000_000)]
