"""How fast is an index of a JSON field built beside a table that is there?"""

from contextlib import ExitStack
from functools import partial
from time import perf_counter

from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Against, Better, Target
from benchmarks.tables import data
from benchmarks.tables.plan import Plan
from benchmarks.tables.stores import Ours
from benchmarks.timing import Figures

NAME = "index"
_LATE_SECONDS = 600


def contestants(plan: Plan) -> list[Contestant]:
    """Return ours."""
    return [Contestant(Ours.name, Kind.OURS, partial(_start, plan))]


def _start(plan: Plan, stack: ExitStack) -> Measure:
    directory = plan.directory / NAME
    directory.mkdir(parents=True)
    ours = Ours(directory)
    stack.callback(ours.close)
    numbers = data.order(plan.seed, plan.indexed)
    for batch in data.batches(plan.seed, numbers, plan.group):
        ours.write(batch)
    ours.settle()

    def measure() -> Figures:
        begin = perf_counter()
        with ours.store.ddl() as change:
            change.create_index("table", "by_city", "json:/city:text")
        # The change is a moment; the building goes on beside readers and writers.
        if not ours.table.index("by_city").wait(timeout=_LATE_SECONDS):
            msg = f"the index was not built in {_LATE_SECONDS} s"
            raise TimeoutError(msg)
        seconds = perf_counter() - begin
        with ours.store.ddl() as change:
            change.drop_index("table", "by_city")
        return {"per_second": plan.indexed / seconds}

    return measure


def comparisons(plan: Plan) -> list[Comparison]:
    """Return records a second."""
    return [
        Comparison(
            f"build an index of a JSON field of {plan.indexed:,} records",
            "per_second",
            "/s",
            Better.HIGHER,
            ours=Ours.name,
            target=Target(500_000, Against.VALUE),
        )
    ]
