"""Reads a log in one action of Spark: plan on the driver, read in the tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from braidlog.errors import TrimmedError
from braidlog.handover import Landmark
from braidlog.sources.chunks import rechunk
from braidlog.sources.source import ALL_STREAMS, LogSource
from braidlog.spark.source.filters import narrow
from braidlog.spark.source.options import ReadOptions
from braidlog.spark.source.places import check_same, open_source
from braidlog.spark.source.schema import Column, Rows
from braidlog.spark.source.selection import Selection, hull
from braidlog.spark.source.tasks import Task, plan_tasks
from braidlog.spark.source.worker import landmarks_of, open_on_worker

_NOTHING = Task("", ALL_STREAMS, 0, 0)
"""Spark wants at least one partition."""


class LogReader(DataSourceReader):  # type: ignore[misc]
    """Knows what is asked for; nothing is opened until Spark plans."""

    def __init__(self, options: ReadOptions, columns: tuple[Column, ...]) -> None:
        """Keep what was asked for."""
        self.options = options
        self.columns = columns
        self.selection = options.selection
        self.landmarks = landmarks_of(options)

    def partitions(self) -> list[InputPartition]:
        """Pin the end of the log and cut what was asked for into tasks.

        Raises:
            TrimmedError: ``from`` is below the first readable position.
            NotFoundError: there is no such log.
        """
        options = self.options
        with open_source(options) as source:
            look = source.look()
            refuse_trimmed(options, look.first)
            tasks = plan_tasks(
                look, self.selection, options.order, options.bytes_per_partition
            )
        return [InputPartition(task) for task in tasks or [_NOTHING]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task in batches of about 1 MB."""
        task, options = partition.value, self.options
        yield from read_task(
            task, options, self.columns, self.selection, self.landmarks
        )


class PushdownLogReader(LogReader):
    """A reader that takes filters over from Spark.

    Spark refuses a reader that can do so while its setting is off, even for a query
    without filters: so there are two.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Narrow what is read; return the filters that Spark must still apply."""
        selection, left = narrow(filters)
        self.selection = self.selection.within(selection)
        return left


def refuse_trimmed(options: ReadOptions, first: int) -> None:
    """Raise `TrimmedError` if records were asked for that are gone."""
    begin = options.begin
    if begin is not None and begin < first and options.fail_on_trimmed:
        raise TrimmedError(
            (
                f"log {options.origin.log!r} was trimmed and begins at position "
                f"{first}, but option 'from' asks for {begin}"
            ),
            first=first,
        )


def read_task(
    task: Task,
    options: ReadOptions,
    columns: tuple[Column, ...],
    selection: Selection,
    landmarks: tuple[Landmark, ...],
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one task as Spark wants them.

    What was trimmed since the plan is left out with ``failOnTrimmed=false``.

    Raises:
        TrimmedError: the log was trimmed below what the task still has to read.
        NotSharedError: this process does not see the directories of the driver.
        ImportError: a package is missing on this machine.
    """
    if task.begin >= task.end:
        return
    whole = task.stream == ALL_STREAMS
    rows = Rows(columns, selection.behind_plan(streams=whole), options)
    with open_on_worker(options, landmarks) as source:
        check_same(options.origin.log, task.log, source.id)
        if not options.fail_on_trimmed:
            task = _kept(source, task)
            if task.begin >= task.end:
                return  # All of it is gone.
        yield from rows.of(rechunk(stored_rows(source, task, rows)))


def stored_rows(source: LogSource, task: Task, rows: Rows) -> Iterator[pa.RecordBatch]:
    """Yield the columns that ``rows`` needs of what a task reads."""
    since, until = hull(rows.selection.timestamp)
    return source.batches(
        task.begin,
        task.end,
        columns=rows.stored,
        stream=task.stream,
        since=since,
        until=until,
        turn=task.turn,
    )


def _kept(source: LogSource, task: Task) -> Task:
    """Return what is left of a task; what goes while it is read fails this attempt."""
    look = source.look()
    if task.stream == ALL_STREAMS:
        first = look.first
    else:
        first = look.cut(look.first).get(task.stream, task.begin)
    return replace(task, begin=min(task.end, max(task.begin, first)))
