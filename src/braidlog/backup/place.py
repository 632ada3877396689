"""Where backups are: a directory, or a folder of object storage that Arrow knows.

Theory of operation: a file gets its name in one step, when all of it is durable. In a
directory it is written under a temporary name, synced and renamed, and its directory is
synced. Object storage shows an object when its upload is complete. So nobody sees some
of a file, and what a crash leaves behind has a name that says whose it was.

A directory needs no Arrow; a URI such as ``s3://bucket/backups`` does.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from braidlog import durable
from braidlog.errors import (
    InvalidArgumentError,
    NotFoundError,
    UnavailableError,
)
from braidlog.paths import is_uri, local_path

if TYPE_CHECKING:
    from pyarrow import fs

PlaceLike: TypeAlias = str | os.PathLike[str]
"""A path, or a URI such as ``s3://bucket/backups``."""

T = TypeVar("T")

_READ_BYTES: Final = 4 << 20
_ATTEMPTS: Final = 64
"""Of what another run may come in between with, which takes a moment only."""


class Place(ABC):
    """A folder of backups. Names in it are relative, with slashes."""

    location: str

    def shown(self, name: str) -> str:
        """Return how a file is named to people."""
        return f"{self.location}/{name}"

    @abstractmethod
    def names(self, folder: str) -> list[str]:
        """Return the names of files below a folder, sorted; none if it is not there."""

    @abstractmethod
    def size(self, name: str) -> int | None:
        """Return the length of a file, None if it is not there."""

    @abstractmethod
    def open(self, name: str) -> IO[bytes]:
        """Open a file for reading.

        Raises:
            FileNotFoundError: it is not there.
            UnavailableError: the system refuses.
        """

    @abstractmethod
    def writing(self, name: str) -> Any:
        """Give a file to write to, which is there when the block ends well.

        Raises:
            UnavailableError: the system refuses, for instance because it is full.
        """

    @abstractmethod
    def remove(self, name: str) -> None:
        """Remove a file, unless it is gone."""

    def write(self, name: str, data: bytes) -> None:
        """Write a small file; durable on return.

        Raises:
            UnavailableError: the system refuses.
        """
        with self.writing(name) as file:
            file.write(data)

    def read(self, name: str, bytes_max: int) -> bytes:
        """Return what is in a file, and at most one byte more than ``bytes_max``.

        Raises:
            FileNotFoundError: it is not there.
        """
        parts, left = [], bytes_max + 1
        with self.open(name) as file, self.explained(name):
            while left > 0 and (read := file.read(min(left, _READ_BYTES))):
                parts.append(bytes(read))
                left -= len(read)
        return b"".join(parts)

    @contextmanager
    def explained(self, name: str) -> Iterator[None]:
        """Say which file it was that the system refused.

        Raises:
            UnavailableError: the system refuses.
        """
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            path = self.shown(name)
            why = error.strerror or str(error)
            raise UnavailableError(f"{path}: {why}", path=path) from error


def place_of(place: PlaceLike) -> Place:
    """Find the file system of a place; looks at nothing there.

    Raises:
        InvalidArgumentError: it is empty, it names no bucket, or Arrow knows no such
            file system.
    """
    if not is_uri(place):
        path = local_path(place, "the place of backups", or_uri=True)
        return _Directory(path.absolute())
    where = os.fspath(place)
    shown = _without_secrets(where)
    try:
        import pyarrow as pa
        from pyarrow import fs
    except ImportError as error:
        msg = f"{shown} needs pyarrow: pip install 'braidlog[arrow]'"
        raise InvalidArgumentError(msg) from error
    try:
        system, root = fs.FileSystem.from_uri(where)
    except (pa.ArrowInvalid, ValueError, OSError) as error:
        why = str(error).replace(where, shown)
        msg = f"{shown} cannot hold backups: {why}"
        raise InvalidArgumentError(msg) from None
    if isinstance(system, fs.LocalFileSystem):
        return _Directory(Path(root).absolute())
    if not root:  # Storage whose paths begin with a bucket has no files outside.
        scheme = where.partition(":")[0]
        msg = (
            f"{scheme}:// names no bucket: write for instance {scheme}://bucket/folder"
        )
        raise InvalidArgumentError(msg)
    return _Arrow(shown, system, root.rstrip("/"))


