"""How long does one append take when nothing else is under way?"""

from benchmarks import data
from benchmarks.cluster import load, rows
from benchmarks.cluster.plan import Plan
from benchmarks.contest import Comparison, Contestant
from benchmarks.rows import Better

NAME = "one_at_a_time"


def contestants(plan: Plan) -> list[Contestant]:
    """Return all."""
    value = data.value(plan.seed, 128)
    return rows.contestants(
        plan, NAME, lambda system: load.one_at_a_time(system, value, plan.single)
    )


def comparisons(plan: Plan) -> list[Comparison]:
    """Return the times."""
    what = f"128 B, one at a time, {plan.single} a round"
    return [
        rows.row(what, "p50_us", "us", Better.LOWER, 1_500),
        rows.row(what, "p99_us", "us", Better.LOWER, None),
        *rows.processor_rows(what),
    ]
