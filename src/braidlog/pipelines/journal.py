"""What a job has done so far, kept in its home until it is published.

| path in the home | what |
|---|---|
| ``report.json`` | report of the last run that published |
| ``.job/IDENTITY/lock`` | locked while the job runs |
| ``.job/IDENTITY/landmark`` | what workers look for, another one in each run |
| ``.job/IDENTITY/STAGE.tasks`` | JSON: the tasks of a stage |
| ``.job/IDENTITY/STAGE.results`` | a line of JSON for each task that is done |
| ``.job/IDENTITY/scratch/`` | files that a later stage reads |

A result is noted when its line is durable. A line that a crash cut is not there, so its
task is done again; a line that is no JSON anywhere else is damage.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final, TypeVar

import msgspec

from braidlog import durable
from braidlog.errors import CorruptionError, LockedError
from braidlog.handover import landmark_of
from braidlog.pipelines.job import Report, Result, notes_of

T = TypeVar("T")

_REPORT: Final = "report.json"
_LANDMARK: Final = "landmark"
ASIDE: Final = ".manifest."
"""What the names of manifests begin with that are not published yet."""


class _Line(msgspec.Struct, frozen=True):
    task: int
    result: Result


class JobJournal:
    """The notes of one job; one process has them at a time."""

    def __init__(self, home: Path, identity: str) -> None:
        """Lock the notes, and create them if there are none.

        Raises:
            LockedError: the same job runs already.
        """
        self._home = home
        self._path = notes_of(home, identity)
        self.scratch = self._path / "scratch"
        self.scratch.mkdir(parents=True, exist_ok=True)
        self._lock = (self._path / "lock").open("wb")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._lock.close()
            msg = f"the same job is already running on {home}"
            raise LockedError(msg, path=str(self._path)) from None
        self._notes: dict[str, IO[bytes]] = {}
        path = self._path / _LANDMARK
        path.write_text(secrets.token_hex(16))
        self.landmark = landmark_of(home, str(path.relative_to(home)))
        """By this a worker tells that it sees the directory of the job."""

    @staticmethod
    def begun(home: Path, identity: str) -> bool:
        """Tell whether a job has notes."""
        return notes_of(home, identity).exists()

    def tasks(self, stage: str, kind: type[T]) -> list[T] | None:
        """Return the tasks of a stage, None if it was not planned yet."""
        try:
            text = (self._path / f"{stage}.tasks").read_bytes()
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(text, type=list[kind])  # type: ignore[valid-type]
        except msgspec.MsgspecError as error:
            raise self._damaged(f"{stage}.tasks") from error

    def write_tasks(self, stage: str, tasks: Sequence[Any]) -> None:
        """Keep the plan of a stage; durable on return."""
        durable.replace(self._path / f"{stage}.tasks", msgspec.json.encode(tasks))

    def forget(self, stage: str) -> None:
        """Forget what was planned and done of a stage; durable on return."""
        if file := self._notes.pop(stage, None):
            file.close()
        # The plan last: results without it would be those of the next one.
        for name in (f"{stage}.results", f"{stage}.tasks"):
            if (self._path / name).exists():
                (self._path / name).unlink()
                durable.sync(self._path)

    def results(self, stage: str) -> Iterator[tuple[int, Result]]:
        """Give out what was noted of a stage; of a task that was done twice, both."""
        path = self._path / f"{stage}.results"
        if not path.exists():
            return
        text = path.read_bytes()
        whole = text.rfind(b"\n") + 1
        if whole < len(text):
            os.truncate(path, whole)  # A crash cut the last line.
        for line in text[:whole].splitlines():
            try:
                found = msgspec.json.decode(line, type=_Line)
            except msgspec.MsgspecError as error:
                raise self._damaged(path.name) from error
            yield found.task, found.result

    def note(self, stage: str, task: int, result: Result) -> None:
        """Note that a task is done; durable on return."""
        file = self._notes.get(stage)
        if file is None:
            file = self._notes[stage] = (self._path / f"{stage}.results").open("ab")
            durable.sync(self._path)
        file.write(msgspec.json.encode(_Line(task, result)) + b"\n")
        durable.flush(file)

    def report(self, report: Report) -> None:
        """Keep the report of a job that was published."""
        text = json.dumps(asdict(report), indent=1, ensure_ascii=False) + "\n"
        durable.replace(self._home / _REPORT, text.encode())

    def clear(self) -> None:
        """Remove the notes, when the job is published, and what kills left of it."""
        self._close_notes()
        for aside in self._home.glob(f"{ASIDE}*"):
            aside.unlink(missing_ok=True)
        shutil.rmtree(self._path)
        with contextlib.suppress(OSError):  # Another job has notes there.
            self._path.parent.rmdir()

    def close(self) -> None:
        """Let another process have the notes."""
        self._close_notes()
        self._lock.close()

    def _close_notes(self) -> None:
        while self._notes:
            self._notes.popitem()[1].close()

    def _damaged(self, name: str) -> CorruptionError:
        path = str(self._path / name)
        msg = (
            f"the notes of a job are damaged: {path}; remove the directory to "
            "start over"
        )
        return CorruptionError(msg, path=path)
