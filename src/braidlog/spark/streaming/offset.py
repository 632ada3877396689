"""How far a streaming query came: positions per stream, and the plan of its last batch.

Theory of operation: Spark stores an offset before a batch runs, and after a crash asks
for the partitions between the last two again. So an offset holds all that these depend
on: the exclusive end per stream (a committed cut, so ``position`` says the same of the
whole log), where the batch begins if that is not where the one before ended (the log
was trimmed up to there, or it is the first batch), and how many records a task reads.
The first offset says only a position, which has to be the same whenever Spark asks.

A stream that an offset does not name came after it: all of its records lie behind.

Invariants: `tasks_between` is a function of its arguments alone. Batches that follow
one another hold each position once, except those that `lost` counts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from braidlog.errors import InvalidArgumentError, NewerFormatError
from braidlog.sources.plan import Span
from braidlog.sources.source import ALL_STREAMS
from braidlog.spark.source.selection import Range
from braidlog.spark.source.tasks import Order, Task, interleaved

_VERSION: Final = 1
_FIRST: Final = 1


@dataclass(frozen=True, slots=True)
class Offset:
    """What comes next, and what the batch before it was."""

    position: int
    log: str = ""
    streams: Mapping[int, int] = field(default_factory=dict)
    """First LLSN that is not read, by stream."""
    first: int = _FIRST
    firsts: Mapping[int, int] = field(default_factory=dict)
    """Where the batch begins at the earliest: as a position, and by stream."""
    rows: Mapping[int, int] = field(default_factory=dict)
    """Records of a task, by stream, or for `ALL_STREAMS` if the order is global."""
    order: Order = "stream"
    lost: int = 0
    """Positions that were trimmed before the query read them."""

    def to_json(self) -> dict[str, Any]:
        """Return what Spark stores."""
        return {
            "version": _VERSION,
            "log": self.log,
            "position": self.position,
            "streams": _texts(self.streams),
            "first": self.first,
            "firsts": _texts(self.firsts),
            "rows": _texts(self.rows),
            "order": self.order,
            "lost": self.lost,
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Offset:
        """Return what Spark stored.

        Raises:
            NewerFormatError: a newer release wrote it.
            InvalidArgumentError: it is none of this source.
        """
        version = stored.get("version")
        if isinstance(version, int) and version > _VERSION:
            raise NewerFormatError(
                f"the checkpoint has offsets of version {version}, which this "
                "version cannot read: upgrade Braidlog"
            )
        try:
            return cls(
                stored["position"],
                stored["log"],
                _numbers(stored["streams"]),
                stored["first"],
                _numbers(stored["firsts"]),
                _numbers(stored["rows"]),
                stored["order"],
                stored["lost"],
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InvalidArgumentError(
                "the checkpoint has an offset that was not written by a Braidlog "
                f"source: {stored}"
            ) from error


def _texts(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(stream): number for stream, number in sorted(numbers.items())}


def _numbers(texts: Mapping[str, int]) -> dict[int, int]:
    return {int(stream): number for stream, number in texts.items()}


def tasks_between(start: Offset, end: Offset, streams: Range[int]) -> list[Task]:
    """Return what the batch from ``start`` to ``end`` reads."""
    if end.order == "global":
        ends: Mapping[int, int] = {ALL_STREAMS: end.position}
        # Where the first batch begins was decided when it was planned: 'from' may be
        # another by now.
        before = start.position if start.log else _FIRST
        begins = {ALL_STREAMS: max(before, end.first)}
    else:
        ends = {
            stream: llsn for stream, llsn in end.streams.items() if stream in streams
        }
        begins = {
            stream: max(
                start.streams.get(stream, _FIRST), end.firsts.get(stream, _FIRST)
            )
            for stream in ends
        }
    spans = {
        stream: _parts(begins[stream], stop, end.rows.get(stream, stop))
        for stream, stop in sorted(ends.items())
    }
    return interleaved(end.log, spans)


def _parts(begin: int, end: int, rows: int) -> list[Span]:
    if begin >= end:
        return []
    count = -(-(end - begin) // max(1, rows))
    edges = [begin + (end - begin) * i // count for i in range(count + 1)]
    return [Span(low, high, 0) for low, high in pairwise(edges)]


def lag(source: Mapping[str, Any]) -> dict[int, int]:
    """Return how many records of each stream a query has still to read.

    ``source`` is one of the ``sources`` in the progress of a streaming query, with
    ``endOffset`` and ``latestOffset``, as Spark gives it to listeners.
    """
    ends = []
    for name in ("endOffset", "latestOffset"):
        found = source.get(name)
        found = json.loads(found) if isinstance(found, str) else found
        ends.append(_numbers((found or {}).get("streams", {})))
    read, latest = ends
    return {
        stream: max(0, end - read.get(stream, _FIRST)) for stream, end in latest.items()
    }
