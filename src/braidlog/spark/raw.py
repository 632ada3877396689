"""Reads a log from what is left of a cluster: directories of nodes that do not run.

Theory of operation: the fault logs of the directories decide which of them are valid
(`braidlog.node.raw`); for that, and so that no node runs on one, they are locked
for a moment by whoever plans. Tasks take no lock: nothing changes there any more. Each
finds the same directories, and in them the commits that only the metadata repository
knows, and reads a range of one stream from one directory, and from another where that
is damaged, or the positions of all streams, merged. It gives what a merge gives.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa

from braidlog.client.batches import NativeCodec
from braidlog.client.spanrows import rows_of
from braidlog.errors import CorruptionError, LockedError
from braidlog.node.raw import choose_raw, open_raw
from braidlog.spark.closing import Closing
from braidlog.spark.options import ReadOptions
from braidlog.spark.plan import Extent
from braidlog.spark.schema import Rows
from braidlog.spark.selection import hull
from braidlog.spark.tasks import ALL_STREAMS, Task
from braidlog.storage.rawstreams import RawStreams, StoredPart

__all__ = ["RawPlace"]

_codec: Final = NativeCodec()
_LAST: Final = (1 << 62) - 1
_log = logging.getLogger(__name__)


class _Look:
    """The log, which does not change."""

    def __init__(self, name: str, streams: RawStreams, first: int) -> None:
        """Find the end."""
        self.log = f"raw:{name}"  # nobody deletes it while no node runs
        self.first, self.end = first, streams.end(first)
        self._streams = streams

    def cut(self, position: int) -> dict[int, int]:
        """Return the first LLSN of each stream that is not before a position."""
        return self._streams.cut(position)

    def extents(
        self, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> dict[int, list[Extent]]:
        """Return the segments of each stream; a plan takes of them what it asks for."""
        return {
            stream: [
                Extent(
                    segment.begin,
                    segment.end,
                    segment.bytes,
                    segment.timestamp_min,
                    segment.timestamp_max,
                )
                for segment in self._streams.segments(stream)
            ]
            for stream in end
        }


class RawPlace(Closing):
    """A log in raw directories."""

    def __init__(self, options: ReadOptions) -> None:
        """Choose the directories.

        Raises:
            NotReadyError: a member that may know more is missing.
            InvalidArgumentError: no choice of directories is safe.
            NotFoundError: there is no such directory, or no valid one has the log.
        """
        self._options = options
        self._said: tuple[str, ...] = ()
        self._streams = RawStreams(choose_raw(options.raw, options.log))

    def look(self) -> _Look:
        """Return the log; what it may lack is logged once.

        Raises:
            LockedError: a node runs on one of the directories.
            CorruptionError: the end of one is damaged, and no other has all of it.
        """
        options = self._options
        try:
            with open_raw(options.raw, options.log) as merge:
                figures, committed = merge.figures(), merge.committed
        except LockedError as error:
            msg = (
                f"{error.message}: option 'raw' is for nodes that do not run, a "
                "running one is read with 'cluster' or 'path'"
            )
            raise LockedError(msg, path=error.path) from None
        said = (*map(str, figures.damages), *figures.notes)
        if said != self._said:
            _log.warning("log %r: %s", options.log, "; ".join(said))
            self._said = said
        ends = self._streams.cut(_LAST)
        lost = figures.unproven or any(
            ends.get(stream, 0) < end for stream, end in committed.items()
        )
        if figures.damages and lost:
            damage = figures.damages[0]
            msg = (
                f"{damage}: no other directory has all of what this one had; the"
                " pipelines read damaged directories, in one task"
            )
            raise CorruptionError(msg, path=damage.path, offset=damage.begin)
        return _Look(options.log, self._streams, figures.next)

    def read(self, task: Task, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Yield what a task reads."""
        since, until = hull(rows.selection.timestamp)
        for part in self._parts(task):
            batch = rows_of(_codec, part, columns=rows.stored, since=since, until=until)
            if batch is not None:
                yield batch

    def _parts(self, task: Task) -> Iterator[StoredPart]:
        streams = self._streams
        if task.stream != ALL_STREAMS:
            yield from streams.parts(task.stream, task.begin, task.end)
            return
        ends = streams.cut(task.end)
        each = [
            streams.parts(stream, begin, ends[stream])
            for stream, begin in streams.cut(task.begin).items()
        ]
        position = task.begin
        for part in heapq.merge(*each, key=lambda part: part.glsn):
            if part.glsn != position:
                msg = f"position {position} is in none of the directories"
                raise CorruptionError(msg)
            position += part.count
            yield part

    def close(self) -> None:
        """Let go of the directories. Idempotent."""
        self._streams.close()
