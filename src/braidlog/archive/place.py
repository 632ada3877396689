"""Where an archive is: its files, and the two promises that a generation needs.

Reading works in every file system that Arrow knows. Writing needs one in which a name
can be created once and what was written can be made durable; that is a directory, also
of a network file system with hard links. `Place.create` makes the name of a whole,
durable file appear, or says that it is there already: nobody ever sees a part of it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from braidlog import durable
from braidlog.errors import (
    AlreadyExistsError,
    InvalidArgumentError,
    UnavailableError,
)
from braidlog.paths import is_uri, local_path

if TYPE_CHECKING:
    from pyarrow import fs

Location: TypeAlias = str | os.PathLike[str]
"""A path, or a URI such as ``s3://bucket/orders``."""


def absolute(location: Location) -> str:
    """Return a location that means the same in every process and directory.

    Raises:
        InvalidArgumentError: it is empty, or can be no path, or no URI.
    """
    if is_uri(location):
        text = os.fspath(location)
        if not is_uri(found := text.rstrip("/")):
            msg = f"{text} names nothing: write for instance {found}//bucket/folder"
            raise InvalidArgumentError(msg)
        return found
    path = local_path(location, "the place of an archive", or_uri=True)
    return str(path.absolute())


@dataclass(frozen=True)
class Place:
    """The folder of an archive."""

    location: str
    system: fs.FileSystem
    root: str

    @classmethod
    def of(cls, location: Location) -> Place:
        """Find the file system of a location; looks at nothing there.

        Raises:
            InvalidArgumentError: Arrow knows no such file system, or cannot reach it.
        """
        import pyarrow as pa
        from pyarrow import fs

        where = absolute(location)
        if not is_uri(where):
            return cls(where, fs.LocalFileSystem(), where)
        try:
            system, root = fs.FileSystem.from_uri(where)
        except (pa.ArrowInvalid, ValueError, OSError) as error:
            msg = f"{where} cannot hold an archive: {error}"
            raise InvalidArgumentError(msg) from error
        return cls(where, system, root.rstrip("/"))

    def path(self, name: str) -> str:
        """Return the path of a file of the archive within its file system."""
        return f"{self.root}/{name}"

    def shown(self, name: str) -> str:
        """Return how a file of the archive is named to people."""
        return f"{self.location}/{name}"

    # -- reading -----------------------------------------------------------------

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder, none if it is not there."""
        from pyarrow import fs

        selector = fs.FileSelector(self.path(folder), allow_not_found=True)
        with self._explained(folder):
            return sorted(
                info.base_name for info in self.system.get_file_info(selector)
            )

    def open(self, name: str) -> Any:
        """Open a file for reading at any place.

        Raises:
            FileNotFoundError: it is not there.
            UnavailableError: the system refuses.
        """
        with self._explained(name):
            return self.system.open_input_file(self.path(name))

    def read(self, name: str) -> bytes:
        """Return what is in a small file.

        Raises:
            FileNotFoundError: it is not there.
        """
        with self.open(name) as file, self._explained(name):
            return bytes(file.read())

    @contextlib.contextmanager
    def _explained(self, name: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            path = self.shown(name)
            raise UnavailableError(f"{path}: {error}", path=path) from error

    # -- writing -----------------------------------------------------------------

    @property
    def directory(self) -> Path:
        """The archive as a directory.

        Raises:
            InvalidArgumentError: it is in a file system that makes no name only once.
        """
        from pyarrow import fs

        if isinstance(self.system, fs.LocalFileSystem):
            return Path(self.root)
        raise InvalidArgumentError(
            f"an archive at {self.location} can only be read, because two "
            "archivers could publish the same generation there: archive to a "
            "directory, and copy it there"
        )

    def create(self, name: str, data: bytes, attempt: str) -> None:
        """Create a file in one step, durable on return.

        ``attempt`` is a name that nobody else uses.

        Raises:
            AlreadyExistsError: there is one of that name; it stays what it is.
            UnavailableError: the system refuses.
        """
        target = self.directory / name
        partial = target.with_name(f"{target.name}.{attempt}.tmp")
        with self._explained(name):
            durable.make_directory(target.parent)
            try:
                durable.create(target, data, temporary=partial)
            except (FileExistsError, FileNotFoundError) as error:
                # Gone: who published that generation cleaned up behind it.
                msg = f"{self.shown(name)} exists already"
                raise AlreadyExistsError(msg) from error

    def remove(self, name: str) -> None:
        """Remove a file that nobody refers to."""
        with self._explained(name):
            (self.directory / name).unlink(missing_ok=True)
