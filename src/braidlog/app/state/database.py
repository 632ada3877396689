"""The database of one partition as procedures and readers see it."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import apsw
import cbor2

from braidlog import durable
from braidlog.app.errors import DeterminismError, StepBudgetError
from braidlog.app.execution.total import TableTally, Tally
from braidlog.app.state import sql_rules
from braidlog.app.state.changes import Change, Shape, quoted
from braidlog.app.state.failures import FAILURES, breakage_at
from braidlog.app.state.keyed import KeyedTable, is_keyed
from braidlog.errors import NotFoundError
from braidlog.suggestions import does_not_exist

STEPS_MAX: Final = 2_000_000
"""Statements, rows read and rows changed of one command on one partition. Part of what
a command is: fixed for ever."""

# Constants of the state hash: its size, and how many rows are hashed together.
_HASH_BYTES: Final = 16
_ROWS: Final = 512
_CHECKED_MAX: Final = 1000
_SCHEMA: Final = (
    "SELECT type, name, tbl_name, sql FROM sqlite_schema"
    " WHERE name NOT LIKE 'sqlite_%' ORDER BY type, name"
)


class Database:
    """What a procedure sees of the database of one partition."""

    __slots__ = (
        "_changes",
        "_checked",
        "_cursor",
        "_tables",
        "failure",
        "faults",
        "keyed",
        "steps",
    )

    def __init__(self, connection: apsw.Connection, changes: list[Change]) -> None:
        """Wrap a connection; procedures get one from their context."""
        # What the command may still do: counts of SQLite's own steps depend on what
        # was executed before, so statements, rows read and rows changed are counted.
        self.steps = STEPS_MAX
        self._cursor = connection.cursor()
        self._changes = changes
        self._checked: set[str] = set()
        # Names of the tables that are kept by key, as the schema has them now.
        self.keyed: frozenset[str] = frozenset()
        self._tables: dict[str, KeyedTable] = {}
        # Kept also when a procedure swallows it: the command must not end well then.
        self.failure: Exception | None = None
        # Changes were made that are not in the list: the command must be undone.
        self.faults: list[Exception] = []

    def execute(self, sql: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """Execute SQL with bound values, and return all rows.

        Without ORDER BY, rows come in the order in which SQLite finds them: the same
        for the same data and the same version of SQLite.

        Raises:
            DeterminismError: a replay might get something else.
            StepBudgetError: the command has done more than one may.
            apsw.Error: SQLite refused the statement, and nothing of it remains.
        """
        if sql not in self._checked:
            self._check(sql)
        before = len(self._changes)
        try:
            found = self._cursor.execute(sql, values)
            rows = list(itertools.islice(found, max(self.steps, 0) + 1))
            self._spend(1 + len(rows) + len(self._changes) - before)
        except BaseException as error:
            if isinstance(error, FAILURES) and not isinstance(error, MemoryError):
                self.failure = error
            elif not isinstance(error, Exception):
                pass  # The command is stopped; whoever stops it takes it back.
            elif not isinstance(error, apsw.Error) and len(self._changes) > before:
                # Not SQLite refused, but its rows could not be read.
                self.faults.append(error)
            # SQLite took back what the statement had changed.
            del self._changes[before:]
            # One that was left in the middle would keep its savepoint from ending.
            connection = self._cursor.connection
            self._cursor.close(True)
            self._cursor = connection.cursor()
            # A function that was refused is not told by its type.
            if isinstance(error, apsw.AuthError) or "not authorized" in str(error):
                msg = f"not inside a procedure: {error} ({sql})"
                raise DeterminismError(msg) from error
            raise
        return rows

    def _spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps >= 0:
            return
        msg = (
            f"a command may take at most {STEPS_MAX} steps (statements, rows "
            "read and changed)"
        )
        error = StepBudgetError(msg)
        self.faults.append(error)  # It must not end well if it catches this.
        raise error

    def row(self, sql: str, values: Any = ()) -> tuple[Any, ...] | None:
        """Return the first row, or None."""
        rows = self.execute(sql, values)
        return rows[0] if rows else None

    def value(self, sql: str, values: Any = ()) -> Any:
        """Return the first column of the first row, or None."""
        rows = self.execute(sql, values)
        return rows[0][0] if rows else None

    def table(self, name: str) -> KeyedTable:
        """Return a table of values by key, which `keyed_table` in the schema has made.

        Raises:
            NotFoundError: there is none of that name.
        """
        if name not in self.keyed:
            what = "keyed table"
            raise NotFoundError(does_not_exist(what, name, sorted(self.keyed)))
        if name not in self._tables:
            self._tables[name] = KeyedTable(self, name)
        return self._tables[name]

    def _check(self, sql: str) -> None:
        sql_rules.check_statement(sql)
        if len(self._checked) < _CHECKED_MAX:
            self._checked.add(sql)


def keyed_of(shapes: dict[str, Shape]) -> frozenset[str]:
    """Return the names of the tables that are kept by key."""
    return frozenset(name for name, shape in shapes.items() if is_keyed(shape))


class Guarded:
    """A connection that obeys the rules while a procedure has it.

    The authorizer is set once: each change of it prepares all statements again.
    """

    __slots__ = ("connection", "inside")

    def __init__(self, connection: apsw.Connection) -> None:
        """Set the authorizer."""
        self.connection = connection
        # Whether the statements that are prepared now are those of a procedure.
        self.inside = False
        connection.authorizer = self._authorize

    def _authorize(self, action: int, *names: str | None) -> int:
        if not self.inside:
            return apsw.SQLITE_OK
        return sql_rules.authorize(action, *names)

    def run(self, sql: str, values: Any = ()) -> list[Any]:
        """Execute a statement of ours, and return all rows.

        It is cached apart from those of procedures, which would otherwise find it
        there, past the authorizer.
        """
        self.inside = False
        cursor = self.connection.execute(
            sql, values, prepare_flags=apsw.SQLITE_PREPARE_PERSISTENT
        )
        return cursor.fetchall()


class Reader(Guarded):
    """A connection for views, used by one at a time."""

    __slots__ = ("handle",)

    def __init__(self, connection: apsw.Connection) -> None:
        """Wrap a connection that was opened read-only."""
        super().__init__(connection)
        self.handle = Database(connection, [])
        self.handle.steps = 1 << 62  # Reading is not logged, so it needs no bound.


class DatabaseView:
    """A partition as it was at one commit: an open read transaction."""

    def __init__(
        self,
        reader: Reader,
        shapes: dict[str, Shape],
        internal: tuple[str, ...],
        own: tuple[str, ...],
        release: Callable[[Reader], None],
    ) -> None:
        """Fix what is seen: begin and read.

        ``internal`` are queries whose rows are part of the content, ``own`` those of
        what the host keeps beside it.
        """
        self._reader = reader
        self._shapes = shapes
        self._internal = internal
        self._own = own
        self._release = release
        self._path = Path(reader.connection.filename)
        reader.handle.keyed = keyed_of(shapes)
        with breakage_at(self._path):
            reader.run("BEGIN")
            reader.run("SELECT count(*) FROM sqlite_schema")

    @property
    def handle(self) -> Database:
        """What read-only procedures get to work with."""
        self._reader.inside = True
        return self._reader.handle

    def hash(self) -> bytes:
        """Return 16 bytes that stand for the content: equal content, equal hash."""
        self._reader.inside = False
        with breakage_at(self._path):
            return content_hash(self._reader.connection, self._shapes, self._internal)

    def own_hash(self) -> bytes:
        """Return 16 bytes that stand for what the host keeps beside the content."""
        self._reader.inside = False
        with breakage_at(self._path):
            return rows_hash(self._reader.connection, self._own)

    def tally(self, *, rows: bool = True) -> Tally:
        """Return what the partition adds to the total hash; or of the schema alone."""
        self._reader.inside = False
        with breakage_at(self._path):
            connection = self._reader.connection
            tally = Tally(rows_hash(connection, (_SCHEMA,)))
            for name in self._shapes if rows else ():
                table = tally.tables[name] = TableTally()
                for row in connection.execute(f"SELECT * FROM {quoted(name)}"):
                    table.add(name, row)
        return tally

    def size(self) -> int:
        """Return about how many bytes a copy has."""
        self._reader.inside = False
        with breakage_at(self._path):
            pages = self._reader.run("PRAGMA page_count")[0][0]
            return int(pages * self._reader.run("PRAGMA page_size")[0][0])

    def copy(self, path: Path) -> None:
        """Write the database to a new file; durable on return.

        Page by page: VACUUM INTO would give rows other rowids.
        """
        with breakage_at(path):
            self._copy(path)

    def _copy(self, path: Path) -> None:
        target = apsw.Connection(os.fspath(path))
        try:
            with target.backup("main", self._reader.connection, "main") as backup:
                while not backup.done:
                    backup.step(1024)
        finally:
            target.close()
        durable.sync(path)

    def close(self) -> None:
        """End the read transaction."""
        if self._reader.connection.in_transaction:  # A failure of the disk ends it.
            self._reader.run("ROLLBACK")
        self._release(self._reader)


def content_hash(
    connection: apsw.Connection, shapes: dict[str, Shape], internal: tuple[str, ...]
) -> bytes:
    """Return the hash of schema and rows, in the order of the keys.

    One ordered scan, whose rows are encoded in chunks by the encoder: no work per
    command, which a hash kept up to date would cost. ``internal`` are queries whose
    rows count as well.
    """
    queries = [_SCHEMA, *internal]
    if connection.table_exists("main", "sqlite_sequence"):
        queries.append("SELECT name, seq FROM sqlite_sequence ORDER BY name")
    for name, shape in shapes.items():
        rowid = f"{shape.rowid}, " if shape.rowid else ""
        queries.append(f"SELECT {rowid}* FROM {quoted(name)} ORDER BY {shape.key}")
    return rows_hash(connection, queries)


def rows_hash(connection: apsw.Connection, queries: Iterable[str]) -> bytes:
    """Return the hash of queries and of the rows that they give."""
    digest = blake2b(digest_size=_HASH_BYTES)
    for query in queries:
        digest.update(query.encode())
        rows = connection.execute(query)
        while chunk := list(itertools.islice(rows, _ROWS)):
            digest.update(cbor2.dumps(chunk))
    return digest.digest()
