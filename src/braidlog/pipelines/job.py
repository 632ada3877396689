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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeAlias, TypeVar

from braidlog.handover import Landmark

if TYPE_CHECKING:
    pass

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
