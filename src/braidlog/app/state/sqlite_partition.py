"""One virtual partition in SQLite: the database that the executor writes.

Many commands share a transaction, each in a savepoint. The database is in WAL mode with
``synchronous=NORMAL``: a crash never corrupts it, at worst it is behind the log, whose
records are executed again from the position that is in the same transaction.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import apsw

from braidlog import durable
from braidlog.app.determinism.codec import decode, encode
from braidlog.app.execution.state import Progress, Saved, StoredResult
from braidlog.app.state import sql_rules
from braidlog.app.state.changes import (
    PREFIX,
    Change,
    Shape,
    apply_change,
    hook_of,
    shapes_of,
)
from braidlog.app.state.database import (
    STEPS_MAX,
    Database,
    DatabaseView,
    Guarded,
    Reader,
    keyed_of,
)
from braidlog.app.state.failures import FAILURES, breakage_at
from braidlog.app.state.read_only import HASHED, OWN
from braidlog.errors import (
    CorruptionError,
    InvalidArgumentError,
    UnavailableError,
)

_TABLES: Final = f"""
CREATE TABLE {PREFIX}progress(id INTEGER PRIMARY KEY CHECK (id = 0), value BLOB);
CREATE TABLE {PREFIX}results(
    position INTEGER PRIMARY KEY, call BLOB, procedure TEXT, status INTEGER, body BLOB,
    digest BLOB);
