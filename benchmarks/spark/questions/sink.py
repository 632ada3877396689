"""How fast does Spark write into a log, beside writing Parquet files?"""

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import braidlog
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better
from benchmarks.spark import engine, logs
from benchmarks.spark.plan import MASTER, Plan
from benchmarks.spark.usage import timed
from benchmarks.timing import Figures

NAME = "sink"


def contestants(plan: Plan) -> list[Contestant]:
    """Return both."""
    return [
        Contestant("parquet", Kind.FLOOR, partial(_parquet, plan)),
        Contestant("braidlog", Kind.OURS, partial(_ours, plan)),
    ]


def _rows(plan: Plan) -> Any:
    path = logs.parquet_of(plan, plan.sink_records, plan.record_bytes)
    return engine.session(plan).read.parquet(str(path)).select("key", "value")


def _parquet(plan: Plan, stack: ExitStack) -> Measure:
    path = plan.directory / NAME / "parquet"
    return partial(_measure, plan, _rows(plan).write.mode("overwrite"), str(path))


def _ours(plan: Plan, stack: ExitStack) -> Measure:
    path = plan.directory / NAME / "log"
    path.parent.mkdir(parents=True, exist_ok=True)
    with braidlog.open(path) as node:
        node.create_log(logs.LOG)
    writer = _rows(plan).write.format("braidlog").mode("append")
    save = writer.options(path=str(path), log=logs.LOG)

    def measure() -> Figures:
        with braidlog.open(path, read_only=True) as node:
            before = node.log(logs.LOG).end
        figures = _measure(plan, save, None)
        with braidlog.open(path, read_only=True) as node:
            stored = node.log(logs.LOG).end - before
        if stored != plan.sink_records:
            raise AssertionError(f"{stored} records were stored")
        return figures

    return measure


def _measure(plan: Plan, writer: Any, parquet: str | None) -> Figures:
    def write() -> int:
        if parquet is None:
            writer.save()
        else:
            writer.parquet(parquet)
        return plan.sink_records

    return timed(write)


def comparisons(plan: Plan) -> Sequence[Comparison]:
    """Return records a second, and of processor time."""
    row = partial(
        Comparison,
        f"write from Spark, {plan.sink_records:,} x {plan.record_bytes} B",
        unit="records/s",
        better=Better.HIGHER,
        ours="braidlog",
        floor="parquet",
    )
    note = (
        f"both read the same Parquet first; {MASTER}"
        "; Parquet is not synced; ours is staged, synced, appended and synced again"
    )
    return [row("per_second", note=note), row("per_cpu_second")]
