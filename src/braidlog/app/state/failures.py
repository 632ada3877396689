"""What a disk does to a state, as errors that name the place and the next step.

SQLite says of a failure no more than its kind, and the system a number; an operator
needs to know where. Whether a host has to stop for it is for its executor to say.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw

from braidlog.app.errors import ExecutionError, StateDamagedError
from braidlog.errors import LogError, UnavailableError

FAILURES: Final = (
    MemoryError,
    apsw.BusyError,
    apsw.CantOpenError,
    apsw.CorruptError,
    apsw.FullError,
    apsw.IOError,
    apsw.LockedError,
    apsw.NoMemError,
    apsw.NotADBError,
    apsw.ProtocolError,
)
"""What SQLite raises when the machine fails it; all else is the statement's fault."""

_DAMAGE: Final = (apsw.CorruptError, apsw.NotADBError)


def explained(error: Exception, doing: str, path: Path) -> LogError:
    """Return what an executor stops with that a failure of the machine came to."""
    msg = f"{doing}: {_said(error)} ({path})"
    if isinstance(error, _DAMAGE):
        return StateDamagedError(msg, path=str(path))
    return ExecutionError(msg, path=str(path))


@contextlib.contextmanager
def breakage_at(path: Path) -> Iterator[None]:
    """Name the file or directory ``path`` in what SQLite and the system raise.

    Raises:
        StateDamagedError: a database is damaged.
        UnavailableError: the disk or the memory failed; the same may work later.
    """
    try:
        yield
    except LogError:
        raise  # Some are errors of the system as well.
    except _DAMAGE as error:
        msg = f"{path} is damaged: {_said(error)}"
        raise StateDamagedError(msg, path=str(path)) from error
    except FAILURES as error:
        raise UnavailableError(f"{path}: {_said(error)}", path=str(path)) from error
    except OSError as error:
        where = error.filename or path
        msg = f"{where}: {error.strerror or error}"
        raise UnavailableError(msg, path=str(where)) from error


def _said(error: Exception) -> str:
    # Of a copy, and where memory is out, the type is all that SQLite says.
    return f"{type(error).__name__}: {error}".removesuffix(": ")
