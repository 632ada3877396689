"""A log with its archive before it, as one place.

Theory of operation: below the first position that the log has, a look is answered from
the manifest of the archive, which says for each file which LLSNs of which streams it
has, and a task reads files. What lies in the log is asked of the place behind. A task
that trimming overtakes looks again and goes on in the archive behind the last row that
it gave out.

Invariants: rows come once, in the order that the place behind would give them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from braidlog.archive import Archive
from braidlog.archive.layout import ArchivedFile
from braidlog.archive.rows import COLUMNS, Choice
from braidlog.archive.seam import missing
from braidlog.errors import TrimmedError
from braidlog.spark.closing import Closing
from braidlog.spark.options import ReadOptions
from braidlog.spark.plan import Extent
from braidlog.spark.schema import Rows
from braidlog.spark.selection import hull
from braidlog.spark.tasks import ALL_STREAMS, Look, Task

__all__ = ["ArchivedPlace", "HasArchive"]


class HasArchive(Protocol):
    """A place of a log that may have an archive."""

    def look(self) -> Look:
        """Return the log as it is now."""

    def read(self, task: Task, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Yield what a task reads."""

    def archive(self, location: str | None) -> Archive:
        """Open the archive at a location; None is the recorded one."""

    def close(self) -> None:
        """Let go of it."""


class _Look:
    """A log with its archive at one moment."""

    def __init__(self, log: Look, archive: Archive) -> None:
        if log.first > archive.begin and archive.end < log.first:
            there = range(archive.begin, archive.end)
            raise missing(archive.end, log.first, there, archive.location)
        self._log = log
        self._archive = archive
        self._files = archive.manifest.files

    @property
    def log(self) -> str:
        """Identity of the log."""
        return self._log.log

    @property
    def first(self) -> int:
        """First position that can be read."""
        return min(self._log.first, self._archive.begin)

    @property
    def end(self) -> int:
        """Position behind the last one."""
        return self._log.end

    def cut(self, position: int) -> dict[int, int]:
        """Return the first LLSN of each stream that is not before a position."""
        if position >= self._log.first:
            return self._log.cut(position)
        # A stream that has nothing before the position begins with what comes next.
        found: dict[int, int] = {}
        for file in self._files:
            inside = file.begin < position < file.end
            counts = self._counts(file, position) if inside else {}
            for part in file.streams:
                if file.end <= position:
                    found[part.stream] = part.end
                elif inside:
                    found[part.stream] = part.begin + counts.get(part.stream, 0)
                else:
                    found.setdefault(part.stream, part.begin)
        return self._log.cut(self._log.first) | found

    def _counts(self, file: ArchivedFile, position: int) -> dict[int, int]:
        table = self._archive.to_arrow(file.begin, position, columns=["stream"])
        rows = table["stream"].value_counts().to_pylist()
        return {row["values"]: row["counts"] for row in rows}

    def extents(
        self, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> dict[int, list[Extent]]:
        """Return how large the LLSNs between two cuts are, by stream."""
        seam = self._log.cut(self._log.first)
        begins = {s: max(at, seam.get(s, at)) for s, at in begin.items()}
        ends = {s: max(at, begins.get(s, at)) for s, at in end.items()}
        found = {s: list(each) for s, each in self._log.extents(begins, ends).items()}
        for file in self._files:
            for part in file.streams:
                low = max(part.begin, begin.get(part.stream, 1))
                high = min(part.end, seam.get(part.stream, part.end))
                high = min(high, end.get(part.stream, high))
                if low < high:
                    size = file.bytes * (high - low) // file.rows
                    times = file.timestamp_min, file.timestamp_max
                    extent = Extent(low, high, size, *times)
                    found.setdefault(part.stream, []).append(extent)
        return found


class ArchivedPlace(Closing):
    """A log and its archive."""

    def __init__(self, place: HasArchive, options: ReadOptions) -> None:
        """Put the archive before a place.

        Raises:
            NotFoundError: there is no archive.
            InvalidArgumentError: it is of another log.
        """
        self._place = place
        try:
            self._archive = place.archive(options.archive)
        except BaseException:
            place.close()
            raise

    def look(self) -> _Look:
        """Return log and archive as they are now.

        Raises:
            TrimmedError: the log was trimmed beyond the end of the archive.
        """
        # The archive behind the log: what the log lacks by then, the archive has.
        log = self._place.look()
        self._archive.refresh()
        return _Look(log, self._archive)

    def read(self, task: Task, rows: Rows) -> Iterator[pa.RecordBatch]:
        """Yield what a task reads: of the archive first, then of the log."""
        after = 0
        # One schema on both sides of the seam: batches of both are joined.
        schema = pa.schema([(name, COLUMNS[name]) for name in rows.stored])
        while True:
            log = self.look()._log
            first = log.first
            try:
                for batch in self._pieces(task, rows, log, after):
                    kept = batch.filter(pc.greater_equal(batch["position"], after))
                    if kept.num_rows:
                        after = kept["position"][-1].as_py() + 1
                        arrays = [kept[f.name].cast(f.type) for f in schema]
                        yield pa.RecordBatch.from_arrays(arrays, schema=schema)
            except TrimmedError:
                if self._place.look().first <= first:
                    raise
            else:
                return

    def _pieces(
        self, task: Task, rows: Rows, log: Look, after: int
    ) -> Iterator[pa.RecordBatch]:
        yield from self._archived(task, rows, log.first, after)
        if task.stream == ALL_STREAMS:
            begin = max(task.begin, log.first)
        else:
            begin = max(task.begin, log.cut(log.first).get(task.stream, task.begin))
        if begin < task.end:
            yield from self._place.read(replace(task, begin=begin), rows)

    def _archived(
        self, task: Task, rows: Rows, first: int, after: int
    ) -> Iterator[pa.RecordBatch]:
        since, until = hull(rows.selection.timestamp)
        choice, names = Choice(since=since, until=until), rows.stored
        columns = list(dict.fromkeys([*names, "stream", "llsn"]))
        for file in self._archive.manifest.holding(after, first):
            begin, end = max(file.begin, after), min(file.end, first)
            if task.stream == ALL_STREAMS:
                begin, end = max(begin, task.begin), min(end, task.end)
            elif not _has(file, task):
                continue
            if begin >= end:
                continue
            found = self._archive.batches(begin, end, columns=columns, choice=choice)
            for batch in found:
                yield _of_stream(batch, task).select(names)

    def close(self) -> None:
        """Let go of the log. Idempotent."""
        self._place.close()


def _has(file: ArchivedFile, task: Task) -> bool:
    return any(
        part.stream == task.stream and part.begin < task.end and task.begin < part.end
        for part in file.streams
    )


def _of_stream(batch: pa.RecordBatch, task: Task) -> pa.RecordBatch:
    if task.stream == ALL_STREAMS:
        return batch
    ours = pc.equal(batch["stream"], task.stream)
    ours = pc.and_(ours, pc.greater_equal(batch["llsn"], task.begin))
    return batch.filter(pc.and_(ours, pc.less(batch["llsn"], task.end)))
