"""What the tasks of a query read, planned from one look at a log.

Theory of operation: a look says which positions there are, at which LLSN of each stream
a position lies, and about how many bytes lie between. With ``order=stream`` each stream
is cut on its own into ranges of LLSNs; these never change, so any replica serves them.
With ``order=global`` positions are cut over all streams: a task merges the streams, and
task after task the rows come in the order of the log.

Invariants: the tasks of a plan hold every position that was asked for exactly once.
Without a bound the tasks of a stream, and with ``order=global`` all tasks, are in
order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Literal, Protocol, TypeAlias

from braidlog.spark.plan import Bounds, Extent, Span, plan
from braidlog.spark.selection import Selection, hull

__all__ = ["ALL_STREAMS", "Look", "Order", "Task", "interleaved", "plan_tasks"]

Order: TypeAlias = Literal["stream", "global"]

ALL_STREAMS = 0
"""No stream has this number."""


@dataclass(frozen=True, slots=True)
class Task:
    """What one task reads: LLSNs of a stream, or positions over all of them."""

    log: str
    """Identity of the log, so that one made anew under its name is not taken for it."""
    stream: int
    begin: int
    end: int
    turn: int = 0
    """Which replica to begin with, so that tasks spread."""


class Look(Protocol):
    """A log at one moment."""

    @property
    def log(self) -> str:
        """Identity of the log."""

    @property
    def first(self) -> int:
        """First position that can be read."""

    @property
    def end(self) -> int:
        """Position behind the last one."""

    def cut(self, position: int) -> dict[int, int]:
        """Return the first LLSN of each stream that is not before a position."""

    def extents(
        self, begin: Mapping[int, int], end: Mapping[int, int]
    ) -> dict[int, list[Extent]]:
        """Return how large the LLSNs between two cuts are, by stream."""


def plan_tasks(
    look: Look, selection: Selection, order: Order, bytes_per_partition: int
) -> list[Task]:
    """Return what to read of a log, in tasks of about so many bytes."""
    low, high = hull(selection.position)
    begin = look.first if low is None else max(low, look.first)
    end = look.end if high is None else min(high, look.end)
    if begin >= end:
        return []
    since, until = hull(selection.timestamp)
    begins, ends = look.cut(begin), look.cut(end)
    extents = look.extents(begins, ends)
    if order == "global":
        # How large the streams are says how large the log is, wherever it lies in it.
        extents = {ALL_STREAMS: _over(extents, begins, ends, begin, end)}
        begins, ends = {ALL_STREAMS: begin}, {ALL_STREAMS: end}
    spans = {
        stream: plan(
            extents.get(stream, ()),
            Bounds(begins.get(stream, 1), stop, since, until),
            bytes_per_partition,
        )
        for stream, stop in sorted(ends.items())
        if stream == ALL_STREAMS or stream in selection.stream
    }
    return interleaved(look.log, spans)


def interleaved(log: str, spans: Mapping[int, Sequence[Span]]) -> list[Task]:
    """Make tasks of spans, one of each stream in turn: Spark starts them in order.

    So what runs at a time is spread over all streams, and over their replicas.
    """
    rows: Iterable[tuple[tuple[int, Span] | None, ...]] = zip_longest(
        *([(stream, span) for span in each] for stream, each in spans.items())
    )
    return [
        Task(log, stream, span.begin, span.end, turn)
        for turn, (stream, span) in enumerate(
            pair for pair in chain.from_iterable(rows) if pair is not None
        )
    ]


def _over(
    extents: Mapping[int, list[Extent]],
    begins: Mapping[int, int],
    ends: Mapping[int, int],
    begin: int,
    end: int,
) -> list[Extent]:
    if len(ends) == 1:
        # Its LLSNs lie as dense as the positions: only shifted.
        ((stream, there),) = begins.items()
        return list(_shifted(extents[stream], begin - there))
    total = sum(extent.bytes for each in extents.values() for extent in each)
    return [Extent(begin, end, total)]


def _shifted(extents: Iterable[Extent], by: int) -> Iterator[Extent]:
    for extent in extents:
        yield Extent(
            extent.begin + by,
            extent.end + by,
            extent.bytes,
            extent.timestamp_min,
            extent.timestamp_max,
        )
