"""The data source: ``spark.read.format("braidlog")``.

Theory of operation: Spark makes the reader on the driver, once for each action, and
asks it for partitions (`braidlog.spark.cluster` does it for a cluster, otherwise the
same). That opens the directory read-only and takes the end of the
log, which pins what the action sees: records appended later are in no partition, so a
growing log is a consistent snapshot. Each task opens the directory again, read-only,
and reads its span. Readers take no lock, so a writer process may append all the
while.

    option              meaning
    path                data directory; relative to where the JVM was started
    cluster             instead of it: addresses of nodes, host:port,host:port
    log                 name of the log (needed)
    token, ca           for a cluster: token, else BRAIDLOG_TOKEN; file of authorities
                        for TLS, else none is spoken
    from, to            positions, half-open
    since, until        ISO 8601 or microseconds since 1970, UTC, half-open
    bytesPerPartition   about how much one task reads, default 128m
    pushdown            true: take over filters on position and timestamp; Spark wants
                        spark.sql.python.filterPushdown.enabled=true for it, and refuses
                        every read otherwise

Bounds beyond the end are no error: the end is wherever the log is. A start that was
trimmed is one, because records that were asked for are gone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)

import braidlog
from braidlog.errors import NotFoundError
from braidlog.spark.chunks import rechunk
from braidlog.spark.cluster import ClusterReader, look_into
from braidlog.spark.options import ReadOptions, parse
from braidlog.spark.plan import Bounds, Extent, Span, plan
from braidlog.spark.reader import BoundReader, TakesFilters
from braidlog.spark.schema import DDL, Slice, project, requested, stored
from braidlog.spark.sink.options import parse_sink
from braidlog.spark.sink.writers import BatchWriter, StreamWriter

__all__ = ["BraidlogDataSource", "LogReader", "PushdownLogReader"]


class BraidlogDataSource(DataSource):  # type: ignore[misc]
    """A log of a data directory as a Spark table."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "braidlog"

    def schema(self) -> str:
        """Check options and log, so that ``load()`` fails early; return all columns."""
        options = parse(self.options, os.environ)
        with look_into(options) if options.cluster else _opened(options):
            return DDL

    def reader(self, schema: Any) -> DataSourceReader:
        """Return a reader of the columns that ``schema`` names."""
        options, columns = parse(self.options, os.environ), requested(schema)
        # Spark refuses a reader that overrides pushFilters while its setting is off,
        # even for a query without filters: so only on request.
        readers = _CLUSTER_READERS if options.cluster else _READERS
        return readers[options.pushdown](options, columns)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceWriter:
        """Return a writer of records with the columns that ``schema`` names."""
        return BatchWriter(parse_sink(self.options, os.environ), schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamWriter:
        """Return a writer for a streaming query; see `writer`."""
        return StreamWriter(parse_sink(self.options, os.environ), schema, overwrite)


class LogReader(BoundReader):
    """Plan on the driver, read in the tasks."""

    def partitions(self) -> list[InputPartition]:
        """Pin the end of the log and cut what was asked for into spans.

        Raises:
            TrimmedError: ``from`` is below the first readable position.
            NotFoundError: The directory has no such log.
        """
        with _opened(self.options) as log:
            # The end first: segments seen later may reach beyond it, never fall short.
            pinned = Bounds(log.first, log.end)
            extents = [_extent(segment) for segment in log.segments()]
        self.refuse_trimmed(pinned.begin)
        spans = plan(
            extents, self.bounds.within(pinned), self.options.bytes_per_partition
        )
        return [InputPartition(span) for span in spans or [Span(0, 0, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one span in batches of about 1 MB."""
        span: Span = partition.value
        if span.begin >= span.end:
            return
        with _opened(self.options) as log:
            wanted = Slice(
                self.columns,
                self.bounds.since,
                self.bounds.until,
                log.describe().stream,
            )
            names = stored(self.columns, timestamps=wanted.timed)
            batches = log.batches(span.begin, span.end, columns=names)
            yield from project(rechunk(batches), wanted)


class PushdownLogReader(TakesFilters, LogReader):
    """A reader that takes filters over from Spark."""


class PushdownClusterReader(TakesFilters, ClusterReader):
    """The same for a cluster."""


_READERS: dict[bool, type[BoundReader]] = {False: LogReader, True: PushdownLogReader}
_CLUSTER_READERS: dict[bool, type[BoundReader]] = {
    False: ClusterReader,
    True: PushdownClusterReader,
}


@contextmanager
def _opened(options: ReadOptions) -> Iterator[Any]:
    """Open the log to read; a missing one names those that are there."""
    where = Path(options.path).absolute()
    try:
        opened = braidlog.open(where, read_only=True)
    except NotFoundError as error:
        raise NotFoundError(error.message + _origin(options.path)) from None
    with opened as node:
        try:
            log = node.log(options.log)
        except NotFoundError:
            names = ", ".join(repr(name) for name in node.logs()) or "none"
            raise NotFoundError(
                f"{where} has no log {options.log!r}; its logs: {names}"
            ) from None
        yield log


def _origin(path: str) -> str:
    if Path(path).is_absolute():
        return ""
    return f" (path is {path!r}: Spark resolves it where its JVM was started)"


def _extent(segment: Any) -> Extent:
    return Extent(
        segment.begin,
        segment.end,
        segment.bytes,
        segment.timestamp_min,
        segment.timestamp_max,
    )
