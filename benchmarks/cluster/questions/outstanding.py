"""How many appends a second do 64 callers get who wait for each of theirs?"""

from benchmarks import data
from benchmarks.cluster import load, rows
from benchmarks.cluster.plan import Plan
from benchmarks.contest import Comparison, Contestant
from benchmarks.rows import Better

NAME = "outstanding"


def contestants(plan: Plan) -> list[Contestant]:
    """Return all."""
    value = data.value(plan.seed, 128)
    return rows.contestants(
        plan,
        NAME,
        lambda system: load.callers(system, value, plan.appends, plan.outstanding),
    )


def comparisons(plan: Plan) -> list[Comparison]:
    """Return the rate, and the time of an append."""
    what = f"128 B, {plan.outstanding} outstanding"
    return [
        rows.row(what, "per_second", "/s", Better.HIGHER, 40_000),
        rows.row(what, "p99_us", "us", Better.LOWER, None),
        *rows.processor_rows(what),
    ]
