"""The tables of a first node that is made of a backup.

Theory of operation: the files of a table are put where a host keeps them, and the
repository begins with a catalog that names the node as a host which has all of them.
What is in no file the host applies from its log, as after any restart.

Invariants: each table pins its log for the node, no later than behind what is in all of
its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from braidlog import _native
from braidlog.backup.layout import Backup, BackupIndex, BackupTable
from braidlog.backup.place import Place
from braidlog.backup.restored import place_table
from braidlog.errors import InvalidArgumentError, LogError, TooLargeError
from braidlog.metarepo.machine.state import (
    CURSORS_MAX,
    OPTIONS_BYTES_MAX,
    REPLICAS_MAX,
    CursorState,
    State,
)
from braidlog.metarepo.machine.tables import (
    FIELD_BYTES_MAX,
    INDEXES_MAX,
    TABLES_MAX,
    pin_name,
)
from braidlog.wire.tables import IndexInfo, IndexStatus, TableInfo

__all__ = ["check_tables", "place_tables"]


def check_tables(backup: Backup) -> None:
    """Refuse tables that no cluster can have.

    Raises:
        TooLargeError: there are too many, or one has too much.
        InvalidArgumentError: one wants to be on a number of nodes that none can.
    """
    pins = {log.id: len(log.cursors) for log in backup.logs}
    _fits("the backup", "tables", len(backup.tables), TABLES_MAX)
    for table in backup.tables:
        name = f"table {table.name!r}"
        pins[table.log] += 1
        _fits(f"the log of {name}", "cursors", pins[table.log], CURSORS_MAX)
        _fits(name, "bytes of options", len(table.options.encode()), OPTIONS_BYTES_MAX)
        _fits(name, "indexes", len(table.indexes), INDEXES_MAX)
        for index in table.indexes:
            size = len(index.field.encode())
            what = f"index {index.name!r} of {name}"
            _fits(what, "bytes that say its field", size, FIELD_BYTES_MAX)
        if not 0 <= table.replicas <= REPLICAS_MAX:
            msg = f"{name} wants to be on {table.replicas} nodes"
            raise _advised(InvalidArgumentError(msg))


def _fits(name: str, what: str, count: int, most: int) -> None:
    if count > most:
        msg = f"{name} has {count} {what}, and in a cluster {most} at most"
        raise _advised(TooLargeError(msg, size=count, limit=most))


def _advised(error: LogError) -> LogError:
    return error.advising("Restore it as a directory, or with --without-tables")


def place_tables(
    place: Place,
    backup: Backup,
    directory: Path,
    state: State,
    node: int,
    read: Callable[[int], object],
) -> None:
    """Make the files of all tables; list them in a state, with their pins.

    ``read`` is told how much of the backup was read. Durable on return.

    Raises:
        BackupDamagedError: a file is damaged or missing, or the list lies about it.
    """
    for table in backup.tables:
        bases = [
            (int(each.tree, 16), each.position - 1)
            for each in table.indexes
            if each.active
        ]
        restore = _native.HostedRestore(directory, int(table.id, 16), bases)
        for size in place_table(restore, place, backup, table):
            read(size)
        info = _info(table, node)
        state.tables[info.table] = info
        pin = CursorState(table.pin, pin=True, lease=0, touched=table.created)
        state.logs[info.log].cursors[pin_name(info.table, node)] = pin


def _info(table: BackupTable, node: int) -> TableInfo:
    return TableInfo(
        table=bytes.fromhex(table.id),
        name=table.name,
        log=bytes.fromhex(table.log),
        tree=bytes.fromhex(table.primary),
        begin=table.start,
        created=table.created,
        replicas=table.replicas,
        options=table.options.encode(),
        indexes=tuple(_indexes(table.indexes)),
        hosts=(node,),
        joined=(node,),
    )


def _indexes(indexes: Iterable[BackupIndex]) -> Iterable[IndexInfo]:
    for each in indexes:
        status = IndexStatus.ACTIVE if each.active else IndexStatus.BUILDING
        if each.reason:
            status = IndexStatus.ABORTED
        tree, field = bytes.fromhex(each.tree), each.field.encode()
        yield IndexInfo(tree, each.name, field, status, each.reason)
