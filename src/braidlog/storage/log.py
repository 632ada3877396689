"""One log of an embedded store: append and read; `KeptLog` has trimming and cursors.

Order: positions are dense from 1 and every reader sees the same order. Durability: an
append that returned survives a crash of process and machine; one that raised
``StoreFailedError`` may or may not be there after reopening.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from braidlog import _native
from braidlog.errors import (
    ClosedError,
    InvalidArgumentError,
    NotFoundError,
    StoreFailedError,
)
from braidlog.storage.archived import Archived, read_batches, read_records
from braidlog.storage.arguments import (
    DurationLike,
    TimestampLike,
    checked_position,
    checked_producer,
    checked_time,
    checked_timeout,
)
from braidlog.storage.keeping import KeptLog
from braidlog.storage.slices import Indexed
from braidlog.types import HeadersLike, Producer

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from braidlog._native import Pending, Record

__all__ = ["Log"]

# How often a follower looks for what another process wrote: quickly at first, then
# at a rate that costs an idle reader nothing noticeable.
POLL_MIN_S: Final = 0.0005
POLL_MAX_S: Final = 0.02


def _who(producer: Any) -> tuple[int, int] | None:
    if producer is None:
        return None
    producer = checked_producer(producer)
    return producer.id, producer.epoch


def _refuse_holes(skip_holes: bool) -> None:
    if skip_holes:
        msg = "an archive has no holes: read it and the log apart to skip those"
        raise InvalidArgumentError(msg)


class Log(KeptLog, Indexed, _native.Log):
    """A named log. Get one from `Node.log` or `Node.create_log`.

    Safe to use from many threads. Also an Arrow stream: anything that takes
    ``__arrow_c_stream__`` (Polars, pandas, DuckDB through pyarrow) reads it directly.
    """

    # -- append ------------------------------------------------------------------

    def _appends_to(self) -> tuple[_native.Store, int]:
        return self._backend.store, self._stream

    def _start_syncer(self) -> None:
        self._node._start_syncer()

    def submit_many(
        self,
        values: Iterable[Buffer],
        *,
        keys: Iterable[Buffer | None] | None = None,
        timestamps: Iterable[TimestampLike | None] | TimestampLike | None = None,
        headers: Iterable[HeadersLike | None] | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> Pending:
        """Append many records at consecutive positions without waiting.

        ``keys``, ``timestamps`` and ``headers`` have one item per value; one timestamp
        may stand for all. ``result()`` gives the range of positions. After a crash a
        prefix of the records may be there.

        What is refused changes nothing. One exception: more than 8 MiB (or than a
        segment, or ``unsynced_bytes_max``, if that is less) is placed in pieces. If
        the log becomes full or the store fails in the middle, the pieces before it
        stay, and a note of the error says how many records from which position on.
        """
        self._start_syncer()
        return self._submit_many(
            values, keys, timestamps, headers, _who(producer), sequence
        )

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
        """Append many records at consecutive positions; durable on return.

        See `submit_many`, also for what may stay of more than 8 MiB when it fails.
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
        """Append Arrow data at consecutive positions without waiting.

        ``data`` is anything with ``__arrow_c_stream__`` or ``__arrow_c_array__``, with
        a column ``value`` (binary or string), and optionally ``key``, ``timestamp``
        (any timestamp type, or int64 microseconds) and ``headers`` (map of string to
        binary). Records are not touched one by one.

        What is refused changes nothing. Two exceptions: record batches are placed one
        after the other, those above 8 MiB in pieces, and only the first 64 MiB of a
        stream are checked before its beginning is placed. If the log becomes full, the
        store fails or the stream breaks behind them, what was placed stays, and a note
        of the error says how many records from which position on.
        """
        self._node._start_syncer()
        return self._submit_arrow(data, producer, sequence)

    def append_arrow(
        self,
        data: Any,
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> range:
        """Append Arrow data at consecutive positions; durable on return.

        See `submit_arrow`, also for what may stay when it fails. Returns the positions,
        half-open.
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
            LostRecordsError: it is in a declared hole; see `read`.
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

        The end is fixed when the iteration begins: records appended later are not seen.
        ``key``, ``since`` (inclusive) and ``until`` (exclusive) filter inside the core;
        times are microseconds or datetimes. ``limit`` ends it after so many records.
        With ``reverse`` the last record comes first, and ``limit`` counts from there.
        Holds about one chunk of the log in memory either way. Positions are never
        counted from the end here; ``log[-10:]`` is.

        With ``include_archive`` what was trimmed comes from the log's archive: the one
        that `set_archive` recorded (True), or the one at a path or URI. It goes on in
        the log at the first position that the log has, also while it is trimmed. It
        needs the extra ``arrow``.

        A log that was repaired may have declared holes: positions of which the records
        are lost. A read raises there, when it has given what comes before; with
        ``skip_holes`` it goes on behind them.

        Raises:
            LostRecordsError: the next position is in a declared hole.
            PositionError: ``begin`` is below 1.
            TrimmedError: ``begin`` is below ``first``, or was trimmed meanwhile; with
                the archive, that lacks the records too. A reverse read without
                ``begin`` ends at what is the first record when it gets there.
            BeyondEndError: ``begin`` is above the end.
            NotFoundError: there is no archive.
            ArchiveDamagedError: a file of the archive is gone or damaged.
        """
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

        Each record is seen exactly once, in order, when it is durable. Ends after
        ``timeout`` seconds without a new one; without a timeout it ends only when the
        store is closed. ``skip_holes`` is that of `read`.

        Raises:
            LostRecordsError: the next position is in a declared hole.
            TrimmedError: the reader was overtaken by trimming.
            NotFoundError: the log was deleted.
            StoreFailedError: nothing more will come.
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

        False as well once the store is closed. Any number of waiters may wait for
        different positions.

        Raises:
            NotFoundError: the log was deleted.
            StoreFailedError: nothing more will come.
        """
        # A daemon thread may poll on while the program ends, behind the close at exit.
        # The interpreter ends it where it is, and inside the core that is an abort.
        if self._backend.closed:
            return False
        wait = self._poll if self._node.read_only else self._view.wait
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
