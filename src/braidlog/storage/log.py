"""One log of an embedded node: append, read, trim, cursors.

Order: positions are dense from 1 and every reader sees the same order. Durability: an
append that returned survives a crash of process and machine; one that raised
``StoreFailedError`` may or may not be there after reopening.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from braidlog import _native
from braidlog.errors import (
    ClosedError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
    StoreFailedError,
)
from braidlog.storage.catalog import (
    CatalogEntry,
    LogDescription,
    LogOptions,
    LogStats,
    SegmentRange,
)
from braidlog.storage.cursor import Cursor
from braidlog.storage.retention import keep_bytes, lowest_pin
from braidlog.types import Producer, Timestamp

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from braidlog._native import Pending, Record
    from braidlog.storage.backend import Backend
    from braidlog.storage.node import Node

__all__ = ["Log"]

# How often a follower looks for what another process wrote: quickly at first, then
# at a rate that costs an idle reader nothing noticeable.
_POLL_MIN_S: Final = 0.0005
_POLL_MAX_S: Final = 0.02
# About thirty years; longer is for ever, which is None.
_LEASE_MAX_S: Final = 1_000_000_000


def _now_us() -> int:
    return time.time_ns() // 1000


def _who(producer: Any) -> tuple[int, int] | None:
    if producer is None:
        return None
    if not isinstance(producer, Producer):
        msg = f"producer must be a Producer, not {producer!r}"
        raise TypeError(msg)
    return producer.id, producer.epoch


def _lease_us(lease: float | None) -> int:
    if lease is None:
        return 0
    if not 0 < lease <= _LEASE_MAX_S:
        msg = f"lease must be above 0 and at most {_LEASE_MAX_S} seconds, got {lease}"
        raise InvalidArgumentError(msg)
    return max(1, int(lease * 1_000_000))


class Log:
    """A named log. Get one from `Node.log` or `Node.create_log`.

    Safe to use from many threads. Also an Arrow stream: anything that takes
    ``__arrow_c_stream__`` (Polars, pandas, DuckDB through pyarrow) reads it directly.
    """

    def __init__(self, node: Node, backend: Backend, entry: CatalogEntry) -> None:
        """Bind to a stream of the node; users call `Node.log`."""
        self._node = node
        self._backend = backend
        self._entry = entry
        self._stream = entry.stream
        self._view = backend.view(entry.stream)

    def __repr__(self) -> str:
        """Show the name and the range."""
        try:
            first, end, *_ = self._range()
        except LogError as error:
            return f"<Log {self.name!r}: {error.message}>"
        return f"<Log {self.name!r} {first}..{end}>"

    @property
    def name(self) -> str:
        """Name of the log."""
        return self._entry.name

    @property
    def id(self) -> str:
        """Random identity of the log, 32 hexadecimal digits; never used again."""
        return f"{self._entry.id:032x}"

    @property
    def options(self) -> LogOptions:
        """How the log is stored and kept."""
        return self._entry.options

    @property
    def first(self) -> int:
        """First position that can be read (low watermark)."""
        self._backend.refresh()
        return self._view.range()[0]

    @property
    def end(self) -> int:
        """Next position: one past the last durable record."""
        self._backend.refresh()
        return self._view.range()[1]

    def __len__(self) -> int:
        """Return the number of records that can be read."""
        first, end, *_ = self._range()
        return end - first

    def _range(self) -> tuple[int, int, int, int]:
        self._backend.refresh()
        return self._view.range()

    # -- append ------------------------------------------------------------------

    def append(
        self,
        value: Buffer,
        *,
        key: Buffer | None = None,
        timestamp: Timestamp | None = None,
        headers: Iterable[tuple[str, Buffer]] | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> int:
        """Append one record and return its position once it is durable.

        Concurrent appends share one sync. With ``producer`` and ``sequence`` a repeat
        returns the original position. A record without timestamp gets the time of the
        call, in microseconds.

        Raises:
            LogFullError: the node's bound is reached; trim, then retry.
            TooLargeError: the record exceeds 16 MiB or a quarter of a segment.
            SequenceGapError: ``sequence`` is not the next one.
            FencedError: a newer epoch of the producer is in charge.
            StoreFailedError: a write or sync failed; whether the record survives shows
                when the directory is opened again.
            ReadOnlyError: the node was opened read-only.
        """
        return self._backend.store.append(
            self._stream, value, key, timestamp, headers, _who(producer), sequence
        )

    def submit(
        self,
        value: Buffer,
        *,
        key: Buffer | None = None,
        timestamp: Timestamp | None = None,
        headers: Iterable[tuple[str, Buffer]] | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> Pending:
        """Append one record without waiting; its position is known at once.

        The record is durable when ``result()`` returns. Records become durable in the
        order of positions. Waits only when too many bytes are on their way. Raises what
        `append` raises, durability errors from ``result()``.
        """
        self._node._start_syncer()
        return self._backend.store.submit(
            self._stream, value, key, timestamp, headers, _who(producer), sequence
        )

    def submit_many(
        self,
        values: Iterable[Buffer],
        *,
        keys: Iterable[Buffer | None] | None = None,
        timestamps: Iterable[Timestamp | None] | Timestamp | None = None,
        headers: Iterable[Iterable[tuple[str, Buffer]] | None] | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> Pending:
        """Append many records at consecutive positions without waiting.

        ``keys``, ``timestamps`` and ``headers`` have one item per value; one timestamp
        may stand for all. ``result()`` gives the range of positions. After a crash a
        prefix of the records may be there.
        """
        self._node._start_syncer()
        return self._submit_many(
            values, keys, timestamps, headers, _who(producer), sequence
        )

    def append_many(
        self,
        values: Iterable[Buffer],
        *,
        keys: Iterable[Buffer | None] | None = None,
        timestamps: Iterable[Timestamp | None] | Timestamp | None = None,
        headers: Iterable[Iterable[tuple[str, Buffer]] | None] | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> range:
        """Append many records at consecutive positions; durable on return.

        See `submit_many`. Returns the positions, half-open.
        """
        who = _who(producer)
        pending = self._submit_many(values, keys, timestamps, headers, who, sequence)
        positions: range = pending.result()
        return positions

    def _submit_many(self, *args: Any) -> Pending:
        return self._backend.store.submit_many(self._stream, *args)

    def submit_arrow(
        self,
        data: Any,
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> Pending:
        """Append Arrow data at consecutive positions without waiting.

        ``data`` is anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``, with
        a column ``value`` (binary or string), and optionally ``key``, ``timestamp``
        (any timestamp type, or int64 microseconds) and ``headers`` (map of string to
        binary). Records are not touched one by one.

        What is refused changes nothing. Only of a stream of more than 64 MiB the
        beginning may be there already; the error then has a note that says how much.
        """
        self._node._start_syncer()
        return self._backend.store.submit_arrow(
            self._stream, data, _who(producer), sequence
        )

    def append_arrow(
        self,
        data: Any,
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> range:
        """Append Arrow data at consecutive positions; durable on return.

        See `submit_arrow`. Returns the positions, half-open.
        """
        pending = self._backend.store.submit_arrow(
            self._stream, data, _who(producer), sequence
        )
        positions: range = pending.result()
        return positions

    def next_sequence(self, producer: Producer) -> int:
        """Return the sequence that the producer must send next, 1 if it is unknown."""
        sequence, epoch = self._backend.store.producer(self._stream, producer.id)
        return 1 if epoch is not None and epoch < producer.epoch else sequence

    # -- read --------------------------------------------------------------------

    def get(self, position: int) -> Record:
        """Return the record at ``position``.

        Raises:
            TrimmedError: the position is below ``first``.
            BeyondEndError: the position is not written yet.
        """
        self._backend.refresh()
        return self._view.get(position)

    __getitem__ = get

    def read(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        key: Buffer | None = None,
        since: Timestamp | None = None,
        until: Timestamp | None = None,
        limit: int | None = None,
    ) -> Iterator[Record]:
        """Iterate over records ``start`` to ``end`` (half-open) in position order.

        The end is fixed when the iteration begins: records appended later are not seen.
        ``key``, ``since`` (inclusive) and ``until`` (exclusive, microseconds) filter
        inside the core. Holds about one chunk of the log in memory.

        Raises:
            TrimmedError: ``start`` is below ``first``, or was trimmed meanwhile.
            BeyondEndError: ``start`` is above the end.
        """
        self._backend.refresh()
        return self._view.records(start, end, key, since, until, limit)

    def __iter__(self) -> Iterator[Record]:
        """Iterate over everything that can be read now."""
        return self.read()

    def subscribe(
        self,
        start: int | None = None,
        *,
        key: Buffer | None = None,
        timeout: float | None = None,
    ) -> Iterator[Record]:
        """Follow the log from ``start`` (default: its first record) for ever.

        Each record is seen exactly once, in order, when it is durable. Ends after
        ``timeout`` seconds without a new one; without a timeout it ends only when the
        node is closed.

        Raises:
            TrimmedError: the reader was overtaken by trimming.
            NotFoundError: the log was deleted.
            StoreFailedError: nothing more will come.
        """
        position = self.first if start is None else start
        try:
            while self.wait(position, timeout=timeout):
                end = self._view.range()[1]
                yield from self._view.records(position, end, key)
                position = end
        except StoreFailedError:
            raise
        except ClosedError:
            return  # In the middle of what had been written when the node was closed.

    def wait(self, position: int, *, timeout: float | None = None) -> bool:
        """Wait until ``position`` can be read; False if ``timeout`` seconds pass first.

        False as well once the node is closed. Any number of waiters may wait for
        different positions.

        Raises:
            NotFoundError: the log was deleted.
            StoreFailedError: nothing more will come.
        """
        wait = self._poll if self._node.read_only else self._view.wait
        try:
            return wait(position, timeout)
        except StoreFailedError:
            raise
        except ClosedError:
            return False

    def _poll(self, position: int, timeout: float | None) -> bool:
        if timeout is not None and not timeout > 0:
            self._backend.refresh()
            return self._view.wait(position, timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = _POLL_MIN_S
        while True:
            self._backend.refresh()
            # Checks the arguments, and that there still is something to wait for.
            if self._view.wait(position, 0):
                return True
            left = pause if deadline is None else deadline - time.monotonic()
            if not left > 0:
                return False
            time.sleep(min(pause, left))
            pause = min(pause * 2, _POLL_MAX_S)

    def find(self, timestamp: Timestamp) -> int | None:
        """Return the first position whose timestamp is at least ``timestamp``, if any.

        Timestamps need not rise with positions.
        """
        self._backend.refresh()
        return self._view.find(timestamp)

    # -- Arrow -------------------------------------------------------------------

    def batches(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: list[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Iterate over the log as `pyarrow.RecordBatch` of about 1 MiB, without copies.

        Schema: position int64, timestamp timestamp[us, UTC], key binary, value binary,
        headers map<string, binary>. ``columns`` chooses and orders.
        """
        import pyarrow as pa

        self._backend.refresh()
        for batch in self._view.batches(start, end, columns):
            yield pa.record_batch(batch)

    def to_arrow(
        self,
        start: int | None = None,
        end: int | None = None,
        *,
        columns: list[str] | None = None,
    ) -> pa.Table:
        """Return the log, or positions ``start`` to ``end`` of it, as one Arrow table.

        The table holds the log in memory; use `batches` for logs larger than that.
        """
        import pyarrow as pa

        self._backend.refresh()
        return pa.table(self._view.batches(start, end, columns))

    def __arrow_c_stream__(self, requested_schema: Any | None = None) -> Any:
        """Export the whole log through the Arrow C stream interface."""
        self._backend.refresh()
        return self._view.batches().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        """Export the schema through the Arrow C data interface."""
        return _native.log_schema()

    # -- keeping and letting go --------------------------------------------------

    def trim(self, before: int, *, ignore_pins: bool = False) -> int:
        """Let every record below position ``before`` go; return the first one kept.

        Durable before any file goes. Pinning cursors hold the log at their position
        unless ``ignore_pins``. Trimming below ``first`` does nothing.

        Raises:
            BeyondEndError: ``before`` is beyond the end.
        """
        pin = None if ignore_pins else lowest_pin(self._cursor_rows(), _now_us())
        limit = before if pin is None else min(before, pin)
        return self._backend.store.trim(self._stream, limit)

    def apply_retention(self, now_us: int) -> int:
        """Trim what the log's retention lets go of; return the first position kept."""
        first, end, *_ = self._range()
        wish = first
        if self.options.retention_ms is not None:
            oldest = now_us - self.options.retention_ms * 1000
            wish = max(wish, self.find(oldest) or end)
        if self.options.retention_bytes is not None:
            kept = keep_bytes(self.segments(), self.options.retention_bytes)
            wish = max(wish, kept or first)
        return self.trim(wish) if wish > first else first

    def set_options(
        self, *, retention_ms: int | None = None, retention_bytes: int | None = None
    ) -> None:
        """Replace the log's retention; None keeps records until they are trimmed."""
        old = self._entry.options
        new = LogOptions(old.compression, retention_ms, retention_bytes, old.unknown)
        self._backend.store.alter_log(self._entry.id, new.encode())
        self._entry = self._current()

    def _cursor_rows(self) -> dict[str, tuple[int, bool, int, int]]:
        return self._current().cursors

    def _current(self) -> CatalogEntry:
        return self._node._entry_of(self._entry.id, self.name)

    def cursor(
        self, name: str, *, pin: bool = False, lease: float | None = None
    ) -> Cursor:
        """Return the named cursor, creating it at the first position if it is new.

        A cursor stores a reader's next position. With ``pin`` retention and trimming
        keep what it has not read; ``lease`` seconds after its last commit a pin no
        longer holds (None: for ever), so that a dead reader need not fill the disk.
        """
        lease_us = _lease_us(lease)
        row = self._cursor_rows().get(name)
        if row is None:
            self._backend.store.set_cursor(
                self._stream, name, self.first, pin, lease_us
            )
        return Cursor(self, name)

    def cursors(self) -> list[Cursor]:
        """Return the cursors of the log, by name."""
        return [Cursor(self, name) for name in sorted(self._cursor_rows())]

    def _set_cursor(self, name: str, position: int, pin: bool, lease: int) -> None:
        first, end, *_ = self._range()
        if not 1 <= position <= max(end, first):
            msg = f"cursor position {position} is not in 1..{end}"
            raise InvalidArgumentError(msg)
        self._backend.store.set_cursor(self._stream, name, position, pin, lease)

    def _delete_cursor(self, name: str) -> None:
        self._backend.store.delete_cursor(self._stream, name)

    def _cursor_row(self, name: str) -> tuple[int, bool, int, int]:
        row = self._cursor_rows().get(name)
        if row is None:
            msg = f"log {self.name!r} has no cursor {name!r}"
            raise NotFoundError(msg)
        return row

    # -- figures -----------------------------------------------------------------

    def segments(self) -> list[SegmentRange]:
        """Return where the log is stored, by position."""
        self._backend.refresh()
        ranges = [
            SegmentRange(number, begin, end, size, frames, low, high, lane > 0)
            for number, lane, begin, end, size, frames, low, high in (
                self._view.segments()
            )
        ]
        return sorted(ranges, key=lambda segment: (segment.begin, segment.number))

    def stats(self) -> LogStats:
        """Return figures of the log; bytes count segments that are only partly kept."""
        segments = self.segments()
        first, end, *_ = self._view.range()
        return LogStats(
            first=first,
            end=end,
            records=end - first,
            bytes=sum(segment.bytes for segment in segments),
            segments=len({segment.number for segment in segments}),
            timestamp_min=min((s.timestamp_min for s in segments), default=None),
            timestamp_max=max((s.timestamp_max for s in segments), default=None),
        )

    def describe(self) -> LogDescription:
        """Return what there is to know of the log."""
        stats = self.stats()
        entry = self._current()
        return LogDescription(
            name=self.name,
            id=self.id,
            stream=self._stream,
            created=entry.created,
            epoch=entry.epoch,
            first=stats.first,
            end=stats.end,
            records=stats.records,
            bytes=stats.bytes,
            segments=stats.segments,
            compression=entry.options.compression,
            retention_ms=entry.options.retention_ms,
            retention_bytes=entry.options.retention_bytes,
            cursors=len(entry.cursors),
        )
