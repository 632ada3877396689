"""What the entries of a ledger come to: a pure fold, the same for every reader.

Theory of operation: a query stores its batches one after the other. The first `Batch`
entry for the next batch decides which files it consists of; from then on all drivers
store those, whatever they staged themselves. The batch's records have sequences of the
query's producer in each stream, and these follow from the entries alone: record ``i``
of the batch in a stream has sequence ``lane.first + i``. So drivers that store a batch
at the same time, or one after the other, repeat each other's sequences, and the stream
stores each once.

Invariants: a batch is decided once, and the next only when it is done; the sequences of
a lane are dense from batch to batch in one epoch; the state depends on the entries and
their order alone. A ``first`` below 1 says that as many records of the batch were in
the log before the epoch began.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from braidlog.errors import CorruptionError
from braidlog.spark.sink.ledger.entries import (
    Batch,
    Done,
    Entry,
    FileList,
    Resume,
    StagedFile,
    Summary,
    Void,
    build,
)

QUERIES_MAX: Final = 10_000
"""Queries and named jobs that are remembered; the one idle for longest goes first."""

ONCE_MAX: Final = 1_000
"""The same for jobs without a name, which nobody can run again."""


@dataclass(slots=True)
class Lane:
    """Sequences of a query's producer in one stream."""

    epoch: int = 1
    first: int = 1
    """Sequence of the batch's first record in this stream."""
    next: int = 1
    """Sequence behind the batch's last record."""


@dataclass(slots=True)
class Query:
    """What is known of a query: its last batch, and attempts that never count."""

    producer: int = 0
    batch: int = -1
    """The last batch that was decided, -1 if none was."""
    done: bool = True
    attempt: str = ""
    since: int = 0
    end: int = 0
    staging: str = ""
    files: tuple[StagedFile, ...] = ()
    """Of the batch, until it is done; or else they are listed."""
    listed: FileList | None = None
    per_stream: tuple[tuple[int, int], ...] = ()
    """Of listed files: each stream, and how many records they have for it."""
    lanes: dict[int, Lane] = field(default_factory=dict)
    void: dict[str, int] = field(default_factory=dict)
    """Attempts that never count, and the batch that each was for."""
    once: bool = False
    touched: int = 0
    """Position of the last entry of the query."""

    def streams(self) -> list[int]:
        """Return the streams that the batch has records for."""
        return sorted(stream for stream, count in self.counts().items() if count)

    def counts(self) -> dict[int, int]:
        """Return how many records the batch has for each stream."""
        if self.listed is not None:
            return dict(self.per_stream)
        found: dict[int, int] = {}
        for file in self.files:
            found[file.stream] = found.get(file.stream, 0) + file.records
        return found

    def needs(self, batch: int, attempt: str) -> bool:
        """Tell whether the files of an attempt may still be read."""
        return not self.done and (self.batch, self.attempt) == (batch, attempt)


class LedgerState:
    """The decisions of a ledger up to one of its positions."""

    def __init__(self) -> None:
        """Begin with nothing decided."""
        self.position = 1
        """Of the next entry to apply."""
        self.queries: dict[str, Query] = {}

    def query(self, name: str) -> Query | None:
        """Return a copy of what is known of a query, None if nothing is."""
        return copy.deepcopy(self.queries.get(name))

    def apply(self, position: int, entry: Entry) -> None:
        """Take up the entry at a position; entries come in order, each once."""
        match entry:
            case Batch():
                self._decide(entry)
            case Done():
                self._finish(entry)
            case Void():
                self._void(entry)
            case Resume():
                self._resume(entry)
            case Summary():
                pass  # Says what is known here already.
        if isinstance(entry, Batch | Done | Void | Resume):
            if entry.query in self.queries:
                self.queries[entry.query].touched = position
            self._forget()
        self.position = position + 1

    # -- entries -----------------------------------------------------------------

    def _decide(self, entry: Batch) -> None:
        query = self.queries.get(entry.query) or Query()
        first_of_its_key = query.done and entry.batch > query.batch
        if not first_of_its_key or entry.attempt in query.void:
            return
        query.producer = query.producer or entry.producer
        query.batch, query.attempt, query.done = entry.batch, entry.attempt, False
        query.since, query.staging, query.once = entry.since, entry.staging, entry.once
        query.files = entry.files
        query.listed, query.per_stream = entry.listed, entry.per_stream
        # What was void for this batch cannot come any more: it has its entry.
        query.void = {each: n for each, n in query.void.items() if n > entry.batch}
        for stream, count in sorted(query.counts().items()):
            if count:
                lane = query.lanes.setdefault(stream, Lane())
                lane.first = lane.next
                lane.next += count
        self.queries[entry.query] = query

    def _finish(self, entry: Done) -> None:
        query = self.queries.get(entry.query)
        if query is not None and query.batch == entry.batch and not query.done:
            query.done, query.end, query.files = True, entry.end, ()
            query.listed, query.per_stream = None, ()

    def _void(self, entry: Void) -> None:
        query = self.queries.setdefault(entry.query, Query(once=True))
        if entry.batch > query.batch:
            query.void[entry.attempt] = entry.batch

    def _resume(self, entry: Resume) -> None:
        query = self.queries.get(entry.query)
        if query is None or query.done or query.batch != entry.batch:
            return
        lane = query.lanes.get(entry.stream)
        if lane is not None and entry.epoch == lane.epoch + 1:
            lane.epoch, lane.first = entry.epoch, 1 - entry.stored
            lane.next = lane.first + query.counts().get(entry.stream, 0)

    def _forget(self) -> None:
        for once, limit in ((True, ONCE_MAX), (False, QUERIES_MAX)):
            ranked = [
                (query.touched, name)
                for name, query in self.queries.items()
                if query.done and query.once == once
            ]
            if len(ranked) > limit:
                del self.queries[min(ranked)[1]]

    # -- summaries ---------------------------------------------------------------

    def summary(self) -> Summary:
        """Return what all entries so far come to."""
        queries = {name: asdict(query) for name, query in self.queries.items()}
        return Summary(self.position, {"queries": queries})

    @classmethod
    def of(cls, summary: Summary) -> LedgerState:
        """Return the state that a summary says.

        Raises:
            CorruptionError: it is not one of a state.
        """
        state = cls()
        try:
            state.position = summary.as_of
            state.queries = {
                str(name): _query(fields)
                for name, fields in summary.state["queries"].items()
            }
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            msg = f"a summary of the ledger cannot be decoded: {error}"
            raise CorruptionError(msg) from error
        return state


def _query(fields: Mapping[str, Any]) -> Query:
    # Numbers of streams are keys, which JSON makes strings of.
    lanes = {int(key): build(Lane, lane) for key, lane in fields["lanes"].items()}
    query: Query = build(Query, {**fields, "lanes": lanes})
    return query
