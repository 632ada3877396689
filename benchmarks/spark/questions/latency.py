"""How long from an append until a streaming query has it durably in another log?"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import braidlog
from benchmarks import data
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better
from benchmarks.spark import engine, logs
from benchmarks.spark.plan import Plan
from benchmarks.timing import latencies

NAME = "latency"

_FIRST_S = 60.0
"""The first batch of a query starts its workers."""
_POLL_S = 0.001


def contestants(plan: Plan) -> list[Contestant]:
    """Return a query from log to log, and one of Spark's own from files to files."""
    return [
        Contestant("files", Kind.FLOOR, partial(_files, plan)),
        Contestant("braidlog", Kind.OURS, partial(_ours, plan)),
    ]


def _ours(plan: Plan, stack: ExitStack) -> Measure:
    home = plan.directory / NAME
    node = stack.enter_context(braidlog.open(home / "in"))
    log = node.create_log(logs.LOG)
    with braidlog.open(home / "out") as out:
        out.create_log(logs.LOG)
    reader = engine.session(plan).readStream.format("braidlog")
    rows = reader.schema("key binary, value binary").options(
        path=str(home / "in"), log=logs.LOG
    )
    writer = (
        rows.load()
        .writeStream.format("braidlog")
        .options(
            path=str(home / "out"),
            log=logs.LOG,
            checkpointLocation=str(home / "checkpoint"),
        )
    )
    query = writer.start()
    stack.callback(query.stop)
    out = stack.enter_context(braidlog.open(home / "out", read_only=True))
    follower, value = out.log(logs.LOG), data.value(plan.seed, plan.record_bytes)

    def one(_: int) -> None:
        position = log.append(value)
        _until(lambda: follower.end > position, query)

    return _measure(plan, one)


def _files(plan: Plan, stack: ExitStack) -> Measure:
    home = plan.directory / NAME / "files"
    (home / "in").mkdir(parents=True)
    rows = engine.session(plan).readStream.text(str(home / "in"))
    writer = rows.writeStream.format("parquet").option(
        "checkpointLocation", str(home / "checkpoint")
    )
    query = writer.start(str(home / "out"))
    stack.callback(query.stop)
    text = data.value(plan.seed, plan.record_bytes // 2).hex()
    count = 0

    def one(_: int) -> None:
        nonlocal count
        (home / "next").write_text(text)
        (home / "next").rename(home / "in" / f"{count:06}.txt")
        expected, count = count, count + 1
        _until(lambda: _last_batch(home / "out/_spark_metadata") >= expected, query)

    return _measure(plan, one)


def _last_batch(path: Path) -> int:
    """Return the newest batch that Spark's sink of files has committed."""
    names = [each.name for each in path.iterdir()] if path.exists() else []
    numbers = [name.partition(".")[0] for name in names]
    return max((int(each) for each in numbers if each.isdecimal()), default=-1)


def _measure(plan: Plan, one: Callable[[int], None]) -> Measure:
    one(0)
    return lambda: latencies(one, plan.triggers, 1)


def _until(done: Callable[[], bool], query: Any) -> None:
    deadline = time.monotonic() + _FIRST_S
    while not done():
        if time.monotonic() > deadline:
            why = query.exception() or "the query goes on"
            raise TimeoutError(f"nothing came through for {_FIRST_S:g} s: {why}")
        time.sleep(_POLL_S)


def comparisons(plan: Plan) -> Sequence[Comparison]:
    """Return the time until it can be read from where the sink put it."""
    row = partial(
        Comparison,
        f"append to commit of the sink, {plan.triggers} one at a time",
        unit="us",
        better=Better.LOWER,
        ours="braidlog",
        floor="files",
    )
    note = "floor: Spark's text source and Parquet sink, whose commits are not synced"
    return [row("p50_us", note=note), row("p99_us")]
