"""SQLite: write-ahead log, ``synchronous=FULL`` (one sync per commit)."""

import sqlite3
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

_FETCH = 1000
_MMAP_BYTES = 1 << 30


class SqlitePeer:
    """One table keyed by rowid."""

    name: ClassVar[str] = "sqlite"
    note: ClassVar[str] = "WAL, synchronous=FULL, mmap 1 GiB"

    def __init__(self, directory: Path) -> None:
        """Open or create the database."""
        self._db = sqlite3.connect(
            directory / "log.db", isolation_level=None, check_same_thread=False
        )
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            f"mmap_size={_MMAP_BYTES}",
        ):
            self._db.execute(f"PRAGMA {pragma}").fetchall()
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS log"
            " (position INTEGER PRIMARY KEY, value BLOB NOT NULL)"
        )
        self._next = self.last() + 1

    def append_one(self, value: bytes) -> None:
        """Insert in a transaction of its own."""
        self._db.execute("INSERT INTO log VALUES (?, ?)", (self._next, value))
        self._next += 1

    def append_group(self, values: Sequence[bytes]) -> None:
        """Insert in one transaction."""
        self._db.execute("BEGIN")
        self._db.executemany(
            "INSERT INTO log VALUES (?, ?)", zip(count(self._next), values)
        )
        self._db.execute("COMMIT")
        self._next += len(values)

    def scan(self) -> Iterator[bytes]:
        """Fetch in groups."""
        for values in self._groups():
            for (value,) in values:
                yield value

    def pairs(self) -> Iterator[tuple[int, bytes]]:
        """Iterate over the rows."""
        return self._db.execute("SELECT position, value FROM log ORDER BY position")

    def scan_arrow(self) -> Iterator[pa.Array]:
        """Fetch in groups; SQLite has no Arrow export, so each becomes an array."""
        for values in self._groups():
            yield pa.array([value for (value,) in values], pa.binary())

    def _groups(self) -> Iterator[list[tuple[bytes]]]:
        cursor = self._db.execute("SELECT value FROM log ORDER BY position")
        while values := cursor.fetchmany(_FETCH):
            yield values

    def get(self, position: int) -> bytes:
        """Select by rowid; the statement is prepared once by the module's cache."""
        found: tuple[bytes] = self._db.execute(
            "SELECT value FROM log WHERE position = ?", (position,)
        ).fetchone()
        return found[0]

    def last(self) -> int:
        """Select the largest rowid."""
        [found] = self._db.execute("SELECT max(position) FROM log").fetchone()
        return int(found or 0)

    def close(self) -> None:
        """Close; this checkpoints the WAL."""
        self._db.close()
