"""How many records a second does a Python loop get?

Ours yields records that know their position, timestamp, key, value and headers. Peers
yield positions and values, and once more their values alone, the least they can do.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from functools import partial

from benchmarks import data, stores
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.embedded import Embedded
from benchmarks.peers import PEERS, Peer
from benchmarks.plan import MIB, Plan
from benchmarks.rows import Against, Better, Target
from benchmarks.timing import Figures, rate

NAME = "iterate"
_GROUP = 1000


def contestants(plan: Plan) -> list[Contestant]:
    """Return the floor, ours and every peer, which keeps one store for both ways."""
    kept: dict[str, Peer] = {}
    return [
        Contestant("slices", Kind.FLOOR, partial(_floor, plan)),
        Contestant("braidlog", Kind.OURS, partial(_ours, plan)),
        *(
            Contestant(name, Kind.PEER, partial(_peer, plan, each, how, kept))
            for each in PEERS
            for name, how in ((each.name, "pairs"), (_values(each), "scan"))
        ),
    ]


def _values(peer: type[Peer]) -> str:
    return f"{peer.name} values"


def _floor(plan: Plan, _: ExitStack) -> Measure:
    block = data.value(plan.seed, MIB)
    size = plan.record_bytes

    def slices() -> Iterator[bytes]:
        for turn in range(plan.records):
            begin = turn * size % MIB
            yield block[begin : begin + size]

    return lambda: _timed(plan, slices)


def _fill(plan: Plan, store: Peer | Embedded) -> None:
    data.fill(store.append_group, plan.seed, plan.records, plan.record_bytes, _GROUP)


def _ours(plan: Plan, stack: ExitStack) -> Measure:
    store = stores.opened(Embedded, plan.directory / NAME / "braidlog", stack)
    _fill(plan, store)
    return lambda: _timed(plan, store.log.read)


def _peer(
    plan: Plan, kind: type[Peer], how: str, kept: dict[str, Peer], stack: ExitStack
) -> Measure:
    if kind.name not in kept:
        store = stores.opened(kind, plan.directory / NAME / kind.name, stack)
        _fill(plan, store)
        kept[kind.name] = store
    return partial(_timed, plan, getattr(kept[kind.name], how))


def _timed(plan: Plan, scan: Callable[[], Iterable[object]]) -> Figures:
    def call() -> int:
        count = 0
        for _ in scan():
            count += 1
        if count != plan.records:
            raise AssertionError(f"saw {count} records of {plan.records}")
        return count

    return rate(call, plan.record_bytes)


def comparisons(plan: Plan) -> list[Comparison]:
    """Return the rate against both ways of the peers."""
    what = f"iterate over records, {plan.record_bytes} B"
    row = partial(
        Comparison,
        metric="per_second",
        unit="/s",
        better=Better.HIGHER,
        ours="braidlog",
        floor="slices",
    )
    return [
        row(
            what,
            target=Target(1.5e6, Against.VALUE),
            peers=[each.name for each in PEERS],
            note="peers yield (position, value); floor: slices of one bytes object",
        ),
        row(
            f"{what}, peers values alone",
            peers=[_values(each) for each in PEERS],
            note="peers yield no position",
        ),
    ]
