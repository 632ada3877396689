"""Row changes of SQLite: seen by the hook before they happen, made again elsewhere.

One mechanism serves the outcome digest, the effects of a command on several partitions,
and effect logging. SQLite's sessions would take the place of the hook (a connection has
one), leave out tables without a primary key, and fire triggers again when applied.

A change is ``[operation, table, key, new key, row]``: the key is the rowid, or the
primary key of a table without one; the row is None for a delete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import apsw

from braidlog.errors import InvalidArgumentError

PREFIX: Final = "braidlog_"
"""Tables of ours in the same database."""

Change: TypeAlias = list[Any]

_ROWID_NAMES: Final = ("rowid", "_rowid_", "oid")
_VIRTUAL: Final = 2
_STORED: Final = 3


@dataclass(frozen=True, slots=True)
class Shape:
    """What there is to know of a table."""

    name: str
    columns: tuple[str, ...]
    writable: tuple[int, ...]
    primary: tuple[int, ...]
    """Columns of the primary key of a table without rowid; empty for others."""
    rowid: str
    """A name for the rowid that no column has."""

    @property
    def key(self) -> str:
        """How rows are found and ordered, as SQL."""
        names = [quoted(self.columns[i]) for i in self.primary] or [self.rowid]
        return ", ".join(names)


def quoted(name: str) -> str:
    """Return a name as SQL."""
    return '"' + name.replace('"', '""') + '"'


def shapes_of(connection: apsw.Connection) -> dict[str, Shape]:
    """Return the shapes of all tables of the application, by name.

    Raises:
        InvalidArgumentError: a table cannot be followed.
    """
    listed: list[Any] = connection.execute("PRAGMA main.table_list").fetchall()
    names = sorted(
        (name, bool(without))
        for _, name, kind, _, without, _ in listed
        if kind in ("table", "shadow") and not name.startswith(("sqlite_", PREFIX))
    )
    return {name: _shape(connection, name, without) for name, without in names}


def _shape(connection: apsw.Connection, name: str, without: bool) -> Shape:
    query = f"PRAGMA main.table_xinfo({quoted(name)})"
    rows: list[Any] = connection.execute(query).fetchall()
    for _, column, _, _, _, _, hidden in rows:
        if hidden == _VIRTUAL:
            raise InvalidArgumentError(
                f"column {name}.{column} is a VIRTUAL generated column, and "
                "changes of such tables cannot be followed: declare it STORED"
            )
    columns = tuple(row[1] for row in rows)
    taken = {column.lower() for column in columns}
    free = [alias for alias in _ROWID_NAMES if alias not in taken]
    if not without and not free:
        msg = f"the columns of {name} hide the rowid: rename {_ROWID_NAMES[0]!r}"
        raise InvalidArgumentError(msg)
    primary = sorted((row[5], i) for i, row in enumerate(rows) if row[5])
    return Shape(
        name=name,
        columns=columns,
        writable=tuple(i for i, row in enumerate(rows) if row[6] != _STORED),
        primary=tuple(i for _, i in primary) if without else (),
        rowid="" if without else free[0],
    )


def hook_of(
    changes: list[Change], shapes: dict[str, Shape], faults: list[Exception]
) -> Callable[[apsw.PreUpdate], None]:
    """Return the hook that appends each change of a row to ``changes``.

    What it cannot read (text that is no UTF-8) goes to ``faults``: SQLite makes the
    change all the same.
    """
    append = changes.append
    keyed = {name: shape.primary for name, shape in shapes.items() if shape.primary}

    def hook(update: apsw.PreUpdate) -> None:
        table = update.table_name
        try:
            new = update.new
            old = update.old if table in keyed else None
        except Exception as error:
            faults.append(error)
            raise
        if table not in keyed:
            append([update.opcode, table, update.rowid, update.rowid_new, new])
            return
        key = None if old is None else [old[i] for i in keyed[table]]
        append([update.opcode, table, key, None, new])

    return hook


def apply_change(connection: apsw.Connection, shape: Shape, change: Change) -> None:
    """Make one change of a row again.

    Raises:
        apsw.Error: SQLite refused, so the state is not the one the change was made on.
    """
    operation, _, key, new_key, row = change
    if operation == apsw.SQLITE_DELETE:
        where, found = _where(shape, key)
        connection.execute(f"DELETE FROM {quoted(shape.name)} WHERE {where}", found)
        return
    names = [quoted(shape.columns[i]) for i in shape.writable]
    values = [row[i] for i in shape.writable]
    if shape.rowid and new_key is not None:
        # First: where a column is the rowid itself, the column has the last word.
        names.insert(0, shape.rowid)
        values.insert(0, new_key)
    if operation == apsw.SQLITE_INSERT:
        marks = ", ".join("?" * len(names))
        connection.execute(
            f"INSERT INTO {quoted(shape.name)} ({', '.join(names)}) VALUES ({marks})",
            values,
        )
        return
    where, found = _where(shape, key)
    sets = ", ".join(f"{name} = ?" for name in names)
    connection.execute(
        f"UPDATE {quoted(shape.name)} SET {sets} WHERE {where}", [*values, *found]
    )


def _where(shape: Shape, key: Any) -> tuple[str, list[Any]]:
    if not shape.primary:
        return f"{shape.rowid} = ?", [key]
    names = [quoted(shape.columns[i]) for i in shape.primary]
    return " AND ".join(f"{name} = ?" for name in names), list(key)
