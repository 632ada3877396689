"""How long does a backup by links take, and what do appends notice of it?"""

import shutil
import threading
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Against, Better, Target
from benchmarks.tables import data
from benchmarks.tables.plan import MIB, Plan
from benchmarks.tables.stores import Ours
from benchmarks.timing import Figures, percentile

NAME = "backup"


def contestants(plan: Plan) -> list[Contestant]:
    """Return ours with a backup, and the same appends without one."""
    return [Contestant(Ours.name, Kind.OURS, partial(_start, plan))]


def _start(plan: Plan, stack: ExitStack) -> Measure:
    directory = plan.directory / NAME
    directory.mkdir(parents=True)
    ours = Ours(directory)
    stack.callback(ours.close)
    count = plan.backup_bytes // (data.KEY_BYTES + data.VALUE_BYTES)
    for batch in data.batches(plan.seed, data.order(plan.seed, count), plan.group):
        ours.write(batch)
    ours.settle()
    turn = iter(range(1_000))
    return lambda: _measure(ours, directory / f"backup-{next(turn)}")


def _measure(ours: Ours, place: Path) -> Figures:
    quiet = _appends(ours, threading.Event(), 1_000)
    done, during = threading.Event(), list[float]()
    thread = threading.Thread(
        target=lambda: during.extend(_appends(ours, done, 1_000_000))
    )
    thread.start()
    begin = perf_counter()
    ours.store.backup(place)
    seconds = perf_counter() - begin
    done.set()
    thread.join()
    shutil.rmtree(place)
    return {
        "seconds": seconds,
        "p99_ratio": percentile(during, 99) / percentile(quiet, 99),
    }


def _appends(ours: Ours, done: threading.Event, most: int) -> list[float]:
    took: list[float] = []
    value = b"v" * data.VALUE_BYTES
    while len(took) < most and not done.is_set():
        begin = perf_counter()
        ours.log.append(value, key=b"%016d" % (len(took) % 1000))
        took.append(perf_counter() - begin)
    return took


def comparisons(plan: Plan) -> list[Comparison]:
    """Return the duration and what appends notice."""
    size = f"{plan.backup_bytes // MIB:,} MiB"
    return [
        Comparison(
            f"backup of {size} into a directory of the same file system",
            "seconds",
            "s",
            Better.LOWER,
            ours=Ours.name,
            target=Target(2, Against.VALUE),
        ),
        Comparison(
            f"appends during a backup of {size}: p99 against that before",
            "p99_ratio",
            "x",
            Better.LOWER,
            ours=Ours.name,
            target=Target(2, Against.VALUE),
        ),
    ]
