"""Contestants and rows that most questions have in common."""

import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeAlias

from benchmarks.cluster import load, processes
from benchmarks.cluster.fleet import Run
from benchmarks.cluster.load import Client
from benchmarks.cluster.systems import BESIDE, FLOOR, OURS, PEERS
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Against, Better, Target
from benchmarks.timing import Figures

Work: TypeAlias = Callable[[Client], Coroutine[Any, Any, Figures]]

NOTE = "floor: 3 processes that pass bytes on, write and sync, and no more"


def kinds(names: Iterable[str]) -> dict[str, Kind]:
    """Return whose figures those of a system are."""
    own = {FLOOR: Kind.FLOOR, OURS: Kind.OURS}
    return {name: own.get(name, Kind.PEER) for name in names}


def contestants(
    run: Run, question: str, work: Work, names: Sequence[str] | None = None
) -> list[Contestant]:
    """Return the floor, ours and the peers, with one workload for all."""
    wanted = names or (FLOOR, OURS, *PEERS, *BESIDE)
    return [
        Contestant(name, kind, partial(_start, name, run, question, work))
        for name, kind in kinds(wanted).items()
    ]


def _start(name: str, run: Run, question: str, work: Work, stack: ExitStack) -> Measure:
    client = run.fleet.open(name, question, 1, stack)
    pids = run.fleet.nodes(name).pids

    def measure() -> Figures:
        return spent(pids, lambda: run.fleet.loop.run(work(client)))

    return measure


def spent(pids: Sequence[int], measure: Callable[[], Figures]) -> Figures:
    """Measure, and add the processor time of an append."""
    before, of_client = processes.spent_us(pids), time.process_time_ns()
    figures = measure()
    client_us = (time.process_time_ns() - of_client) / 1e3
    after = processes.spent_us(pids)
    each = [after[pid] - before[pid] for pid in pids]
    count = figures.pop(load.APPENDS, None)
    if count is not None:
        figures["nodes_us"] = sum(each) / count
        figures["busiest_us"] = max(each) / count
        # Where clients are processes of their own, they say what they spent.
        figures.setdefault("client_us", client_us / count)
    return figures


def processor_rows(workload: str) -> list[Comparison]:
    """Return the processor time of an append: of all nodes, of one, of the client."""
    what = f"{workload}, processor time of an append"
    return [
        row(what, metric, "us", Better.LOWER)
        for metric in ("nodes_us", "busiest_us", "client_us")
    ]


def row(
    workload: str,
    metric: str,
    unit: str,
    better: Better,
    bound: float | None = None,
    *,
    floor: bool = True,
) -> Comparison:
    """Return the row of one metric; `bound` is the promise."""
    return Comparison(
        workload=workload,
        metric=metric,
        unit=unit,
        better=better,
        ours=OURS,
        target=Target(bound, Against.VALUE) if bound is not None else None,
        floor=FLOOR if floor else None,
        peers=PEERS,
        beside=BESIDE,
        note=NOTE if floor else "",
    )
