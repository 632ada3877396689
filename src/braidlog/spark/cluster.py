"""Reads a log of a cluster: each task from the storage nodes themselves.

Theory of operation: a look is linearizable and shows the committed end of every stream;
replicas say at which LLSNs positions lie, and how large records are. What a task gets
is a range of LLSNs of one stream, or of positions over all of them; what is in it is
the same on all replicas and never changes, so the task reads it from any of them, and
from another one if that dies. Tasks begin with different replicas, so that all nodes
take part.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Final

import pyarrow as pa

import braidlog
from braidlog.archive import Archive
from braidlog.client.blocking import Scan
from braidlog.spark.closing import Closing
from braidlog.spark.options import ReadOptions
from braidlog.spark.places import check_same
from braidlog.spark.plan import Extent
from braidlog.spark.schema import Rows
from braidlog.spark.selection import hull
from braidlog.spark.tasks import ALL_STREAMS, Task

__all__ = ["ClusterPlace"]

_KNOWN_FOR: Final = 1 << 16
"""Records behind a sample that are taken as large as those in it, when so few are asked
for: a batch of a streaming query need not look at all streams each time."""


class _Look:
    """A log at one moment; cuts are asked for once."""

    def __init__(self, scan: Scan, sampled: dict[int, tuple[int, int]]) -> None:
        """Pin the ends; ``sampled`` is (LLSN, bytes of a record) by stream."""
        self.log = scan.log
        self.first, self.end = scan.positions.start, scan.positions.stop
        self._scan = scan
        self._sampled = sampled
        self._cuts: dict[int, dict[int, int]] = {}

    def cut(self, position: int) -> dict[int, int]:
        """Return the first LLSN of each stream that is not before a position."""
        if position not in self._cuts:
            self._cuts[position] = self._scan.cut(position)
        return self._cuts[position]

    def extents(
        self, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> dict[int, list[Extent]]:
        """Return how large the LLSNs between two cuts are, by stream."""
        return {
            stream: [
                Extent(begin.get(stream, 1), stop, self._size(stream, begin, stop))
            ]
            for stream, stop in end.items()
            if begin.get(stream, 1) < stop
        }

    def _size(self, stream: int, begins: Mapping[int, int], end: int) -> int:
        begin = begins.get(stream, 1)
        sampled, average = self._sampled.get(stream, (-_KNOWN_FOR, 0))
        if not sampled <= begin <= end <= sampled + _KNOWN_FOR:
            average = max(1, self._scan.size(stream, begin, end) // (end - begin))
            self._sampled[stream] = begin, average
        return average * (end - begin)


class ClusterPlace(Closing):
    """A log of a cluster."""

    def __init__(self, options: ReadOptions) -> None:
        """Connect to the cluster.

        Raises:
            ConnectionLostError: every address refuses connections.
            DeadlineError: no node answered.
            UnauthorizedError: the token may not read.
        """
        self._options = options
        self._stack = ExitStack()
        self._sampled: dict[int, tuple[int, int]] = {}
        # Made anew in each process: a context cannot be sent to another one.
        context = ssl.create_default_context(cafile=options.ca) if options.ca else None
        self._client = self._stack.enter_context(
            braidlog.connect(options.cluster, token=options.token, ssl=context)
        )

    def look(self) -> _Look:
        """Return the log as it is now; everything acknowledged before is in it."""
        return _Look(self._client.scan(self._options.log), self._sampled)

    def read(self, task: Task, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Yield what a task reads, from any replica."""
        scan = self._client.scan(self._options.log)
        check_same(self._options.log, task.log, scan.log)
        since, until = hull(rows.selection.timestamp)
        if task.stream == ALL_STREAMS:
            yield from scan.merged(
                task.begin,
                task.end,
                columns=rows.stored,
                since=since,
                until=until,
                turn=task.turn,
            )
            return
        yield from scan.batches(
            task.stream,
            task.begin,
            task.end,
            columns=rows.stored,
            since=since,
            until=until,
            turn=task.turn,
        )

    def archive(self, location: str | None) -> Archive:
        """Open the archive at a location; None is the recorded one."""
        return self._client.log(self._options.log).archive(location)

    def close(self) -> None:
        """Let go of the cluster. Idempotent."""
        self._stack.close()
