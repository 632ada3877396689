"""Reads a table of a directory or of a cluster in one action of Spark.

Theory of operation: the driver looks at the table once, and all tasks read it at the
position that it had then. A task opens the directory itself, or asks a host of the
table.

Nobody keeps that position in a directory: it can be read for as long as the `history`
of the table says. The hosts of a cluster keep it when the driver has planned, and from
then on as long as tasks ask for it: Spark's planner ends when it has planned, so it
cannot ask, and every task does. A task that comes too late fails, and says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from braidlog.errors import NotFoundError, TrimmedError
from braidlog.handover import Landmark, check_landmarks, identify_imports
from braidlog.sources.chunks import rechunk
from braidlog.spark.source.options import ReadOptions
from braidlog.spark.source.places import where_resolved
from braidlog.spark.source.schema import IN_THE_PLACE, Column, Rows
from braidlog.spark.source.selection import EVERYTHING
from braidlog.spark.source.table_plan import (
    TableTask,
    Wanted,
    index_for,
    plan_table,
    wanted_of,
)
from braidlog.spark.source.worker import landmarks_of
from braidlog.store.store import open_store

if TYPE_CHECKING:
    from braidlog.client.tables.blocking import ClusterTable, ClusterTableSnapshot
    from braidlog.store.tables.table import Table, TableSnapshot

    AnyTable: TypeAlias = Table | ClusterTable
    AnySnapshot: TypeAlias = TableSnapshot | ClusterTableSnapshot

_NOTHING: Final = TableTask("", 0)
"""Spark wants at least one partition."""

_HISTORY: Final = (
    "Start the query again; a larger `history` of the table keeps positions readable "
    "for longer"
)
_EXPIRED: Final = (
    "Start the query again. The hosts keep the position of a query until none of its "
    "tasks has run for two minutes; a larger `history` of the table keeps it longer"
)


@contextmanager
def open_table(options: ReadOptions) -> Iterator[AnyTable]:
    """Open the table that options name.

    Raises:
        NotFoundError: there is no such directory or table.
        LogError: the cluster cannot be reached, or does not allow it.
    """
    path = options.origin.path
    if not path:
        with options.origin.client() as client:
            yield client.table(options.table)
        return
    with (
        where_resolved(path),
        open_store(Path(path).absolute(), read_only=True) as store,
    ):
        yield store.table(options.table)


@contextmanager
def snapshot_of(options: ReadOptions, table: AnyTable) -> Iterator[AnySnapshot]:
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
            _share(options, snapshot)
            tasks = self._plan(table, snapshot)
        return [InputPartition(task) for task in tasks or [_NOTHING]]

    def _plan(self, table: AnyTable, snapshot: AnySnapshot) -> list[TableTask]:
        described = table.describe()
        keys = self.options.selection.key.within(self.wanted.keys)
        active = {
            index.name: index.field
            for index in described.indexes
            if index.state == "active"
        }
        indexes = index_for(active, self.wanted)
        size = self.options.bytes_per_partition
        return plan_table(described.id, snapshot, keys, indexes, size)

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
        TrimmedError: what the position of the query needs has been merged.
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
        # Of a cluster the columns that would need it are not there.
        number = getattr(table, "stream", 0)
        try:
            with table.at(task.position) as snapshot:
                _share(options, snapshot)
                stored = _stored(snapshot, task, rows.stored, number)
                yield from rows.of(rechunk(stored))
        except TrimmedError as error:
            msg = (
                f"table {options.table!r} cannot be read at position {task.position} "
                f"any more, at which this query was planned: {error.message}"
            )
            advice = _HISTORY if options.origin.path else _EXPIRED
            raise TrimmedError(msg, first=error.first).advising(advice) from None


def _share(options: ReadOptions, snapshot: AnySnapshot) -> None:
    """Keep the position for the other tasks of a query, where somebody can."""
    if not options.origin.path:
        snapshot.share()  # type: ignore[union-attr]  # It is of a cluster.


def _stored(
    snapshot: AnySnapshot, task: TableTask, names: list[str], stream: int
) -> Iterator[pa.RecordBatch]:
    """Yield the columns of a task, with stream and LLSN, which are not stored."""
    stored = [name for name in names if name not in IN_THE_PLACE]
    for batch in _batches(snapshot, task, stored):
        arrays = [_column(batch, name, stream) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, names)


def _column(batch: pa.RecordBatch, name: str, stream: int) -> Any:
    if name == "stream":
        return pa.repeat(pa.scalar(stream, pa.int64()), len(batch))
    # An embedded log has one stream.
    return batch.column("position" if name == "llsn" else name)


def _batches(
    snapshot: AnySnapshot, task: TableTask, columns: list[str]
) -> Iterator[pa.RecordBatch]:
    if task.keys is not None:
        keys = pa.array(sorted(task.keys), pa.binary())
        found = snapshot.get_many(keys)
        yield found.filter(found.column("position").is_valid()).select(columns)
    elif task.index:
        index = snapshot.index(task.index)
        if index.id != task.index_id:
            msg = (
                f"index {task.index!r} was made anew since the query was planned: "
                "start it again"
            )
            raise NotFoundError(msg)
        yield from index.part_batches(task.part, columns=columns)
    else:
        part = task.part
        yield from snapshot.batches(part.begin, part.end, columns=columns)
