"""The contract of a log that is read from wherever it is.

Theory of operation: a source gives looks at its log. A look pins where the log begins
and ends, at which LLSN of each stream a position lies, and about how many bytes lie
between. With that many tasks are planned, each of which opens the source again and
reads its own range: LLSNs of one stream, or positions over all of them. Both name the
same records for ever.

All calls block. Each task, and each thread, opens a source of its own.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from braidlog.closable import Closable
from braidlog.errors import BeyondEndError, InvalidArgumentError, TrimmedError
from braidlog.sources.plan import Bounds, Extent, Span, plan, plan_bytes

if TYPE_CHECKING:
    import pyarrow as pa

    from braidlog._native import Record
    from braidlog.archive import Archive

ALL_STREAMS: Final = 0
"""No stream has this number."""

_PARTS: Final = 16
"""Parts that a log of several streams is cut into, at most, to estimate bytes."""


class Look(ABC):
    """A log at one moment."""

    id: str
    """Random identity of the log; empty where it is not known."""
    first: int
    """First position that can be read."""
    end: int
    """Position behind the last one."""

    @abstractmethod
    def cut(self, position: int) -> dict[int, int]:
        """Return the first LLSN of each stream that is not before a position."""

    @abstractmethod
    def extents(
        self, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> dict[int, list[Extent]]:
        """Return how large the LLSNs between two cuts are, by stream.

        Extents may reach beyond the cuts: a plan takes of them what it asks for.
        """

    def by_position(self, begin: int, end: int, parts: int = 1) -> list[Extent]:
        """Return how large the positions from ``begin`` to ``end`` are.

        A log of several streams is measured in so many ``parts``, because records in
        one part of it may be larger than elsewhere.
        """
        found: dict[Extent, None] = {}
        step = max(1, -(-(end - begin) // parts))
        lows = self.cut(begin)
        for start in range(begin, end, step):
            stop = min(end, start + step)
            highs = self.cut(stop)
            extents = self.extents(lows, highs)
            if len(highs) == 1:
                # Its LLSNs lie as dense as the positions: only shifted. A segment that
                # reaches into several parts comes once.
                ((stream, low),) = lows.items()
                found |= dict.fromkeys(_shifted(extents.get(stream, ()), start - low))
            else:
                size = sum(
                    plan_bytes(each, Bounds(lows.get(stream, 1), highs[stream]))
                    for stream, each in extents.items()
                )
                found[Extent(start, stop, size)] = None
            lows = highs
        return list(found)


def _shifted(extents: Iterable[Extent], by: int) -> Iterator[Extent]:
    for extent in extents:
        yield Extent(
            extent.begin + by,
            extent.end + by,
            extent.bytes,
            extent.timestamp_min,
            extent.timestamp_max,
        )


class LogSource(Closable, ABC):
    """A log that is open for reading; a context manager."""

    name: str
    """What a person calls it."""
    gaps: bool = False
    """Whether records may be missing in what `records` gives."""

    @property
    @abstractmethod
    def id(self) -> str:
        """Random identity of the log; empty where it is not known."""

    @abstractmethod
    def look(self) -> Look:
        """Return the log as it is now.

        Raises:
            NotFoundError: there is no such log.
        """

    def ranges(
        self, until: int | None, bytes_per_task: int, *, ahead: int = 0
    ) -> list[Span]:
        """Cut the positions that can be read now, up to ``until``, into tasks.

        And so many positions ``ahead`` of it, as far as they are there.

        Raises:
            BeyondEndError: the log ends before ``until``.
            TrimmedError: it begins behind ``until``.
        """
        look = self.look()
        first, end = look.first, look.end
        if until is not None and until >= end:
            msg = f"the log ends at {end - 1}, before the requested position {until}"
            raise BeyondEndError(msg, next=end)
        if until is not None and until < first:
            msg = f"the log begins at {first}, after the requested position {until}"
            raise TrimmedError(msg, first=first)
        bounds = Bounds(first, end if until is None else min(end, until + 1 + ahead))
        extents = look.by_position(bounds.begin, bounds.end, _PARTS)
        return plan(extents, bounds, bytes_per_task)

    @abstractmethod
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
        """Yield positions, or LLSNs of a ``stream``, as record batches, in order.

        ``columns`` are those of an archive (`braidlog.archive.rows.COLUMNS`), so
        ``stream`` and ``llsn`` too. What has no record between ``since`` and ``until``
        (microseconds) may be left out; of the rest all records come. ``turn`` says
        which replica to begin with, so that many readers spread.

        Raises:
            TrimmedError: it was trimmed, at the latest while it was read.
            NotFoundError: the log was deleted.
        """

    @abstractmethod
    def records(self, begin: int | None, end: int | None = None) -> Iterator[Record]:
        """Yield the records from ``begin`` up to ``end``, or to the last durable one.

        Without ``begin`` from the first that can be read; none if ``begin`` is behind
        the last.

        Raises:
            TrimmedError: ``begin`` is no longer in the log.
        """

    def archive(self, location: str | os.PathLike[str] | None) -> Archive:
        """Open the archive at a location; None is the recorded one.

        Raises:
            NotFoundError: nobody recorded one, or it is not there.
            InvalidArgumentError: it is of another log.
        """
        raise InvalidArgumentError(
            "directories of stopped nodes do not record where the archive of "
            "their log is: read archives of running logs"
        )

    @abstractmethod
    def close(self) -> None:
        """Let go of it. Idempotent."""