def _without_secrets(uri: str) -> str:
    """Return a URI without its user, its password and how the storage is reached."""
    scheme, _, rest = uri.partition("://")
    authority, slash, path = rest.partition("?")[0].partition("/")
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}".rstrip("/")


class _Directory(Place):
    """A directory, also of a network file system."""

    def __init__(self, root: Path) -> None:
        self.location = str(root)
        self.root = root

    def names(self, folder: str) -> list[str]:
        top = self.root / folder

        def found() -> list[str]:
            return sorted(
                path.relative_to(self.root).as_posix()
                for path in top.rglob("*")
                if path.is_file()
            )

        return self._beside_others(folder, found)

    def _beside_others(self, name: str, step: Callable[[], T]) -> T:
        """Do something again if another run removed a directory, which was empty.

        Raises:
            UnavailableError: the system refuses, or one is always removed.
        """
        for _ in range(_ATTEMPTS):
            with self.explained(name), suppress(FileNotFoundError):
                return step()
        path = self.shown(name)
        msg = f"{path}: its directory is removed again and again"
        raise UnavailableError(msg, path=path)

    def size(self, name: str) -> int | None:
        try:
            with self.explained(name):
                return (self.root / name).stat().st_size
        except FileNotFoundError:
            return None

    def open(self, name: str) -> IO[bytes]:
        with self.explained(name):
            return (self.root / name).open("rb")

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        path = self.root / name
        if not self.root.parent.is_dir():
            msg = (
                f"{self.root} cannot be created, because {self.root.parent} does not "
                "exist: check the path, or create it"
            )
            raise NotFoundError(msg)
        with ExitStack() as stack:

            def begun() -> IO[bytes]:
                durable.make_directory(path.parent)
                return stack.enter_context(durable.replacing(path))

            stack.enter_context(self.explained(name))
            # From here on the directory is not empty, and nobody removes it.
            yield self._beside_others(name, begun)

    def remove(self, name: str) -> None:
        path = self.root / name
        with self.explained(name):
            path.unlink(missing_ok=True)
            self._remove_empty(path.parent)

    def _remove_empty(self, directory: Path) -> None:
        while directory not in (self.root, self.root / "lists", self.root.parent):
            try:
                directory.rmdir()
            except OSError:
                return  # Something is in it, or another process was faster.
            directory = directory.parent


class _Arrow(Place):
    """A folder in a file system of Arrow, such as object storage."""

    def __init__(self, location: str, system: fs.FileSystem, root: str) -> None:
        self.location = location
        self._system = system
        self._root = root

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}"

    def names(self, folder: str) -> list[str]:
        from pyarrow import fs

        selector = fs.FileSelector(
            self._path(folder), recursive=True, allow_not_found=True
        )
        with self.explained(folder):
            found = self._system.get_file_info(selector)
        behind = len(self._root) + 1
        return sorted(info.path[behind:] for info in found if info.is_file)

    def size(self, name: str) -> int | None:
        with self.explained(name):
            info = self._system.get_file_info(self._path(name))
        return int(info.size) if info.is_file else None

    def open(self, name: str) -> IO[bytes]:
        with self.explained(name):
            found: IO[bytes] = self._system.open_input_stream(self._path(name))
            return found

    @contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        with self.explained(name):
            stream = self._system.open_output_stream(self._path(name))
        try:
            with self.explained(name):
                yield stream
        except BaseException:
            # Closing would make an object of what was written so far.
            abort = getattr(stream, "abort", None)
            if abort is not None:
                abort()
            else:
                self._discard(stream, name)
            raise
        with self.explained(name):
            stream.close()

    def _discard(self, stream: Any, name: str) -> None:
        stream.close()
        self.remove(name)

    def remove(self, name: str) -> None:
        try:
            with self.explained(name):
                self._system.delete_file(self._path(name))
        except FileNotFoundError:
            return
