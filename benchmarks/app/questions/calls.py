"""What do calls cost, beside the same unlogged and beside SQLite alone?"""

import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial

from benchmarks.app.bank import Plain, bank, concurrent
from benchmarks.app.memory import MemoryLog
from benchmarks.app.plan import Plan
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better
from braidlog.app import Host
from braidlog.app.host.runner import Runner
from braidlog.app.state.sqlite import SqliteState

NAME = "calls"

_PLAIN = {"sqlite, one connection": True, "sqlite, one each": False}


def contestants(plan: Plan) -> list[Contestant]:
    """Return a host, a host without a log, and SQLite two ways."""
    return [
        Contestant("unlogged", Kind.FLOOR, partial(_unlogged, plan)),
        Contestant("braidlog", Kind.OURS, partial(_ours, plan)),
        *(
            Contestant(name, Kind.PEER, partial(_plain, plan, name, shared))
            for name, shared in _PLAIN.items()
        ),
    ]


def _ours(plan: Plan, stack: ExitStack) -> Measure:
    host = stack.enter_context(bank.open(plan.directory / NAME / "ours"))
    return _measure(plan, host)


def _unlogged(plan: Plan, stack: ExitStack) -> Measure:
    state = SqliteState(plan.directory / NAME / "unlogged", 1)
    host = stack.enter_context(Host(Runner(bank, MemoryLog(), state)))
    return _measure(plan, host)


def _measure(plan: Plan, host: Host) -> Measure:
    host.call("fill")
    seeds = itertools.count(0, plan.callers)
    return lambda: concurrent(plan, partial(host.call, "move"), next(seeds))


def _plain(plan: Plan, name: str, shared: bool, stack: ExitStack) -> Measure:
    path = plan.directory / NAME / f"{name.replace(' ', '-')}.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    plain = Plain(path, shared=shared)
    stack.callback(plain.close)
    seeds = itertools.count(0, plan.callers)
    return lambda: concurrent(plan, plain.move, next(seeds))


def comparisons(plan: Plan) -> Sequence[Comparison]:
    """Return calls a second: to unlogged as a ratio, ahead of SQLite."""
    what = f"TPC-B calls, {plan.callers} callers, one partition"
    row = partial(
        Comparison,
        what,
        unit="calls/s",
        better=Better.HIGHER,
        ours="braidlog",
        floor="unlogged",
    )
    return [
        row(
            "per_second",
            peers=list(_PLAIN),
            note="the floor keeps its log in memory; peers sync each commit (FULL)",
        ),
        row("per_cpu_second", note="of processor time, where a machine is shared"),
    ]
