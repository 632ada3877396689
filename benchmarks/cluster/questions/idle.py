"""What do nodes cost that have a log and nothing to do?"""

import time
from contextlib import ExitStack
from functools import partial

from benchmarks.cluster import processes, rows
from benchmarks.cluster.fleet import Run
from benchmarks.cluster.systems import BESIDE, OURS, PEERS
from benchmarks.contest import Comparison, Contestant, Measure
from benchmarks.rows import Against, Better, Target
from benchmarks.timing import Figures

NAME = "idle"
_FIRST_S = 2.0
"""After the log was made, until nothing is left to do for it."""


def contestants(run: Run) -> list[Contestant]:
    """Return ours and the peers; the floor waits for a message and no more.

    Two that are the same processes are one.
    """
    names = [each for each in (OURS, *PEERS, *BESIDE) if each != "kafka unflushed"]
    return [
        Contestant(name, kind, partial(_start, name, run))
        for name, kind in rows.kinds(names).items()
    ]


def _start(name: str, run: Run, stack: ExitStack) -> Measure:
    run.fleet.open(name, NAME, 1, stack)
    time.sleep(_FIRST_S)
    pids = run.fleet.nodes(name).pids

    def measure() -> Figures:
        begun = time.perf_counter()
        before, had = processes.spent_us(pids), processes.written(pids)
        time.sleep(run.plan.idle_s)
        after, has = processes.spent_us(pids), processes.written(pids)
        seconds = time.perf_counter() - begun
        each = [(after[pid] - before[pid]) / 1e4 / seconds for pid in pids]
        return {
            "busiest_percent": max(each),
            "nodes_percent": sum(each),
            "bytes_per_second": (has - had) / seconds,
        }

    return measure


def comparisons(_: Run) -> list[Comparison]:
    """Return processor time as part of one core, and what was written."""
    return [
        _row("idle, processor time", "busiest_percent", "%", 0.5),
        _row("idle, processor time", "nodes_percent", "%", None),
        _row("idle, written to the disk", "bytes_per_second", "B/s", 0),
    ]


def _row(what: str, metric: str, unit: str, bound: float | None) -> Comparison:
    return Comparison(
        what,
        metric,
        unit,
        Better.LOWER,
        ours=OURS,
        target=None if bound is None else Target(bound, Against.VALUE),
        peers=PEERS,
        beside=BESIDE,
        note="in memory nothing is written to a disk" if unit == "B/s" else "",
    )
