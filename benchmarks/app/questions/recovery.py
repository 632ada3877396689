"""How long does it take to have the state again, with and without a snapshot?

The snapshot is a copy of the databases a fixed number of commands before the end.
"""

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from benchmarks.app.bank import bank, make_log, moves, submit
from benchmarks.app.plan import Plan
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better
from benchmarks.timing import Figures

NAME = "recovery"


def contestants(plan: Plan) -> list[Contestant]:
    """Return recoveries from zero and from a snapshot, of each length."""
    return [
        Contestant(
            f"{name} {length}", kind, partial(_start, plan, length, name == "snapshot")
        )
        for length in plan.recovery
        for name, kind in (("zero", Kind.FLOOR), ("snapshot", Kind.OURS))
    ]


def _start(plan: Plan, length: int, snapshot: bool, stack: ExitStack) -> Measure:
    path = plan.directory / NAME / f"{length}-{'snapshot' if snapshot else 'zero'}"
    make_log(plan, path, length - plan.tail)
    kept = path / "kept"
    shutil.copytree(path / "state", kept)
    arguments = moves(plan.seed + 1)
    with bank.open(path) as host:
        for _ in range(plan.tail):
            submit(host, *next(arguments))
    return partial(_recover, path, kept if snapshot else None)


def _recover(path: Path, kept: Path | None) -> Figures:
    shutil.rmtree(path / "state")
    begin = time.perf_counter()
    if kept is not None:
        shutil.copytree(kept, path / "state")
    with bank.open(path):
        seconds = time.perf_counter() - begin
    return {"seconds": seconds}


def comparisons(plan: Plan) -> Sequence[Comparison]:
    """Return seconds until the first call can be made."""
    return [
        Comparison(
            f"open after {length} commands, snapshot {plan.tail} before the end",
            "seconds",
            "s",
            Better.LOWER,
            ours=f"snapshot {length}",
            floor=f"zero {length}",
            note="the floor has no snapshot",
        )
        for length in plan.recovery
    ]
