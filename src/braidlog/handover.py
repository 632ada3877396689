"""Files that one process writes and another one vouches for.

*Theory of operation.* A worker writes a file and says where it is. That another process
sees it there is not certain: on another machine, or in a container, the same path may
be another disk, or nothing at all. So a file is handed over with its length and the
checksum of its *tail*, its last bytes. Whoever makes the file count looks at it first:
it opens the path itself and compares both. A tail is short, so that costs the same for
every size; in a Parquet file it is the footer, and in a file of pieces the index, which
has the checksums of all that comes before.

A worker finds out early, by *landmarks*: files that the process that began the job has,
and that the worker must find with the same content. A package that only the worker
lacks is reported with the name of its machine, too.

*Invariant.* Nothing is listed, decided or trimmed for a file that the deciding process
did not see itself.
"""

from __future__ import annotations

import io
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from braidlog.errors import NotSharedError

TAIL_BYTES: Final = 64 << 10
"""Longest tail of a file that has no footer of its own."""

_DIGEST_BYTES: Final = 16
_LANDMARK_BYTES_MAX: Final = 64 << 10


def here() -> str:
    """Return the machine that this process runs on, as it calls itself."""
    return platform.node() or "an unnamed machine"


def tail_of(path: Path) -> tuple[int, str]:
    """Return the length and the checksum of a file's tail."""
    with path.open("rb") as file:
        size = min(TAIL_BYTES, file.seek(0, io.SEEK_END))
        return size, _tail(file, size)


def problem_of(path: Path, size: int, tail_bytes: int, tail_checksum: str) -> str:
    """Compare a file with what its writer said of it; "" if it is that file.

    Without a checksum the length alone is compared.
    """
    try:
        with path.open("rb") as file:
            found = file.seek(0, io.SEEK_END)
            if found != size:
                return f"has {found} bytes here instead of {size}"
            if tail_checksum and _tail(file, tail_bytes) != tail_checksum:
                return "differs here from what its writer reported"
    except FileNotFoundError:
        return "does not exist here"
    except OSError as error:
        return f"cannot be read here: {error.strerror or error}"
    return ""


def _tail(file: io.BufferedReader, size: int) -> str:
    file.seek(-size, io.SEEK_END)
    return blake2b(file.read(size), digest_size=_DIGEST_BYTES).hexdigest()


def not_shared(path: str, problem: str, worker: str) -> NotSharedError:
    """Return the error for a file of a worker that this process does not see so."""
    msg = (
        f"{path}, which a worker on {worker or 'another machine'} wrote, "
        f"{problem} (looked at from {here()}); nothing was published"
    )
    return NotSharedError(msg, path=path, worker=worker)


@dataclass(frozen=True, slots=True)
class Landmark:
    """A file by which a worker tells that it sees the same directory."""

    directory: str
    """The directory that people know."""
    name: str
    checksum: str


def landmark_of(directory: Path, name: str) -> Landmark | None:
    """Return a landmark of a directory, None if this process does not see it."""
    content = _content(directory / name)
    return None if content is None else Landmark(str(directory), name, content)


def check_landmarks(landmarks: Iterable[Landmark]) -> None:
    """Find out whether this process sees the same directories.

    Raises:
        NotSharedError: it does not see one, or another one under the same path.
    """
    for each in landmarks:
        found = _content(Path(each.directory, each.name))
        if found != each.checksum:
            what = "does not see" if found is None else "sees another directory as"
            msg = f"the worker on {here()} {what} {each.directory}"
            raise NotSharedError(msg, path=each.directory, worker=here())


@contextmanager
def identify_imports() -> Iterator[None]:
    """Name this machine, and the remedy, if a package cannot be imported here.

    Raises:
        ImportError: a package is missing, or is another version than the code expects.
    """
    try:
        yield
    except ImportError as error:
        # Libraries raise subclasses with signatures of their own.
        kind = type(error) if type(error) is ModuleNotFoundError else ImportError
        raise kind(
            f"the worker on {here()} has not the packages of its driver: {error}. "
            "Install Braidlog on every worker in the same version and with the same "
            "extras as on the driver",
            name=error.name,
            path=error.path,
        ) from error


def _content(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            data = file.read(_LANDMARK_BYTES_MAX)
    except OSError:
        return None
    return blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()
