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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Literal, TypeAlias

from braidlog.sources.plan import Bounds, Span, plan
from braidlog.sources.source import ALL_STREAMS, Look
from braidlog.spark.source.selection import Selection, hull

Order: TypeAlias = Literal["stream", "global"]


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
    if order == "global":
        extents = {ALL_STREAMS: look.by_position(begin, end)}
        begins, ends = {ALL_STREAMS: begin}, {ALL_STREAMS: end}
    else:
        begins, ends = look.cut(begin), look.cut(end)
        extents = look.extents(begins, ends)
    spans = {
        stream: plan(
            extents.get(stream, ()),
            Bounds(begins.get(stream, 1), stop, since, until),
            bytes_per_partition,
        )
        for stream, stop in sorted(ends.items())
        if stream == ALL_STREAMS or stream in selection.stream
    }
    return interleaved(look.id, spans)


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
