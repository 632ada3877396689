"""Changes of tables of a cluster, gathered for one command: all of them, or none.

*Theory of operation.* Names are resolved when a change is added, against the metadata
as the changes before it leave it. The repository checks all of it once more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final

from braidlog import _native
from braidlog.client.connection.routing import Routes
from braidlog.client.tables.calls import TableCalls
from braidlog.client.tables.catalog import STRICT
from braidlog.errors import (
    AlreadyExistsError,
    BeyondEndError,
    NotFoundError,
    TrimmedError,
)
from braidlog.names import checked_new_name
from braidlog.store.arguments import checked_int, checked_position
from braidlog.store.tables.entry import MEMORY_BYTES_DEFAULT, TableOptions
from braidlog.suggestions import does_not_exist
from braidlog.wire import tables as wire
from braidlog.wire.commands import ChangeTables

__all__ = ["AsyncClusterDdl", "ClusterTableChanges"]

_ID_BYTES: Final = 16
_NO_REBUILD: Final = (
    "Where that is enough, drop the table and create it again of what the log still has"
)


@dataclass(slots=True)
class _Known:
    """A table as the changes leave it."""

    id: bytes
    log: bytes
    name: str
    begin: int
    indexes: dict[str, bytes] = field(default_factory=dict)
    """Trees of its indexes, by their names."""
    aborted: set[str] = field(default_factory=set)
    """Those of them that were given up: their names are free."""


class ClusterTableChanges:
    """Changes of tables that are made together. Get one from `AsyncClient.ddl`.

    Nothing is changed before the block ends, and nothing if it ends with an error. Once
    it has ended all of it is durable.
    """

    def __init__(self, routes: Routes, entropy: Callable[[int], bytes]) -> None:
        """Begin with none; users call `AsyncClient.ddl`."""
        self._routes = routes
        self._entropy = entropy
        self._changes: list[wire.TableChange] = []
        self._tables = {
            table.name: _Known(
                table.table,
                table.log,
                table.name,
                table.begin,
                {index.name: index.tree for index in table.indexes},
                {i.name for i in table.indexes if i.status is wire.IndexStatus.ABORTED},
            )
            for table in routes.metadata.tables
        }

    def __len__(self) -> int:
        """Return how many changes there are."""
        return len(self._changes)

    @property
    def command(self) -> ChangeTables:
        """The changes as the repository takes them."""
        return ChangeTables(tuple(self._changes))

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
        replicas: int | None = None,
    ) -> None:
        """Create a table; see `AsyncClient.create_table`.

        Raises:
            AlreadyExistsError: there is a table of that name.
            NotFoundError: there is no such log.
            InvalidArgumentError: an option is wrong.
            TrimmedError: ``begin`` is below the first position of the log.
            BeyondEndError: ``begin`` is above the next position of the log.
        """
        self._free(name)
        followed = self._routes.named(log)
        memory = MEMORY_BYTES_DEFAULT if memory_bytes is None else memory_bytes
        options = TableOptions(history, memory, deletes)
        _native.check_deletes(*options.rule)
        count = 0 if replicas is None else checked_int(replicas, "replicas")
        first = followed.trim
        start = first if begin is None else checked_position(begin, "begin")
        if start < first:
            msg = f"table {name!r} cannot begin at {start}: log {log!r} begins at"
            raise TrimmedError(f"{msg} {first}", first=first)
        if start > followed.high_watermark + 1:
            end = followed.high_watermark + 1
            msg = f"table {name!r} cannot begin at {start}: log {log!r} ends at {end}"
            raise BeyondEndError(msg, next=end)
        fields = [(index, _checked_field(f)) for index, f in (indexes or {}).items()]
        known = _Known(self._identity(), followed.log, name, start)
        self._tables[name] = known
        self._changes.append(
            wire.CreateTable(
                known.id,
                self._identity(),
                name,
                followed.log,
                count,
                options.encode(),
                begin=_behind(start, first),
            )
        )
        for index, of in fields:
            self._index(known, index, of)

    def drop(self, name: str) -> None:
        """Drop a table with its indexes. The log stays, and what is in it.

        Raises:
            NotFoundError: there is no table of that name.
        """
        table = self._table(name)
        del self._tables[name]
        self._changes.append(wire.DropTable(table.id))

    def rename(self, name: str, to: str) -> None:
        """Give a table another name.

        Raises:
            NotFoundError: there is no table of that name.
            AlreadyExistsError: there is one with the new name.
        """
        table = self._table(name)
        self._free(to)
        del self._tables[name]
        self._tables[to] = table
        table.name = to
        self._changes.append(wire.RenameTable(table.id, to))

    def create_index(self, table: str, name: str, field: str) -> None:
        """Begin an index; every host builds it beside readers and writers.

        `ClusterTableIndex.wait` waits until it can be read.

        Raises:
            NotFoundError: there is no table of that name.
            AlreadyExistsError: the table has an index of that name.
            InvalidArgumentError: the field makes no sense.
        """
        self._index(self._table(table), name, _checked_field(field))

    def drop_index(self, table: str, name: str) -> None:
        """Drop an index of a table, also one that is being built.

        Raises:
            NotFoundError: there is no such table or index.
        """
        known = self._table(table)
        if name not in known.indexes:
            what = f"table {table!r}: index"
            listed = [each for each in known.indexes if each not in known.aborted]
            raise NotFoundError(does_not_exist(what, name, listed))
        self._unindex(known, name)

    def _unindex(self, table: _Known, name: str) -> None:
        table.aborted.discard(name)
        self._changes.append(wire.DropIndex(table.id, table.indexes.pop(name)))

    def truncate(self, name: str) -> None:
        """Empty a table: only records that come from now on count.

        Raises:
            NotFoundError: there is no table of that name.
        """
        table = self._table(name)
        self._replace(table)
        table.begin = self._routes.log(table.log).high_watermark + 1

    def rebuild(self, name: str) -> None:
        """Make a table anew of its log, from where it began.

        Raises:
            NotFoundError: there is no table of that name.
            TrimmedError: the log does not reach back to where the table began.
        """
        table = self._table(name)
        first = self._routes.log(table.log).trim
        if first > table.begin:
            msg = (
                f"table {name!r} cannot be rebuilt: it was made of the records from "
                f"{table.begin} on, and its log begins at {first}"
            )
            raise TrimmedError(msg, first=first).advising(_NO_REBUILD)
        self._replace(table, begin=_behind(table.begin, first))

    def _replace(self, table: _Known, *, begin: int | None = None) -> None:
        """Give a table new identities; it is emptied if it begins nowhere."""
        for name in list(table.aborted):
            # What could not be built is not there afterwards either.
            self._unindex(table, name)
        before, empty = table.id, begin is None
        table.id = self._identity()
        table.indexes = {name: self._identity() for name in table.indexes}
        trees = (self._identity(), *table.indexes.values())
        change = wire.ReplaceTable(before, table.id, trees, empty, begin or 0)
        self._changes.append(change)

    def _index(self, table: _Known, name: str, field: str) -> None:
        name = checked_new_name(name, "index")
        if name in table.aborted:
            self._unindex(table, name)
        if name in table.indexes:
            msg = f"table {table.name!r} has an index {name!r} already"
            raise AlreadyExistsError(msg)
        tree = table.indexes[name] = self._identity()
        self._changes.append(wire.CreateIndex(table.id, tree, name, field.encode()))

    def _identity(self) -> bytes:
        return self._entropy(_ID_BYTES)

    def _table(self, name: str) -> _Known:
        found = self._tables.get(name)
        if found is None:
            raise NotFoundError(does_not_exist("table", name, self._tables))
        return found

    def _free(self, name: str) -> None:
        if checked_new_name(name, "table") in self._tables:
            msg = f"table {name!r} exists already"
            raise AlreadyExistsError(msg)


def _behind(begin: int, first: int) -> int:
    """Return where a table begins; 0 where its log does, as all versions know it."""
    return begin if begin > first else 0


def _checked_field(field: str) -> str:
    """Return what an index is over, if it describes a field of a record.

    Raises:
        InvalidArgumentError: it does not.
    """
    given: object = field
    if not isinstance(given, str):
        raise TypeError(f"a field must be a str, not {type(field).__name__}")
    _native.index_spec(field.removeprefix(STRICT))
    return field


class AsyncClusterDdl:
    """The block in which changes of tables of a cluster are gathered."""

    def __init__(self, calls: TableCalls) -> None:
        """Change nothing before the block ends."""
        self._calls = calls
        self._changes: ClusterTableChanges | None = None

    async def __aenter__(self) -> ClusterTableChanges:
        """Begin with no changes, of what there is now."""
        await self._calls.newest()
        routes = await self._calls.cluster.told_all()
        entropy = self._calls.cluster.settings.entropy
        self._changes = ClusterTableChanges(routes, entropy)
        return self._changes

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Make all changes, unless the block ended with an error."""
        if error is None and self._changes:
            await self._calls.cluster.execute(self._changes.command)
