"""Changes of tables, gathered for one entry of the catalog: all of them, or none.

*Theory of operation.* Names are resolved when a change is added, against the catalog as
the changes before it leave it. So a table that an entry creates can be renamed, or get
an index, by the same entry. The core checks all of it once more when it is written.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from braidlog.errors import (
    AlreadyExistsError,
    NotFoundError,
    TrimmedError,
)
from braidlog.names import checked_new_name
from braidlog.store.arguments import checked_position
from braidlog.store.tables.entry import (
    MEMORY_BYTES_DEFAULT,
    IndexEntry,
    TableEntry,
    TableOptions,
)
from braidlog.suggestions import does_not_exist

__all__ = ["FollowedLog", "TableChanges"]


@dataclass(frozen=True, slots=True)
class FollowedLog:
    """What a change has to know of a log."""

    name: str
    id: int
    stream: int
    first: int
    end: int


class _Catalog(Protocol):
    """What there is, as the changes find it."""

    def tables(self) -> Iterable[TableEntry]: ...
    def followed(self, log: str) -> FollowedLog: ...
    def check_field(self, field: str) -> None: ...


class TableChanges:
    """Changes of tables that are made together. Get one from `Store.ddl`.

    Nothing is changed before the ``with`` block ends, and nothing if it ends with an
    error. Once it has ended all of it is durable.
    """

    def __init__(
        self,
        catalog: _Catalog,
        identity: Callable[[], int] = lambda: secrets.randbits(128) | 1,
    ) -> None:
        """Begin with none; users call `Store.ddl`."""
        self._catalog = catalog
        self._identity = identity
        self._tables = {table.name: table for table in catalog.tables()}
        self._changes: list[tuple[Any, ...]] = []
        self._created: set[int] = set()
        self._replaced: set[int] = set()

    def __len__(self) -> int:
        """Return how many changes there are."""
        return len(self._changes)

    @property
    def created(self) -> list[TableEntry]:
        """The tables that begin anew, and are still there when all changes are made."""
        new = self._created | self._replaced
        return [table for table in self._tables.values() if table.id in new]

    @property
    def changes(self) -> list[tuple[Any, ...]]:
        """The changes as the core takes them."""
        return list(self._changes)

    def create(
        self,
        name: str,
        *,
        log: str,
        indexes: Mapping[str, str] | None = None,
        begin: int | None = None,
        history: int = 0,
        memory_bytes: int | None = None,
        deletes: str = "null",
    ) -> None:
        """Create a table; see `Store.create_table`.

        Raises:
            AlreadyExistsError: there is a table of that name.
            NotFoundError: there is no such log.
            InvalidArgumentError: an option is wrong.
            TrimmedError: ``begin`` is below the first position of the log.
        """
        self._free(name)
        followed = self._catalog.followed(log)
        memory = MEMORY_BYTES_DEFAULT if memory_bytes is None else memory_bytes
        options = TableOptions(history, memory, deletes)
        start = followed.first
        if begin is not None:
            start = checked_position(begin, "begin")
            if start < followed.first:
                msg = (
                    f"table {name!r} cannot begin at {start}: log {log!r} begins at "
                    f"{followed.first}"
                )
                raise TrimmedError(msg, first=followed.first)
        entries = tuple(
            self._index(index, field, start, active=True)
            for index, field in (indexes or {}).items()
        )
        table = TableEntry(
            name=name,
            id=self._identity(),
            log=followed.name,
            log_id=followed.id,
            stream=followed.stream,
            created=0,
            start=start,
            primary=self._identity(),
            options=options,
            indexes=entries,
            pin=start,
        )
        self._tables[name] = table
        self._created.add(table.id)
        rows = [(each.tree, each.name, each.field.encode()) for each in entries]
        self._changes.append(
            (
                "create",
                table.id,
                name,
                table.log_id,
                start,
                table.primary,
                options.encode(),
                rows,
            )
        )

    def drop(self, name: str) -> None:
        """Drop a table with its indexes. The log stays, and what is in it.

        Raises:
            NotFoundError: there is no table of that name.
        """
        table = self._table(name)
        del self._tables[name]
        self._changes.append(("drop", table.id))

    def rename(self, name: str, to: str) -> None:
        """Give a table another name.

        Raises:
            NotFoundError: there is no table of that name.
            AlreadyExistsError: there is one with the new name.
        """
        table = self._table(name)
        self._free(to)
        del self._tables[name]
        self._tables[to] = replace(table, name=to)
        self._changes.append(("rename", table.id, to))

    def create_index(self, table: str, name: str, field: str) -> None:
        """Begin an index; it is built beside readers and writers, and then used.

        `TableIndex.wait` waits until it is.

        Raises:
            NotFoundError: there is no table of that name.
            AlreadyExistsError: the table has an index of that name.
            InvalidArgumentError: the field makes no sense.
        """
        entry = self._table(table)
        if entry.index(name) is not None:
            msg = f"table {table!r} has an index {name!r} already"
            raise AlreadyExistsError(msg)
        index = self._index(name, field, entry.start, active=False)
        self._tables[table] = replace(entry, indexes=(*entry.indexes, index))
        # What it is built of is decided by whoever writes the change, who can keep it.
        new = entry.id in self._created | self._replaced
        position = entry.start if new else None
        change = ("build", entry.id, index.tree, name, field.encode(), position)
        self._changes.append(change)

    def drop_index(self, table: str, name: str) -> None:
        """Drop an index of a table, also one that is being built.

        Raises:
            NotFoundError: there is no such table or index.
        """
        entry = self._table(table)
        index = entry.index(name)
        if index is None:
            known = [each.name for each in entry.indexes]
            what = f"table {table!r}: index"
            raise NotFoundError(does_not_exist(what, name, known))
        rest = tuple(each for each in entry.indexes if each.name != name)
        self._tables[table] = replace(entry, indexes=rest)
        self._changes.append(("unindex", entry.id, index.tree))

    def truncate(self, name: str) -> None:
        """Empty a table: only records that come from now on count.

        Raises:
            NotFoundError: there is no table of that name.
        """
        table = self._table(name)
        self._replace(table, self._catalog.followed(table.log).end)

    def rebuild(self, name: str) -> None:
        """Make a table anew of its log, from where it began.

        Raises:
            NotFoundError: there is no table of that name.
            TrimmedError: the log does not reach back to where the table began.
        """
        table = self._table(name)
        log = self._catalog.followed(table.log)
        if log.first > table.start:
            msg = (
                f"table {name!r} cannot be rebuilt: it was made of the records from "
                f"{table.start} on, and log {table.log!r} begins at {log.first}"
            )
            error = TrimmedError(msg, first=log.first)
            hint = (
                "Restore a backup, or drop the table and create it again of what the "
                "log still has"
            )
            raise error.advising(hint)
        self._replace(table, table.start)

    def _replace(self, table: TableEntry, start: int) -> None:
        trees = [self._identity() for _ in table.indexes]
        indexes = tuple(
            replace(index, tree=tree, active=True, position=start)
            for index, tree in zip(table.indexes, trees, strict=True)
        )
        new = replace(
            table,
            id=self._identity(),
            primary=self._identity(),
            start=start,
            pin=start,
            indexes=indexes,
        )
        self._tables[table.name] = new
        self._replaced.add(new.id)
        self._changes.append(("replace", table.id, new.id, start, new.primary, trees))

    def _table(self, name: str) -> TableEntry:
        found = self._tables.get(name)
        if found is None:
            raise NotFoundError(does_not_exist("table", name, self._tables))
        return found

    def _free(self, name: str) -> None:
        if checked_new_name(name, "table") in self._tables:
            msg = f"table {name!r} exists already"
            raise AlreadyExistsError(msg)

    def _index(
        self, name: str, field: str, position: int, *, active: bool
    ) -> IndexEntry:
        name = checked_new_name(name, "index")
        self._catalog.check_field(field)
        return IndexEntry(name, field, self._identity(), active, position)
