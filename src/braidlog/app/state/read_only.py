"""Databases that are only looked at: those of a running host, and copies.

Nothing beside them is made, and nothing in them changed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import apsw

from braidlog.app.determinism.codec import decode
from braidlog.app.execution.state import Progress
from braidlog.app.state.changes import PREFIX, shapes_of
from braidlog.app.state.database import DatabaseView, Reader, content_hash
from braidlog.app.state.failures import breakage_at
from braidlog.errors import CorruptionError, NotFoundError

# Of our tables the results count for the state hash: they decide what a retry gets.
HASHED: Final = (f"SELECT * FROM {PREFIX}results ORDER BY position",)
# The others are another on each host, but a copy has to have them as they are here.
OWN: Final = (
    f"SELECT * FROM {PREFIX}progress ORDER BY id",
    f"SELECT * FROM {PREFIX}waiting ORDER BY position",
)
# The last connection to go holds the database while it empties the WAL.
_BUSY_MS: Final = 10_000


def look(path: Path) -> tuple[Progress, DatabaseView]:
    """Return what a database holds now, also while a host writes to it.

    Closing the view closes the connection.

    Raises:
        NotFoundError: there is no database.
        UnavailableError: the disk failed.
        StateDamagedError: the database is damaged.
    """
    if not path.exists():
        raise NotFoundError(f"there is no state of an application in {path.parent}")
    with breakage_at(path):
        return _look(path)


def _look(path: Path) -> tuple[Progress, DatabaseView]:
    connection = apsw.Connection(os.fspath(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(_BUSY_MS)
        reader = Reader(connection)
        shapes = shapes_of(connection)
        view = DatabaseView(reader, shapes, HASHED, OWN, _close_reader)
        rows = reader.run(f"SELECT value FROM {PREFIX}progress")
    except BaseException:
        connection.close()
        raise
    return Progress(**decode(rows[0][0])) if rows else Progress(), view


def _close_reader(reader: Reader) -> None:
    reader.connection.close()


@contextlib.contextmanager
def copy_of(path: Path) -> Iterator[apsw.Connection]:
    """Open a copy to be checked.

    Raises:
        CorruptionError: what is read of it cannot be.
        UnavailableError: the disk failed.
    """
    with breakage_at(path):
        # Immutable: nothing beside the file is looked at, or made.
        connection = apsw.Connection(
            f"{path.absolute().as_uri()}?immutable=1",
            flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
        )
        try:
            yield connection
        except (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError) as error:
            msg = f"{path.name} is damaged: {error}"
            raise CorruptionError(msg, path=str(path)) from error
        finally:
            connection.close()


def hash_of(path: Path) -> bytes:
    """Return the hash of a copy, whose tables, indexes and pages are sound."""
    with copy_of(path) as connection:
        found = connection.execute("PRAGMA integrity_check(1)").fetchall()
        if found != [("ok",)]:
            msg = f"{path.name} is damaged: {found[0][0]}"
            raise CorruptionError(msg, path=str(path))
        return content_hash(connection, shapes_of(connection), HASHED)
