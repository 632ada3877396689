"""A log with its archive in front of it, as one source.

Theory of operation: below the first position that the log has, a look is answered from
the manifest of the archive, which says for each file which LLSNs of which streams it
has, and a task reads files. What lies in the log is asked of the source behind. A task
that trimming overtakes looks again and goes on in the archive behind the last row that
it gave out.

Invariants: rows come once, in the order that the source behind would give them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from braidlog.archive import Archive
from braidlog.archive.layout import ArchivedFile
from braidlog.archive.rows import COLUMNS, Choice
from braidlog.archive.seam import missing
from braidlog.sources.plan import Extent
from braidlog.sources.source import ALL_STREAMS, LogSource, Look
from braidlog.store.archived import ArchivedReader, named

if TYPE_CHECKING:
    from braidlog._native import Record

_FILES_LOOKED_INTO: Final = 16
"""Files of an archive, at most, that say how much compression saves."""

_FOR_EVER: Final = 1 << 62
"""No log has this position."""


class _Look(Look):
    """A log with its archive at one moment."""

    def __init__(self, log: Look, archive: Archive, grown: Callable[[], float]) -> None:
        """Put them together; ``grown`` says what decoding makes of a byte."""
        if log.first > archive.begin and archive.end < log.first:
            there = range(archive.begin, archive.end)
            raise missing(archive.end, log.first, there, archive.location)
        self.id = log.id
        self.first = min(log.first, archive.begin)
        self.end = log.end
        self.log = log
        self._archive = archive
        self._files = archive.manifest.holding(archive.begin, log.first)
        self._grown = grown

    def cut(self, position: int) -> dict[int, int]:
        if position >= self.log.first:
            return self.log.cut(position)
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
        return self.log.cut(self.log.first) | found

    def _counts(self, file: ArchivedFile, position: int) -> dict[int, int]:
        table = self._archive.to_arrow(file.begin, position, columns=["stream"])
        rows = table["stream"].value_counts().to_pylist()
        return {row["values"]: row["counts"] for row in rows}

    def extents(
        self, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> dict[int, list[Extent]]:
        seam = self.log.cut(self.log.first)
        begins = {s: max(at, seam.get(s, at)) for s, at in begin.items()}
        ends = {s: max(at, begins.get(s, at)) for s, at in end.items()}
        found = {s: list(each) for s, each in self.log.extents(begins, ends).items()}
        for file in self._files:
            for part in file.streams:
                low = max(part.begin, begin.get(part.stream, 1))
                high = min(part.end, seam.get(part.stream, part.end))
                high = min(high, end.get(part.stream, high))
                if low < high:
                    extent = self._extent(file, low, high)
                    found.setdefault(part.stream, []).append(extent)
        return found

    def by_position(self, begin: int, end: int, parts: int = 1) -> list[Extent]:
        first = self.log.first
        found = [
            self._extent(file, file.begin, min(file.end, first))
            for file in self._files
            if file.begin < end and begin < file.end
        ]
        if end > first:
            found += self.log.by_position(max(begin, first), end, parts)
        return found

    def _extent(self, file: ArchivedFile, begin: int, end: int) -> Extent:
        # Tasks are cut by what they hold, and files are compressed.
        size = int(file.bytes * self._grown() * (end - begin) / file.rows)
        return Extent(begin, end, size, file.timestamp_min, file.timestamp_max)


class _Below:
    """The log behind an archive; each question of `ArchivedReader` takes a new look."""

    def __init__(self, log: LogSource, archive: Archive, end: int | None) -> None:
        """Stand for a log up to ``end``; None is as far as it goes when it is read."""
        self._log = log
        self._archive = archive
        self._end = _FOR_EVER if end is None else end

    @property
    def first(self) -> int:
        self.look = self._log.look()
        return self.look.first

    @property
    def end(self) -> int:
        # Whoever planned this range has seen it; this look may be an older one.
        return max(self._end, self.look.end)

    def archive(self, location: str | os.PathLike[str] | None = None) -> Archive:
        self._archive.refresh()
        return self._archive


class ArchivedSource(LogSource):
    """A log and its archive."""

    def __init__(
        self, source: LogSource, location: str | os.PathLike[str] | None = None
    ) -> None:
        """Put the archive in front of a source; None is the recorded one.

        Raises:
            NotFoundError: there is no archive.
            InvalidArgumentError: it is of another log.
        """
        self.name = source.name
        self._source = source
        self._ratio: tuple[int, float] = (-1, 1.0)
        try:
            self._archive = source.archive(location)
        except BaseException:
            source.close()
            raise

    @property
    def id(self) -> str:
        """Random identity of the log."""
        return self._source.id

    def look(self) -> _Look:
        """Return log and archive as they are now.

        Raises:
            TrimmedError: the log was trimmed beyond the end of the archive.
        """
        # The archive behind the log: what the log lacks by then, the archive has.
        log = self._source.look()
        self._archive.refresh()
        return _Look(log, self._archive, self._grown)

    def _grown(self) -> float:
        manifest = self._archive.manifest
        if self._ratio[0] != manifest.generation:
            files = manifest.files
            some = files[:: len(files) // _FILES_LOOKED_INTO + 1]
            decoded = sum(map(self._archive.decoded_bytes, some))
            stored = max(1, sum(file.bytes for file in some))
            self._ratio = manifest.generation, decoded / stored
        return self._ratio[1]

    def batches(
        self,
        begin: int,
        end: int,
        *,
        columns: Sequence[str],
        stream: int = ALL_STREAMS,
        since: int | None = None,
        until: int | None = None,
        turn: int = 0,
    ) -> Iterator[pa.RecordBatch]:
        """Yield a range: of the archive first, then of the log."""
        names = list(dict.fromkeys(["position", *columns]))
        placed = list(dict.fromkeys([*names, "stream", "llsn"]))
        choice = Choice(since=since, until=until)

        def archived(
            archive: Archive, low: int, high: int
        ) -> Iterator[tuple[pa.RecordBatch, int]]:
            for file in archive.manifest.holding(low, high):
                first, last = max(file.begin, low), min(file.end, high)
                if stream != ALL_STREAMS and not _has(file, stream, begin, end):
                    continue
                found = archive.batches(first, last, columns=placed, choice=choice)
                for batch in found:
                    yield from given(_of_stream(batch, stream, begin, end), low)

        def rest(low: int, _: int) -> Iterator[tuple[pa.RecordBatch, int]]:
            log = below.look
            start = max(begin, log.first)
            if stream != ALL_STREAMS:
                start = max(begin, log.cut(log.first).get(stream, begin))
            if start < end:
                found = self._source.batches(
                    start,
                    end,
                    columns=names,
                    stream=stream,
                    since=since,
                    until=until,
                    turn=turn,
                )
                for batch in found:
                    yield from given(batch, low)

        def given(
            batch: pa.RecordBatch, low: int
        ) -> Iterator[tuple[pa.RecordBatch, int]]:
            kept = batch.filter(pc.greater_equal(batch["position"], low))
            if kept.num_rows:
                after = kept["position"][-1].as_py() + 1
                # One schema on both sides of the seam: batches of both are joined.
                arrays = [kept[name].cast(COLUMNS[name]) for name in columns]
                yield pa.RecordBatch.from_arrays(arrays, list(columns)), after

        if stream == ALL_STREAMS:
            below = _Below(self._source, self._archive, end)
            reader = ArchivedReader(below, True, begin, end)
        else:
            below = _Below(self._source, self._archive, None)
            reader = ArchivedReader(below, True, None, None)
        return reader.chunks(archived, rest)

    def records(self, begin: int | None, end: int | None = None) -> Iterator[Record]:
        """Yield records: of the archive first, then of the log."""

        def archived(
            archive: Archive, low: int, high: int
        ) -> Iterator[tuple[Record, int]]:
            for some, _ in archive.records(low, high):
                for record in some:
                    yield record, record.position + 1

        def rest(low: int, _: int) -> Iterator[tuple[Record, int]]:
            for record in self._source.records(low, end):
                yield record, record.position + 1

        below = _Below(self._source, self._archive, end)
        return ArchivedReader(below, True, begin or None, end).chunks(archived, rest)

    def archive(self, location: str | os.PathLike[str] | None) -> Archive:
        """Open the archive of the log."""
        return self._source.archive(location)

    def close(self) -> None:
        """Let go of the log. Idempotent."""
        self._source.close()


def with_archive(source: LogSource, include: bool | str) -> LogSource:  # noqa: FBT001, RUF100
    """Return a source, with its archive in front of it if that is to be read.

    Raises:
        NotFoundError: there is no archive.
        InvalidArgumentError: it is of another log.
    """
    return ArchivedSource(source, named(include)) if include else source


def _has(file: ArchivedFile, stream: int, begin: int, end: int) -> bool:
    return any(
        part.stream == stream and part.begin < end and begin < part.end
        for part in file.streams
    )


def _of_stream(
    batch: pa.RecordBatch, stream: int, begin: int, end: int
) -> pa.RecordBatch:
    if stream == ALL_STREAMS:
        return batch
    ours = pc.equal(batch["stream"], stream)
    ours = pc.and_(ours, pc.greater_equal(batch["llsn"], begin))
    return batch.filter(pc.and_(ours, pc.less(batch["llsn"], end)))
