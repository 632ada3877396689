"""Where the time of an append goes, one at a time: median of each stage, printed.

send       the call of `append` until the primary has it
place      the primary gives a position and writes to its buffer
replicate  until the last backup has it
sync       until the last node has synced
report     until the leader of the repository has the last report
cut        until the leader has sent the entry of the cut, and writes it
raft       until the primary hears that a majority has that entry
commit     until the primary answers
answer     until `append` returns
"""

import json
import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import monotonic_ns

from rich.console import Console
from rich.table import Table

from benchmarks import data
from benchmarks.cluster import processes
from benchmarks.cluster.load import WARM, Loop
from benchmarks.cluster.plan import Plan
from benchmarks.cluster.systems.braidlog import Braidlog, launch
from benchmarks.timing import percentile

STAGES = (
    *("send", "place", "replicate", "sync", "report", "cut", "raft", "commit"),
    "answer",
)
Window = tuple[int, int]
Events = dict[str, list[int]]
"""Times by name, rising; those of the primary also as ``primary:name``."""


def show(console: Console, plan: Plan) -> None:
    """Measure and print."""
    windows, events = _measure(plan)
    found = [parts for each in windows if (parts := split(each, events))]
    if not found:
        console.print("stages: no append could be told from the trace", style="red")
        return
    table = Table(title="stages of one append, us", title_justify="left")
    for name in ("stage", "p50", "p99"):
        table.add_column(name, justify="left" if name == "stage" else "right")
    for i, name in enumerate(STAGES):
        values = [parts[i] / 1e3 for parts in found]
        table.add_row(name, f"{median(values):.0f}", f"{percentile(values, 99):.0f}")
    totals = [(end - begin) / 1e3 for begin, end in windows]
    whole = f"{median(totals):.0f}", f"{percentile(totals, 99):.0f}"
    table.add_row("append", *whole)
    console.print(table)
    console.print(f"  {len(found)} of {len(windows)} appends, traced", style="dim")


def split(window: Window, events: Events) -> list[int] | None:
    """Return the length of each stage of one append; None if it cannot be told."""
    begin, end = window

    def first(name: str, after: int) -> int:
        times = events.get(name, [])
        at = bisect_left(times, after)
        return times[at] if at < len(times) else end + 1

    def last(name: str, before: int) -> int:
        times = events.get(name, [])
        at = bisect_right(times, before)
        return times[at - 1] if at else 0

    append = first("primary:append", begin)
    placed = first("primary:placed", append)
    write = first("write", placed)
    report = last("report", write)
    replicated = last("replicate", report)
    synced = last("synced", report)
    commit = first("primary:commit", write)
    answer = first("primary:answer", commit)
    marks = [begin, append, placed, replicated, synced, report, write, commit, answer]
    marks.append(end)
    parts = [after - before for before, after in pairwise(marks)]
    return parts if min(parts) >= 0 else None


def _measure(plan: Plan) -> tuple[list[Window], Events]:
    folder = plan.directory / "stages" / "trace"
    folder.mkdir(parents=True)
    os.environ["BRAIDLOG_TRACE"] = str(folder)
    with ExitStack() as stack:
        nodes = plan.directory / "stages" / "nodes"
        cluster = launch(nodes, stack, "benchmarks.cluster.traced")
        system = Braidlog(cluster.seeds)
        loop = Loop(stack)
        loop.run(system.open("stages", 1, make=True))
        stack.callback(lambda: loop.run(system.close()))
        if plan.priority:
            processes.prioritize(plan.priority)
        windows = loop.run(_appends(system, data.value(plan.seed, 128), plan.single))
    return windows, _merged(folder)


async def _appends(system: Braidlog, value: bytes, count: int) -> list[Window]:
    windows = []
    for _ in range(WARM + count):
        begin = monotonic_ns()
        await system.append(value)
        windows.append((begin, monotonic_ns()))
    return windows[WARM:]


def _merged(folder: Path) -> Events:
    traces = [_by_name(json.loads(file.read_text())) for file in folder.iterdir()]
    primary = max(traces, key=lambda trace: len(trace.get("append", [])))
    merged: Events = {f"primary:{name}": times for name, times in primary.items()}
    for trace in traces:
        for name, times in trace.items():
            merged[name] = sorted([*merged.get(name, []), *times])
    return merged


def _by_name(events: Sequence[tuple[str, int]]) -> Events:
    found: Events = {}
    for name, at in events:
        found.setdefault(name, []).append(at)
    return found
