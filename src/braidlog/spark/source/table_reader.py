"""Reads a table of a directory in one action of Spark.

Theory of operation: the driver looks at the table once, and all tasks read it at the
position that it had then. A task opens the directory itself. Nobody tells the writer of
the directory that a query reads: it keeps what that position needs only as long as the
`history` of the table says, so a task that comes too late fails, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from braidlog.errors import NotFoundError, TrimmedError
from braidlog.handover import Landmark, check_landmarks, identify_imports
from braidlog.sources.chunks import rechunk
from braidlog.spark.source.options import ReadOptions
from braidlog.spark.source.places import where_resolved
from braidlog.spark.source.schema import Column, Rows
from braidlog.spark.source.selection import EVERYTHING
from braidlog.spark.source.table_plan import (
    INDEX_PART_MAX,
    TableTask,
    Wanted,
    index_for,
    plan_keys,
    wanted_of,
)
from braidlog.spark.source.worker import landmarks_of
from braidlog.store.store import open_store

if TYPE_CHECKING:
    from braidlog.store.tables.table import Table, TableSnapshot

_NOTHING: Final = TableTask("", 0)
"""Spark wants at least one partition."""

_IN_THE_PLACE: Final = ("stream", "llsn")
"""Columns that say where a record is in its log."""

_HISTORY: Final = (
    "Start the query again; a larger `history` of the table keeps positions readable "
    "for longer"
)


@contextmanager
def open_table(options: ReadOptions) -> Iterator[Table]:
    """Open the table that options name.

    Raises:
        NotFoundError: there is no such directory or table.
    """
    path = options.origin.path
    with (
        where_resolved(path),
        open_store(Path(path).absolute(), read_only=True) as store,
    ):
        yield store.table(options.table)


@contextmanager
def snapshot_of(options: ReadOptions, table: Table) -> Iterator[TableSnapshot]:
    """Hold the position to be read: that of ``at``, or the last one."""
    with table.at(options.at) as snapshot:
        yield snapshot


class TableReader(DataSourceReader):  # type: ignore[misc]
    """Knows what is asked for; nothing is opened until Spark plans."""

    def __init__(self, options: ReadOptions, columns: tuple[Column, ...]) -> None:
        """Keep what was asked for."""
        self.options = options
        self.columns = columns
        self.wanted = Wanted()
        self.landmarks = landmarks_of(options)

    def partitions(self) -> list[InputPartition]:
        """Pin the position and divide the table into tasks.

        Raises:
            TrimmedError: ``at`` is below the oldest position that can be read.
            NotFoundError: there is no such table.
        """
        options = self.options
        with open_table(options) as table, snapshot_of(options, table) as snapshot:
            tasks = self._plan(table, snapshot)
        return [InputPartition(task) for task in tasks or [_NOTHING]]

    def _plan(self, table: Table, snapshot: TableSnapshot) -> list[TableTask]:
        described = table.describe()
        position = snapshot.position
        keys = self.options.selection.key.within(self.wanted.keys)
        if not keys:
            active = {
                index.name: index.field
                for index in described.indexes
                if index.state == "active"
            }
            parts = []
            for name, values in index_for(active, self.wanted).items():
                part = snapshot.index(name).part(values.begin, values.end)
                parts.append((part, name, values))
            if parts:
                part, name, values = min(parts, key=lambda each: each[:2])
                if part <= INDEX_PART_MAX:
                    task = TableTask(described.id, position, index=name, values=values)
                    return [task]
        size = self.options.bytes_per_partition
        return plan_keys(described.id, position, snapshot.ranges(), keys, size)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task in batches of about 1 MB."""
        task: TableTask = partition.value
        yield from read_task(task, self.options, self.columns, self.landmarks)


class PushdownTableReader(TableReader):
    """A reader that Spark tells its filters."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow what is read; Spark still applies all filters."""
        self.wanted = wanted_of(filters)
        return filters


def read_task(
    task: TableTask,
    options: ReadOptions,
    columns: Sequence[Column],
    landmarks: tuple[Landmark, ...],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task as Spark wants them.

    Raises:
        TrimmedError: the writer has merged what the position of the query needs.
        NotSharedError: this process does not see the directory of the driver.
    """
    if not task.table:
        return
    check_landmarks(landmarks)
    rows = Rows(tuple(columns), EVERYTHING, options)
    with identify_imports(), open_table(options) as table:
        described = table.describe()
        if described.id != task.table:
            msg = (
                f"table {options.table!r} was dropped or made anew since the query was "
                "planned: start it again"
            )
            raise NotFoundError(msg)
        number = table.stream
        try:
            with table.at(task.position) as snapshot:
                stored = _stored(snapshot, task, rows.stored, number)
                yield from rows.of(rechunk(stored))
        except TrimmedError as error:
            msg = (
                f"table {options.table!r} cannot be read at position {task.position} "
                f"any more, at which this query was planned: {error.message}"
            )
            raise TrimmedError(msg, first=error.first).advising(_HISTORY) from None


def _stored(
    snapshot: TableSnapshot, task: TableTask, names: list[str], stream: int
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a task, with stream and LLSN, which are not stored."""
    stored = [name for name in names if name not in _IN_THE_PLACE]
    for batch in _batches(snapshot, task, stored):
        arrays = [_column(batch, name, stream) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, names)


def _column(batch: pa.RecordBatch, name: str, stream: int) -> Any:
    if name == "stream":
        return pa.repeat(pa.scalar(stream, pa.int64()), len(batch))
    # An embedded log has one stream.
    return batch.column("position" if name == "llsn" else name)


def _batches(
    snapshot: TableSnapshot, task: TableTask, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    if task.index:
        low, high = task.values.begin, task.values.end
        yield from snapshot.index(task.index).batches(low, high, columns=columns)
    elif task.keys.among is not None:
        keys = pa.array(sorted(task.keys.among), pa.binary())
        found = snapshot.get_many(keys)
        yield found.filter(found.column("position").is_valid()).select(columns)
    else:
        low, high = task.keys.begin, task.keys.end
        yield from snapshot.batches(low, high, columns=columns)
