"""The directory that a replay makes: marked, so that it goes on where it was killed.

| file | what |
|---|---|
| ``replay.json`` | which partitions of which application; whether restoring was done |
| ``partition-NNNN.db`` | their databases |

The mark is there before the databases are. Without it nothing in the directory is ours,
and nothing is touched.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from braidlog.app.application import Application
from braidlog.app.sqlite import SqliteState
from braidlog.errors import AlreadyExistsError, CorruptionError, InvalidArgumentError

__all__ = ["Target"]

_MARK: Final = "replay.json"


@dataclass(frozen=True, slots=True)
class _Mark:
    application: str
    partitions: list[int]
    cut: str
    restored: bool


class Target:
    """A directory that holds, or will hold, a replayed state."""

    def __init__(
        self, path: Path, application: Application, *, cut: str = "strict"
    ) -> None:
        """Look at the directory; nothing is created yet.

        Raises:
            AlreadyExistsError: it has files, and no replay made them.
            CorruptionError: its mark cannot be read.
        """
        self.path = path
        self._application = application
        self._cut = cut
        self._found = self._read()

    def _read(self) -> _Mark | None:
        try:
            text = (self.path / _MARK).read_text(encoding="utf-8")
        except FileNotFoundError:
            if self.path.exists() and any(self.path.iterdir()):
                msg = f"{self.path} has files, and is not the state of a replay"
                raise AlreadyExistsError(msg) from None
            return None
        try:
            return _Mark(**json.loads(text))
        except (TypeError, ValueError) as error:
            msg = f"the mark of a replay is damaged: {self.path / _MARK}"
            raise CorruptionError(msg, path=str(self.path / _MARK)) from error

    def begun(self, partitions: frozenset[int]) -> bool:
        """Whether a replay of these partitions was begun here and can go on.

        Raises:
            InvalidArgumentError: what was begun here is something else.
        """
        if self._found is None:
            return False
        found, mine = self._found, self._mark(partitions, restored=True)
        if (found.application, found.cut) != (mine.application, mine.cut):
            msg = (
                f"{self.path} has a replay of {found.application!r}, cut"
                f" {found.cut}: choose another directory"
            )
            raise InvalidArgumentError(msg)
        if found.partitions != mine.partitions:
            msg = (
                f"{self.path} has a replay of the partitions {found.partitions}, not of"
                f" {mine.partitions}: choose another directory"
            )
            raise InvalidArgumentError(msg)
        return found.restored

    def _mark(self, partitions: frozenset[int], *, restored: bool) -> _Mark:
        name = self._application.name
        return _Mark(name, sorted(partitions), self._cut, restored)

    def start_over(self, partitions: frozenset[int]) -> None:
        """Remove what a replay left here, and mark the directory for this one."""
        if self._found is not None:
            shutil.rmtree(self.path)
        self.path.mkdir(parents=True, exist_ok=True)
        self._write(self._mark(partitions, restored=False))

    def restored(self, partitions: frozenset[int]) -> None:
        """Note that the databases are at one position: from here on replay goes on."""
        self._write(self._mark(partitions, restored=True))

    def _write(self, mark: _Mark) -> None:
        aside = self.path / f"{_MARK}.new"
        with aside.open("w", encoding="utf-8") as file:
            json.dump(asdict(mark), file)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.path / _MARK)
        self._found = mark

    def open(self, partitions: frozenset[int]) -> SqliteState:
        """Open the databases of these partitions, and the one of partition 0."""
        count = self._application.partitions
        return SqliteState(self.path, count, only=partitions | {0})
