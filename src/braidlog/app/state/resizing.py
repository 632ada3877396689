"""Databases of other partitions with the same rows, built beside those in use.

| in the directory of the state | what |
|---|---|
| ``partition-NNNN.db`` | the databases in use |
| ``building/`` | those that are being filled; nothing counts of it |
| ``resized-N/`` | all N of them, complete and durable: they are the state by now |

*Theory of operation.* `build` executes the schema in new databases and copies every row
to the one that its key belongs to. One rename makes ``resized-N`` of them: before it
the old partitions are the state, behind it the new ones. `finish` then moves them into
the place of the old ones; whoever opens the directory begins with it, so a crash on the
way does no harm.

*Invariants.* No row is lost, doubled or changed: counts and sums of hashes are compared
before the rename. What the rows do not allow is refused, the same on every host.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw

from braidlog import durable
from braidlog.app.errors import EncodingError, ResizeRefusedError
from braidlog.app.execution.state import Resizing, Saved
from braidlog.app.execution.total import TableTally, Tally, total_hash
from braidlog.app.procedure import key_hash
from braidlog.app.state.changes import Shape, quoted
from braidlog.app.state.failures import FAILURES
from braidlog.errors import CorruptionError

if TYPE_CHECKING:
    from braidlog.app.state.sqlite_partition import SqlitePartition

_BUILDING: Final = "building"
_RESIZED: Final = re.compile(r"resized-(\d+)")
_DATABASE: Final = re.compile(r"partition-(\d{4})\.db(-wal|-shm)?")
# Rows that are inserted together.
_ROWS: Final = 512

Open = Callable[[Path, int], "SqlitePartition"]
"""Opens the database of a partition in a directory."""


def build(
    path: Path, old: Sequence[SqlitePartition], plan: Resizing, opened: Open
) -> bytes:
    """Fill the databases of a plan, and return their total hash; durable on return.

    Raises:
        ResizeRefusedError: the rows allow no other partitions.
        CorruptionError: the new databases have not the rows of the old ones.
    """
    keys = _checked_keys(old[0].shapes, plan.row_keys)
    fresh = path / _BUILDING
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    new: list[SqlitePartition] = []
    try:
        for number in range(len(plan.progress)):
            new.append(opened(fresh, number))
            _prepare(new[-1], plan.schema)
        before = _copy(old, new, keys)
        for each, progress in zip(new, plan.progress, strict=True):
            _check_references(each)
            each.commit(Saved(progress, plan.results, [], 0))
            each.settle()
        everywhere = [table for table, key in keys.items() if key is None]
        total = total_hash([_tally_of(each) for each in new], everywhere)
        if total != total_hash([before], everywhere):
            msg = f"the new partitions in {fresh} have other rows than the old ones"
            raise CorruptionError(msg, path=str(fresh))
    finally:
        for each in new:
            each.close()
    durable.sync(fresh)
    return total


def adopt(path: Path) -> None:
    """Make what was built the state: durable on return, and `finish` does the rest."""
    fresh = path / _BUILDING
    count = len(list(fresh.glob("partition-*.db")))
    durable.move(fresh, path / f"resized-{count}")


def finish(path: Path) -> None:
    """Move databases that are complete into their place, and remove what is not."""
    for done in path.iterdir():
        found = _RESIZED.fullmatch(done.name)
        if found is not None:
            _take(path, done, int(found[1]))
    shutil.rmtree(path / _BUILDING, ignore_errors=True)


def _take(path: Path, done: Path, count: int) -> None:
    for there in list(path.iterdir()):
        name = _DATABASE.fullmatch(there.name)
        if name is None:
            continue
        # A WAL beside the new database would be taken for its own.
        gone = int(name[1]) >= count or bool(name[2])
        if gone and (int(name[1]) >= count or (done / there.name[:-4]).exists()):
            there.unlink()
    for file in sorted(done.iterdir()):
        if file.name.endswith(".db"):
            durable.move(file, path / file.name)
        else:
            file.unlink()
    done.rmdir()
    durable.sync(path)


# -- what is copied where ------------------------------------------------------------


def _checked_keys(
    shapes: Mapping[str, Shape], row_keys: Mapping[str, str | None]
) -> dict[str, str | None]:
    """Return the key of each table that there is."""
    unnamed = [table for table in shapes if table not in row_keys]
    if unnamed:
        raise ResizeRefusedError(
            f"row_keys does not say where the rows of {', '.join(unnamed)} belong"
        )
    for table, shape in shapes.items():
        key = row_keys[table]
        if key is not None and key not in shape.columns:
            raise ResizeRefusedError(
                f"row_keys names the column {table}.{key}, which there is not"
            )
    return {table: row_keys[table] for table in shapes}


def _prepare(each: SqlitePartition, schema: Sequence[str]) -> None:
    """Make the tables, without rows that the schema puts into them."""
    each.begin()
    for step in schema:
        each.migrate(step)
    # What triggers did is among the rows that are copied; so is what changed.
    each.connection.preupdate_hook(None)
    each.set_code(on=False)
    for table in each.shapes:
        each.connection.execute(f"DELETE FROM {quoted(table)}")


def _copy(
    old: Sequence[SqlitePartition],
    new: Sequence[SqlitePartition],
    keys: Mapping[str, str | None],
) -> Tally:
    """Copy all rows, and return the tally of what was read."""
    read = Tally(_tally_of(old[0], rows=False).schema)
    for table, shape in old[0].shapes.items():
        key = keys[table]
        if key is None:
            read.tables[table] = _copy_everywhere(old, new, table, shape)
        else:
            read.tables[table] = _spread(old, new, table, shape, key)
    counters: dict[str, int] = {}
    for each in old:
        for table, highest in _counters(each):
            counters[table] = max(highest, counters.get(table, 0))
    for each in new:
        for table, highest in sorted(counters.items()):
            sql = "DELETE FROM sqlite_sequence WHERE name = ?"
            each.connection.execute(sql, (table,))
            sql = "INSERT INTO sqlite_sequence(name, seq) VALUES (?, ?)"
            each.connection.execute(sql, (table, highest))
    return read


def _spread(
    old: Sequence[SqlitePartition],
    new: Sequence[SqlitePartition],
    table: str,
    shape: Shape,
    key: str,
) -> TableTally:
    """Copy each row to the partition of its key."""
    at = shape.columns.index(key)
    read = TableTally()
    waiting: list[list[Any]] = [[] for _ in new]
    for number, each in enumerate(old):
        for row in _rows(each, table, shape):
            read.add(table, row)
            place = _place(table, key, row[at])
            if place % len(old) != number:
                raise ResizeRefusedError(
                    f"the row of {table} with {key} = {row[at]!r} is in partition"
                    f" {number}, and its key belongs to {place % len(old)}: {key} is"
                    " not what calls on the row pass as their key"
                )
            rows = waiting[place % len(new)]
            rows.append(row)
            if len(rows) == _ROWS:
                _insert(new[place % len(new)], table, shape, rows)
                rows.clear()
    for target, rows in zip(new, waiting, strict=True):
        _insert(target, table, shape, rows)
    return read


def _place(table: str, key: str, value: Any) -> int:
    try:
        return key_hash(value)
    except EncodingError as error:
        msg = f"a row of {table} has {key} = {value!r}: {error.message}"
        raise ResizeRefusedError(msg) from error


def _copy_everywhere(
    old: Sequence[SqlitePartition],
    new: Sequence[SqlitePartition],
    table: str,
    shape: Shape,
) -> TableTally:
    """Copy the rows that every partition has to every new one."""
    first = list(_rows(old[0], table, shape))
    tallies = []
    for each in old:
        tallies.append(TableTally())
        for row in _rows(each, table, shape):
            tallies[-1].add(table, row)
    for number, tally in enumerate(tallies):
        if tally != tallies[0]:
            raise ResizeRefusedError(
                f"row_keys says that every partition has the same rows of {table}; "
                f"partition {number} has others than partition 0"
            )
    for target in new:
        _insert(target, table, shape, first)
    return tallies[0]


def _rows(each: SqlitePartition, table: str, shape: Shape) -> Iterator[Any]:
    # In a fixed order: rowids that are no columns are given anew.
    sql = f"SELECT * FROM {quoted(table)} ORDER BY {shape.key}"
    return each.rows(sql)


def _insert(
    target: SqlitePartition, table: str, shape: Shape, rows: Sequence[Any]
) -> None:
    names = ", ".join(quoted(shape.columns[i]) for i in shape.writable)
    marks = ", ".join("?" * len(shape.writable))
    sql = f"INSERT INTO {quoted(table)} ({names}) VALUES ({marks})"
    values = ([row[i] for i in shape.writable] for row in rows)
    try:
        target.connection.executemany(sql, values)
    except apsw.ConstraintError as error:
        msg = f"rows of {table} from different partitions exclude each other: {error}"
        raise ResizeRefusedError(msg) from error


def _counters(each: SqlitePartition) -> list[Any]:
    if not each.connection.table_exists("main", "sqlite_sequence"):
        return []
    return list(each.rows("SELECT name, seq FROM sqlite_sequence"))


def _check_references(each: SqlitePartition) -> None:
    """Refuse rows whose foreign key is in another partition."""
    try:
        lost = each.connection.execute("PRAGMA foreign_key_check").fetchall()
    except apsw.Error as error:
        if isinstance(error, FAILURES):
            raise
        raise ResizeRefusedError(
            f"a foreign key cannot be followed: {error}"
        ) from error
    if lost:
        table, _, parent, _ = lost[0]
        raise ResizeRefusedError(
            f"a row of {table} refers to a row of {parent} that belongs to another"
            " partition"
        )


def _tally_of(each: SqlitePartition, *, rows: bool = True) -> Tally:
    view = each.view()
    try:
        return view.tally(rows=rows)
    finally:
        view.close()
