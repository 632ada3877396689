"""How fast does Spark read a log, beside Parquet files of the same records?"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better, Target
from benchmarks.spark import engine, logs
from benchmarks.spark.plan import MASTER, Plan
from benchmarks.spark.usage import timed
from benchmarks.timing import Figures

NAME = "scan"

_ALL = "position bigint, timestamp timestamp, key binary, value binary"
_FEW = "position bigint, value binary"
_TARGET = Target(0.5)
_GROWTH = Target(1.25)
"""A record of the largest log may take so much longer than one of the smallest."""


def _cases(plan: Plan) -> dict[str, tuple[int, int, str]]:
    """Return what is read: name, then records, bytes of a value, columns."""
    middle = plan.sizes[len(plan.sizes) // 2]
    return {
        **{
            f"{size:,} x {plan.record_bytes} B": (size, plan.record_bytes, _ALL)
            for size in plan.sizes
        },
        f"{middle:,} x {plan.record_bytes} B, position and value": (
            middle,
            plan.record_bytes,
            _FEW,
        ),
        f"{plan.large_records:,} x {plan.large_bytes:,} B": (
            plan.large_records,
            plan.large_bytes,
            _ALL,
        ),
    }


def contestants(plan: Plan) -> list[Contestant]:
    """Return both formats, of each case."""
    found = []
    for name, case in _cases(plan).items():
        for kind, who in ((Kind.FLOOR, "parquet"), (Kind.OURS, "braidlog")):
            start = partial(_start, plan, who, case)
            found.append(Contestant(f"{who} {name}", kind, start))
    return found


def _start(
    plan: Plan, who: str, case: tuple[int, int, str], stack: ExitStack
) -> Measure:
    count, record_bytes, columns = case
    spark = engine.session(plan)
    if who == "parquet":
        path = logs.parquet_of(plan, count, record_bytes)
        rows = spark.read.schema(columns).parquet(str(path))
    else:
        path = logs.log_of(plan, count, record_bytes)
        reader = spark.read.format("braidlog").schema(columns)
        rows = reader.options(path=str(path), log=logs.LOG).load()
    if rows.count() != count:
        raise AssertionError(f"{path} does not have {count} records")
    return partial(_measure, rows, count)


def _measure(rows: Any, count: int) -> Figures:
    def read() -> int:
        rows.write.format("noop").mode("overwrite").save()
        return count

    return timed(read)


def comparisons(plan: Plan) -> Sequence[Comparison]:
    """Return records a second and core second, and how they grow."""
    made = []
    for name in _cases(plan):
        row = partial(
            Comparison,
            f"scan in Spark, {name}",
            unit="records/s",
            better=Better.HIGHER,
            ours=f"braidlog {name}",
            floor=f"parquet {name}",
            target=_TARGET,
        )
        note = f"floor: Spark's own Parquet reader; {MASTER}, all rows go to a noop"
        made.append(row("per_second", note=note))
        made.append(row("per_cpu_second", note="of processor time of all processes"))
    names = list(_cases(plan))
    last = len(plan.sizes) - 1
    made.append(
        Comparison(
            f"time of a record, {plan.sizes[last]:,} records",
            "us_per_record",
            "us",
            Better.LOWER,
            ours=f"braidlog {names[last]}",
            floor=f"braidlog {names[0]}",
            target=_GROWTH,
            note=f"the floor is that of {plan.sizes[0]:,} records",
        )
    )
    return made
