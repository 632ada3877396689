"""Reads a log of a cluster: each task from the storage nodes themselves.

Theory of operation: planning takes one linearizable look at the metadata, which pins
the end of every stream, and asks the replicas at which LLSNs the wanted positions lie.
What a task gets is a range of LLSNs of one stream; that is the same on all replicas and
never changes, so the task reads it from any of them, and from another one if that dies.
Tasks begin with different replicas, so that all nodes take part.

Invariants: the partitions of a plan hold every position of the bounds once. Nothing of
a task's bytes goes through the driver.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

import braidlog
from braidlog.spark.chunks import rechunk
from braidlog.spark.options import ReadOptions
from braidlog.spark.plan import Bounds, Extent, plan
from braidlog.spark.reader import BoundReader
from braidlog.spark.schema import Slice, project, stored

__all__ = ["ClusterReader", "StreamSpan", "look_into"]


@dataclass(frozen=True, slots=True)
class StreamSpan:
    """What one task reads: LLSNs of a stream, beginning with the replica of a turn."""

    stream: int
    begin: int
    end: int
    turn: int


class ClusterReader(BoundReader):
    """Plan on the driver, read in the tasks."""

    def partitions(self) -> list[InputPartition]:
        """Pin the ends of the streams and cut them into ranges.

        Raises:
            TrimmedError: ``from`` is below the first readable position.
            NotFoundError: the cluster has no such log.
        """
        with look_into(self.options) as scan:
            there = scan.positions
            self.refuse_trimmed(there.start)
            bounds = self.bounds.within(Bounds(there.start, there.stop))
            extents = scan.extents(bounds.begin, bounds.end)
        spans = [
            (extent.stream, span.begin, span.end)
            for extent in extents
            for span in plan(
                [Extent(extent.begin, extent.end, extent.bytes)],
                Bounds(extent.begin, extent.end),
                self.options.bytes_per_partition,
            )
        ]
        found = [StreamSpan(*span, turn) for turn, span in enumerate(spans)]
        return [InputPartition(span) for span in found or [StreamSpan(0, 0, 0, 0)]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one range in batches of about 1 MB."""
        span: StreamSpan = partition.value
        if span.begin >= span.end:
            return
        wanted = Slice(self.columns, self.bounds.since, self.bounds.until, span.stream)
        with look_into(self.options) as scan:
            batches = scan.batches(
                span.stream,
                span.begin,
                span.end,
                columns=stored(self.columns, timestamps=wanted.timed, llsn=True),
                since=wanted.since,
                until=wanted.until,
                turn=span.turn,
            )
            yield from project(rechunk(batches), wanted)


@contextmanager
def look_into(options: ReadOptions) -> Iterator[Any]:
    """Connect to the cluster and find the log."""
    # Made anew in each process: a context cannot be sent to another one.
    context = ssl.create_default_context(cafile=options.ca) if options.ca else None
    with braidlog.connect_sync(
        options.cluster, token=options.token, ssl=context
    ) as client:
        yield client.scan(options.log)
