"""The directories of tables: those in use, copies that are not whole, and trash.

*Theory of operation.* All of them lie side by side, named by the table's identity:

    <table>          in use
    <table>.copy     a copy that lacks something
    <table>.ready    a copy that is whole and durable
    <table>.trash-N  to be removed

A copy takes its place by one rename, to ``.ready``. What follows, moving away what was
in use and giving the copy its name, is done at once, or by whoever looks next: until
then the copy is what counts.

*Invariants.* What is in use is moved away only while a copy is ready, or the table is
taken away. A name is durable before anything depends on it.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from string import hexdigits
from typing import TYPE_CHECKING, Final

from braidlog import durable
from braidlog.errors import MissingFileError, UnavailableError
from braidlog.wire.rows import PinnedFile

if TYPE_CHECKING:
    from typing_extensions import Buffer

__all__ = ["DirectoryFiles"]

_COPY: Final = ".copy"
_READY: Final = ".ready"
_TRASH: Final = ".trash-"
_READ_BYTES: Final = 1 << 20
_ID_DIGITS: Final = 32


class DirectoryFiles:
    """Tables in the sub-directories of one directory."""

    def __init__(self, directory: Path) -> None:
        """Use a directory, which is made when it is needed."""
        self._root = directory

    def path(self, table: bytes) -> Path:
        """Return where a table is that is in use."""
        return self._root / table.hex()

    def _named(self, table: bytes, what: str) -> Path:
        return self._root / f"{table.hex()}{what}"

    def tables(self) -> list[bytes]:
        """Return the tables of which there is something; remove what is trash."""
        with _refusals(self._root):
            if not self._root.exists():
                return []
            found: dict[bytes, None] = {}
            for each in sorted(self._root.iterdir()):
                identity, _, what = each.name.partition(".")
                if what.startswith(_TRASH[1:]):
                    shutil.rmtree(each)
                elif _is_identity(identity) and each.is_dir():
                    found[bytes.fromhex(identity)] = None
            return list(found)

    def has(self, table: bytes) -> bool:
        """Tell whether a table is here. A copy that became whole is put in use."""
        with _refusals(self._root):
            self._finish(table)
            return self.path(table).is_dir()

    def _finish(self, table: bytes) -> None:
        """Put a copy that is ready in its place."""
        ready, used = self._named(table, _READY), self.path(table)
        if not ready.is_dir():
            return
        old = self._move_away(used)
        durable.move(ready, used)
        for each in old:
            shutil.rmtree(each)

    def _move_away(self, *paths: Path) -> list[Path]:
        """Move directories to the trash, from which they are to be removed."""
        moved = []
        for path in paths:
            if not path.exists():
                continue
            stem = path.name.partition(".")[0]
            names = (self._root / f"{stem}{_TRASH}{each}" for each in count())
            trash = next(name for name in names if not name.exists())
            durable.move(path, trash)
            moved.append(trash)
        return moved

    def trash(self, table: bytes) -> None:
        """Take everything of a table away. It may be repeated."""
        with _refusals(self._root):
            # That a copy is ready must not outlive what it would replace.
            copies = (self._named(table, what) for what in (_READY, _COPY))
            for each in self._move_away(*copies, self.path(table)):
                shutil.rmtree(each)

    def staged(self, table: bytes, files: Sequence[PinnedFile]) -> dict[str, int]:
        """Begin or go on with a copy: drop what is not of these files.

        Returns how many bytes there are of each.
        """
        copy = self._named(table, _COPY)
        sizes = {file.path: file.bytes for file in files}
        with _refusals(copy):
            durable.make_directory(copy)
            found = {}
            for path in [each for each in copy.rglob("*") if each.is_file()]:
                name, size = path.relative_to(copy).as_posix(), path.stat().st_size
                if size > sizes.get(name, -1):
                    path.unlink()
                else:
                    found[name] = size
            return {name: found.get(name, 0) for name in sizes}

    def write(self, table: bytes, path: str, offset: int, data: Buffer) -> None:
        """Write a part of a file behind what there is of it."""
        target = self._named(table, _COPY) / path
        with _refusals(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("r+b" if offset else "wb") as file:
                file.seek(offset)
                file.write(data)

    def check(self, table: bytes, file: PinnedFile) -> bool:
        """Tell whether a file is whole; one that is not is dropped."""
        path = self._named(table, _COPY) / file.path
        with _refusals(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                path.touch()
            whole = _checksum(path) == (file.bytes, file.checksum)
            if not whole:
                path.unlink()
            return whole

    def install(self, table: bytes, files: Sequence[PinnedFile]) -> None:
        """Make the copy durable, and put it in the place of what is there."""
        copy = self._named(table, _COPY)
        with _refusals(copy):
            for file in files:
                path = copy / file.path
                if not path.exists():
                    msg = f"{file.path!r} was not copied"
                    raise MissingFileError(msg, path=str(path))
                durable.sync(path)
            for directory in [each for each in copy.rglob("*") if each.is_dir()]:
                durable.sync(directory)
            durable.sync(copy)
            durable.move(copy, self._named(table, _READY))
            self._finish(table)


def _is_identity(name: str) -> bool:
    return len(name) == _ID_DIGITS and not set(name) - set(hexdigits)


def _checksum(path: Path) -> tuple[int, int]:
    size = checksum = 0
    with path.open("rb") as file:
        while part := file.read(_READ_BYTES):
            size += len(part)
            checksum = zlib.crc32(part, checksum)
    return size, checksum


@contextmanager
def _refusals(path: Path) -> Iterator[None]:
    """Raise what the system refuses as an error of the log."""
    try:
        yield
    except OSError as error:
        where = str(error.filename or path)
        msg = f"{where}: {error.strerror or error}"
        raise UnavailableError(msg, path=where) from error
