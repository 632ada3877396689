"""The embedded log in memory, for tests of programs that use one.

`MemoryStore` and `MemoryLog` have the calls of `Store` and `Log`, with the same results
and errors, and touch no disk. `MemoryStore.reopen` stands for a restart: another store
with the same contents. Safe to use from many threads.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from braidlog import _native
from braidlog._native import Record
from braidlog.client.rows import Row, Rows, size_of
from braidlog.errors import (
    BeyondEndError,
    ClosedError,
    InvalidArgumentError,
    NotFoundError,
    TrimmedError,
)
from braidlog.names import checked_name, checked_new_name
from braidlog.store.archived import Archived, located, read_batches, read_records
from braidlog.store.arguments import (
    DurationLike,
    TimestampLike,
    checked_count,
    checked_int,
    checked_key,
    checked_position,
    checked_producer,
    checked_time,
    checked_timeout,
    optional,
)
from braidlog.store.catalog import LogDescription, LogOptions, LogStats
from braidlog.store.cursor import Cursor
from braidlog.store.retention import CursorRow, lease_us, lowest_pin, retention_of
from braidlog.store.slices import Indexed
from braidlog.suggestions import does_not_exist
from braidlog.testing.contents import Contents, now_us, repeated
from braidlog.types import HeadersLike, Producer

if TYPE_CHECKING:
    import threading

    import pyarrow as pa
    from typing_extensions import Buffer

    from braidlog.archive import Archive

__all__ = ["MemoryLog", "MemoryPending"]

# Longest single wait for a condition; a wait without a timeout goes on after it.
_WAIT_S: Final = 3600.0


class MemoryPending:
    """An append that has happened already; see `Pending`."""

    def __init__(self, positions: range, result: Any) -> None:
        """Hold the result."""
        self.position = positions.start
        self.count = len(positions)
        self.group = positions.stop
        self._result = result

    def __repr__(self) -> str:
        """Show the positions."""
        return f"<MemoryPending {self.position}..{self.group}>"

    def done(self) -> bool:
        """Return whether it is durable."""
        return True

    def wait(self, timeout: DurationLike | None = None) -> bool:
        """Wait until it is durable."""
        return True

    def result(self, timeout: DurationLike | None = None) -> Any:
        """Return the position, or the range of positions."""
        return self._result


class OpenMemory(Protocol):
    """The store that a log is in, as the log needs it."""

    closed: bool
    _rows: Rows

    @property
    def _changed(self) -> threading.Condition: ...
    def _check_open(self) -> None: ...
    def _check_writer(self) -> None: ...


class MemoryLog(Indexed):
    """A log in memory; see `Log` for what each call promises."""

    def __init__(self, store: OpenMemory, name: str, contents: Contents) -> None:
        """Bind to contents; users call `MemoryStore.log`."""
        self._store = store
        self._contents = contents
        self.name = name

    def __repr__(self) -> str:
        """Show the name and the range."""
        there = self._contents
        return f"<MemoryLog {self.name!r} {there.first}..{there.end}>"

    def _there(self) -> Contents:
        self._store._check_open()
        if self._contents.deleted:
            msg = f"log {self.name!r} was deleted"
            raise NotFoundError(msg)
        return self._contents

    @property
    def id(self) -> str:
        """Identity of the log, 32 hexadecimal digits."""
        return f"{self._contents.number:032x}"

    @property
    def options(self) -> LogOptions:
        """How the log is kept."""
        return self._contents.options

    @property
    def first(self) -> int:
        """First position that can be read."""
        return self._there().first

    @property
    def end(self) -> int:
        """Next position."""
        return self._there().end

    def __len__(self) -> int:
        """Return the number of records that can be read."""
        return len(self._there().records)

    def _positions(self) -> range:
        there = self._there()
        return range(there.first, there.end)

    # -- append ------------------------------------------------------------------

    def _place(
        self, rows: list[Row], producer: Producer | None, sequence: int | None
    ) -> range:
        with self._store._changed:
            there = self._there()
            self._store._check_writer()
            stored = repeated(there, producer, sequence, len(rows))
            if stored is not None:
                return stored
            positions = range(there.end, there.end + len(rows))
            there.records += [
                Record(at, timestamp, key, value, headers)
                for at, (value, key, timestamp, headers) in zip(
                    positions, rows, strict=True
                )
            ]
            if producer is not None and sequence is not None:
                there.producers[producer.id] = producer.epoch, sequence + len(rows)
                there.placed[producer.id, producer.epoch, sequence] = positions
            self._store._changed.notify_all()
            return positions

    def submit(
        self,
        value: Buffer,
        *,
        key: Buffer | None = None,
        timestamp: TimestampLike | None = None,
        headers: HeadersLike | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> MemoryPending:
        """Append one record; see `Log.submit`."""
        row = self._store._rows.one(value, key, timestamp, headers)
        positions = self._place([row], producer, sequence)
        return MemoryPending(positions, positions.start)

    def append(
        self,
        value: Buffer,
        *,
        key: Buffer | None = None,
        timestamp: TimestampLike | None = None,
        headers: HeadersLike | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> int:
        """Append one record and return its position; see `Log.append`."""
        row = self._store._rows.one(value, key, timestamp, headers)
        return self._place([row], producer, sequence).start

    def append_many(
        self,
        values: Iterable[Buffer],
        *,
        keys: Iterable[Buffer | None] | None = None,
        timestamps: Iterable[TimestampLike | None] | TimestampLike | None = None,
        headers: Iterable[HeadersLike | None] | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> range:
        """Append many records at consecutive positions; see `Log.append_many`."""
        rows = self._store._rows.many(values, keys, timestamps, headers)
        return self._place(rows, producer, sequence)

    def submit_many(self, values: Iterable[Buffer], **options: Any) -> MemoryPending:
        """Append many records; see `Log.submit_many`."""
        positions = self.append_many(values, **options)
        return MemoryPending(positions, positions)

    def append_arrow(
        self,
        data: Any,
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> range:
        """Append Arrow data at consecutive positions; see `Log.append_arrow`."""
        from braidlog.client.arrow import columns_of

        rows = self._store._rows.many(*columns_of(data))
        return self._place(rows, producer, sequence)

    def submit_arrow(self, data: Any, **options: Any) -> MemoryPending:
        """Append Arrow data; see `Log.submit_arrow`."""
        positions = self.append_arrow(data, **options)
        return MemoryPending(positions, positions)

    def next_sequence(self, producer: Producer) -> int:
        """Return the sequence that the producer must send next, 1 if it is unknown."""
        producer = checked_producer(producer)
        epoch, sequence = self._there().producers.get(producer.id, (0, 1))
        return 1 if epoch < producer.epoch else sequence

    # -- read --------------------------------------------------------------------

    def get(self, position: int) -> Record:
        """Return the record at ``position``; see `Log.get`."""
        with self._store._changed:
            there = self._there()
            position = checked_position(position)
            if position < there.first:
                msg = f"position {position} was trimmed"
                raise TrimmedError(msg, first=there.first)
            if position >= there.end:
                msg = f"position {position} is not written yet"
                raise BeyondEndError(msg, next=there.end)
            return there.records[position - there.first]

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
    ) -> Iterator[Record]:
        """Iterate over records in position order; see `Log.read`."""
        if include_archive:
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
        with self._store._changed:
            there = self._there()
            whole = begin is None
            begin = there.first if begin is None else checked_position(begin, "begin")
            end = None if end is None else checked_count(end, "end")
            limit = None if limit is None else checked_count(limit, "limit")
            since = optional(checked_time, since)
            until = optional(checked_time, until)
            if begin < there.first:
                msg = f"position {begin} was trimmed"
                raise TrimmedError(msg, first=there.first)
            if begin > there.end:
                msg = f"position {begin} is not written yet"
                raise BeyondEndError(msg, next=there.end)
            stop = there.end if end is None else min(end, there.end)
        plain = optional(checked_key, key)
        positions: Iterable[int] = range(begin, stop)
        if reverse:
            positions = self._down(range(begin, stop), whole=whole)
        return self._records(positions, plain, since, until, limit)

    def _down(self, positions: range, *, whole: bool) -> Iterator[int]:
        for position in reversed(positions):
            if whole and position < self.first:
                return  # All of the log was asked for, and here it begins by now.
            yield position

    def _records(
        self,
        positions: Iterable[int],
        key: bytes | None,
        since: int | None,
        until: int | None,
        limit: int | None,
    ) -> Iterator[Record]:
        found = 0
        for position in positions:
            if limit is not None and found >= limit:
                return
            record = self.get(position)
            if (
                (key is None or record.key == key)
                and (since is None or record.timestamp >= since)
                and (until is None or record.timestamp < until)
            ):
                found += 1
                yield record

    def __iter__(self) -> Iterator[Record]:
        """Iterate over everything that can be read now."""
        return self.read()

    def subscribe(
        self,
        begin: int | None = None,
        *,
        key: Buffer | None = None,
        timeout: DurationLike | None = None,
    ) -> Iterator[Record]:
        """Follow the log; see `Log.subscribe`."""
        position = self.first if begin is None else checked_position(begin, "begin")
        try:
            while self.wait(position, timeout=timeout):
                end = self.end
                yield from self.read(position, end, key=key)
                position = end
        except ClosedError:
            return

    def wait(self, position: int, *, timeout: DurationLike | None = None) -> bool:
        """Wait until ``position`` can be read; see `Log.wait`."""
        timeout = checked_timeout(timeout)
        position = checked_position(position)
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._store._changed:
            while not self._store.closed:
                if position < self._there().end:
                    return True
                left = _WAIT_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return False
                self._store._changed.wait(left)
        return False

    def find(self, timestamp: TimestampLike) -> int | None:
        """Return the first position at or after a time; see `Log.find`."""
        found = next(self.read(since=checked_time(timestamp), limit=1), None)
        return None if found is None else found.position

    # -- Arrow -------------------------------------------------------------------

    def to_arrow(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        columns: list[str] | None = None,
        include_archive: Archived = False,
    ) -> pa.Table:
        """Return the log as an Arrow table; see `Log.to_arrow`."""
        import pyarrow as pa

        from braidlog.client.arrow import log_schema

        if include_archive:
            found = read_batches(self, include_archive, begin, end, columns)
            return pa.Table.from_batches(found, log_schema(columns))
        rows = [record.as_tuple() for record in self.read(begin, end)]
        schema = log_schema()
        cells = list(zip(*rows, strict=True)) or [()] * len(schema.names)
        arrays = [
            pa.array(cell, kind) for cell, kind in zip(cells, schema.types, strict=True)
        ]
        table = pa.Table.from_arrays(arrays, schema=schema)
        return table if columns is None else table.select(log_schema(columns).names)

    def batches(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        columns: list[str] | None = None,
        include_archive: Archived = False,
    ) -> Iterator[pa.RecordBatch]:
        """Iterate over the log as record batches; see `Log.batches`."""
        table = self.to_arrow(
            begin, end, columns=columns, include_archive=include_archive
        )
        yield from table.to_batches()

    def __arrow_c_stream__(self, requested_schema: Any | None = None) -> Any:
        """Export the whole log through the Arrow C stream interface."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> Any:
        """Export the schema through the Arrow C data interface."""
        return _native.log_schema()

    # -- keeping -----------------------------------------------------------------

    def trim(self, before: int, *, ignore_pins: bool = False) -> int:
        """Let every record below position ``before`` go; see `Log.trim`."""
        with self._store._changed:
            there = self._there()
            self._store._check_writer()
            before = checked_count(before, "before")
            if before > there.end:
                msg = f"position {before} is not written yet"
                raise BeyondEndError(msg, next=there.end)
            pin = None if ignore_pins else lowest_pin(there.cursors, now_us())
            limit = before if pin is None else min(before, pin)
            if limit > there.first:
                del there.records[: limit - there.first]
                there.first = limit
            return there.first

    def set_options(
        self,
        *,
        retention_ms: int | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        """Replace the log's retention, which nothing applies in memory."""
        there = self._there()
        self._store._check_writer()
        old = there.options
        there.options = LogOptions(
            old.compression, retention_of(retention_ms), retention_bytes, old.unknown
        )

    def archive(self, location: str | os.PathLike[str] | None = None) -> Archive:
        """Open the log's archive to read; see `Log.archive`."""
        from braidlog.archive import open_archive

        recorded = self.options.archive
        return open_archive(located(self.name, recorded, location), log_id=self.id)

    def set_archive(self, location: str | os.PathLike[str] | None) -> None:
        """Record where the log's archive is; see `Log.set_archive`."""
        from braidlog.archive.place import absolute

        there = self._there()
        self._store._check_writer()
        where = None if location is None else absolute(location)
        there.options = there.options.archived_at(where)

    def cursor(
        self, name: str, *, pin: bool = False, lease: DurationLike | None = None
    ) -> Cursor:
        """Return the named cursor; see `Log.cursor`."""
        name, microseconds = checked_name(name, "cursor"), lease_us(lease)
        with self._store._changed:
            if name not in self._there().cursors:
                self._set_cursor(name, self.first, pin, microseconds)
        return Cursor(self, name)

    def set_cursor(
        self,
        name: str,
        position: int,
        *,
        pin: bool = False,
        lease: DurationLike | None = None,
    ) -> Cursor:
        """Store all of a cursor; see `Log.set_cursor`."""
        name, microseconds = checked_name(name, "cursor"), lease_us(lease)
        self._set_cursor(name, position, pin, microseconds)
        return Cursor(self, name)

    def cursors(self) -> list[Cursor]:
        """Return the cursors of the log, by name."""
        return [Cursor(self, name) for name in sorted(self._there().cursors)]

    def _cursor_row(self, name: str) -> CursorRow:
        cursors = self._there().cursors
        row = cursors.get(name)
        if row is None:
            what = f"log {self.name!r}: cursor"
            raise NotFoundError(does_not_exist(what, name, cursors))
        return row

    def _set_cursor(self, name: str, position: int, pin: bool, lease: int) -> None:
        position = checked_int(position, "position")
        with self._store._changed:
            there = self._there()
            self._store._check_writer()
            if not 1 <= position <= there.end:
                end = there.end
                msg = (
                    f"the position of a cursor must be from 1 to {end}, got {position}"
                )
                raise InvalidArgumentError(msg)
            if name not in there.cursors:
                checked_new_name(name, "cursor")
            there.cursors[name] = position, pin, now_us(), lease

    def _move_cursor(self, name: str, position: int) -> None:
        with self._store._changed:
            _, pin, _, lease = self._cursor_row(name)
            self._set_cursor(name, position, pin, lease)

    def _delete_cursor(self, name: str) -> None:
        with self._store._changed:
            self._store._check_writer()
            self._cursor_row(name)
            del self._there().cursors[name]

    # -- figures -----------------------------------------------------------------

    def stats(self) -> LogStats:
        """Return figures of the log; bytes as the records are counted."""
        with self._store._changed:
            there = self._there()
            times = [record.timestamp for record in there.records]
            size = sum(
                size_of((r.value, r.key, r.timestamp, r.headers)) for r in there.records
            )
            return LogStats(
                first=there.first,
                end=there.end,
                records=len(there.records),
                bytes=size,
                segments=0,
                timestamp_min=min(times, default=None),
                timestamp_max=max(times, default=None),
            )

    def describe(self) -> LogDescription:
        """Return settings and state of the log."""
        stats = self.stats()
        options = self.options
        return LogDescription(
            name=self.name,
            id=self.id,
            stream=self._contents.number,
            created=self._contents.created,
            epoch=1,
            first=stats.first,
            end=stats.end,
            records=stats.records,
            bytes=stats.bytes,
            segments=0,
            compression=options.compression,
            retention_ms=options.retention_ms,
            retention_bytes=options.retention_bytes,
            cursors=len(self._contents.cursors),
        )
