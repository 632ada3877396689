"""How long does a lookup of one record by its position take?"""

import os
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from benchmarks import data, embedded, stores
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.embedded import Embedded
from benchmarks.peers import PEERS, Peer
from benchmarks.plan import MIB, Plan
from benchmarks.rows import Against, Better, Target
from benchmarks.timing import Figures, latencies

NAME = "lookup"
_GROUP = 1000
_WARM = 100
_BLOCK_BYTES = 4096


def contestants(plan: Plan) -> list[Contestant]:
    """Return the floor, ours written two ways and every peer."""
    return [
        Contestant("pread", Kind.FLOOR, partial(_floor, plan)),
        Contestant("braidlog submitted", Kind.OURS, partial(_submitted, plan)),
        Contestant("braidlog bulk", Kind.OURS, partial(_bulk, plan)),
        *(
            Contestant(each.name, Kind.PEER, partial(_peer, plan, each))
            for each in PEERS
        ),
    ]


def _floor(plan: Plan, stack: ExitStack) -> Measure:
    path = plan.directory / NAME / "blocks"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.value(plan.seed, 64 * MIB))
    file = os.open(path, os.O_RDONLY)
    stack.callback(os.close, file)
    blocks = 64 * MIB // _BLOCK_BYTES

    def read(position: int) -> bytes:
        return os.pread(file, _BLOCK_BYTES, position % blocks * _BLOCK_BYTES)

    return lambda: _timed(plan, read)


def _submitted(plan: Plan, stack: ExitStack) -> Measure:
    log = stores.opened(Embedded, plan.directory / NAME / "submitted", stack).log
    value = data.value(plan.seed, plan.record_bytes)
    embedded.submit_many_waits(log, value, plan.records, plan.window)
    return lambda: _timed(plan, log.__getitem__)


def _bulk(plan: Plan, stack: ExitStack) -> Measure:
    store = stores.opened(Embedded, plan.directory / NAME / "bulk", stack)
    _fill(plan, store)
    return lambda: _timed(plan, store.log.__getitem__)


def _peer(plan: Plan, kind: type[Peer], stack: ExitStack) -> Measure:
    store = stores.opened(kind, plan.directory / NAME / kind.name, stack)
    _fill(plan, store)
    return lambda: _timed(plan, store.get)


def _fill(plan: Plan, store: Peer | Embedded) -> None:
    data.fill(store.append_group, plan.seed, plan.records, plan.record_bytes, _GROUP)


def _timed(plan: Plan, get: Callable[[int], object]) -> Figures:
    where = data.positions(plan.seed, plan.lookups, plan.records + 1)
    return latencies(lambda turn: get(where[turn]), plan.lookups, _WARM)


def comparisons(plan: Plan) -> list[Comparison]:
    """Return mean, median and tail of both ways of writing."""
    row = partial(
        Comparison,
        unit="us",
        better=Better.LOWER,
        floor="pread",
        peers=[each.name for each in PEERS],
    )
    written = {
        "submitted one by one": "braidlog submitted",
        f"appended {_GROUP} a call": "braidlog bulk",
    }
    target = Target(10, Against.VALUE)
    note = "floor: 4 KiB pread from the page cache; LMDB inside one read transaction"
    return [
        each
        for how, ours in written.items()
        for each in (
            row(
                f"lookup by position, {plan.records:,} records {how}",
                "mean_us",
                ours=ours,
                target=target,
                note=note,
            ),
            *(
                row(
                    f"lookup by position, {plan.records:,} records {how}",
                    metric,
                    ours=ours,
                )
                for metric in ("p50_us", "p99_us")
            ),
        )
    ]
