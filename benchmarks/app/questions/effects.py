"""A procedure on many rows: is the call logged, or what it changed?"""

import random
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from benchmarks.app.bank import ACCOUNTS, bank
from benchmarks.app.plan import Plan
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better
from benchmarks.timing import Figures, rate

NAME = "effects"
_PROCEDURES = {"command": "raise_many", "effects": "raise_many_effects"}


def contestants(plan: Plan) -> list[Contestant]:
    """Return both ways to log."""
    return [
        Contestant("effects", Kind.FLOOR, partial(_start, plan, "effects")),
        Contestant("command", Kind.OURS, partial(_start, plan, "command")),
    ]


def _start(plan: Plan, name: str, stack: ExitStack) -> Measure:
    host = stack.enter_context(bank.open(plan.directory / NAME / name))
    host.call("fill")
    numbers = random.Random(plan.seed)
    procedure = _PROCEDURES[name]
    log = host.runner._log

    def measure() -> Figures:
        begin = log.end

        def calls() -> int:
            for _ in range(plan.wide_calls):
                first = numbers.randrange(ACCOUNTS - plan.rows)
                host.call(procedure, first, plan.rows, 1)
            return plan.wide_calls

        figures = rate(calls, 0)
        written = sum(len(each.value or b"") for each in log.read(begin, 1 << 30))
        return {**figures, "log_bytes": written / plan.wide_calls}

    return measure


def comparisons(plan: Plan) -> Sequence[Comparison]:
    """Return calls a second and bytes of the log for each."""
    what = f"{plan.rows} rows changed by a call, one caller"
    row = partial(Comparison, what, ours="command", floor="effects")
    note = "the floor logs the changed rows"
    return [
        row("per_second", "calls/s", Better.HIGHER, note=note),
        row("log_bytes", "B", Better.LOWER, note=note),
    ]
