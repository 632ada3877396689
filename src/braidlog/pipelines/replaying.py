"""``replay``: the state of an application from its log, a task for some partitions.

*Theory of operation.* Tasks of the first stage bring the log into order, once each
record (copies of dead nodes are compared on the way), and look which virtual partitions
its commands touch together. Partitions that no command connects are independent, so the
second stage has a task for some of them each: it executes the ordered log with the
executor that hosts use, as far as its partitions are concerned, and compares the
outcomes that the log names.

*Invariants.* The state hash of a partition depends on the log alone: not on how many
tasks there are, nor on the order in which directories were named. Nothing is executed
before all of the log was looked at.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from braidlog.app.fingerprint import EnvironmentRule
from braidlog.app.loading import load_application
from braidlog.app.replay import Check, Replay
from braidlog.app.survey import Survey, groups_of
from braidlog.app.target import Target
from braidlog.errors import CorruptionError, InvalidArgumentError
from braidlog.pipelines.frame import (
    Attempt,
    Job,
    Progress,
    Report,
    Result,
    Stage,
    run,
)
from braidlog.pipelines.manifest import finished, publish, published
from braidlog.pipelines.origin import BYTES_PER_TASK, Origin
from braidlog.pipelines.pieces import Piece, Pieces, part_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["OrderedInput", "replay", "replay_job"]

_NAME: Final = "replay"
_COLUMNS: Final = ("position", "timestamp", "key", "value")
# As far behind its command an entry may give it up.
_AHEAD_RECORDS: Final = 16_384


@dataclass(frozen=True, slots=True)
class _Order:
    """A range of positions to bring into order."""

    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class _Apply:
    """Partitions to make from the ordered log."""

    partitions: tuple[int, ...]
    until: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class _Rules:
    """What every task has to know of the application."""

    application: str
    path: str = field(compare=False)
    outcomes: Check = "strict"
    environment: EnvironmentRule = "refuse"


class _Record(NamedTuple):
    position: int
    timestamp: int
    value: bytes


class OrderedInput:
    """The log as the first stage left it: an `Input` of a replay."""

    gaps: Final = False
    identity: Final = ""

    def __init__(self, name: str, home: Path, pieces: Collection[Piece]) -> None:
        """Name the files; they are opened when they are read."""
        self.name = name
        self._home = home
        self._pieces = sorted(pieces, key=lambda piece: piece.begin)

    def read(self, begin: int | None, end: int | None = None) -> Iterator[_Record]:
        """Read the records from ``begin`` up to ``end``."""
        low = 0 if begin is None else begin
        last = len(self._pieces) - 1
        for number, piece in enumerate(self._pieces):
            # A piece ends where the next one begins.
            if number < last and self._pieces[number + 1].begin <= low:
                continue
            if end is not None and piece.begin >= end:
                return
            for _, batch in part_of(self._home, [piece], 0):
                yield from _records(batch, low, end)

    def close(self) -> None:
        """Do nothing."""


def _records(batch: pa.RecordBatch, begin: int, end: int | None) -> Iterator[_Record]:
    """Make the records that a range has of a batch with dense positions."""
    first = batch.column("position")[0].as_py() if batch.num_rows else 0
    stop = batch.num_rows if end is None else max(0, end - first)
    rows = batch.slice(max(0, begin - first))
    rows = rows.slice(0, max(0, stop - max(0, begin - first)))
    columns = (
        rows.column("position").to_pylist(),
        rows.column("timestamp").cast(pa.int64()).to_pylist(),
        rows.column("value").to_pylist(),
    )
    yield from map(_Record._make, zip(*columns, strict=True))


def replay(
    application: str,
    origin: Origin,
    output: str | Path,
    *,
    until: int | None = None,
    tasks: int | None = None,
    outcomes: Check = "strict",
    environment: EnvironmentRule = "refuse",
    bytes_per_task: int = BYTES_PER_TASK,
    spark: SparkSession | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Make the state of an application from its log, partitions side by side.

    ``application`` is ``module:attribute``, which every worker can import. ``tasks``
    says among how many tasks its partitions are spread (by default one for each core
    here, or in Spark); partitions that a command touches together stay together.
    ``until`` is the last position that is executed.

    The state hash of each partition is in the report, as an embedded replay has it, and
    the databases are in the directory ``output``, as its ``manifest.json`` names them.
    Interrupted, the same call goes on with the tasks that are left.

    Raises:
        ApplicationMismatchError: the log is that of another application.
        UnknownProcedureError: the program lacks code that the log needs.
        DivergedError: a command gave another outcome than the log says.
        TrimmedError: the log does not begin with its first command.
        AlreadyExistsError: the directory has the results of another job.
    """
    if tasks is None:
        parallel = None if spark is None else spark.sparkContext.defaultParallelism
        tasks = int(parallel or workers or len(os.sched_getaffinity(0)))
    job = replay_job(
        application,
        origin,
        output,
        until=until,
        tasks=tasks,
        outcomes=outcomes,
        environment=environment,
        bytes_per_task=bytes_per_task,
    )
    return run(job, spark=spark, workers=workers, progress=progress)


