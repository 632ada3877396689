"""One log of an embedded store: append, read, trim, cursors, figures.

Order: positions are dense from 1 and every reader sees the same order. Durability: an
append that returned survives a crash of process and machine; one that raised
``StoreFailedError`` may or may not be there after reopening.
"""
# One file: the calls of one class and their contracts; what they do is elsewhere.

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from braidlog import _native
from braidlog.errors import (
    ClosedError,
    InvalidArgumentError,
    LogError,
    LostRecordsError,
    NotFoundError,
    StoreFailedError,
    TrimmedError,
)
from braidlog.names import checked_name, checked_new_name
from braidlog.store.archived import Archived, located, read_batches, read_records
from braidlog.store.arguments import (
    DurationLike,
    TimestampLike,
    checked_columns,
    checked_flag,
    checked_int,
    checked_position,
    checked_producer,
    checked_time,
    checked_timeout,
)
from braidlog.store.catalog import (
    CatalogEntry,
    LogDescription,
    LogOptions,
    LogStats,
    SegmentRange,
)
from braidlog.store.cursor import Cursor
from braidlog.store.retention import keep_bytes, lease_us, retention_of
from braidlog.store.slices import Indexed
from braidlog.suggestions import does_not_exist
from braidlog.types import HeadersLike, Producer

if TYPE_CHECKING:
    import threading
    from pathlib import Path

    import pyarrow as pa
    from typing_extensions import Buffer

    from braidlog._native import Pending, Record
    from braidlog.archive import Archive
    from braidlog.store.backend import Backend

# How often a follower looks for what another process wrote: quickly at first, then
# at a rate that costs an idle reader nothing noticeable.
POLL_MIN_S: Final = 0.0005
POLL_MAX_S: Final = 0.02


def _now_us() -> int:
    return time.time_ns() // 1000


def _who(producer: Any) -> tuple[int, int] | None:
    if producer is None:
        return None
    producer = checked_producer(producer)
    return producer.id, producer.epoch


def _refuse_holes(skip_holes: bool) -> None:
    if skip_holes:
        raise InvalidArgumentError(
            "skip_holes= cannot be used with an archive: read the archive and "
            "the log separately"
        )


class OpenStore(Protocol):
    """The store that a log is in, as the log needs it."""

    _altering: threading.Lock
    read_only: bool
    path: Path

    @property
    def closed(self) -> bool:
        """Whether it was closed."""

    def _entry_of(self, log_id: int, name: str) -> CatalogEntry: ...


