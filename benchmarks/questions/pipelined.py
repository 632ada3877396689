"""How many records a second does one caller get who does not wait for each?"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks import data, embedded, stores
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.embedded import Embedded
from benchmarks.peers import PEERS, Peer
from benchmarks.plan import Plan
from benchmarks.rows import Better, Target
from benchmarks.timing import rate

NAME = "pipelined"

Pipeline = Callable[[Any, bytes, int, int], int]


def contestants(plan: Plan) -> list[Contestant]:
    """Return the floor, ours two ways and every peer in groups of our window."""
    ours: dict[str, Pipeline] = {
        "braidlog": embedded.submit_many_waits,
        "braidlog every result": embedded.submit_every_result,
    }
    return [
        stores.sync_floor(plan, plan.record_bytes, plan.appends),
        *(
            Contestant(name, Kind.OURS, partial(_ours, plan, how))
            for name, how in ours.items()
        ),
        Contestant("braidlog groups", Kind.OURS, partial(_groups, plan)),
        *(
            Contestant(each.name, Kind.PEER, partial(_peer, plan, each))
            for each in PEERS
        ),
    ]


def _ours(plan: Plan, how: Pipeline, stack: ExitStack) -> Measure:
    directory = plan.directory / NAME / f"braidlog-{how.__name__}"
    log = stores.opened(Embedded, directory, stack).log
    value = data.value(plan.seed, plan.record_bytes)
    call = partial(how, log, value, plan.pipelined, plan.window)
    return lambda: rate(call, plan.record_bytes)


def _groups(plan: Plan, stack: ExitStack) -> Measure:
    store = stores.opened(Embedded, plan.directory / NAME / "groups", stack)
    return _windows(plan, store)


def _peer(plan: Plan, kind: type[Peer], stack: ExitStack) -> Measure:
    return _windows(plan, stores.opened(kind, plan.directory / NAME / kind.name, stack))


def _windows(plan: Plan, store: Peer | Embedded) -> Measure:
    """Append one window a call, durable on return."""
    values = [data.value(plan.seed, plan.record_bytes)] * plan.window

    def call() -> int:
        for begin in range(0, plan.pipelined, plan.window):
            store.append_group(values[: plan.pipelined - begin])
        return plan.pipelined

    return lambda: rate(call, plan.record_bytes)


def comparisons(plan: Plan) -> list[Comparison]:
    """Return the rates."""
    row = partial(
        Comparison,
        metric="per_second",
        unit="/s",
        better=Better.HIGHER,
        floor="floor",
        peers=[each.name for each in PEERS],
        note=f"window {plan.window}; peers: transactions of as many",
    )
    what = f"pipelined, {plan.record_bytes} B"
    return [
        row(what, ours="braidlog", target=Target(40)),
        row(
            f"{what}, every result taken",
            ours="braidlog every result",
            target=Target(40),
            peers=[],
            note="peers return no positions",
        ),
        row(
            f"groups of {plan.window:,}, {plan.record_bytes} B",
            ours="braidlog groups",
            note="append_many, like for like",
        ),
    ]