def replay_job(
    application: str,
    origin: Origin,
    output: str | Path,
    *,
    until: int | None = None,
    tasks: int = 1,
    outcomes: Check = "strict",
    environment: EnvironmentRule = "refuse",
    bytes_per_task: int = BYTES_PER_TASK,
) -> Job:
    """Return the job of `replay`, for `braidlog.pipelines.run`."""
    if tasks < 1:
        raise InvalidArgumentError(f"tasks must be at least 1, not {tasks}")
    home, origin = Path(output).absolute(), origin.absolute()
    rules = _Rules(application, str(Path.cwd()), outcomes, environment)
    parameters = {
        "application": application,
        "origin": origin.parameters(),
        "until": until,
        "outcomes": outcomes,
        "environment": environment,
    }

    def plan_order(_: Sequence[Result]) -> list[_Order]:
        load_application(application, path=rules.path)
        with origin.open() as source:
            ranges = source.ranges(until, bytes_per_task, ahead=_AHEAD_RECORDS)
        return [_Order(each.begin, each.end) for each in ranges]

    def finish(results: Sequence[Result]) -> Mapping[str, Any]:
        files = [file for result in results for file in result.files]
        return publish(
            home, _NAME, job.identity, parameters, files=files, facts=_facts(results)
        )

    job = Job(
        _NAME,
        parameters,
        home,
        (
            Stage("order", _Order, plan_order, partial(_order, origin, rules)),
            Stage(
                "apply",
                _Apply,
                partial(_plan_apply, tasks, until),
                partial(_apply, rules),
            ),
        ),
        finish,
        lambda: published(home, _NAME, job.identity),
    )
    return job


def _order(origin: Origin, rules: _Rules, task: _Order, attempt: Attempt) -> Result:
    application = load_application(rules.application, path=rules.path)
    pieces, survey = Pieces(attempt, 1), Survey(application)
    records = size = 0
    with origin.open() as source:
        for batch in source.batches(task.begin, task.end, _COLUMNS):
            survey.add(_records(batch, 0, None))
            records += batch.num_rows
            size += batch.nbytes
            pieces.add(batch)
    pieces.flush()
    if survey.missing:
        msg = f"{survey.missing} positions from {survey.first} on are missing"
        raise CorruptionError(msg)
    survey.check_code()
    return Result(
        {"records_read": records, "bytes_read": size},
        tuple(pieces.files),
        {
            "begin": survey.first,
            "last": survey.position,
            "begins": pieces.begins,
            "groups": [sorted(group) for group in survey.groups()],
        },
    )


def _plan_apply(
    tasks: int, until: int | None, ordered: Sequence[Result]
) -> list[_Apply]:
    pieces = tuple(
        Piece(file.path, begin)
        for each in ordered
        for file, begin in zip(each.files, each.facts["begins"], strict=True)
    )
    if not pieces:
        return []
    groups = _joined(group for each in ordered for group in each.facts["groups"])
    last = max(each.facts["last"] for each in ordered)
    return [
        _Apply(tuple(sorted(group)), last if until is None else until, pieces)
        for group in groups_of(groups, tasks)
    ]


def _joined(groups: Iterable[Sequence[int]]) -> list[frozenset[int]]:
    """Return the smallest sets that no group reaches out of."""
    group_of: dict[int, set[int]] = {}
    for group in groups:
        merged = set(group).union(*(group_of.get(number, set()) for number in group))
        for number in merged:
            group_of[number] = merged
    distinct = {id(group): group for group in group_of.values()}
    return sorted((frozenset(group) for group in distinct.values()), key=min)


def _apply(rules: _Rules, task: _Apply, attempt: Attempt) -> Result:
    application = load_application(rules.application, path=rules.path)
    source = OrderedInput(rules.application, attempt.home, task.pieces)
    state = attempt.home / "data" / attempt.name
    with Replay(
        application,
        source,
        Target(state, application),
        until=task.until,
        partitions=task.partitions,
        outcomes=rules.outcomes,
        environment=rules.environment,
    ) as going:
        going.advance()
        going.compare_ahead()
        going.sync()
        done = going.result()
    return Result(
        {
            "commands": done.commands,
            "outcomes_compared": done.compared,
            "differences": len(done.differences),
        },
        tuple(
            finished(attempt.home, path)
            for path in sorted(state.rglob("*"))
            if path.is_file()
        ),
        {
            "position": done.position,
            "time": done.time,
            "hashes": {n: each.hex() for n, each in done.hashes.items()},
            "state": str(state.relative_to(attempt.home)),
            "differences": [str(each) for each in done.differences],
        },
    )


def _facts(results: Sequence[Result]) -> dict[str, Any]:
    hashes = {
        int(number): (text, result.facts["state"])
        for result in results
        for number, text in result.facts["hashes"].items()
    }
    compared = sum(result.figures["outcomes_compared"] for result in results)
    differ = [line for result in results for line in result.facts["differences"]]
    proof = (
        f"{compared} outcomes that the log names were compared, {len(differ)} differ"
    )
    return {
        "position": max((each.facts["position"] for each in results), default=0),
        "hashes": {number: hashes[number][0] for number in sorted(hashes)},
        "states": {number: hashes[number][1] for number in sorted(hashes)},
        "differences": differ,
        "proved": [proof],
    }
