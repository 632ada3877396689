"""How fast does a whole log come back as Arrow, verified, from the page cache?"""

from collections.abc import Callable, Iterable, Sized
from contextlib import ExitStack
from functools import partial

from benchmarks import data, floor, stores
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.embedded import Embedded
from benchmarks.peers import PEERS, Peer
from benchmarks.plan import MIB, Plan
from benchmarks.rows import Against, Better, Target
from benchmarks.timing import Figures, rate

NAME = "scan"
_FLOORS = {"page cache": "read", "memcpy": "memcpy", "crc32c": "crc32c"}


def contestants(plan: Plan) -> list[Contestant]:
    """Return three floors, ours and every peer."""
    return [
        *(
            Contestant(name, Kind.FLOOR, partial(_floor, plan, task))
            for name, task in _FLOORS.items()
        ),
        Contestant("braidlog", Kind.OURS, partial(_ours, plan)),
        *(
            Contestant(each.name, Kind.PEER, partial(_peer, plan, each))
            for each in PEERS
        ),
    ]


def _floor(plan: Plan, task: str, _: ExitStack) -> Measure:
    return lambda: floor.throughput(plan.directory, task)


def _count(plan: Plan) -> int:
    return plan.scan_bytes // plan.bulk_record_bytes


def _fill(plan: Plan, store: Peer | Embedded) -> None:
    size = plan.bulk_record_bytes
    data.fill(store.append_group, plan.seed, _count(plan), size, MIB // size)


def _ours(plan: Plan, stack: ExitStack) -> Measure:
    store = stores.opened(Embedded, plan.directory / NAME / "braidlog", stack)
    _fill(plan, store)
    return partial(_timed, plan, store.log.batches)


def _peer(plan: Plan, kind: type[Peer], stack: ExitStack) -> Measure:
    store = stores.opened(kind, plan.directory / NAME / kind.name, stack)
    _fill(plan, store)
    return partial(_timed, plan, store.scan_arrow)


def _timed(plan: Plan, scan: Callable[[], Iterable[Sized]]) -> Figures:
    def call() -> int:
        records = sum(map(len, scan()))
        if records != _count(plan):
            raise AssertionError(f"scanned {records} records of {_count(plan)}")
        return records

    return rate(call, plan.bulk_record_bytes)


def comparisons(plan: Plan) -> list[Comparison]:
    """Return throughput against each floor."""
    row = partial(
        Comparison,
        f"scan to Arrow, {plan.bulk_record_bytes} B records",
        "mb_per_second",
        "MB/s",
        Better.HIGHER,
        ours="braidlog",
    )
    names = [each.name for each in PEERS]
    note = "peers: groups of values made into arrays"
    target = Target(2000, Against.VALUE)
    return [
        row(floor="page cache", target=target, peers=names, note=note),
        row(floor="crc32c", note="floor: checksum alone"),
        row(floor="memcpy", note="floor: one copy"),
    ]
