"""Commands about tables, and about the nodes that keep them.

*Theory of operation.* Whether a table exists is said here and nowhere else. A command
carries any number of changes; they are made to a copy of the catalog, which takes the
place of the catalog when all of them could be made. Nodes are told by the metadata, as
clients are.

A table pins its log. Each host has a pinning cursor, `table:<identity>:<node>`, which
it moves when it has flushed. It comes and goes with the host, by the same command. The
cursor of a new host begins where the host furthest behind stands, because what it
copies may come from any of them.

*Invariants.* Names are unique. Identities of tables and trees are never used twice: who
proposes one draws 128 random bits, and one that is there is refused. Every table has a
host, every host a cursor, and no cursor of that form belongs to anything else. The last
host that has all of a table is never taken off it, unless the log still has everything
the table was made of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from braidlog.errors import (
    AlreadyExistsError,
    FencedError,
    InvalidArgumentError,
    NotFoundError,
    TooLargeError,
    UnavailableError,
)
from braidlog.metarepo.machine import faults
from braidlog.metarepo.machine.logs import require_log
from braidlog.metarepo.machine.nodes import require_node
from braidlog.metarepo.machine.state import (
    CURSORS_MAX,
    NAME_BYTES_MAX,
    OPTIONS_BYTES_MAX,
    REPLICAS_MAX,
    CursorState,
    LogState,
    State,
)
from braidlog.wire.commands import ChangeTables, PlaceHosts, SettleHost
from braidlog.wire.results import Done
from braidlog.wire.tables import (
    PIN_PREFIX,
    CreateIndex,
    CreateTable,
    DropIndex,
    DropTable,
    IndexInfo,
    IndexStatus,
    RenameTable,
    ReplaceTable,
    SettleIndex,
    TableInfo,
)

__all__ = [
    "INDEXES_MAX",
    "TABLES_MAX",
    "change",
    "hosts_wanted",
    "kept_by",
    "leave",
    "pin_name",
    "place",
    "place_hosts",
    "settle_host",
    "tables_of",
]

TABLES_MAX: Final = 1024
INDEXES_MAX: Final = 64
"""Indexes of one table."""
ID_BYTES: Final = 16
FIELD_BYTES_MAX: Final = 1024
REASON_CHARACTERS_MAX: Final = 500

_replace = msgspec.structs.replace


def pin_name(table: bytes, node: int) -> str:
    """Return the name of the cursor with which a host pins the log."""
    return f"{PIN_PREFIX}{table.hex()}:{node}"


def tables_of(state: State, log: bytes) -> list[TableInfo]:
    """Return the tables that follow a log."""
    return [table for table in state.tables.values() if table.log == log]


def hosts_wanted(state: State, table: TableInfo) -> int:
    """Return how many nodes should keep a table."""
    return table.replicas or state.logs[table.log].replication


def kept_by(state: State, node: int) -> list[TableInfo]:
    """Return the tables that a node keeps."""
    return [table for table in state.tables.values() if node in table.hosts]


class _Catalog:
    """The catalog while changes are made to it."""

    def __init__(self, state: State, index: int, now: int) -> None:
        self.state = state
        self.index = index
        self.now = now
        self.tables = dict(state.tables)

    def table(self, table: bytes) -> TableInfo:
        """Return a table that must exist."""
        found = self.tables.get(table)
        if found is None:
            msg = f"a table with identity {table.hex()} does not exist"
            raise NotFoundError(msg)
        return found

    def require_new(self, *identities: bytes) -> None:
        """Refuse what is no identity, or one that is there."""
        known = {each for table in self.tables.values() for each in _identities(table)}
        fresh: set[bytes] = set()
        for each in identities:
            if len(each) != ID_BYTES:
                msg = f"{each.hex()} is not an identity: it must have {ID_BYTES} bytes"
                raise InvalidArgumentError(msg)
            if each in known or each in fresh:
                msg = f"{each.hex()} is the identity of another table or index"
                raise AlreadyExistsError(msg)
            fresh.add(each)

    def require_name(self, name: str) -> None:
        """Refuse a name that no table can have, or that one has."""
        _require_name(name)
        if any(table.name == name for table in self.tables.values()):
            msg = f"table {name!r} exists already"
            raise AlreadyExistsError(msg)


def _identities(table: TableInfo) -> Iterable[bytes]:
    return (table.table, table.tree, *(each.tree for each in table.indexes))


def _require_name(name: str) -> None:
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        msg = f"a name must have 1 to {NAME_BYTES_MAX} bytes"
        raise InvalidArgumentError(msg)


def change(state: State, index: int, command: ChangeTables) -> Done:
    """Apply `ChangeTables`: all of its changes, or none."""
    faults.require_settled(state)
    if not command.changes:
        msg = "a change of tables must change something"
        raise InvalidArgumentError(msg)
    catalog = _Catalog(state, index, command.now)
    for each in command.changes:
        _CHANGES[type(each)](each, catalog)
    _require_room(state, catalog.tables)
    _pin(state, catalog.tables, command.now)
    state.tables = catalog.tables
    state.revision = index
    return Done(command.now)


def _create(made: CreateTable, catalog: _Catalog) -> None:
    catalog.require_new(made.table, made.tree)
    catalog.require_name(made.name)
    log = require_log(catalog.state, made.log)
    if made.replicas > REPLICAS_MAX:
        msg = f"a table has at most {REPLICAS_MAX} replicas, got {made.replicas}"
        raise InvalidArgumentError(msg)
    if len(made.options) > OPTIONS_BYTES_MAX:
        msg = (
            f"the options of the table have {len(made.options)} bytes, at most "
            f"{OPTIONS_BYTES_MAX} fit"
        )
        raise TooLargeError(msg, size=len(made.options), limit=OPTIONS_BYTES_MAX)
    _require_begin(log, made.begin, made.name)
    hosts = made.hosts or place(
        catalog.state,
        [table.hosts for table in catalog.tables.values()],
        catalog.state.nodes,
        made.replicas or log.replication,
    )
    _require_hosts(catalog.state, hosts)
    catalog.tables[made.table] = TableInfo(
        table=made.table,
        name=made.name,
        log=made.log,
        tree=made.tree,
        begin=made.begin or log.trim,
        created=catalog.now,
        replicas=made.replicas,
        options=made.options,
        hosts=hosts,
        # The log has everything, and keeps it for each of them.
        joined=hosts,
    )


def _require_begin(log: LogState, begin: int, name: str) -> None:
    """Refuse to begin where the log has no record, unless it is the next one."""
    if begin and not log.trim <= begin <= log.high_watermark + 1:
        msg = (
            f"table {name!r} cannot begin at {begin}: log {log.name!r} begins at "
            f"{log.trim} and ends at {log.high_watermark + 1}"
        )
        raise InvalidArgumentError(msg)


def _drop(made: DropTable, catalog: _Catalog) -> None:
    del catalog.tables[catalog.table(made.table).table]


def _rename(made: RenameTable, catalog: _Catalog) -> None:
    table = catalog.table(made.table)
    if table.name != made.name:
        catalog.require_name(made.name)
        catalog.tables[table.table] = _replace(table, name=made.name)


def _create_index(made: CreateIndex, catalog: _Catalog) -> None:
    table = catalog.table(made.table)
    catalog.require_new(made.tree)
    _require_name(made.name)
    if any(each.name == made.name for each in table.indexes):
        msg = f"table {table.name!r} has an index {made.name!r} already"
        raise AlreadyExistsError(msg)
    if len(table.indexes) >= INDEXES_MAX:
        msg = f"table {table.name!r} has {INDEXES_MAX} indexes, the maximum: drop some"
        raise TooLargeError(msg, limit=INDEXES_MAX)
    if not 0 < len(made.field) <= FIELD_BYTES_MAX:
        msg = (
            f"the field of index {made.name!r} has {len(made.field)} bytes, 1 to "
            f"{FIELD_BYTES_MAX} fit"
        )
        raise InvalidArgumentError(msg)
    # A table that is new in this very command has nothing that a scan could find.
    new = table.table not in catalog.state.tables
    status = IndexStatus.ACTIVE if new else IndexStatus.BUILDING
    index = IndexInfo(made.tree, made.name, made.field, status)
    indexes = (*table.indexes, index)
    catalog.tables[table.table] = _replace(table, indexes=indexes)


def _settle_index(made: SettleIndex, catalog: _Catalog) -> None:
    table = catalog.tables.get(made.table)
    index = _index(table, made.tree)
    # Dropped meanwhile, or another host was first: nothing is left to say.
    if table is None or index is None or index.status is not IndexStatus.BUILDING:
        return
    status = IndexStatus.ACTIVE if made.active else IndexStatus.ABORTED
    reason = "" if made.active else made.reason[:REASON_CHARACTERS_MAX]
    settled = _replace(index, status=status, reason=reason)
    indexes = tuple(settled if each is index else each for each in table.indexes)
    catalog.tables[table.table] = _replace(table, indexes=indexes)


def _drop_index(made: DropIndex, catalog: _Catalog) -> None:
    table = catalog.table(made.table)
    index = _index(table, made.tree)
    if index is None:
        msg = f"table {table.name!r} has no index with identity {made.tree.hex()}"
        raise NotFoundError(msg)
    indexes = tuple(each for each in table.indexes if each is not index)
    catalog.tables[table.table] = _replace(table, indexes=indexes)


def _replace_table(made: ReplaceTable, catalog: _Catalog) -> None:
    table = catalog.table(made.table)
    catalog.require_new(made.successor, *made.trees)
    if len(made.trees) != 1 + len(table.indexes):
        # An index was created or dropped since the change was made up.
        msg = (
            f"table {table.name!r} has {len(table.indexes)} indexes, but identities "
            f"for {len(made.trees) - 1} were given: look at it again"
        )
        raise FencedError(msg)
    log = catalog.state.logs[table.log]
    _require_begin(log, made.begin, table.name)
    tree, *rest = made.trees
    indexes = tuple(
        _replace(each, tree=new, status=IndexStatus.ACTIVE, reason="")
        for each, new in zip(table.indexes, rest, strict=True)
    )
    del catalog.tables[table.table]
    catalog.tables[made.successor] = _replace(
        table,
        table=made.successor,
        tree=tree,
        begin=log.high_watermark + 1 if made.empty else made.begin or log.trim,
        indexes=indexes,
        joined=table.hosts,
    )


# Annotated loosely: each function takes the change that it stands under.
_CHANGES: Final[dict[type, Callable[[Any, _Catalog], None]]] = {
    CreateTable: _create,
    DropTable: _drop,
    RenameTable: _rename,
    CreateIndex: _create_index,
    SettleIndex: _settle_index,
    DropIndex: _drop_index,
    ReplaceTable: _replace_table,
}


def _index(table: TableInfo | None, tree: bytes) -> IndexInfo | None:
    indexes = table.indexes if table is not None else ()
    return next((each for each in indexes if each.tree == tree), None)


# --- hosts


def place(
    state: State, placed: Iterable[tuple[int, ...]], nodes: Iterable[int], count: int
) -> tuple[int, ...]:
    """Return at most ``count`` of the nodes: those that keep the fewest tables.

    ``placed`` are the hosts of the tables that there are.

    Raises:
        UnavailableError: none of the nodes can take one.
    """
    load = Counter(node for hosts in placed for node in hosts)
    candidates = sorted(
        (
            node
            for node in nodes
            if node in state.nodes and not state.nodes[node].draining
        ),
        key=lambda node: (load[node], node),
    )
    if not candidates:
        msg = "no node can keep a table now: start more nodes"
        raise UnavailableError(msg)
    return tuple(candidates[:count])


def _require_hosts(state: State, hosts: tuple[int, ...]) -> None:
    if not 1 <= len(hosts) <= REPLICAS_MAX or len(set(hosts)) != len(hosts):
        msg = f"hosts {list(hosts)} are none, too many, or not distinct"
        raise InvalidArgumentError(msg)
    for node in hosts:
        require_node(state, node)


def place_hosts(state: State, index: int, command: PlaceHosts) -> Done:
    """Apply `PlaceHosts`."""
    table = state.tables.get(command.table)
    if table is None:
        msg = f"a table with identity {command.table.hex()} does not exist"
        raise NotFoundError(msg)
    if table.hosts != command.expected:
        msg = f"the hosts of table {table.name!r} have changed in the meantime"
        raise FencedError(msg)
    _require_hosts(state, command.hosts)
    _change_hosts(state, index, table, command.hosts)
    return Done()


def _change_hosts(
    state: State, index: int, table: TableInfo, hosts: tuple[int, ...]
) -> None:
    joined = tuple(node for node in hosts if node in table.joined)
    if not joined:
        if state.logs[table.log].trim > table.begin:
            msg = (
                f"no node that has all of table {table.name!r} would be left, and its "
                "log does not reach back to where the table began"
            )
            raise InvalidArgumentError(msg)
        joined = hosts
    changed = {**state.tables, table.table: _replace(table, hosts=hosts, joined=joined)}
    _pin(state, changed, 0)
    state.tables = changed
    state.revision = index


def settle_host(state: State, index: int, command: SettleHost) -> Done:
    """Apply `SettleHost`: a host has all of its table, or lost some of it."""
    table = state.tables.get(command.table)
    if table is None or command.node not in table.hosts:
        return Done()  # Dropped or moved meanwhile.
    joined = {*table.joined} - {command.node}
    if command.joined:
        joined.add(command.node)
    if joined == {*table.joined}:
        return Done()
    if not joined and state.logs[table.log].trim > table.begin:
        # It goes on as the only one: what it has is better than nothing, and it says
        # of each page that it cannot read.
        msg = f"no other node has all of table {table.name!r}"
        raise UnavailableError(msg)
    ordered = tuple(node for node in table.hosts if node in joined)
    state.tables = {
        **state.tables,
        table.table: _replace(table, joined=ordered or table.hosts),
    }
    state.revision = index
    return Done()


def leave(state: State, index: int, node: int) -> None:
    """Take a node whose directory is lost off the tables that others keep too."""
    for table in list(state.tables.values()):
        others = tuple(each for each in table.hosts if each != node)
        reaches = state.logs[table.log].trim <= table.begin
        kept = any(each in table.joined for each in others) or (others and reaches)
        if node in table.hosts and kept:
            _change_hosts(state, index, table, others)


# --- pins


def _require_room(state: State, tables: dict[bytes, TableInfo]) -> None:
    if len(tables) > TABLES_MAX:
        msg = f"the cluster has {TABLES_MAX} tables, the maximum: drop some"
        raise TooLargeError(msg, limit=TABLES_MAX)


def _pin(state: State, tables: dict[bytes, TableInfo], now: int) -> None:
    """Give each host its cursor, and take away those of hosts that are no more.

    Raises:
        TooLargeError: a log would have too many cursors; nothing is changed.
    """
    wanted: dict[bytes, dict[str, TableInfo]] = {}
    for table in tables.values():
        names = wanted.setdefault(table.log, {})
        names.update({pin_name(table.table, node): table for node in table.hosts})
    for log in state.logs.values():
        others = sum(not name.startswith(PIN_PREFIX) for name in log.cursors)
        if others + len(wanted.get(log.log, ())) > CURSORS_MAX:
            msg = (
                f"log {log.name!r} has {CURSORS_MAX} cursors with those of its tables, "
                "the maximum: delete some"
            )
            raise TooLargeError(msg, limit=CURSORS_MAX)
    for log in state.logs.values():
        _pin_log(log, wanted.get(log.log, {}), now)


def _pin_log(log: LogState, wanted: dict[str, TableInfo], now: int) -> None:
    before = dict(log.cursors)
    gone = [
        name for name in before if name.startswith(PIN_PREFIX) and name not in wanted
    ]
    for name in gone:
        del log.cursors[name]
    for name, table in wanted.items():
        if name not in before:
            position = _pinned(before, table) or max(table.begin, log.trim)
            log.cursors[name] = CursorState(position, True, 0, now)


def _pinned(cursors: dict[str, CursorState], table: TableInfo) -> int:
    """Return where the host of a table stands that is furthest behind; 0: none."""
    prefix = f"{PIN_PREFIX}{table.table.hex()}:"
    return min(
        (each.position for name, each in cursors.items() if name.startswith(prefix)),
        default=0,
    )
