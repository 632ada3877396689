"""``replay``: compute the state of an application from its log, in parallel.

*Theory of operation.* Tasks of the first stage put the records in order, each once
(copies of dead nodes are compared), divide them by virtual partition, and find which
partitions the commands touch together. Partitions that no command connects are
independent, so each task of the second stage takes some of them. It executes their
commands with the executor that hosts use, and compares the outcomes in the log. So each
stage decodes a command once, whatever the number of tasks.

*Invariants.* The state hash of a partition depends on the log alone, not on the number
of tasks or the order in which directories are named. No command is executed before the
whole log was checked, and all commands found then are executed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from braidlog.app.fingerprint import EnvironmentRule
from braidlog.app.loading import load_application
from braidlog.app.replay.prescan import Survey, groups_of
from braidlog.app.replay.run import Check, Replay
from braidlog.app.replay.target import Target
from braidlog.errors import (
    BeyondEndError,
    CorruptionError,
    InvalidArgumentError,
    TrimmedError,
)
from braidlog.pipelines.execution import run
from braidlog.pipelines.job import (
    Attempt,
    Job,
    Progress,
    Report,
    Result,
    Stage,
)
from braidlog.pipelines.manifest import finished, home_of, publish, published
from braidlog.pipelines.ordered import (
    COLUMNS,
    OrderedInput,
    PartitionSorter,
    records_of,
)
from braidlog.pipelines.runners import context_of
from braidlog.pipelines.shuffle import ShuffleWriter, read_list, split_at, write_list
from braidlog.sources.origin import Origin
from braidlog.sources.plan import BYTES_PER_TASK, joined

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from braidlog.app.application import Application

_NAME: Final = "replay"
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
    time: int
    """Timestamp of that position."""
    commands: int
    """Of the whole log, up to there."""
    shuffle: str
    """The file that lists what the log was spread to."""


@dataclass(frozen=True, slots=True)
class _Rules:
    """What every task has to know of the application."""

    application: str
    path: str = field(compare=False)
    outcomes: Check = "strict"
    environment: EnvironmentRule = "refuse"


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
    """Compute the state of an application from its log, partitions in parallel.

    ``application`` is ``module:attribute``, which every worker can import. ``tasks`` is
    the number of tasks over which the partitions are divided (by default one for each
    core, here or in Spark); partitions that a command touches together stay together.
    ``until`` is the last position to execute.

    The report has the state hash of each partition, equal to that of an embedded
    replay. The databases are in the directory ``output``; its ``manifest.json`` names
    them. The same call resumes an interrupted job.

    Raises:
        ApplicationMismatchError: the log belongs to another application.
        UnknownProcedureError: the program lacks code that the log needs.
        DivergedError: a command had another outcome than the log records.
        TrimmedError: the log does not begin with its first command.
        AlreadyExistsError: the directory has the results of another job.
    """
    count = _cores(spark, workers) if tasks is None else tasks
    if count < 1:
        raise InvalidArgumentError(f"tasks must be at least 1, not {tasks}")
    origin = origin.absolute()
    rules = _Rules(application, str(Path.cwd()), outcomes, environment)

    def plan_order(_: Sequence[Result]) -> list[_Order]:
        load_application(application, path=rules.path)
        with origin.open() as source:
            ranges = source.ranges(until, bytes_per_task, ahead=_AHEAD_RECORDS)
        return [_Order(each.begin, each.end) for each in joined(ranges)]

    job = Job(
        _NAME,
        {
            "application": application,
            "origin": origin.parameters(),
            "until": until,
            "outcomes": outcomes,
            "environment": environment,
        },
        home_of(output),
        (
            Stage("order", _Order, plan_order, partial(_order, origin, rules, until)),
            Stage(
                "apply",
                _Apply,
                lambda ordered: _plan_apply(job, rules, count, until, ordered),
                partial(_apply, rules),
            ),
        ),
        lambda results: publish(job, results, _facts(results)),
        lambda: published(job),
        reads=origin.directories(),
    )
    return run(job, spark=spark, workers=workers, progress=progress)


def _cores(spark: SparkSession | None, workers: int | None) -> int:
    parallel = None if spark is None else context_of(spark).defaultParallelism
    return int(parallel or workers or len(os.sched_getaffinity(0)))


def _order(
    origin: Origin, rules: _Rules, until: int | None, task: _Order, attempt: Attempt
) -> Result:
    application = load_application(rules.application, path=rules.path)
    spread = PartitionSorter(application.partitions, until)
    shuffle = ShuffleWriter(attempt, spread.parts, split=split_at)
    survey = Survey(application, watch=spread.see)
    size = time = 0
    with origin.open() as source:
        for batch in source.batches(task.begin, task.end, columns=COLUMNS):
            survey.add(records_of(batch))
            shuffle.add(spread.sort(batch))
            size += batch.nbytes
            time = _time_of(batch, until) or time
    shuffle.finish()
    if survey.missing:
        msg = f"{survey.missing} positions are missing, from {survey.first} on"
        raise CorruptionError(msg)
    survey.check_code()
    return Result(
        {
            "records_read": survey.records,
            "bytes_read": size,
            "shuffle_bytes_written": shuffle.bytes_written,
        },
        tuple(shuffle.files),
        {
            "begin": survey.first,
            "last": survey.position,
            "time": time,
            "commands": spread.commands,
            "spans": shuffle.spans,
            # Most partitions of most applications are alone.
            "groups": [sorted(group) for group in survey.groups() if len(group) > 1],
        },
    )


def _time_of(batch: pa.RecordBatch, until: int | None) -> int:
    """Return the timestamp of the last record up to a position; 0 if there is none."""
    first = batch.column("position")[0].as_py()
    rows = batch.num_rows if until is None else min(batch.num_rows, until - first + 1)
    if rows < 1:
        return 0
    time: int = batch.column("timestamp")[rows - 1].cast(pa.int64()).as_py()
    return time


def _plan_apply(
    job: Job,
    rules: _Rules,
    tasks: int,
    until: int | None,
    ordered: Sequence[Result],
) -> list[_Apply]:
    facts = [each.facts for each in ordered if each.files]
    facts.sort(key=lambda each: each["begin"])
    if not facts:
        return []
    if facts[0]["begin"] > 1:
        msg = (
            f"the log begins at {facts[0]['begin']}, but this replay needs its first"
            " command: pass the archive, or use `braidlog replay` with a snapshot"
        )
        raise TrimmedError(msg, first=facts[0]["begin"])
    for before, behind in pairwise(facts):
        if before["last"] + 1 != behind["begin"]:
            raise CorruptionError(
                f"positions {before['last'] + 1} to {behind['begin'] - 1} were "
                "not read by any task"
            )
    last = facts[-1]["last"]
    if until is not None and until > last:
        msg = f"the log ends at {last}, before the requested position {until}"
        raise BeyondEndError(msg, next=last + 1)
    end = last if until is None else until
    at_end = next(each for each in facts if each["begin"] <= end <= each["last"])
    partitions = load_application(rules.application, path=rules.path).partitions
    alone = ([number] for number in range(partitions))
    together = (group for each in facts for group in each["groups"])
    commands = sum(each["commands"] for each in facts)
    shuffle = write_list(job, "order", ordered)
    return [
        _Apply(tuple(sorted(group)), end, at_end["time"], commands, shuffle)
        for group in groups_of(_joined([*alone, *together]), tasks)
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
    shuffle = read_list(attempt.home, task.shuffle)
    spread = PartitionSorter(application.partitions, None)
    name, home = rules.application, attempt.home
    control = OrderedInput(name, home, shuffle, [spread.control])
    parts = {*task.partitions, spread.control, spread.elsewhere}
    source = OrderedInput(name, home, shuffle, parts)
    state = home / "data" / attempt.name
    with Replay(
        application,
        source,
        Target(state, application),
        until=task.until,
        partitions=task.partitions,
        outcomes=rules.outcomes,
        environment=rules.environment,
        survey=_survey_of(application, control, task),
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
            "shuffle_bytes_read": control.bytes_read + source.bytes_read,
        },
        tuple(
            finished(attempt.home, path)
            for path in sorted(state.rglob("*"))
            if path.is_file()
        ),
        {
            "position": done.position,
            "time": done.time,
            "commands": task.commands,
            "hashes": {n: each.hex() for n, each in done.hashes.items()},
            "state": str(state.relative_to(attempt.home)),
            "differences": [str(each) for each in done.differences],
        },
    )


def _survey_of(application: Application, control: OrderedInput, task: _Apply) -> Survey:
    """Return what the first stage saw, as far as executing needs it."""
    survey = Survey(application)
    survey.add(control.records(None, task.until + 1))
    # What gives a command up is behind it.
    beyond = Survey(application, aborts=survey.aborts)
    beyond.add(control.records(task.until + 1))
    # Of the commands themselves there is nothing here: nobody read them a second time.
    survey.first, survey.missing = 1, 0
    survey.position, survey.time = task.until, task.time
    return survey


def _facts(results: Sequence[Result]) -> dict[str, Any]:
    hashes = {
        int(number): (text, result.facts["state"])
        for result in results
        for number, text in result.facts["hashes"].items()
    }
    for result in results[:1]:
        there = result.facts["commands"]
        done = sum(each.figures["commands"] for each in results)
        if done != there:
            msg = f"the log has {there} commands, but {done} were executed"
            raise CorruptionError(msg)
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
