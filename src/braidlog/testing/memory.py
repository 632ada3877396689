"""The embedded log in memory, for tests of programs that use one.

`MemoryStore` and `MemoryLog` have the calls of `Store` and `Log`, with the same results
and errors, and touch no disk. `MemoryStore.reopen` stands for a restart: another store
with the same contents. Safe to use from many threads.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from braidlog import _native
from braidlog._native import Record
from braidlog.client.rows import Row
from braidlog.errors import (
    BeyondEndError,
    ClosedError,
    TrimmedError,
)
from braidlog.storage.archived import Archived, read_batches, read_records
from braidlog.storage.arguments import (
    DurationLike,
    TimestampLike,
    checked_count,
    checked_key,
    checked_position,
    checked_producer,
    checked_time,
    checked_timeout,
    optional,
)
from braidlog.storage.slices import Indexed
from braidlog.testing.contents import repeated
from braidlog.testing.kept import KeptMemoryLog
from braidlog.types import HeadersLike, Producer

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

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


class MemoryLog(KeptMemoryLog, Indexed):
    """A log in memory; see `Log` for what each call promises."""

    # -- append ------------------------------------------------------------------

    def _place(
        self, rows: list[Row], producer: Producer | None, sequence: int | None
    ) -> range:
        with self._node._changed:
            there = self._there()
            self._node._check_writer()
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
            self._node._changed.notify_all()
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
        row = self._node._rows.one(value, key, timestamp, headers)
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
        row = self._node._rows.one(value, key, timestamp, headers)
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
        rows = self._node._rows.many(values, keys, timestamps, headers)
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

        rows = self._node._rows.many(*columns_of(data))
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
        with self._node._changed:
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
        with self._node._changed:
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
        with self._node._changed:
            while not self._node.closed:
                if position < self._there().end:
                    return True
                left = _WAIT_S if deadline is None else deadline - time.monotonic()
                if left <= 0:
                    return False
                self._node._changed.wait(left)
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
