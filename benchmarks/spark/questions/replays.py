"""How fast is an application replayed in tasks, beside one process and a query?"""

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import count as counting
from pathlib import Path
from typing import Any

from benchmarks.contest import Comparison, Contestant, Kind, Measure, Unavailable
from benchmarks.rows import Better
from benchmarks.spark import engine
from benchmarks.spark.counters import NAME as APPLICATION
from benchmarks.spark.counters import PARTITIONS, counters, make_log, make_table
from benchmarks.spark.plan import WORKERS, Plan
from benchmarks.spark.usage import timed
from benchmarks.timing import Figures
from braidlog.app.log.source import LOG_NAME
from braidlog.app.replay.inputs import commands_of
from braidlog.app.replay.run import replay as embedded
from braidlog.pipelines import Origin, replay

NAME = "replay"

_PROCESSES = f"{WORKERS} processes"
_WHOLE = "one task"
_APART = f"{PARTITIONS} tasks"
_QUERY = (
    "CREATE TABLE counter AS SELECT id, sum(amount) AS total FROM '{0}' GROUP BY id"
)

Work = Callable[[Path], object]
"""Makes the state in a directory that is not there yet."""


def contestants(plan: Plan) -> list[Contestant]:
    """Return the embedded replay, the pipeline two ways, and a query."""
    kinds = {
        "embedded": Kind.FLOOR,
        _PROCESSES: Kind.OURS,
        "Spark": Kind.OURS,
        "duckdb": Kind.PEER,
        _WHOLE: Kind.FLOOR,
        _APART: Kind.OURS,
    }
    return [
        Contestant(name, kind, partial(_start, plan, name))
        for name, kind in kinds.items()
    ]


def _start(plan: Plan, name: str, stack: ExitStack) -> Measure:
    home = plan.directory / NAME
    application, table = home / "application", home / "commands.parquet"
    if not application.exists():
        make_log(plan, application)
        make_table(plan, table)
    works: dict[str, Callable[[], Work]] = {
        "embedded": lambda: partial(_embedded, application),
        _PROCESSES: lambda: partial(
            _pipeline, application, {"workers": WORKERS, "tasks": WORKERS}
        ),
        "Spark": lambda: partial(
            _pipeline, application, {"spark": engine.session(plan), "tasks": WORKERS}
        ),
        _WHOLE: lambda: partial(_pipeline, application, {"workers": 1, "tasks": 1}),
        _APART: lambda: partial(
            _pipeline, application, {"workers": 1, "tasks": PARTITIONS}
        ),
        "duckdb": lambda: _duckdb(table),
    }
    outputs = (home / f"{name}-{turn}" for turn in counting())
    return partial(_measure, plan, works[name](), outputs)


def _measure(plan: Plan, work: Work, outputs: Iterator[Path]) -> Figures:
    output = next(outputs)

    def once() -> int:
        work(output)
        return plan.commands

    figures = timed(once)
    shutil.rmtree(output)
    return figures


def _embedded(application: Path, output: Path) -> None:
    with closing(commands_of(application)) as source:
        embedded(counters, source, output)


def _pipeline(application: Path, where: dict[str, Any], output: Path) -> None:
    origin = Origin(LOG_NAME, path=str(application / "log"))
    report = replay(APPLICATION, origin, output, **where)
    if report.published["differences"]:
        raise AssertionError(f"{report.published['differences']} differ")


def _duckdb(table: Path) -> Work:
    try:
        import duckdb
    except ImportError as error:
        raise Unavailable(f"duckdb cannot be imported ({error})") from error

    def work(output: Path) -> None:
        output.mkdir()
        path = str(output / "state.duckdb")
        with duckdb.connect(path, config={"threads": WORKERS}) as connection:
            connection.execute(_QUERY.format(table))

    return work


def comparisons(plan: Plan) -> Sequence[Comparison]:
    """Return commands a second, and of processor time."""
    note = (
        "floor: one embedded replay in this process"
        "; duckdb gets the arguments decoded, and one query instead of a procedure"
    )
    made = []
    for who in (_PROCESSES, "Spark"):
        row = partial(
            Comparison,
            f"replay of {plan.commands:,} commands, {PARTITIONS} partitions, {who}",
            unit="commands/s",
            better=Better.HIGHER,
            ours=who,
            floor="embedded",
            peers=["duckdb"],
            note=note,
        )
        made += [row("per_second"), row("per_cpu_second")]
    made.append(
        Comparison(
            f"replay of {plan.commands:,} commands in {PARTITIONS} tasks, one process",
            "us_per_record",
            "us",
            Better.LOWER,
            ours=_APART,
            floor=_WHOLE,
            note="the floor is one task: each task decodes all commands",
        )
    )
    return made
