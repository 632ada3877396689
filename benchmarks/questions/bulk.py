"""How fast do 1 KiB records go in, 1 MiB durable at a time?

A log that is trimmed writes into recycled segments, as the floor writes into a file
that was zero-filled before. A log that keeps everything grows by segments that are
zero-filled first, so each byte is written twice. The targets hold for both.
"""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import cycle, islice
from typing import Any

from benchmarks import data, stores
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.embedded import Embedded
from benchmarks.peers import PEERS, Peer
from benchmarks.plan import MIB, Plan
from benchmarks.rows import Better, Target
from benchmarks.timing import Figures, rate

NAME = "bulk"
_DISTINCT = 16
"""Different batches; more would only cost memory."""

_OURS = {
    "braidlog arrow": ("append_arrow", data.batches, True),
    "braidlog arrow growing": ("append_arrow", data.batches, False),
    "braidlog list": ("append_many", data.lists, True),
    "braidlog list growing": ("append_many", data.lists, False),
}


def contestants(plan: Plan) -> list[Contestant]:
    """Return the floor, ours four ways and every peer."""
    return [
        stores.sync_floor(plan, MIB, plan.bulk_batches),
        *(Contestant(name, Kind.OURS, partial(_ours, plan, name)) for name in _OURS),
        *(
            Contestant(each.name, Kind.PEER, partial(_peer, plan, each))
            for each in PEERS
        ),
    ]


def _ours(plan: Plan, name: str, stack: ExitStack) -> Measure:
    method, values, recycle = _OURS[name]
    directory = plan.directory / NAME / name.replace(" ", "-")
    store = stores.opened(Embedded, directory, stack)
    some = values(plan.seed, _DISTINCT, plan.bulk_record_bytes)
    append = getattr(store.log, method)
    if recycle:
        store.node.provision(2 * plan.bulk_batches * MIB)

    def measure() -> Figures:
        figures = _timed(plan, append, some)
        if recycle:
            store.log.trim(before=store.log.end)
            store.node.maintain()
        return figures

    return measure


def _peer(plan: Plan, kind: type[Peer], stack: ExitStack) -> Measure:
    store = stores.opened(kind, plan.directory / NAME / kind.name, stack)
    some = data.lists(plan.seed, _DISTINCT, plan.bulk_record_bytes)
    return lambda: _timed(plan, store.append_group, some)


def _timed(plan: Plan, append: Callable[[Any], object], some: Sequence[Any]) -> Figures:
    def call() -> int:
        for values in islice(cycle(some), plan.bulk_batches):
            append(values)
        return plan.bulk_batches * (MIB // plan.bulk_record_bytes)

    return rate(call, plan.bulk_record_bytes)


def comparisons(plan: Plan) -> list[Comparison]:
    """Return throughput against the floor's 1 MiB syncs."""
    row = partial(
        Comparison,
        metric="mb_per_second",
        unit="MB/s",
        better=Better.HIGHER,
        floor="floor",
        peers=[each.name for each in PEERS],
    )
    what = f"{plan.bulk_record_bytes} B records in 1 MiB durable batches"
    recycled = "trimmed log, recycled segments"
    growing = "a growing log writes each byte twice, zeros first"
    methods = {"Arrow": ("arrow", Target(0.5)), "list": ("list", Target(0.25))}
    return [
        each
        for title, (name, target) in methods.items()
        for each in (
            row(
                f"{what}, {title}",
                ours=f"braidlog {name}",
                target=target,
                note=recycled,
            ),
            row(
                f"{what}, {title}, growing",
                ours=f"braidlog {name} growing",
                target=target,
                note=growing,
            ),
        )
    ]