CREATE TABLE {PREFIX}waiting(position INTEGER PRIMARY KEY, effects BLOB);
"""
_STATEMENTS_CACHED: Final = 500
_OURS: Final = apsw.SQLITE_PREPARE_PERSISTENT
# Checkpoints sync the database, so they come every 16 MiB, not every 4.
_CHECKPOINT_PAGES: Final = 4000
# Steps of SQLite's machine between two looks: some hundredths of a second.
_STEPS_BETWEEN: Final = 1_000_000


def _go_on() -> bool:
    return False


class SqlitePartition:
    """The database of one virtual partition."""

    def __init__(self, path: Path, *, unsynced: bool = False) -> None:
        """Open the file, creating it if there is none.

        Raises:
            UnavailableError: the system does not let it be opened and written.
            StateDamagedError: it is no sound database.
        """
        self._path = path
        self._unsynced = unsynced
        self._changes: list[Change] = []
        self._readers: list[Reader] = []
        self._readers_lock = threading.Lock()
        self._open()

    def _open(self) -> None:
        with breakage_at(self._path):
            self._open_database()
        self._closed = False

    def _open_database(self) -> None:
        create = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        self._connection = self._connect(create)
        if self._connection.readonly("main"):  # SQLite opens it for reading then.
            raise UnavailableError(f"{self._path} is read-only", path=str(self._path))
        self._guarded = Guarded(self._connection)
        # What the watchdog raises in this thread is raised between two instructions of
        # Python, so a statement that does not end has to come by some.
        self._connection.set_progress_handler(_go_on, _STEPS_BETWEEN)
        self._run("PRAGMA journal_mode = WAL")
        level = "OFF" if self._unsynced else "NORMAL"
        self._run(f"PRAGMA synchronous = {level}")
        self._run("PRAGMA foreign_keys = ON")
        self._run(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        if not self._connection.table_exists("main", f"{PREFIX}progress"):
            with self._connection:
                self._connection.execute(_TABLES)
        self.handle = Database(self._connection, self._changes)
        self._look_at_schema()

    def _connect(self, flags: int) -> apsw.Connection:
        return apsw.Connection(
            os.fspath(self._path),
            flags=flags | apsw.SQLITE_OPEN_NOMUTEX,
            statementcachesize=_STATEMENTS_CACHED,
        )

    def _look_at_schema(self) -> None:
        self._shapes = shapes_of(self._connection)
        self.handle.keyed = keyed_of(self._shapes)
        self._hook = hook_of(self._changes, self._shapes, self.handle.faults)
        with_code = self._run(
            "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'"
            " OR sql LIKE '%REFERENCES%'"
        )
        self._has_code = bool(with_code[0][0])

    def _run(self, sql: str, values: Any = ()) -> list[Any]:
        return self._guarded.run(sql, values)

    @property
    def connection(self) -> apsw.Connection:
        """The connection that writes."""
        return self._connection

    def rows(self, sql: str) -> Iterator[Any]:
        """Read rows for us, apart from what procedures find in the cache."""
        self._guarded.inside = False
        return iter(self._connection.execute(sql, prepare_flags=_OURS))

    @property
    def shapes(self) -> dict[str, Shape]:
        """The tables of the application, by name."""
        return self._shapes

    # -- what was stored ---------------------------------------------------------

    def load(self) -> Progress:
        """Return what the last commit stored."""
        rows = self._run(f"SELECT value FROM {PREFIX}progress")
        return Progress(**decode(rows[0][0])) if rows else Progress()

    def kept(self) -> list[tuple[int, bytes, str, bytes]]:
        """Return position, call id, procedure and digest of the results kept."""
        columns = "position, call, procedure, digest"
        return self._run(f"SELECT {columns} FROM {PREFIX}results ORDER BY position")

    def result(self, position: int) -> StoredResult | None:
        """Return a result kept."""
        sql = f"SELECT * FROM {PREFIX}results WHERE position = ?"
        rows = self._run(sql, (position,))
        return StoredResult(*rows[0]) if rows else None

    def waiting(self, position: int) -> bytes | None:
        """Return what was stored for other partitions at a position."""
        sql = f"SELECT effects FROM {PREFIX}waiting WHERE position = ?"
        rows = self._run(sql, (position,))
        return rows[0][0] if rows else None

    # -- executing ---------------------------------------------------------------

    def begin(self) -> None:
        """Begin a transaction."""
        self._run("BEGIN IMMEDIATE")
        self._connection.preupdate_hook(self._hook)

    def mark(self) -> None:
        """Begin a command."""
        self._changes.clear()
        self.handle.faults.clear()
        self.handle.steps = STEPS_MAX
        self._connection.execute("SAVEPOINT command", prepare_flags=_OURS)
        self._guarded.inside = True

    def spoiled(self) -> Exception | None:
        """Return why the command must be undone although it returned, if so."""
        return self.handle.faults[0] if self.handle.faults else None

    def changes(self) -> list[Change]:
        """Return what the command has changed so far."""
        return self._changes.copy()

    def release(self) -> list[Change]:
        """Keep what the command changed, and return it."""
        self._guarded.inside = False
        if self.handle.failure is not None:
            raise self.handle.failure
        self._connection.execute("RELEASE command", prepare_flags=_OURS)
        return self._changes.copy()

    def undo(self) -> None:
        """Take back what the command changed."""
        self._guarded.inside = False
        if self.handle.failure is not None:
            raise self.handle.failure
        self._run("ROLLBACK TO command")
        self._run("RELEASE command")
        self._changes.clear()

    def apply(self, changes: list[Change]) -> None:
        """Change what `release` returned elsewhere, without running any code.

        Raises:
            CorruptionError: the state is not the one on which they were made.
        """
        if self._has_code:
            self.set_code(on=False)
        try:
            for change in changes:
                apply_change(self._connection, self._shapes[change[1]], change)
        except (apsw.ConstraintError, KeyError) as error:
            msg = f"logged changes do not fit the state of {self._path.name}: {error}"
            raise CorruptionError(msg, path=str(self._path)) from error
        finally:
            if self._has_code:
                self.set_code(on=True)

    def set_code(self, *, on: bool) -> None:
        """Have changes of rows run triggers and foreign keys, or not.

        What these did is among the changes that are made again.
        """
        self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, on)
        self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_FKEY, on)

    def migrate(self, step: str) -> None:
        """Execute a step of the schema, within a transaction.

        Raises:
            InvalidArgumentError: SQLite refuses it, or a procedure could not rely on
                what it makes.
        """
        sql_rules.check_schema(step)
        try:
            self._run(step)
        except apsw.Error as error:
            if isinstance(error, FAILURES):
                raise
            msg = f"a step of the schema failed: {error} ({step})"
            raise InvalidArgumentError(msg) from error
        self._look_at_schema()
        self._connection.preupdate_hook(self._hook)

    def commit(self, saved: Saved) -> None:
        """End the transaction, together with ``saved``."""
        self._connection.preupdate_hook(None)
        if saved.results:
            self._connection.executemany(
                f"INSERT INTO {PREFIX}results VALUES (?, ?, ?, ?, ?, ?)",
                saved.results,
                prepare_flags=_OURS,
            )
        forget = f"DELETE FROM {PREFIX}results WHERE position <= ?"
        self._run(forget, (saved.progress.forgotten,))
        self._run(f"DELETE FROM {PREFIX}waiting WHERE position <= ?", (saved.settled,))
        for row in saved.waiting:
            self._run(f"INSERT INTO {PREFIX}waiting VALUES (?, ?)", row)
        value = encode(asdict(saved.progress))
        self._run(f"INSERT OR REPLACE INTO {PREFIX}progress VALUES (0, ?)", (value,))
        self._run("COMMIT")

    def rollback(self) -> None:
        """End the transaction without it."""
        self._connection.preupdate_hook(None)
        self._guarded.inside = False
        if self._connection.in_transaction:
            self._run("ROLLBACK")
        self._look_at_schema()  # A step of the schema may be among what went.

    def settle(self) -> None:
        """Make everything durable that was committed, and sync from here on.

        Raises:
            UnavailableError: the disk failed.
        """
        self._unsynced = False
        with breakage_at(self._path):
            self._run("PRAGMA synchronous = NORMAL")
            self._run("PRAGMA wal_checkpoint(TRUNCATE)")
            # Also what a checkpoint wrote before that did not sync. Without a
            # connection: closing the file ends the locks that SQLite has on it.
            self.close()
            durable.sync(self._path)
        self._open()

    # -- reading beside the writer -----------------------------------------------

    def view(self) -> DatabaseView:
        """Return what is committed now, as long as it is open.

        Raises:
            UnavailableError: the disk failed.
            StateDamagedError: the database is damaged.
        """
        with self._readers_lock:
            reader = self._readers.pop() if self._readers else None
        if reader is None:
            with breakage_at(self._path):
                reader = Reader(self._connect(apsw.SQLITE_OPEN_READONLY))
        return DatabaseView(reader, self._shapes, HASHED, OWN, self._give_back)

    def _give_back(self, reader: Reader) -> None:
        with self._readers_lock:
            if not self._closed:
                self._readers.append(reader)
                return
        reader.connection.close()  # Others are in the place of this partition.

    def sync(self) -> None:
        """Make what was committed before the call durable, whatever the machine does.

        Beside the writer: what a checkpoint moves meanwhile, it syncs itself. Only the
        log of the database is opened: closing the database file would end the locks
        that SQLite has on it.
        """
        if self._unsynced:
            return
        log = self._path.with_name(self._path.name + "-wal")
        with contextlib.suppress(FileNotFoundError):
            durable.sync(log)

    def restore(self, path: Path) -> None:
        """Replace the database by a copy that `DatabaseView.copy` made.

        Raises:
            UnavailableError: the disk failed; it has to be done again.
        """
        self.close()
        with breakage_at(self._path):
            self._replace(path)
        self._open()

    def _replace(self, path: Path) -> None:
        fresh = self._path.with_name(self._path.name + ".new")
        shutil.copyfile(path, fresh)
        durable.sync(fresh)
        # A crash from here on leaves a database without what its WAL had: whoever
        # restores notes first that it must be done again.
        for suffix in ("-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        durable.move(fresh, self._path)

    def close(self) -> None:
        """Close the connections; what was not committed is gone.

        Raises:
            UnavailableError: the disk failed. What was committed is there all the same.
        """
        with self._readers_lock:
            for reader in self._readers:
                reader.connection.close()
            self._readers.clear()
            self._closed = True
        with breakage_at(self._path):
            self._connection.close()
