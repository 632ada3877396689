"""Keyed tables: values by key, without SQL, in the database of a partition.

Theory of operation: a keyed table is a table of SQLite with two columns, which a step
of the schema makes. So it changes together with all else in one transaction, is undone
with its command, and is in effects, snapshots and the state hash like any other table.
Keys are stored as they are and ordered as SQLite orders them: integers, then texts,
then bytes. Values are stored as arguments are in the log, so what is equal is equal in
every byte.

Invariant: what a call does, and what it counts as steps, follows from its arguments and
from the rows alone.
"""

from __future__ import annotations

from typing import Any, Final, Protocol, TypeAlias

from braidlog.app.determinism.codec import decode, encode
from braidlog.app.state.changes import PREFIX, Shape, quoted
from braidlog.errors import InvalidArgumentError
from braidlog.names import checked_new_name

__all__ = ["Key", "KeyedTable", "is_keyed", "keyed_table"]

Key: TypeAlias = int | str | bytes
"""What a value is found by."""

_INT_MIN: Final = -(1 << 63)
_INT_MAX: Final = (1 << 63) - 1
_COLUMNS: Final = ("key", "value")
_LAST_SIGN: Final = 0x10FFFF
_SURROGATES: Final = range(0xD800, 0xE000)


class Statements(Protocol):
    """The database that a keyed table is in, as it needs it."""

    def execute(self, sql: str, values: Any = ()) -> list[tuple[Any, ...]]:
        """Execute SQL with bound values, and return all rows."""


def keyed_table(name: str) -> str:
    """Return the step of a schema that makes a keyed table.

    `Context.table` gives it to procedures. SQL sees a table of this name with the
    columns ``key`` and ``value``; `KeyedTable` cannot read what SQL puts there.

    Raises:
        InvalidArgumentError: no table can have this name.
    """
    name = checked_new_name(name, "table")
    if name.lower().startswith(("sqlite_", PREFIX)):
        msg = f"{name!r} is a name that only SQLite or Braidlog give to their tables"
        raise InvalidArgumentError(msg)
    columns = "key PRIMARY KEY NOT NULL, value BLOB NOT NULL"
    return f"CREATE TABLE {quoted(name)}({columns}) WITHOUT ROWID"


def is_keyed(shape: Shape) -> bool:
    """Tell whether a table is one that `keyed_table` makes."""
    return (shape.columns, shape.primary, shape.rowid) == (_COLUMNS, (0,), "")


class KeyedTable:
    """Values by key, of one partition. Get one from `Context.table`.

    A key is an int of 64 bits, a str or bytes. A value is whatever an argument of a
    procedure may be.
    """

    __slots__ = ("_database", "_delete", "_get", "_name", "_put")

    def __init__(self, database: Statements, name: str) -> None:
        """Stand for a table that is there; procedures call `Context.table`."""
        self._database = database
        self._name = quoted(name)
        self._get = f"SELECT value FROM {self._name} WHERE key = ?"
        self._put = (
            f"INSERT INTO {self._name} VALUES (?, ?)"
            " ON CONFLICT DO UPDATE SET value = excluded.value"
        )
        self._delete = f"DELETE FROM {self._name} WHERE key = ? RETURNING 1"

    def get(self, key: Key, default: Any = None) -> Any:
        """Return the value of a key, or ``default`` if it has none.

        Raises:
            InvalidArgumentError: no key can be this.
            StepBudgetError: the command takes more steps than a command may.
        """
        rows = self._database.execute(self._get, (_checked(key),))
        return decode(rows[0][0]) if rows else default

    def __contains__(self, key: Key) -> bool:
        """Tell whether a key has a value."""
        return bool(self._database.execute(self._get, (_checked(key),)))

    def put(self, key: Key, value: Any) -> None:
        """Give a key a value, instead of the one that it has.

        Raises:
            InvalidArgumentError: no key can be this.
            EncodingError: the value cannot be stored; the message has the path to it.
            StepBudgetError: the command takes more steps than a command may.
        """
        self._database.execute(self._put, (_checked(key), encode(value)))

    def delete(self, key: Key) -> bool:
        """Take the value of a key away; return whether it had one."""
        return bool(self._database.execute(self._delete, (_checked(key),)))

    def scan(
        self,
        begin: Key | None = None,
        end: Key | None = None,
        *,
        prefix: str | bytes | None = None,
        reverse: bool = False,
        limit: int | None = None,
    ) -> list[tuple[Key, Any]]:
        """Return the keys ``begin`` to ``end`` (half-open) with their values, in order.

        Integers come first, then texts, then bytes. ``prefix`` takes the texts, or the
        bytes, that begin with it. With ``reverse`` the last key comes first, and
        ``limit`` counts from there.

        Raises:
            InvalidArgumentError: a bound makes no sense.
            StepBudgetError: there are more rows than a command may read.
        """
        if prefix is not None:
            if begin is not None or end is not None:
                msg = "a prefix has bounds of its own: leave begin and end out"
                raise InvalidArgumentError(msg)
            if type(_checked(prefix)) is int:
                msg = f"a prefix must be a str or bytes, not {prefix!r}"
                raise InvalidArgumentError(msg)
            begin, end = prefix, _behind(prefix)
        if limit is not None and (type(limit) is not int or limit < 0):
            msg = f"limit must be a number of rows or None, got {limit!r}"
            raise InvalidArgumentError(msg)
        bounds = [("key >= ?", begin), ("key < ?", end)]
        given = [(sql, _checked(key)) for sql, key in bounds if key is not None]
        where = " AND ".join(sql for sql, _ in given)
        sql = f"SELECT key, value FROM {self._name}"
        sql += f" WHERE {where}" if where else ""
        sql += " ORDER BY key DESC" if reverse else " ORDER BY key"
        values: list[Key] = [key for _, key in given]
        if limit is not None:
            sql += " LIMIT ?"
            values.append(limit)
        rows = self._database.execute(sql, values)
        return [(key, decode(value)) for key, value in rows]


def _checked(key: Any) -> Key:
    """Return a key, if it is one.

    Raises:
        InvalidArgumentError: it is of another type, or out of range.
    """
    if type(key) is int:
        if _INT_MIN <= key <= _INT_MAX:
            return key
        raise InvalidArgumentError(f"a key of 64 bits cannot be {key}")
    if type(key) is str:
        try:
            key.encode()
        except UnicodeEncodeError:
            msg = f"the key {key!r} has a surrogate, which no text in UTF-8 has"
            raise InvalidArgumentError(msg) from None
        return key
    if type(key) is bytes:
        return key
    msg = f"a key must be an int, a str or bytes, not {type(key).__name__}"
    raise InvalidArgumentError(msg)


def _behind(prefix: str | bytes) -> str | bytes | None:
    """Return the least key behind all that begin with a prefix; None: there is none."""
    if isinstance(prefix, bytes):
        short = prefix.rstrip(b"\xff")
        return short[:-1] + bytes([short[-1] + 1]) if short else None
    text = prefix.rstrip(chr(_LAST_SIGN))
    if not text:
        return b""  # The first key that is no text.
    # In UTF-8 texts are ordered as their signs are; no text has a surrogate.
    sign = ord(text[-1]) + 1
    return text[:-1] + chr(_SURROGATES.stop if sign in _SURROGATES else sign)
