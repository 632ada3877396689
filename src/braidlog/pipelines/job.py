"""A job, the form of every pipeline: plan, tasks, results, one publication, a report.

*Theory of operation.* A job has parameters; a hash of them is its identity. It has
stages, mostly one. A stage is planned into tasks, which are descriptors: ranges and
paths, no bytes. ``work`` executes one task in one process: it reads, computes, writes
files under names of its own attempt, and returns figures. The runner decides where that
process is: this one, one beside it, or a worker of Spark. The journal stores each
result durably. When it has the results of all tasks, ``publish`` makes them visible in
one step.

A path may lead elsewhere on another machine. So a worker checks the directories of the
job before it begins a task, and this process checks the files of each result before the
journal stores it (`braidlog.handover`).

*Invariants.* This process has seen every file of a result that the journal stores, in
its place. The plan of a stage is stored before its first task runs, so an interrupted
job resumes with the same tasks and repeats none whose result is stored. A task may run
more than once, also at the same time: only files that a published result names count.
``publish`` may be called again with the same results. Running a published job again
changes nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

from braidlog.handover import Landmark

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
    """The result of one task, stored as JSON."""

    figures: dict[str, int] = field(default_factory=dict)
    """Counts, which are added up over all tasks; by names such as ``records_read``."""
    files: tuple[File, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    """Values that later stages and the publication need."""
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

    ``work`` is importable, or a `functools.partial` of an importable function. Pass
    secrets such as a token through the partial, because tasks are stored in files.
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
    """All values that determine the result, as JSON values; no secrets."""
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
        """Directory of the journal, until the job is published."""
        return notes_of(self.home, self.identity)

    @property
    def scratch(self) -> Path:
        """`Attempt.scratch`; a plan may leave there what its tasks have to read."""
        return self.notes / "scratch"


NOTES: Final = ".job"
"""Where a directory of results has the notes of jobs that are not done."""


def notes_of(home: Path, identity: str) -> Path:
    """Return where the notes of a job are."""
    return home / NOTES / identity


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is."""

    stage: str
    done: int
    tasks: int


Progress: TypeAlias = Callable[[JobProgress], object]


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a job, stored as ``report.json`` in its home."""

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
    """Executes tasks."""

    @property
    def name(self) -> str:
        """Name for reports and messages."""

    def run(
        self, tasks: Mapping[int, T], work: Work[T], blank: Attempt
    ) -> Iterator[tuple[int, Result]]:
        """Execute tasks and yield each result when it is complete.

        ``blank`` is an attempt without task and name, which the runner fills in.

        Raises:
            LogError: the error of a task. The runner starts no further tasks.
        """
