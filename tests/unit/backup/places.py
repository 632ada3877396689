"""Places that crash, fail and fill up, over a directory."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from braidlog.backup.place import Place, place_of
from braidlog.errors import UnavailableError


class Crash(BaseException):
    """The process is gone: nothing that comes later happens."""


class Troubled(Place):
    """Does something before each change; a crash in it makes all later ones fail."""

    def __init__(self, root: Path, before: Callable[[int], None]) -> None:
        self._place = place_of(root)
        self.location = self._place.location
        self.before = before
        self.changes = 0
        self.dead = False

    def _change(self) -> None:
        if self.dead:
            raise Crash
        self.changes += 1
        try:
            self.before(self.changes)
        except Crash:
            self.dead = True
            raise

    def names(self, folder: str) -> list[str]:
        return self._place.names(folder)

    def size(self, name: str) -> int | None:
        return self._place.size(name)

    def open(self, name: str) -> IO[bytes]:
        return self._place.open(name)

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        self._change()
        with self._place.writing(name) as file:
            yield file
        # The file is there, and who wrote it may never hear of it.
        self._change()

    def remove(self, name: str) -> None:
        self._change()
        self._place.remove(name)


def crashing_at(count: int) -> Callable[[int], None]:
    """Crash before change `count`."""

    def before(change: int) -> None:
        if change == count:
            raise Crash

    return before


def full_at(count: int, path: Path) -> Callable[[int], None]:
    """Have no room from change `count` on."""

    def before(change: int) -> None:
        if change >= count:
            text = f"{path}: {errno.errorcode[errno.ENOSPC]}"
            raise UnavailableError(text, path=str(path))

    return before
