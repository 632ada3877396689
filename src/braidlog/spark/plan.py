"""Cut a log into input partitions.

Theory of operation: the log names the position range and the size of each of its
segments. Segments that the bounds exclude, by position or by their smallest and largest
timestamp, are dropped; what is left is cut into spans of about ``bytes_per_partition``.
Cuts fall on segment edges where they can, so that a task opens few files; a segment
larger than that is cut into equal position ranges. Positions beyond the last known
segment (a writer is appending meanwhile) join the last span.

Invariants: spans are ascending, disjoint and not empty; together they hold every
position of the bounds whose segment was not excluded by its timestamps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

__all__ = ["Bounds", "Extent", "Span", "plan"]


@dataclass(frozen=True, slots=True)
class Extent:
    """What the log says about one of its segments."""

    begin: int
    end: int
    bytes: int
    timestamp_min: int | None = None
    timestamp_max: int | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is asked for: positions, and timestamps if not None; both half-open."""

    begin: int
    end: int
    since: int | None = None
    until: int | None = None

    def within(self, other: Bounds) -> Bounds:
        """Return what both ask for."""
        return Bounds(
            max(self.begin, other.begin),
            min(self.end, other.end),
            _tighter(max, self.since, other.since),
            _tighter(min, self.until, other.until),
        )


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
    wanted = (
        clipped
        for extent in _covering(extents, bounds)
        if _may_hold(extent, bounds) and (clipped := _clip(extent, bounds))
    )
    pieces = (piece for span in wanted for piece in _split(span, bytes_per_partition))
    return list(_join(pieces, bytes_per_partition))


def _tighter(
    choose: Callable[[int, int], int], one: int | None, other: int | None
) -> int | None:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


def _covering(extents: Iterable[Extent], bounds: Bounds) -> Iterator[Extent]:
    """Add extents of unknown content where the log names none."""
    at = bounds.begin
    for extent in sorted(extents, key=lambda extent: extent.begin):
        if extent.begin > at:
            yield Extent(at, extent.begin, 0)
        yield extent
        at = max(at, extent.end)
    if at < bounds.end:
        yield Extent(at, bounds.end, 0)


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


def _clip(extent: Extent, bounds: Bounds) -> Span | None:
    begin, end = max(extent.begin, bounds.begin), min(extent.end, bounds.end)
    if begin >= end:
        return None
    share = extent.bytes * (end - begin) // (extent.end - extent.begin)
    return Span(begin, end, share)


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
