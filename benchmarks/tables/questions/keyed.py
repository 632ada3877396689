"""Lookups, scans, space and updates of a store of all keys, filled and merged once.

LMDB and SQLite, which change a tree in place, are filled in the order of keys: in
random order SQLite takes a quarter of an hour for ten million, and nobody measures it.
"""

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Against, Better, Target
from benchmarks.tables import data
from benchmarks.tables.plan import Plan
from benchmarks.tables.stores import PEERS, STORES, KeyValue, Lmdb, Ours, Sqlite
from benchmarks.timing import Figures, latencies

NAME = "keyed"
_WARM = 2_000
_ROCKSDB = "rocksdb"


def contestants(plan: Plan) -> list[Contestant]:
    """Return ours and every peer."""
    return [
        Contestant(
            each.name,
            Kind.OURS if each is Ours else Kind.PEER,
            partial(_start, plan, each),
        )
        for each in STORES
    ]


def _start(plan: Plan, kind: type[KeyValue], stack: ExitStack) -> Measure:
    directory = plan.directory / NAME / kind.name
    directory.mkdir(parents=True)
    store = kind(directory)
    stack.callback(store.close)
    in_order = kind in (Lmdb, Sqlite)
    numbers = (
        data.sorted_by_key(plan.keys) if in_order else data.order(plan.seed, plan.keys)
    )
    for batch in data.batches(plan.seed, numbers, plan.group):
        store.write(batch)
    store.settle()
    space = _bytes(directory, kind) / (plan.keys * (data.KEY_BYTES + data.VALUE_BYTES))
    turn = iter(range(1_000))
    return lambda: {
        **_reads(plan, store),
        **_updates(plan, store, next(turn)),
        "space": space,
    }


def _bytes(directory: Path, kind: type[KeyValue]) -> int:
    # The log of ours stands where a peer has its write-ahead log: it is trimmed.
    place = directory / "store" / "tables" if kind is Ours else directory
    # Blocks, because LMDB has one sparse file.
    return sum(
        path.stat().st_blocks * 512 for path in place.rglob("*") if path.is_file()
    )


def _reads(plan: Plan, store: KeyValue) -> Figures:
    keys = data.key_list(data.chosen(plan.seed, plan.gets, plan.keys))
    single = latencies(lambda turn: _found(store.get, keys[turn]), plan.gets, _WARM)
    calls = [
        keys[begin : begin + plan.many] for begin in range(0, len(keys), plan.many)
    ][: plan.many_calls]
    begin = perf_counter()
    for call in calls:
        store.get_many(call)
    many = perf_counter() - begin
    begin = perf_counter()
    size = store.scan()
    scanned = perf_counter() - begin
    return {
        "p50_us": single["p50_us"],
        "p99_us": single["p99_us"],
        "many_per_second": sum(map(len, calls)) / many,
        "scan_mb_per_second": size / 1e6 / scanned,
    }


def _found(get: Callable[[bytes], bytes | None], key: bytes) -> None:
    if get(key) is None:
        raise AssertionError(f"{key!r} was not found")


def _updates(plan: Plan, store: KeyValue, turn: int) -> Figures:
    numbers = data.chosen(plan.seed + turn, plan.updates, plan.keys)
    batches = list(data.batches(plan.seed + turn, numbers, plan.update_group))
    begin = perf_counter()
    for batch in batches:
        store.write(batch)
    # Ours is behind its log until it has applied it.
    _found(store.get, batches[-1].column("key")[0].as_py())
    return {"updates_per_second": plan.updates / (perf_counter() - begin)}


def comparisons(plan: Plan) -> list[Comparison]:
    """Return lookups, scan, space and updates."""
    peers = [each.name for each in PEERS]
    row = partial(Comparison, ours=Ours.name)
    keys = f"{plan.keys:,} keys"
    return [
        row(
            f"get, {keys}, warm",
            "p50_us",
            "us",
            Better.LOWER,
            target=Target(5, Against.VALUE),
            peers=peers,
        ),
        row(f"get, {keys}, warm", "p99_us", "us", Better.LOWER, peers=peers),
        row(
            f"get of {plan.many:,} keys a call",
            "many_per_second",
            "/s",
            Better.HIGHER,
            target=Target(2),
            floor=_ROCKSDB,
            peers=peers,
            note="floor: RocksDB's multi_get; ours answers in Arrow",
        ),
        row(
            f"scan, {keys}",
            "scan_mb_per_second",
            "MB/s",
            Better.HIGHER,
            target=Target(1_000, Against.VALUE),
            peers=peers,
            note="ours in Arrow, peers as Python objects",
        ),
        row(
            f"scan, {keys}, against RocksDB's iteration",
            "scan_mb_per_second",
            "MB/s",
            Better.HIGHER,
            target=Target(5),
            floor=_ROCKSDB,
        ),
        row(
            "bytes on disk after merging, for each byte of keys and values",
            "space",
            "x",
            Better.LOWER,
            target=Target(1.3, Against.VALUE),
            peers=peers,
            note="without ours' log and RocksDB's write-ahead log",
        ),
        row(
            f"updates of random keys, {plan.update_group:,} a durable write",
            "updates_per_second",
            "/s",
            Better.HIGHER,
            target=Target(1),
            floor=_ROCKSDB,
            peers=peers,
        ),
    ]
