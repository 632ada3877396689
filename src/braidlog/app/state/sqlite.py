"""State in SQLite: a directory with one database file for each virtual partition."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence
from pathlib import Path

from braidlog import durable
from braidlog.app.execution.state import Resizing
from braidlog.app.state import resizing
from braidlog.app.state.absent import AbsentPartition
from braidlog.app.state.database import rows_hash
from braidlog.app.state.failures import FAILURES, breakage_at, explained
from braidlog.app.state.read_only import OWN, copy_of, hash_of
from braidlog.app.state.sqlite_partition import SqlitePartition
from braidlog.errors import InvalidArgumentError, LogError


def database_path(path: Path, number: int) -> Path:
    """Return where the database of a partition is."""
    return path / f"partition-{number:04}.db"


class SqliteState:
    """A directory of databases: ``partition-0000.db`` and so on."""

    def __init__(
        self,
        path: Path,
        partitions: int,
        *,
        only: Collection[int] | None = None,
        unsynced: bool = False,
    ) -> None:
        """Open all of them, creating those that are missing.

        ``partitions`` is for an empty directory: one with content says itself how many
        there are. With ``only`` some, the others hold nothing. ``unsynced``: nothing is
        durable before `settle`, and a crash of the machine may leave damaged databases.

        Raises:
            UnavailableError: the system does not let them be opened and written.
            StateDamagedError: one is no sound database.
        """
        with breakage_at(path):
            durable.make_directory(path)
            resizing.finish(path)
        self._path = path
        self._only = only
        self._unsynced = unsynced
        self._partitions: list[SqlitePartition | AbsentPartition] = []
        self._open(partitions)

    def _open(self, partitions: int) -> None:
        first = self._opened(self._path, 0)
        count = first.load().shared.get("partitions", partitions)
        rest = [self._opened(self._path, number) for number in range(1, count)]
        self._partitions = [first, *rest]

    def _opened(self, path: Path, number: int) -> SqlitePartition | AbsentPartition:
        if self._only is not None and number not in self._only:
            return AbsentPartition()
        return SqlitePartition(database_path(path, number), unsynced=self._unsynced)

    @property
    def partitions(self) -> Sequence[SqlitePartition | AbsentPartition]:
        """The databases, by partition."""
        return self._partitions

    @property
    def failures(self) -> tuple[type[Exception], ...]:
        """What SQLite raises when the machine fails it."""
        return FAILURES

    def explained(self, error: Exception, doing: str) -> LogError:
        """Return what an executor stops with that a failure came to."""
        return explained(error, doing, self._path)

    def settle(self) -> None:
        """Make everything durable that was committed, and sync from here on."""
        for partition in self._partitions:
            if isinstance(partition, SqlitePartition):
                partition.settle()

    def restore(self, partition: int, path: Path) -> None:
        """Replace a partition by a copy of it.

        Raises:
            InvalidArgumentError: the partition is not among those that were opened.
        """
        found = self._partitions[partition]
        if isinstance(found, AbsentPartition):
            raise InvalidArgumentError(f"partition {partition} was not opened")
        found.restore(path)

    def begin_again(self, partitions: int) -> None:
        """Replace all partitions by so many empty ones.

        Raises:
            UnavailableError: the disk failed; it has to be done again.
        """
        self.close()
        with breakage_at(self._path):
            for file in list(self._path.glob("partition-*.db*")):
                file.unlink()
            durable.sync(self._path)
        self._open(partitions)

    def build(self, plan: Resizing) -> bytes:
        """Make other partitions beside these; see `State.build`."""
        with breakage_at(self._path):
            return resizing.build(
                self._path,
                self._databases(),
                plan,
                lambda path, number: SqlitePartition(
                    database_path(path, number), unsynced=True
                ),
            )

    def adopt(self) -> None:
        """Put what was built in the place of all partitions; durable on return."""
        with breakage_at(self._path):
            resizing.adopt(self._path)
            self.close()
            resizing.finish(self._path)
        self._only = None
        self._open(0)

    def _databases(self) -> list[SqlitePartition]:
        found = [each for each in self._partitions if isinstance(each, SqlitePartition)]
        if len(found) < len(self._partitions):
            msg = "the rows of partitions that are not here cannot be spread anew"
            raise InvalidArgumentError(msg)
        return found

    def hash_of(self, path: Path) -> bytes:
        """Check a copy, and return its state hash."""
        return hash_of(path)

    def own_hash_of(self, path: Path) -> bytes:
        """Return the hash of what a copy has beside the content."""
        with copy_of(path) as connection:
            return rows_hash(connection, OWN)

    def sync(self) -> None:
        """Make what was committed before the call durable.

        Raises:
            OSError: the device failed.
        """
        for partition in self._partitions:
            if isinstance(partition, SqlitePartition):
                partition.sync()
        durable.sync(self._path)

    def close(self) -> None:
        """Close all databases, also if one of them fails.

        Raises:
            UnavailableError: the disk failed. What was committed is there all the same.
        """
        with contextlib.ExitStack() as stack:
            for partition in self._partitions:
                stack.callback(partition.close)
