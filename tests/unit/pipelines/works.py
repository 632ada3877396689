"""Tasks that tests of jobs carry out, in whatever process."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from braidlog.app import Application
from braidlog.errors import NotReadyError, TrimmedError
from braidlog.pipelines import Attempt, Job, Result, Stage
from braidlog.pipelines.manifest import finished, publish, published


@dataclass(frozen=True)
class Square:
    number: int
    fails: str = ""
    """A file: the task fails while it is not there."""


@dataclass(frozen=True)
class Total:
    files: tuple[str, ...]


def square(task: Square, attempt: Attempt) -> Result:
    if task.fails == "trimmed":
        raise TrimmedError("it is gone", first=7)
    if task.fails and not Path(task.fails).exists():
        Path(task.fails).touch()
        raise NotReadyError("not yet")
    path = attempt.scratch / attempt.name
    path.write_text(str(task.number**2))
    return Result(
        {"squares": 1, "processes": 0},
        (finished(attempt.home, path),),
        {"process": os.getpid()},
    )


def total(task: Total, attempt: Attempt) -> Result:
    count = sum(int((attempt.home / name).read_text()) for name in task.files)
    (attempt.home / "data").mkdir(exist_ok=True)
    path = attempt.home / "data" / attempt.name
    path.write_text(str(count))
    return Result({"total": count}, (finished(attempt.home, path),))


def totals(squares: Sequence[Result]) -> list[Total]:
    return [Total(tuple(file.path for each in squares for file in each.files))]


def squares(home: Path, tasks: Sequence[Square], **parameters: Any) -> Job:
    """Square numbers in one stage, add them up in another."""
    job = Job(
        "squares",
        {"numbers": [task.number for task in tasks], **parameters},
        home,
        (
            Stage("square", Square, lambda _: tasks, square),
            Stage("total", Total, totals, total),
        ),
        lambda results: publish(job, results, {}),
        lambda: published(job),
    )
    return job


EMPTY = Application("near", partitions=10)
