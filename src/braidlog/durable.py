"""Files that survive a loss of power; the native core has its own way.

*Theory of operation.* A file system may keep a name without its content, or content
without its name. So a file is written under a temporary name and synced, then it gets
its name in one step, then its directory is synced. Whoever opens the name finds the
old file or the new one, each of them whole.

*Invariants.* Each function returns when what it did is durable. After an error, or a
crash, the name has what it had before, or the new content; a temporary file may be left
behind by a crash alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO


def replace(path: Path, data: bytes, *, temporary: Path | None = None) -> None:
    """Write a file in one step, whether or not there is one; see `replacing`.

    Raises:
        OSError: the system refused; the file is the old one or the new one.
    """
    with replacing(path, temporary=temporary) as file:
        file.write(data)


@contextmanager
def replacing(path: Path, *, temporary: Path | None = None) -> Iterator[BinaryIO]:
    """Give a new file to write to, which gets its name when the block ends well.

    ``temporary`` is its name until then, in the same directory: by default that of the
    file with ``.tmp`` behind it. Name another one where two processes may write the
    same file. If the block raises, the name stays what it was.

    Raises:
        OSError: the system refused; the file is the old one or the new one.
    """
    temporary = temporary or path.with_name(f"{path.name}.tmp")
    with _removed_on_failure(temporary):
        with temporary.open("wb") as file:
            yield file
            flush(file)
        move(temporary, path)


def create(path: Path, data: bytes, *, temporary: Path) -> None:
    """Write a file in one step, unless there is one of that name.

    Raises:
        FileExistsError: there is one; it stays what it is, and its name is durable.
        FileNotFoundError: another process removed the temporary file.
        OSError: the system refused.
    """
    with _removed_on_failure(temporary):
        with temporary.open("wb") as file:
            file.write(data)
            flush(file)
        try:
            # Unlike a rename, this fails if the name is there.
            path.hardlink_to(temporary)
        finally:
            # The process that made the name first may not have come to this yet.
            sync(path.parent)
        temporary.unlink(missing_ok=True)


def move(path: Path, target: Path) -> None:
    """Give a file or directory, which is durable itself, another name.

    A file of that name is replaced. Both names are in directories of one file system.

    Raises:
        OSError: the system refused.
    """
    path.replace(target)
    sync(target.parent)


def flush(file: IO[Any]) -> None:
    """Make durable what was written to an open file; not the name of a new one.

    Raises:
        OSError: the device failed; what it has of the file is unknown.
    """
    file.flush()
    os.fsync(file.fileno())


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a directory, durable.

    Raises:
        OSError: the device failed; what it has is unknown.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_up_to(directory: Path, root: Path) -> None:
    """Make the names in a directory durable, and in all above it up to ``root``.

    Raises:
        OSError: the device failed.
    """
    sync(directory)
    if directory not in (root, directory.parent):
        sync_up_to(directory.parent, root)


def make_directory(path: Path) -> None:
    """Make a directory with its parents, unless it is there; their names are durable.

    Raises:
        OSError: the system refused.
    """
    try:
        path.mkdir()
    except FileNotFoundError:
        make_directory(path.parent)
        path.mkdir(exist_ok=True)
    except FileExistsError:
        if not path.is_dir():
            raise
        if not os.access(path.parent, os.R_OK):
            return  # Another user made it there.
    # Also if it was there: the process that made it may have ended before it synced.
    sync(path.parent)


@contextmanager
def _removed_on_failure(temporary: Path) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
