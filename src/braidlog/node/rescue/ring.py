"""The file of a ring, and the lock of the directory it is in.

The file is made once, zero-filled and synced before it gets its name; from then on a
record needs no space, and no metadata but what was there at its first sync.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from braidlog import durable
from braidlog.closable import Closable
from braidlog.errors import LockedError, NotFoundError, UnavailableError
from braidlog.faultlog.record import SLOT_BYTES
from braidlog.faultlog.scan import SLOTS_MAX

FILE_NAME = "FAULTS"
_LOCK = "LOCK"


class Ring(Protocol):
    """Bytes that stay, as `FaultLog` needs them."""

    path: str

    def read(self) -> bytes:
        """Return all of them."""

    def write(self, offset: int, data: bytes) -> None:
        """Write within them, and return when that is durable."""

    def close(self) -> None:
        """Let go of them."""


class RingFile(Closable):
    """A ring in a file; see `Ring`."""

    def __init__(self, directory: Path, slots: int, *, create: bool) -> None:
        """Open the ring of a directory; make it if `create` and there is none.

        Raises:
            NotFoundError: There is none.
            UnavailableError: The system refused; nothing was changed.
        """
        path = directory / FILE_NAME
        self.path = str(path)
        with _explained(self.path):
            if create and not path.exists():
                durable.replace(path, bytes(slots * SLOT_BYTES))
            self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def read(self) -> bytes:
        """Return the file.

        Raises:
            UnavailableError: The system refused.
        """
        with _explained(self.path):
            return _read(self._file)

    def write(self, offset: int, data: bytes) -> None:
        """Write and sync; an error leaves unknown what is on the disk."""
        done = 0
        while done < len(data):
            done += os.pwrite(self._file, data[done:], offset + done)
        # Not by `durable`: it writes in place, where space and length are durable.
        os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file; what was written is durable already."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_ring(directory: Path) -> bytes:
    """Return the ring of a directory, which may be a copy that cannot be written.

    Raises:
        NotFoundError: There is none.
        UnavailableError: The system refused.
    """
    path = directory / FILE_NAME
    with _explained(str(path)):
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return _read(file)
        finally:
            os.close(file)


@contextmanager
def write_locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a data directory, so that no node runs on it.

    Raises:
        LockedError: Somebody else holds it.
        UnavailableError: The system refused.
    """
    path = directory / _LOCK
    with _explained(str(path)):
        # Not truncated: until the lock is had, the text in it is about another.
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with _explained(str(path)):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(file)


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise NotFoundError(f"the fault log {path} does not exist") from None
    except BlockingIOError:
        msg = f"{path} is locked: a node is running in this directory"
        raise LockedError(msg, path=path) from None
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror}", path=path) from error


def _read(file: int) -> bytes:
    size = os.fstat(file).st_size
    if size > SLOTS_MAX * SLOT_BYTES:
        raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    parts: list[bytes] = []
    at = 0
    while part := os.pread(file, size - at, at):
        parts.append(part)
        at += len(part)
    return b"".join(parts)
