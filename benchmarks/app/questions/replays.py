"""How fast is a log replayed, beside the calls that made it?"""

import itertools
import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from benchmarks.app.bank import bank, concurrent, make_log
from benchmarks.app.plan import Plan
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better, Target
from benchmarks.timing import Figures
from braidlog.app.replay.inputs import commands_of
from braidlog.app.replay.run import replay

NAME = "replays"


def contestants(plan: Plan) -> list[Contestant]:
    """Return live calls, and replays of a log of such calls."""
    return [
        Contestant("live", Kind.FLOOR, partial(_live, plan)),
        Contestant("replay", Kind.OURS, partial(_replay, plan)),
    ]


def _live(plan: Plan, stack: ExitStack) -> Measure:
    host = stack.enter_context(bank.open(plan.directory / NAME / "live"))
    host.call("fill")
    seeds = itertools.count(0, plan.callers)
    return lambda: concurrent(plan, partial(host.call, "move"), next(seeds))


def _replay(plan: Plan, stack: ExitStack) -> Measure:
    path = plan.directory / NAME / "log"
    make_log(plan, path, plan.commands)
    source = commands_of(path)
    stack.callback(source.close)

    def measure() -> Figures:
        state = plan.directory / NAME / "again"
        before = time.process_time()
        done = replay(bank, source, state)
        spent = time.process_time() - before
        shutil.rmtree(state)
        return {
            "per_cpu_second": done.commands / spent,
            "per_second": done.commands / done.seconds,
            "gb_per_second": done.log_bytes / 1e9 / done.seconds,
        }

    return measure


def comparisons(plan: Plan) -> Sequence[Comparison]:
    """Return commands and bytes a second."""
    what = f"replay of {plan.commands} TPC-B calls, one partition"
    row = partial(Comparison, what, ours="replay", better=Better.HIGHER)
    note = f"the floor are the calls of {plan.callers} callers"
    return [
        row("per_second", "commands/s", floor="live", target=Target(3), note=note),
        row("per_cpu_second", "commands/s", floor="live", target=Target(3), note=note),
        row("gb_per_second", "GB/s"),
    ]
