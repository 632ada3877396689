"""Reads a log as a streaming query: ``spark.readStream.format("braidlog")``.

Theory of operation: Spark keeps one of these on the driver for as long as a query runs,
and asks it how far the log is; the end of a batch is stored, with all that planning the
batch again needs (`offset`), before it runs. Tasks are those of a batch
query. So a restart reads exactly what was read before, and goes on behind it.

Where the query begins is an option, so that it is the same whenever Spark asks. Without
it that is position 1, or what is left from there: the offset of the first batch says
which position that was.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from braidlog.errors import TrimmedError
from braidlog.sources.plan import Bounds, plan_bytes
from braidlog.sources.source import ALL_STREAMS, LogSource, Look
from braidlog.spark.source.options import ReadOptions
from braidlog.spark.source.places import check_same, open_source
from braidlog.spark.source.reader import read_task, refuse_trimmed
from braidlog.spark.source.schema import Column
from braidlog.spark.source.selection import hull
from braidlog.spark.source.worker import landmarks_of
from braidlog.spark.streaming.admission import admit
from braidlog.spark.streaming.offset import Offset, tasks_between


class LogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Knows how far the log is, and plans batches."""

    def __init__(self, options: ReadOptions, columns: tuple[Column, ...]) -> None:
        """Keep what was asked for; nothing is opened yet."""
        self.options = options
        self.columns = columns
        self.landmarks = landmarks_of(options)
        self._source: LogSource | None = None
        self._target: int | None = None
        self._latest: Offset | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is open to this process: tasks open the log themselves."""
        return {**self.__dict__, "_source": None}

    # -- offsets -----------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return where the query begins: the same, whatever became of the log."""
        return Offset(self.options.begin or 1).to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return how much a batch reads; both limits hold if both are given."""
        options = self.options
        if options.records_max is not None:
            return ReadMaxRows(options.records_max)
        if options.bytes_max is not None:
            return ReadMaxBytes(options.bytes_max)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix where the query ends: at what is there now."""
        self._target = self._look().end

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return where the next batch ends; ``start`` itself if there is nothing new.

        Raises:
            TrimmedError: records were trimmed before the query read them, and not
                ``failOnTrimmed=false``.
            NotFoundError: the log is not the one that the checkpoint knows.
        """
        before = Offset.of(start)
        look = self._look()
        check_same(self.options.origin.log, before.log, look.id)
        begin, lost = self._begin(before, look)
        end = self._end(look)
        if begin >= end:
            return start
        begins = _begins(before, look, begin)
        records_max, bytes_max = _limits(limit, self.options)
        end = admit(
            begin,
            end,
            records_max=records_max,
            bytes_max=bytes_max,
            measure=lambda _, high: sum(_sizes(look, begins, look.cut(high)).values()),
        )
        rows = self._rows(look, begins, look.cut(end), end - begin)
        moved = begin != before.position or not before.log
        return Offset(
            position=end,
            log=self._identity(look),
            streams=look.cut(end),
            first=begin if moved else 1,
            firsts=begins if moved else {},
            rows=rows,
            order=self.options.order,
            lost=before.lost + lost,
        ).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """Return how far the log is, so that progress says how far the query lags."""
        return None if self._latest is None else self._latest.to_json()

    def _look(self) -> Look:
        if self._source is None:
            self._source = open_source(self.options)
        look = self._source.look()
        self._latest = Offset(look.end, self._identity(look), look.cut(look.end))
        return look

    def _identity(self, look: Look) -> str:
        """Return what offsets call the log; empty would be: nothing read yet."""
        # Raw directories do not know it. Nobody deletes the log while no node runs.
        return look.id or f"raw:{self.options.origin.log}"

    def _begin(self, before: Offset, look: Look) -> tuple[int, int]:
        """Return where the next batch begins, and how many positions it skips."""
        if look.first <= before.position:
            return before.position, 0
        if not before.log:
            # Nothing was read yet: without 'from' what is gone was not asked for.
            refuse_trimmed(self.options, look.first)
            lost = 0 if self.options.begin is None else look.first - before.position
            return look.first, lost
        if self.options.fail_on_trimmed:
            msg = (
                f"log {self.options.origin.log!r} was trimmed to position "
                f"{look.first}, but this query has read only up to {before.position}"
            )
            hint = "Pass failOnTrimmed=false to continue after the gap"
            raise TrimmedError(msg, first=look.first).advising(hint)
        return look.first, look.first - before.position

    def _end(self, look: Look) -> int:
        _, to = hull(self.options.selection.position)
        ends = (look.end, self._target, to)
        return min(end for end in ends if end is not None)

    def _rows(
        self,
        look: Look,
        begins: Mapping[int, int],
        ends: Mapping[int, int],
        positions: int,
    ) -> dict[int, int]:
        """Return how many records make a task of about the size asked for."""
        sizes = _sizes(look, begins, ends)
        counts = {stream: ends[stream] - begins[stream] for stream in sizes}
        if self.options.order == "global":
            sizes = {ALL_STREAMS: sum(sizes.values())}
            counts = {ALL_STREAMS: positions}
        target = self.options.bytes_per_partition
        return {
            stream: max(1, count * target // max(1, sizes[stream]))
            for stream, count in counts.items()
            if count > 0
        }

    # -- reading -----------------------------------------------------------------

    def partitions(
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Sequence[InputPartition]:
        """Return the tasks of a batch: always the same for the same offsets."""
        streams = self.options.selection.stream
        tasks = tasks_between(Offset.of(start), Offset.of(end), streams)
        return [InputPartition(task) for task in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task in batches of about 1 MB."""
        task, options = partition.value, self.options
        yield from read_task(
            task, options, self.columns, options.selection, self.landmarks
        )

    def commit(self, end: dict[str, Any]) -> None:
        """Do nothing: Spark says so a batch late, and trimming is not a reader's."""

    def stop(self) -> None:
        """Let go of the log."""
        if self._source is not None:
            self._source.close()
            self._source = None


def _limits(limit: ReadLimit, options: ReadOptions) -> tuple[int | None, int | None]:
    match limit:
        case ReadAllAvailable():
            return None, None
        case ReadMaxRows():
            return limit.max_rows, options.bytes_max
        case ReadMaxBytes():
            return options.records_max, limit.max_bytes
        case _:
            return options.records_max, options.bytes_max


def _begins(before: Offset, look: Look, begin: int) -> dict[int, int]:
    """Return where a batch begins in each stream that there is now."""
    if begin != before.position or not before.log:
        return look.cut(begin)
    # Known; what streams have that came later lies behind it.
    return {stream: before.streams.get(stream, 1) for stream in look.cut(look.end)}


def _sizes(
    look: Look, begins: Mapping[int, int], ends: Mapping[int, int]
) -> dict[int, int]:
    """Return about how many bytes lie between two cuts, by stream."""
    return {
        stream: plan_bytes(each, Bounds(begins[stream], ends[stream]))
        for stream, each in look.extents(begins, ends).items()
    }
