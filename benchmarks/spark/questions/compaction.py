"""How fast is the latest record of each key found, and from which size on where?

The peers read Parquet files of the same records and write one, which is what somebody
with one machine would do instead.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count as counting
from pathlib import Path
from typing import Any

from benchmarks.contest import Comparison, Contestant, Kind, Measure, Unavailable
from benchmarks.rows import Better, Target
from benchmarks.spark import engine, logs
from benchmarks.spark.plan import MASTER, WORKERS, Plan
from benchmarks.spark.usage import peaks, timed
from benchmarks.timing import Figures
from braidlog.pipelines import Origin, compact

NAME = "compact"

_ALONE = "one process"
_OURS = (f"{WORKERS} processes", _ALONE, "Spark")
_PEERS = ("duckdb", "polars")
_GROWTH = Target(1.25)
_QUERY = """
COPY (
    WITH latest AS (SELECT max(position) AS position FROM '{0}' GROUP BY key)
    SELECT record.* FROM '{0}' AS record JOIN latest USING (position) ORDER BY key
) TO '{1}' (FORMAT parquet, COMPRESSION zstd)
"""

Work = Callable[[Path], object]
"""Writes Parquet into a directory that is not there yet."""


def contestants(plan: Plan) -> list[Contestant]:
    """Return our ways to do it and the peers, of each size."""
    kinds = {**dict.fromkeys(_OURS, Kind.OURS), **dict.fromkeys(_PEERS, Kind.PEER)}
    return [
        Contestant(f"{who} {size}", kinds[who], partial(_start, plan, who, size))
        for who, size in _taking_part(plan, kinds)
    ]


def _taking_part(plan: Plan, names: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Yield who is measured at which size: one process alone not at the largest."""
    for size in plan.sizes:
        for name in names:
            if name != _ALONE or size < plan.sizes[-1]:
                yield name, size


def _start(plan: Plan, who: str, size: int, stack: ExitStack) -> Measure:
    origin = Origin(logs.LOG, path=str(logs.log_of(plan, size, plan.record_bytes)))
    parquet = logs.parquet_of(plan, size, plan.record_bytes)
    files = str(parquet / "*.parquet")
    works: dict[str, Callable[[], Work]] = {
        f"{WORKERS} processes": lambda: partial(_ours, origin, {"workers": WORKERS}),
        _ALONE: lambda: partial(_ours, origin, {"workers": 1}),
        "Spark": lambda: partial(_ours, origin, {"spark": engine.session(plan)}),
        "duckdb": lambda: _duckdb(files),
        "polars": lambda: _polars(files),
    }
    home = plan.directory / NAME / f"{who.replace(' ', '-')}-{size}"
    home.mkdir(parents=True)
    outputs = (home / str(turn) for turn in counting())
    expected = logs.latest_of(parquet)
    return partial(_measure, works[who](), outputs, size, expected, who == "Spark")


def _measure(
    work: Work,
    outputs: Iterator[Path],
    size: int,
    expected: tuple[int, int],
    spark: bool,
) -> Figures:
    output = next(outputs)

    def once() -> int:
        work(output)
        return size

    with peaks(spark=spark) as seen:
        figures = timed(once)
    found = logs.result_of(output)
    shutil.rmtree(output)
    if found != expected:
        raise AssertionError(f"keys and sum of positions are {found}, not {expected}")
    return {**figures, **seen.figures()}


def _ours(origin: Origin, where: dict[str, Any], output: Path) -> None:
    compact(origin, output, **where)


def _duckdb(files: str) -> Work:
    try:
        import duckdb
    except ImportError as error:
        raise Unavailable(f"duckdb cannot be imported ({error})") from error

    def work(output: Path) -> None:
        output.mkdir()
        query = _QUERY.format(files, output / "latest.parquet")
        with duckdb.connect(config={"threads": WORKERS}) as connection:
            connection.execute(query)

    return work


def _polars(files: str) -> Work:
    try:
        import polars
    except ImportError as error:
        raise Unavailable(f"polars cannot be imported ({error})") from error

    def work(output: Path) -> None:
        output.mkdir()
        records = polars.scan_parquet(files)
        latest = records.group_by("key").agg(polars.all().last()).sort("key")
        latest.sink_parquet(output / "latest.parquet", compression="zstd")

    return work


def comparisons(plan: Plan) -> Sequence[Comparison]:
    """Return records a second for each size, how they grow, and the memory of one."""
    made = []
    notes = (
        f"peers: {WORKERS} threads, Parquet of the same records in, one file out",
        f"Spark: {MASTER}, the session runs already",
    )
    for who, size in _taking_part(plan, _OURS):
        row = partial(
            Comparison,
            f"compact {size:,} records, {who}",
            unit="records/s",
            better=Better.HIGHER,
            ours=f"{who} {size}",
            peers=[f"{peer} {size}" for peer in _PEERS],
            note="; ".join(notes),
        )
        made += [row("per_second"), row("per_cpu_second")]
    smallest, largest = plan.sizes[0], plan.sizes[-1]
    for who in (_OURS[0], "Spark"):
        growth = partial(
            Comparison,
            f"compact {largest:,} records, {who}",
            better=Better.LOWER,
            ours=f"{who} {largest}",
            floor=f"{who} {smallest}",
            note=f"the floor are {smallest:,} records",
        )
        made.append(growth("us_per_record", "us", target=_GROWTH))
        made.append(growth("worker_mib", "MiB"))
    return made
