"""What every pipeline is, a job: plan, tasks, results, one publication, a report.

*Theory of operation.* A job is described by its parameters, and a hash of them is its
identity. It has stages, mostly one. A stage is planned into tasks, which are
descriptors: ranges and paths, no bytes. ``work`` carries one task out in one process:
it reads, computes, writes files under names of its own attempt and returns figures.
Where that process is (this one, a process beside it, a worker of Spark) is the
runner's business alone. What a task returned is noted durably. When all tasks of all
stages are noted, ``publish`` makes the results visible in one step.

A path may lead elsewhere on another machine. So a worker looks for the directories of
the job before it begins a task, and this process looks at the files of each result
before it is noted (`braidlog.handover`).

*Invariants.* What is noted, and so what is published, this process has seen in its
place. The plan of a stage is kept before its first task runs, so an interrupted
job goes on with the same tasks, and redoes none that is noted. A task may be carried
out more than once, also at the same time: only files that a published result names
count. ``publish`` may be called again with the same results. A job that is published
changes nothing when it is run again.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from braidlog.handover import Landmark, landmark_of, not_shared, problem_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "Attempt",
    "File",
    "Job",
    "Outlook",
    "Progress",
    "Report",
    "Result",
    "Runner",
    "Stage",
    "Work",
    "notes_of",
    "run",
]

_FORMAT: Final = 3
"""Part of every identity: results of another format are never taken up."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class File:
    """A file that a task wrote: durable, and never changed again."""

    path: str
    """Relative to the home of the job; of what is elsewhere, absolute."""
    bytes: int
    checksum: str
    """BLAKE2b-128 of its bytes, in hexadecimal; "" if the file has checksums itself."""
    tail_bytes: int = 0
    tail_checksum: str = ""
    """Of its last bytes: by these the process that publishes knows it again."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one task did. All of it is kept as JSON."""

    figures: dict[str, int] = field(default_factory=dict)
    """Counts, which are added up over all tasks; by names such as ``records_read``."""
    files: tuple[File, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    """Whatever later stages and the publication have to know of this task."""
    worker: str = ""
    """The machine that the task ran on."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a task."""

    task: int
    name: str
    """Not the name of any other attempt: begin names of files with it."""
    home: Path
    """Where the published files of the job are, seen by all its workers."""
    scratch: Path
    """For files that a later stage reads; removed when the job is published."""
    landmarks: tuple[Landmark, ...] = ()
    """By these a worker tells that it sees what the job is about."""


Work: TypeAlias = Callable[[T, Attempt], Result]


@dataclass(frozen=True, slots=True)
class Stage(Generic[T]):
    """Tasks of one kind, in any order and at the same time.

    ``work`` is importable, or a `functools.partial` of what is. What must not be
    written down (a token) is bound that way: tasks are kept in files.
    """

    name: str
    task: type[T]
    """A frozen dataclass of what JSON can hold: it is kept, and sent to workers."""
    plan: Callable[[Sequence[Result]], Sequence[T]]
    """Makes the tasks, from the results of the stage before (of the first: none)."""
    work: Work[T]
    optional: bool = False
    """Left out if it has no tasks: the next one is planned from what was before."""


@dataclass(frozen=True, slots=True)
class Job:
    """A pipeline with its parameters."""

    name: str
    parameters: Mapping[str, Any]
    """All that decides what comes out, as JSON values; no secrets."""
    home: Path
    """Directory of the job; all workers see it under the same path."""
    stages: tuple[Stage[Any], ...]
    publish: Callable[[Sequence[Result]], Mapping[str, Any]]
    """Makes the results of the last stage visible; says what it published."""
    published: Callable[[], Mapping[str, Any] | None]
    """What an earlier run of the same job published."""
    reads: tuple[str, ...] = ()
    """Data directories that all workers see under the same path."""
    obsolete: Callable[[Result], bool] | None = None
    """Whether files of a result that are gone are of no use any more."""

    @property
    def identity(self) -> str:
        """Hash of name and parameters, 32 hexadecimal digits."""
        text = json.dumps(
            {"format": _FORMAT, "pipeline": self.name, **self.parameters},
            sort_keys=True,
            separators=(",", ":"),
        )
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @property
    def notes(self) -> Path:
        """Where it is kept what is done so far, until the job is published."""
        return notes_of(self.home, self.identity)

    @property
    def scratch(self) -> Path:
        """`Attempt.scratch`; a plan may leave there what its tasks have to read."""
        return self.notes / "scratch"


IDENTITY: Final = "IDENTITY"
"""The file of a data directory that no other one has the same of."""

NOTES: Final = ".job"
"""Where a directory of results has the notes of jobs that are not done."""


def notes_of(home: Path, identity: str) -> Path:
    """Return where the notes of a job are."""
    return home / NOTES / identity


@dataclass(frozen=True, slots=True)
class Outlook:
    """How far a job is."""

    stage: str
    done: int
    tasks: int


Progress: TypeAlias = Callable[[Outlook], object]


@dataclass(frozen=True, slots=True)
class Report:
    """What a job did; kept as ``report.json`` in its home."""

    pipeline: str
    identity: str
    parameters: dict[str, Any]
    where: str
    """What carried the tasks out."""
    began: str
    seconds: float
    tasks: int
    resumed: int
    """Tasks of these that an interrupted run had done before."""
    unchanged: bool
    """The same job was published before: nothing was done."""
    figures: dict[str, int]
    published: dict[str, Any]


class Runner(Protocol):
    """Carries tasks out somewhere."""

    @property
    def name(self) -> str:
        """What a person calls it."""

    def run(
        self, tasks: Mapping[int, T], work: Work[T], blank: Attempt
    ) -> Iterator[tuple[int, Result]]:
        """Carry tasks out, and give each result when it is there.

        ``blank`` is an attempt without task and name, which this fills in.

        Raises:
            LogError: what a task raised; tasks that did not begin do not begin.
        """


def run(
    job: Job,
    *,
    spark: SparkSession | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Carry a job out; of the same job, do what is left to do.

    Tasks run in ``spark`` if it is given, else in ``workers`` processes of this machine
    (by default one for each core; with one, or for one task, in this process).

    Raises:
        LockedError: the same job runs already.
        AlreadyExistsError: the home has the results of another job.
        LogError: what a task raised; run again, the job goes on behind what is done.
    """
    from braidlog.pipelines.journal import JobJournal
    from braidlog.pipelines.runners import runner_of

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
    state: Any,
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
            progress(Outlook(stage.name, len(done), len(tasks)))

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
    found = [own, *(landmark_of(Path(each), IDENTITY) for each in job.reads)]
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
