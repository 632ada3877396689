"""Cut a log into input partitions.

Theory of operation: the log names the position range and the size of each of its
segments. Ranges can overlap, because the cleaner moves records of old segments into
newer ones, so the axis of positions is first cut at all their edges. A piece is
dropped if every segment that covers it is excluded by its smallest or largest
timestamp; a piece that none covers (a writer is appending meanwhile) is kept. What is
left is joined, or cut into equal parts, to spans of about ``bytes_per_partition``, so
that cuts fall on segment edges where they can and a task opens few files.

Invariants: spans are ascending, disjoint and not empty; together they hold every
position of the bounds that a segment not excluded by its timestamps may have.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from braidlog.store.catalog import SegmentRange

BYTES_PER_TASK: Final = 64 << 20
"""About how much of a log one task of a pipeline reads."""

_TASKS_MAX: Final = 8192
"""Tasks of a stage that others follow: each of those reads something of all of them."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What the log says about one of its segments."""

    begin: int
    end: int
    bytes: int
    timestamp_min: int | None = None
    timestamp_max: int | None = None


def extents_of(segments: Iterable[SegmentRange]) -> list[Extent]:
    """Return the extents of the segments that have records."""
    return [
        Extent(each.begin, each.end, each.bytes, each.timestamp_min, each.timestamp_max)
        for each in segments
        if each.begin < each.end
    ]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is asked for: positions, and timestamps if not None; both half-open."""

    begin: int
    end: int
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A position range that one task reads, and about how many bytes it holds."""

    begin: int
    end: int
    bytes: int


def plan(
    extents: Iterable[Extent], bounds: Bounds, bytes_per_partition: int
) -> list[Span]:
    """Return the spans to read, one for each task."""
    pieces = (
        Span(begin, end, sum(_share(extent, begin, end) for extent in covering))
        for begin, end, covering in _pieces(extents, bounds)
        if not covering or any(_may_hold(extent, bounds) for extent in covering)
    )
    parts = (part for piece in pieces for part in _split(piece, bytes_per_partition))
    return list(_join(parts, bytes_per_partition))


def joined(spans: Sequence[Span], tasks_max: int = _TASKS_MAX) -> list[Span]:
    """Join neighbours, as few as it takes, to at most so many spans."""
    count = max(1, -(-len(spans) // tasks_max))
    found = []
    for at in range(0, len(spans), count):
        some = spans[at : at + count]
        size = sum(each.bytes for each in some)
        found.append(Span(some[0].begin, some[-1].end, size))
    return found


def plan_bytes(extents: Iterable[Extent], bounds: Bounds) -> int:
    """Return about how many bytes the positions of the bounds hold."""
    return sum(
        _share(extent, max(extent.begin, bounds.begin), min(extent.end, bounds.end))
        for extent in extents
        if extent.begin < bounds.end and extent.end > bounds.begin
    )


def _pieces(
    extents: Iterable[Extent], bounds: Bounds
) -> Iterator[tuple[int, int, list[Extent]]]:
    """Yield the bounds in pieces, each with the extents that cover all of it."""
    waiting = sorted(
        (e for e in extents if e.begin < bounds.end and e.end > bounds.begin),
        key=lambda extent: extent.begin,
        reverse=True,
    )
    edges = {edge for extent in waiting for edge in (extent.begin, extent.end)}
    inner = (edge for edge in edges if bounds.begin < edge < bounds.end)
    covering: list[Extent] = []
    for begin, end in pairwise([bounds.begin, *sorted(inner), bounds.end]):
        covering = [extent for extent in covering if extent.end > begin]
        while waiting and waiting[-1].begin <= begin:
            covering.append(waiting.pop())
        if begin < end:
            yield begin, end, covering


def _may_hold(extent: Extent, bounds: Bounds) -> bool:
    early = (
        bounds.since is not None
        and extent.timestamp_max is not None
        and extent.timestamp_max < bounds.since
    )
    late = (
        bounds.until is not None
        and extent.timestamp_min is not None
        and extent.timestamp_min >= bounds.until
    )
    return not early and not late


def _share(extent: Extent, begin: int, end: int) -> int:
    """Estimate the bytes of a part of an extent: records are taken as equally large."""
    return extent.bytes * (end - begin) // (extent.end - extent.begin)


def _split(span: Span, bytes_per_partition: int) -> Iterator[Span]:
    count = span.end - span.begin
    pieces = min(count, max(1, -(-span.bytes // bytes_per_partition)))
    for i in range(pieces):
        begin = span.begin + count * i // pieces
        end = span.begin + count * (i + 1) // pieces
        yield Span(begin, end, span.bytes * (end - begin) // count)


def _join(pieces: Iterable[Span], bytes_per_partition: int) -> Iterator[Span]:
    """Join neighbours while they fit; gaps left by timestamps stay gaps."""
    held: Span | None = None
    for piece in pieces:
        fits = held is not None and held.bytes + piece.bytes <= bytes_per_partition
        if held is not None and fits and held.end == piece.begin:
            held = Span(held.begin, piece.end, held.bytes + piece.bytes)
            continue
        if held is not None:
            yield held
        held = piece
    if held is not None:
        yield held
