"""Run a job: each stage on a runner, its results in the journal, then one publication.

The journal of the job says what an earlier run has done; a run resumes from there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from braidlog.handover import Landmark, landmark_of, not_shared, problem_of
from braidlog.pipelines.job import (
    Attempt,
    Job,
    JobProgress,
    Progress,
    Report,
    Result,
    Runner,
)
from braidlog.pipelines.journal import JobJournal
from braidlog.pipelines.runners import runner_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IDENTITY: Final = "IDENTITY"
"""The file of a data directory that no other one has the same of."""


def run(
    job: Job,
    *,
    spark: SparkSession | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run a job, or resume it where an earlier run stopped.

    Tasks run in ``spark`` if it is given, otherwise in ``workers`` processes of this
    machine (by default one for each core; with one worker, or for one task, in this
    process).

    Raises:
        LockedError: the same job runs already.
        AlreadyExistsError: the home has the results of another job.
        LogError: the error of a task. Call again to resume; finished tasks are kept.
    """
    began, clock = datetime.now(UTC), time.perf_counter()
    runner = runner_of(spark, workers)
    report = Report(
        pipeline=job.name,
        identity=job.identity,
        parameters=dict(job.parameters),
        where=runner.name,
        began=began.isoformat(timespec="milliseconds"),
        seconds=0.0,
        tasks=0,
        resumed=0,
        unchanged=False,
        figures={},
        published={},
    )
    if job.published() is not None and not JobJournal.begun(job.home, job.identity):
        return _unchanged(job, report, clock)
    with closing(JobJournal(job.home, job.identity)) as state:
        if job.published() is not None:
            # A run was killed between publishing and this.
            report = _unchanged(job, report, clock)
            state.report(report)
            state.clear()
            return report
        results: list[Result] = []
        for number, stage in enumerate(job.stages):
            resumed, done = _carry_out(job, number, results, state, runner, progress)
            report = replace(
                report,
                tasks=report.tasks + len(done),
                resumed=report.resumed + resumed,
                figures=_added(report.figures, done),
            )
            results = results if stage.optional and not done else done
        published = job.publish(results)
        report = replace(report, published=dict(published), seconds=_since(clock))
        state.report(report)
        state.clear()
    return report


def _unchanged(job: Job, report: Report, clock: float) -> Report:
    published = dict(job.published() or {})
    return replace(report, unchanged=True, published=published, seconds=_since(clock))


def _since(clock: float) -> float:
    return round(time.perf_counter() - clock, 3)


def _carry_out(
    job: Job,
    at: int,
    before: Sequence[Result],
    state: JobJournal,
    runner: Runner,
    progress: Progress | None,
) -> tuple[int, list[Result]]:
    """Carry one stage out; return how many tasks were done before, and all results."""
    stage = job.stages[at]
    tasks = state.tasks(stage.name, stage.task)
    if tasks is None:
        tasks = list(stage.plan(before))
        state.write_tasks(stage.name, tasks)
    done: dict[int, Result] = {
        number: result
        for number, result in state.results(stage.name)
        if number < len(tasks) and not _unseen(job, result)
    }
    resumed = len(done)

    def tell() -> None:
        if progress is not None and (tasks or not stage.optional):
            progress(JobProgress(stage.name, len(done), len(tasks)))

    tell()
    left = {n: task for n, task in enumerate(tasks) if n not in done}
    if left:
        for later in job.stages[at + 1 :]:
            # It was planned from results that are not there any more.
            state.forget(later.name)
        landmarks = tuple(_landmarks(job, state.landmark))
        blank = Attempt(-1, stage.name, job.home, state.scratch, landmarks)
        with closing(runner.run(left, stage.work, blank)) as coming:  # type: ignore[type-var]
            for number, result in coming:
                for path, problem in _unseen(job, result):
                    raise not_shared(path, problem, result.worker)
                state.note(stage.name, number, result)
                done[number] = result
                tell()
    return resumed, [done[number] for number in range(len(tasks))]


def _landmarks(job: Job, own: Landmark | None) -> Iterator[Landmark]:
    """Give out how workers know the directories of a job."""
    # One that is not there here either is the task's to name.
    found = [own, *(landmark_of(Path(each), _IDENTITY) for each in job.reads)]
    return (each for each in found if each is not None)


def _unseen(job: Job, result: Result) -> list[tuple[str, str]]:
    """Return which files of a result are not there as they were written, and why."""
    found = []
    for file in result.files:
        path = job.home / file.path
        problem = problem_of(path, file.bytes, file.tail_bytes, file.tail_checksum)
        if problem and not (job.obsolete and job.obsolete(result)):
            found.append((str(path), problem))
    return found


def _added(figures: Mapping[str, int], results: Sequence[Result]) -> dict[str, int]:
    found = dict(figures)
    for result in results:
        for name, value in result.figures.items():
            found[name] = found.get(name, 0) + value
    return found
