"""How long does one caller wait for one durable append?"""

from contextlib import ExitStack
from functools import partial

from benchmarks import data, stores
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.embedded import Embedded
from benchmarks.peers import PEERS, Peer
from benchmarks.plan import Plan
from benchmarks.rows import Better, Target
from benchmarks.timing import latencies

NAME = "one-caller"
_WARM = 20


def contestants(plan: Plan) -> list[Contestant]:
    """Return the floor, ours and every peer."""
    return [
        stores.sync_floor(plan, plan.record_bytes, plan.appends),
        Contestant("braidlog", Kind.OURS, partial(_ours, plan)),
        *(
            Contestant(each.name, Kind.PEER, partial(_peer, plan, each))
            for each in PEERS
        ),
    ]


def _ours(plan: Plan, stack: ExitStack) -> Measure:
    store = stores.opened(Embedded, plan.directory / NAME / "braidlog", stack)
    value = data.value(plan.seed, plan.record_bytes)
    append = store.log.append
    return lambda: latencies(lambda _: append(value), plan.appends, _WARM)


def _peer(plan: Plan, kind: type[Peer], stack: ExitStack) -> Measure:
    store = stores.opened(kind, plan.directory / NAME / kind.name, stack)
    value = data.value(plan.seed, plan.record_bytes)
    append = store.append_one
    return lambda: latencies(lambda _: append(value), plan.appends, _WARM)


def comparisons(plan: Plan) -> list[Comparison]:
    """Return the median, the tail and the rate."""
    row = partial(
        Comparison,
        f"one caller, {plan.record_bytes} B, durable per append",
        ours="braidlog",
        floor="floor",
        peers=[each.name for each in PEERS],
    )
    return [
        row("p50_us", "us", Better.LOWER, target=Target(1.25)),
        row("p99_us", "us", Better.LOWER),
        row("per_second", "/s", Better.HIGHER),
    ]
