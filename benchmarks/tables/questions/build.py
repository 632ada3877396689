"""How fast does a table come out of a log that is there already?

The log is written once, outside the clock. RocksDB writes the same batches in memory,
and ends when they are in its files.
"""

from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter

import pyarrow as pa

import braidlog
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better, Target
from benchmarks.tables import data
from benchmarks.tables.plan import Plan
from benchmarks.tables.stores import Rocksdb
from benchmarks.timing import Figures

NAME = "build"


def contestants(plan: Plan) -> list[Contestant]:
    """Return ours, and RocksDB without and with its write-ahead log."""
    return [
        Contestant(
            "rocksdb unlogged", Kind.FLOOR, partial(_start_rocksdb, plan, False)
        ),
        Contestant("braidlog", Kind.OURS, partial(_start_ours, plan)),
        Contestant("rocksdb", Kind.PEER, partial(_start_rocksdb, plan, True)),
    ]


def _batches(plan: Plan) -> list[pa.RecordBatch]:
    numbers = data.order(plan.seed, plan.keys)
    return list(data.batches(plan.seed, numbers, plan.group))


def _start_ours(plan: Plan, stack: ExitStack) -> Measure:
    directory = plan.directory / NAME / "braidlog"
    store = stack.enter_context(braidlog.open(directory, create=True))
    log = store.create_log("records")
    for batch in _batches(plan):
        log.append_arrow(batch)

    def measure() -> Figures:
        begin = perf_counter()
        table = store.create_table("table", log="records")
        table.wait(log.end - 1)
        seconds = perf_counter() - begin
        store.drop_table("table")
        return {"per_second": plan.keys / seconds}

    return measure


def _start_rocksdb(plan: Plan, logged: bool, stack: ExitStack) -> Measure:
    batches = _batches(plan)
    turn = iter(range(1_000))

    def measure() -> Figures:
        directory = _fresh(plan.directory / NAME / f"rocksdb-{logged}-{next(turn)}")
        store = Rocksdb(directory)
        begin = perf_counter()
        for batch in batches:
            (store.write if logged else store.load)(batch)
        store.flush()
        seconds = perf_counter() - begin
        store.close()
        return {"per_second": plan.keys / seconds}

    return measure


def _fresh(directory: Path) -> Path:
    directory.mkdir(parents=True)
    return directory


def comparisons(plan: Plan) -> list[Comparison]:
    """Return records a second."""
    return [
        Comparison(
            f"build a table of {plan.keys:,} keys from its log",
            "per_second",
            "/s",
            Better.HIGHER,
            ours="braidlog",
            target=Target(2),
            floor="rocksdb unlogged",
            peers=["rocksdb"],
            note="floor: RocksDB, bulk writes without its write-ahead log",
        )
    ]
