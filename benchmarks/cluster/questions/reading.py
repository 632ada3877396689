"""How fast is a log read from its start?"""

from contextlib import ExitStack
from functools import partial

from benchmarks import data
from benchmarks.cluster import load, rows
from benchmarks.cluster.fleet import Run
from benchmarks.cluster.systems import BESIDE, OURS, PEERS
from benchmarks.contest import Comparison, Contestant, Measure
from benchmarks.rows import Better

NAME = "reading"


def contestants(run: Run) -> list[Contestant]:
    """Return ours and the peers; the floor keeps nothing."""
    return [
        Contestant(name, kind, partial(_start, name, run))
        for name, kind in rows.kinds((OURS, *PEERS, *BESIDE)).items()
    ]


def _start(name: str, run: Run, stack: ExitStack) -> Measure:
    client = run.fleet.open(name, NAME, 1, stack)
    run.fleet.loop.run(load.fill(client, data.value(run.plan.seed, 128), run.plan.read))
    return lambda: run.fleet.loop.run(load.read(client, run.plan.read))


def comparisons(run: Run) -> list[Comparison]:
    """Return the rate."""
    what = f"from the start, {run.plan.read:,} x 128 B"
    made = rows.row(what, "per_second", "/s", Better.HIGHER, 3_000_000, floor=False)
    return [made]