class Log(Indexed, _native.Log):
    """A named log. Get one from `Store.log` or `Store.create_log`.

    Safe to use from many threads. A log is also an Arrow stream: anything that takes
    ``__arrow_c_stream__`` (Polars, pandas, DuckDB through pyarrow) reads it directly.
    """

    def __init__(self, store: OpenStore, backend: Backend, entry: CatalogEntry) -> None:
        """Bind to a stream of the store; users call `Store.log`."""
        self._store = store
        self._backend = backend
        self._entry = entry
        self._stream = entry.stream
        self._view = backend.view(entry)
        backend.lend(self)

    def __repr__(self) -> str:
        """Show the name and the range."""
        try:
            first, end, *_ = self._range()
        except LogError as error:
            return f"<Log {self.name!r}: {error.message}>"
        return f"<Log {self.name!r} {first}..{end}>"

    def _told(self, error: Exception) -> Exception:
        """Return an error of the core, which knows the number of a stream, by name."""
        if isinstance(error, NotFoundError):
            return NotFoundError(f"log {self.name!r} was deleted")
        return error

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
        """Compression and retention of the log."""
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

    def _positions(self) -> range:
        first, end, *_ = self._range()
        return range(first, end)

    # -- append ------------------------------------------------------------------

    def _appends_to(self) -> tuple[_native.Store, int]:
        return self._backend.store, self._stream  # The core asks for it.

    def _start_syncer(self) -> None:
        self._backend.start_syncer()

    def submit_many(
        self,
        values: Iterable[Buffer | None],
        *,
        keys: Iterable[Buffer | None] | None = None,
        timestamps: Iterable[TimestampLike | None] | TimestampLike | None = None,
        headers: Iterable[HeadersLike | None] | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> Pending:
        """Append many records at consecutive positions without waiting.

        ``keys``, ``timestamps`` and ``headers`` have one item per value, or one
        timestamp for all. ``result()`` waits until all records are durable and returns
        the range of positions. A crash before that may leave a prefix of the records.

        A refused call changes nothing, with one exception: more than 8 MiB (or a
        segment, or ``unsynced_bytes_max``, if that is less) is stored in pieces. If the
        log becomes full or the store fails in the middle, the earlier pieces stay, and
        a note on the error says how many records were stored, and from which position
        on.
        """
        self._start_syncer()
        return self._submit_many(
            values, keys, timestamps, headers, _who(producer), sequence
        )

    def append_many(
        self,
        values: Iterable[Buffer | None],
        *,
        keys: Iterable[Buffer | None] | None = None,
        timestamps: Iterable[TimestampLike | None] | TimestampLike | None = None,
        headers: Iterable[HeadersLike | None] | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> range:
        """Append many records at consecutive positions; durable on return.

        See `submit_many`, also for what a failed call of more than 8 MiB may leave.
        Returns the positions, half-open.
        """
        who = _who(producer)
        pending = self._submit_many(values, keys, timestamps, headers, who, sequence)
        positions: range = pending.result()
        return positions

    def _submit_many(self, *args: Any) -> Pending:
        values, keys, times, *rest = args
        if isinstance(times, datetime):
            times = checked_time(times)  # One for all; the core takes a list as it is.
        try:
            store, stream = self._backend.store, self._stream
            return store.submit_many(stream, values, keys, times, *rest)
        except NotFoundError as error:
            raise self._told(error) from None

    def submit_arrow(
        self,
        data: Any,
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> Pending:
        """Append Arrow data at consecutive positions without waiting for the disk.

        ``data`` is anything with ``__arrow_c_stream__`` or ``__arrow_c_array__`` that
        has a column ``value`` (binary or string), and optionally ``key``, ``timestamp``
        (any timestamp type, or int64 microseconds) and ``headers`` (map of string to
        binary).

        A refused call changes nothing, with one exception: record batches are stored
        one after the other, those above 8 MiB in pieces, and only the first 64 MiB of a
        stream are checked before its first batch is stored. If the log becomes full,
        the store fails or the stream breaks later, the stored records stay, and a note
        on the error says how many, and from which position on.
        """
        self._start_syncer()
        return self._submit_arrow(data, producer, sequence)

    def append_arrow(
        self,
        data: Any,
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> range:
        """Append Arrow data at consecutive positions; durable on return.

        See `submit_arrow`, also for what a failed call may leave. Returns the
        positions, half-open.
        """
        positions: range = self._submit_arrow(data, producer, sequence).result()
        return positions

    def _submit_arrow(
        self, data: Any, producer: Producer | None, sequence: int | None
    ) -> Pending:
        who = _who(producer)
        try:
            return self._backend.store.submit_arrow(self._stream, data, who, sequence)
        except NotFoundError as error:
            raise self._told(error) from None

    def next_sequence(self, producer: Producer) -> int:
        """Return the sequence that the producer must send next, 1 if it is unknown."""
        producer = checked_producer(producer)
        try:
            sequence, epoch = self._backend.store.producer(self._stream, producer.id)
        except NotFoundError as error:
            raise self._told(error) from None
        return 1 if epoch is not None and epoch < producer.epoch else sequence

    # -- read --------------------------------------------------------------------

    def get(self, position: int) -> Record:
        """Return the record at ``position``, from 1; `log[-1]` is the last one.

        Raises:
            LostRecordsError: the position is in a declared hole; see `read`.
            PositionError: the position is below 1.
            TrimmedError: the position is below ``first``.
            BeyondEndError: the position is not written yet.
        """
        return self._view.get(position)

    def read(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        key: Buffer | None = None,
        since: TimestampLike | None = None,
        until: TimestampLike | None = None,
        limit: int | None = None,
        reverse: bool = False,
        include_archive: Archived = False,
        skip_holes: bool = False,
    ) -> Iterator[Record]:
        """Iterate over records ``begin`` to ``end`` (half-open) in position order.

        The end is fixed when the iteration begins; later records are not seen. ``key``,
        ``since`` (inclusive) and ``until`` (exclusive) filter inside the core; times
        are microseconds or datetimes. ``limit`` is the largest number of records. With
        ``reverse`` the last record comes first, and ``limit`` counts from there. About
        one chunk of the log is held in memory either way. Positions do not count from
        the end here; use ``log[-10:]`` for that.

        With ``include_archive``, trimmed records come from the log's archive: the one
        that `set_archive` recorded (True), or the one at a path or URI. The read
        continues in the log at the first position that the log has, even while it is
        being trimmed. This needs the extra ``arrow``.

        A repaired log may have declared holes: positions whose records are lost. A read
        yields everything before a hole, then raises; with ``skip_holes`` it continues
        after the hole.

        Raises:
            LostRecordsError: the next position is in a declared hole.
            PositionError: ``begin`` is below 1.
            TrimmedError: ``begin`` is below ``first``, or was trimmed meanwhile (and
                the archive, if included, lacks the records too). A reverse read without
                ``begin`` ends at the first record left.
            BeyondEndError: ``begin`` is above the end.
            NotFoundError: there is no archive.
            ArchiveDamagedError: a file of the archive is gone or damaged.
        """
        reverse = checked_flag(reverse, "reverse")
        if include_archive:
            _refuse_holes(skip_holes)
            return read_records(
                self,
                include_archive,
                begin,
                end,
                key=key,
                since=since,
                until=until,
                limit=limit,
                reverse=reverse,
            )
        self._backend.refresh()
        return self._view.records(
            begin, end, key, since, until, limit, skip_holes, reverse
        )

    def __iter__(self) -> Iterator[Record]:
        """Iterate over everything that can be read now."""
        return self.read()

    def subscribe(
        self,
        begin: int | None = None,
        *,
        key: Buffer | None = None,
        timeout: DurationLike | None = None,
        skip_holes: bool = False,
    ) -> Iterator[Record]:
        """Follow the log from ``begin`` (default: its first record) for ever.

        Each record comes exactly once, in order, when it is durable. The iteration ends
        after ``timeout`` seconds without a new record; without a timeout, only when the
        store is closed. ``skip_holes`` is that of `read`.

        Raises:
            LostRecordsError: the next position is in a declared hole.
            TrimmedError: trimming overtook the reader.
            NotFoundError: the log was deleted.
            StoreFailedError: the store failed; no more records will come.
        """
        position = self.first if begin is None else checked_position(begin, "begin")
        try:
            while self.wait(position, timeout=timeout):
                end = self._view.range()[1]
                yield from self._view.records(position, end, key, skip_holes=skip_holes)
                position = end
        except StoreFailedError:
            raise
        except ClosedError:
            return  # In the middle of what had been written when the store was closed.

    def wait(self, position: int, *, timeout: DurationLike | None = None) -> bool:
        """Wait until ``position`` can be read; False if ``timeout`` seconds pass first.

        Also returns False once the store is closed. Any number of waiters can wait for
        different positions.

        Raises:
            NotFoundError: the log was deleted.
            StoreFailedError: the store failed; no more records will come.
        """
        # A daemon thread may poll on while the program ends, behind the close at exit.
        # The interpreter ends it where it is, and inside the core that is an abort.
        if self._backend.closed:
            return False
        wait = self._poll if self._store.read_only else self._view.wait
        try:
            return wait(position, checked_timeout(timeout))
        except StoreFailedError:
            raise
        except ClosedError:
            return False

    def _poll(self, position: int, timeout: float | None) -> bool:
        if timeout is not None and not timeout > 0:
            self._backend.refresh()
            return self._view.wait(position, timeout)
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = POLL_MIN_S
        while True:
            self._backend.refresh()
            # Checks the arguments, and that there still is something to wait for.
            if self._view.wait(position, 0):
                return True
            left = pause if deadline is None else deadline - time.monotonic()
            if not left > 0:
                return False
            time.sleep(min(pause, left))
            pause = min(pause * 2, POLL_MAX_S)

    def find(self, timestamp: TimestampLike) -> int | None:
        """Return the first position whose timestamp is at least ``timestamp``.

        None if there is none. ``timestamp`` is in microseconds, or a `datetime`.
        Timestamps need not increase with positions.
        """
        self._backend.refresh()
        return self._view.find(timestamp)

    def first_timestamp(self) -> int | None:
        """Return the timestamp of the first record, in microseconds.

        None if the log has no record. Lost records of a declared hole do not count. The
        call costs as much as one `get`, however long the log is. Timestamps need not
        increase with positions, so a later record may have a smaller one.

        Raises:
            CorruptionError: the first record is damaged.
            NotFoundError: the log was deleted.
        """
        position, end, *_ = self._range()
        while position < end:
            try:
                return self.get(position).timestamp
            except LostRecordsError as hole:
                position = hole.end
            except TrimmedError as error:
                if error.first <= position:
                    raise
                # Trimmed since the range was read; records may have come since, too.
                position, end, *_ = self._range()
        return None

    # -- Arrow -------------------------------------------------------------------

    def batches(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        columns: list[str] | None = None,
        include_archive: Archived = False,
        skip_holes: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """Iterate over the log as `pyarrow.RecordBatch` of about 1 MiB, without copies.

        Schema: position int64, timestamp timestamp[us, UTC], key binary, value binary,
        headers map<string, binary>. ``columns`` chooses and orders.
        ``include_archive`` and ``skip_holes`` are those of `read`.
        """
        import pyarrow as pa

        columns = checked_columns(columns)
        if include_archive:
            _refuse_holes(skip_holes)
            yield from read_batches(self, include_archive, begin, end, columns)
            return
        self._backend.refresh()
        for batch in self._view.batches(begin, end, columns, skip_holes):
            yield pa.record_batch(batch)

    def to_arrow(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        columns: list[str] | None = None,
        include_archive: Archived = False,
        skip_holes: bool = False,
    ) -> pa.Table:
        """Return the log, or positions ``begin`` to ``end`` of it, as one Arrow table.

        The table holds the log in memory; use `batches` for logs larger than that.
        """
        import pyarrow as pa

        columns = checked_columns(columns)
        self._backend.refresh()
        if include_archive:
            schema = pa.schema(self._view.batches(columns=columns))
            _refuse_holes(skip_holes)
            found = read_batches(self, include_archive, begin, end, columns)
            return pa.Table.from_batches(found, schema)
        batches = self._view.batches(begin, end, columns, skip_holes)
        # One by one: through Arrow's own stream our errors would arrive as its errors.
        return pa.Table.from_batches(map(pa.record_batch, batches), pa.schema(batches))

    def __arrow_c_stream__(self, requested_schema: Any | None = None) -> Any:
        """Export the whole log through the Arrow C stream interface."""
        self._backend.refresh()
        return self._view.batches().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        """Export the schema through the Arrow C data interface."""
        return _native.log_schema()

    # -- keeping and letting go --------------------------------------------------

    def trim(self, before: int, *, ignore_pins: bool = False) -> int:
        """Remove all records below position ``before``; return the first kept.

        The trim is durable before any file is removed. Pinning cursors hold the log at
        their position, unless ``ignore_pins`` is set. Trimming below ``first`` does
        nothing.

        Raises:
            BeyondEndError: ``before`` is beyond the end.
        """
        ignoring = checked_flag(ignore_pins, "ignore_pins")
        pinned_at = None if ignoring else _now_us()
        try:
            return self._backend.store.trim(self._stream, before, pinned_at)
        except NotFoundError as error:
            raise self._told(error) from None

    def apply_retention(self, now_us: int) -> int:
        """Trim as the log's retention says; return the first position kept."""
        first = self._range()[0]
        wish = self._retention_wish(now_us)
        return self.trim(wish) if wish > first else first

    def _retention_wish(self, now_us: int) -> int:
        first, end, *_ = self._range()
        wish = first
        if self.options.retention_ms is not None:
            oldest = now_us - self.options.retention_ms * 1000
            wish = max(wish, self.find(oldest) or end)
        if self.options.retention_bytes is not None:
            kept = keep_bytes(self.segments(), self.options.retention_bytes)
            wish = max(wish, kept or first)
        return wish

    def set_options(
        self,
        *,
        retention_ms: int | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        """Replace the log's retention; None keeps records until they are trimmed.

        ``retention_ms`` is in milliseconds, or a `timedelta`.
        """
        age = retention_of(retention_ms)
        self._alter(
            lambda old: replace(old, retention_ms=age, retention_bytes=retention_bytes)
        )

    def archive(self, location: str | os.PathLike[str] | None = None) -> Archive:
        """Open the log's archive for reading.

        That is the recorded archive, or the one at ``location``, a path or a URI.

        Raises:
            NotFoundError: no archive was recorded, or there is none at the place.
            InvalidArgumentError: it is the archive of another log.
            ArchiveDamagedError: its manifest is damaged.
        """
        from braidlog.archive import open_archive

        recorded = self._current().options.archive
        return open_archive(located(self.name, recorded, location), log_id=self.id)

    def set_archive(self, location: str | os.PathLike[str] | None) -> None:
        """Record where the log's archive is, a path or a URI; durable on return.

        The place is not checked. None removes the entry.
        """
        from braidlog.archive.place import absolute

        where = None if location is None else absolute(location)
        self._alter(lambda old: old.archived_at(where))

    def _alter(self, change: Callable[[LogOptions], LogOptions]) -> None:
        # Two who change different options at once must not undo each other.
        with self._store._altering:
            new = change(self._current().options)
            self._backend.store.alter_log(self._entry.id, new.encode())
            self._entry = self._current()

    def _cursor_rows(self) -> dict[str, tuple[int, bool, int, int]]:
        return self._current().cursors

    def _current(self) -> CatalogEntry:
        return self._store._entry_of(self._entry.id, self.name)

    def cursor(
        self, name: str, *, pin: bool = False, lease: DurationLike | None = None
    ) -> Cursor:
        """Return the named cursor; a new one begins at the first position.

        A cursor stores a reader's next position. With ``pin``, retention and trimming
        keep everything from there on. The pin ends ``lease`` seconds, or a `timedelta`,
        after the last commit (None: never), so that a dead reader does not fill the
        disk. A new cursor is durable on return. An existing one keeps its pin and
        lease; `set_cursor` changes them. If several callers create a cursor at the same
        time, one of them creates it and the others get it.
        """
        microseconds, pin = lease_us(lease), checked_flag(pin, "pin")
        name = checked_name(name, "cursor")
        if name not in self._cursor_rows():
            checked_new_name(name, "cursor")
            store = self._backend.store
            store.create_cursor(self._stream, name, pin, microseconds)
        return Cursor(self, name)

    def set_cursor(
        self,
        name: str,
        position: int,
        *,
        pin: bool = False,
        lease: DurationLike | None = None,
    ) -> Cursor:
        """Store position, pin and lease of a cursor in one step; durable on return.

        ``pin`` and ``lease`` are those of `cursor` and replace what was stored.

        Raises:
            InvalidArgumentError: the position is beyond the end of the log; nothing
                was changed.
        """
        microseconds, pin = lease_us(lease), checked_flag(pin, "pin")
        name = checked_name(name, "cursor")
        position = self._checked(position)
        if name not in self._cursor_rows():
            checked_new_name(name, "cursor")
        store = self._backend.store
        store.set_cursor(self._stream, name, position, pin, microseconds)
        return Cursor(self, name)

    def cursors(self) -> list[Cursor]:
        """Return the cursors of the log, by name."""
        return [Cursor(self, name) for name in sorted(self._cursor_rows())]

    def _checked(self, position: int) -> int:
        position = checked_int(position, "position")
        first, end, *_ = self._range()
        if not 1 <= position <= max(end, first):
            msg = f"the position of a cursor must be from 1 to {end}, got {position}"
            raise InvalidArgumentError(msg)
        return position

    def _move_cursor(self, name: str, position: int) -> None:
        self._cursor_row(name)
        self._backend.store.move_cursor(self._stream, name, self._checked(position))

    def _delete_cursor(self, name: str) -> None:
        self._backend.store.delete_cursor(self._stream, name)

    def _cursor_row(self, name: str) -> tuple[int, bool, int, int]:
        rows = self._cursor_rows()
        row = rows.get(name)
        if row is None:
            what = f"log {self.name!r}: cursor"
            raise NotFoundError(does_not_exist(what, name, rows))
        return row

    # -- figures -----------------------------------------------------------------

    def segments(self) -> list[SegmentRange]:
        """Return the segments of the log with their ranges of positions."""
        self._backend.refresh()
        ranges = [
            SegmentRange(number, begin, end, size, frames, low, high, lane > 0)
            for number, lane, begin, end, size, frames, low, high in (
                self._view.segments()
            )
        ]
        return sorted(ranges, key=lambda segment: (segment.begin, segment.number))

    def stats(self) -> LogStats:
        """Return figures of the log.

        ``bytes`` also counts trimmed records of segments that are partly kept.
        """
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
        """Return settings and state of the log."""
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
