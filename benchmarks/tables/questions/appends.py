"""What does a table cost the appends of its log?"""

from contextlib import ExitStack
from functools import partial

import braidlog
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better, Target
from benchmarks.tables import data
from benchmarks.tables.plan import Plan
from benchmarks.timing import latencies

NAME = "appends"
_WARM = 50


def contestants(plan: Plan) -> list[Contestant]:
    """Return appends with and without a table."""
    return [
        Contestant("without", Kind.FLOOR, partial(_start, plan, False)),
        Contestant("with", Kind.OURS, partial(_start, plan, True)),
    ]


def _start(plan: Plan, table: bool, stack: ExitStack) -> Measure:
    directory = plan.directory / NAME / ("with" if table else "without")
    store = stack.enter_context(braidlog.open(directory, create=True))
    log = store.create_log("records")
    if table:
        store.create_table("table", log="records")
    keys = data.key_list(data.chosen(plan.seed, plan.appends, plan.keys))
    value = b"v" * data.VALUE_BYTES
    return lambda: latencies(
        lambda turn: log.append(value, key=keys[turn]), plan.appends, _WARM
    )


def comparisons(plan: Plan) -> list[Comparison]:
    """Return the median and the tail."""
    row = partial(
        Comparison,
        "one caller, durable per append, log with a table",
        unit="us",
        better=Better.LOWER,
        ours="with",
        floor="without",
        note="floor: the same without a table",
    )
    return [row("p50_us", target=Target(1.1)), row("p99_us")]
