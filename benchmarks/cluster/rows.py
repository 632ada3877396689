"""Contestants and rows that most questions have in common."""

import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any, TypeAlias

from benchmarks.cluster import load, processes
from benchmarks.cluster.load import System
from benchmarks.cluster.plan import Plan
from benchmarks.cluster.systems import FLOOR, OURS, PEERS, opened
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Against, Better, Target
from benchmarks.timing import Figures

Work: TypeAlias = Callable[[System], Coroutine[Any, Any, Figures]]

NOTES = (
    "floor: 3 uvloop processes that pass bytes on, write and sync, and no more",
    "etcd over its JSON gateway, a connection for each caller",
    "nats answers before a sync where its version has no sync_interval",
)


def contestants(
    plan: Plan, question: str, work: Work, *, floor: bool = True
) -> list[Contestant]:
    """Return the floor, ours and the peers, with one workload for all."""
    kinds = {OURS: Kind.OURS, **dict.fromkeys(PEERS, Kind.PEER)}
    if floor:
        kinds = {FLOOR: Kind.FLOOR, **kinds}
    return [
        Contestant(name, kind, partial(_start, name, plan, question, work))
        for name, kind in kinds.items()
    ]


def _start(
    name: str, plan: Plan, question: str, work: Work, stack: ExitStack
) -> Measure:
    loop, system, nodes = opened(name, plan, question, stack)

    def measure() -> Figures:
        before, of_client = processes.spent_us(nodes), time.process_time_ns()
        figures = loop.run(work(system))
        client_us = (time.process_time_ns() - of_client) / 1e3
        after = processes.spent_us(nodes)
        each = [after[pid] - before[pid] for pid in nodes]
        count = figures.pop(load.APPENDS, None)
        if count is not None:
            figures["nodes_us"] = sum(each) / count
            figures["busiest_us"] = max(each) / count
            figures["client_us"] = client_us / count
        return figures

    return measure


def processor_rows(workload: str) -> list[Comparison]:
    """Return the processor time of an append: of all nodes, of one, of the client."""
    what = f"{workload}, processor time of an append"
    return [
        row(what, metric, "us", Better.LOWER, None)
        for metric in ("nodes_us", "busiest_us", "client_us")
    ]


def row(
    workload: str, metric: str, unit: str, better: Better, bound: float | None
) -> Comparison:
    """Return the row of one metric; `bound` is the promise."""
    return Comparison(
        workload=workload,
        metric=metric,
        unit=unit,
        better=better,
        ours=OURS,
        target=Target(bound, Against.VALUE) if bound is not None else None,
        floor=FLOOR,
        peers=PEERS,
        note="; ".join(NOTES),
    )
