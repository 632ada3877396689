"""How long does nobody take appends after the node that took them was killed?

Each time with a new cluster. One caller appends, one after the other; the gap is the
longest time between two acknowledgements.
"""

import asyncio
import os
import shutil
import signal
from contextlib import ExitStack
from functools import partial
from itertools import count
from statistics import median
from time import monotonic

from benchmarks import data
from benchmarks.cluster import rows
from benchmarks.cluster.fleet import Fleet, Run
from benchmarks.cluster.load import Client
from benchmarks.cluster.systems import OURS, PEERS, SYSTEMS
from benchmarks.contest import Comparison, Contestant, Measure
from benchmarks.rows import Against, Better, Target
from benchmarks.timing import Figures

NAME = "failover"
ROUNDS = 1
"""A round kills often enough by itself."""

_BEFORE_S = 1.0
_AFTER_S = 1.0
_LIMIT_S = 60.0
_PATIENCE_S = 0.5
"""After which an append that nobody answers is sent again; most are refused at once."""


def contestants(run: Run) -> list[Contestant]:
    """Return ours, and the peers where somebody takes over."""
    names = [name for name in (OURS, *PEERS) if SYSTEMS[name].fails_over]
    return [
        Contestant(name, kind, partial(_start, name, run))
        for name, kind in rows.kinds(names).items()
    ]


def _start(name: str, run: Run, stack: ExitStack) -> Measure:
    run.fleet.nodes(name)  # Skips those that are not there.
    turns = count()

    def measure() -> Figures:
        # The first call warms up, and everything here is new each time.
        if next(turns) == 0:
            return {}
        return {"gap_s": median([_gap(name, run) for _ in range(run.plan.kills)])}

    return measure


def _gap(name: str, run: Run) -> float:
    folder = run.directory / NAME
    with ExitStack() as stack:
        stack.callback(lambda: shutil.rmtree(folder, ignore_errors=True))
        fleet = Fleet(run.plan, stack, folder, warm=False)
        client = fleet.open(name, NAME, 1, stack)
        pids = fleet.nodes(name).pids
        return fleet.loop.run(_longest(client, pids, data.value(run.plan.seed, 128)))


async def _longest(client: Client, pids: tuple[int, ...], value: bytes) -> float:
    begun = monotonic()
    while (last := monotonic()) < begun + _BEFORE_S:
        await _appended(client, value, begun + _LIMIT_S)
    os.kill(pids[await client.leader()], signal.SIGKILL)
    longest, until = 0.0, last + _AFTER_S
    while monotonic() < until:
        await _appended(client, value, begun + _LIMIT_S)
        now = monotonic()
        if now - last > longest:
            longest, until = now - last, now + _AFTER_S
        last = now
    return longest


async def _appended(client: Client, value: bytes, limit: float) -> None:
    while True:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return await client.append(value)
        except (OSError, RuntimeError, TimeoutError, asyncio.IncompleteReadError):
            if monotonic() > limit:
                raise
            await client.recover()


def comparisons(_: Run) -> list[Comparison]:
    """Return the gap."""
    return [
        Comparison(
            "longest gap after the leader was killed",
            "gap_s",
            "s",
            Better.LOWER,
            ours=OURS,
            target=Target(0.3, Against.VALUE),
            peers=PEERS,
            note="redis has nobody who takes over without a sentinel",
        )
    ]
