"""Tables and indexes as the metadata lists them, and how they are described. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from braidlog.errors import NotFoundError, NotReadyError
from braidlog.store.tables.entry import IndexDescription, index_given_up
from braidlog.suggestions import does_not_exist
from braidlog.wire.tables import IndexInfo, IndexStatus, TableInfo

__all__ = [
    "STRICT",
    "ClusterTableDescription",
    "TableHostDescription",
    "described_index",
    "index_missing",
    "index_of",
    "listed",
    "table_named",
]

STRICT: Final = "strict "
"""In front of a field of which no record may be missing in the index."""


@dataclass(frozen=True, slots=True)
class TableHostDescription:
    """A table on one of its hosts."""

    node: int
    joined: bool
    """Whether it has all of the table, up to where it has applied the log."""
    applied: int
    """Position of the last record that it has; 0 if it does not say."""
    lag: int
    """Records of the log that it does not have yet."""
    failure: str | None = None
    """Why nothing is answered from it now."""


@dataclass(frozen=True, slots=True)
class ClusterTableDescription:
    """What there is to know of a table. Times in microseconds since the epoch."""

    name: str
    id: str
    log: str
    created: int
    start: int
    """Position of the first record that counts."""
    applied: int
    """Position of the last record that some host has."""
    lag: int
    """Records of the log that it does not have yet."""
    oldest: int
    """First position that `at` can read at, on that host."""
    replicas: int
    """How many hosts it should have."""
    hosts: tuple[TableHostDescription, ...]
    history: int
    memory_bytes_max: int
    deletes: str
    indexes: tuple[IndexDescription, ...]
    left_out: int
    """Records without a key, or with one that is too long."""
    left_out_first: int | None
    """Position of the first of them."""


def table_named(tables: tuple[TableInfo, ...], name: str) -> TableInfo:
    """Return the table of a name.

    Raises:
        NotFoundError: there is none.
    """
    found = next((table for table in tables if table.name == name), None)
    if found is None:
        known = [table.name for table in tables]
        raise NotFoundError(does_not_exist("table", name, known))
    return found


def index_missing(table: TableInfo, name: str) -> NotFoundError:
    """Return the error of who asks for an index that a table does not have."""
    for index in table.indexes:
        if index.name == name and index.status is IndexStatus.ABORTED:
            return index_given_up(table.name, name, index.reason)
    known = [index.name for index in listed(table)]
    return NotFoundError(does_not_exist(f"table {table.name!r}: index", name, known))


def listed(table: TableInfo) -> list[IndexInfo]:
    """Return the indexes of a table without those that were given up."""
    return [i for i in table.indexes if i.status is not IndexStatus.ABORTED]


def index_of(table: TableInfo, name: str) -> IndexInfo:
    """Return an index that can be read.

    Raises:
        NotFoundError: there is none of that name, or it was given up.
        NotReadyError: it is still being built.
    """
    found = next((index for index in listed(table) if index.name == name), None)
    if found is None:
        raise index_missing(table, name)
    if found.status is IndexStatus.BUILDING:
        msg = f"index {name!r} of table {table.name!r} is still being built"
        raise NotReadyError(msg)
    return found


def described_index(
    index: IndexInfo, figures: dict[str, int | str]
) -> IndexDescription:
    """Describe an index by what a host says of it."""
    missing = figures.get(f"missing:{index.name}", 0)
    first = figures.get(f"missing_first:{index.name}")
    why = figures.get(f"missing_why:{index.name}", "")
    return IndexDescription(
        name=index.name,
        field=index.field.decode(errors="replace"),
        state="active" if index.status is IndexStatus.ACTIVE else "building",
        missing=int(missing),
        missing_first=None if first is None else (int(first), str(why)),
    )
