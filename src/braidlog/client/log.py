"""A log of a cluster, with the calls of the embedded log."""
# One file: the calls of one class and their contracts; what they do is elsewhere.

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Sequence,
)
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from braidlog.client.append.log_appender import LogAppender
from braidlog.client.append.writer import AsyncLogWriter
from braidlog.client.batches import BatchCodec
from braidlog.client.connection.cluster import Cluster
from braidlog.client.connection.routing import Routes, replicas_there
from braidlog.client.cursor_store import CursorStore
from braidlog.client.description import ClusterLogDescription
from braidlog.client.read.archived import ArchivedReading
from braidlog.client.read.log_reader import LogReader, matches
from braidlog.client.read.scan import AsyncScan
from braidlog.errors import (
    BeyondEndError,
    ClosedError,
    DeadlineError,
    FencedError,
    InvalidArgumentError,
    LogError,
    NotReadyError,
    RemoteProtocolError,
    StoreFailedError,
    TrimmedError,
)
from braidlog.names import checked_name, checked_new_name
from braidlog.store.archived import located
from braidlog.store.arguments import (
    DurationLike,
    TimestampLike,
    checked_count,
    checked_flag,
    checked_int,
    checked_key,
    checked_position,
    checked_producer,
    checked_time,
    checked_timeout,
    checked_values,
    optional,
)
from braidlog.store.catalog import LogOptions
from braidlog.store.cursor import AsyncCursor
from braidlog.store.retention import lease_us, retention_of
from braidlog.store.slices import AsyncIndexed
from braidlog.store.threads import in_thread
from braidlog.types import Compression, HeadersLike, Producer
from braidlog.wire import commands, results
from braidlog.wire.messages import Acquire, LogInfo, LogKind

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from braidlog._native import Record
    from braidlog.archive import Archive
    from braidlog.store.archived import Archived


class Unchanged(Enum):
    """Says that a setting stays as it is, where None means something."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED


class AsyncClusterLog(AsyncIndexed):
    """A log of a cluster. Get one from `AsyncClient.log` or `AsyncClient.create_log`.

    The calls are those of `AsyncLog`. A position is a GLSN: dense over all streams of
    the log, the same for every reader. Appends of one client with the same key keep
    their order. Appends without a key are spread over the streams: an append that
    starts after another was acknowledged is ordered after it. No other order is
    guaranteed.

    ``timeout`` bounds an append including its retries. After it, `DeadlineError` says
    in ``outcome`` whether the record may still be stored. Cancelling an append only
    stops the wait: a record that was sent may still be stored.
    """

    def __init__(self, cluster: Cluster, info: LogInfo, codec: BatchCodec) -> None:
        """Bind to a log; users call `AsyncClient.log`."""
        self._cluster = cluster
        self._id = info.log
        self._codec = codec
        self._name = info.name
        self._appender = LogAppender(cluster, info.log, codec, self._stored)
        self._reader = LogReader(cluster, info.log, codec, self)
        self._cursor_store = CursorStore(cluster, info.log, info.name, self.refresh)

    def __repr__(self) -> str:
        """Show the name."""
        return f"<ClusterLog {self._name!r}>"

    def _info(self) -> LogInfo:
        return self._cluster.routes.log(self._id)

    async def _stored(self, stream: int, since: int) -> dict[tuple[Producer, int], int]:
        """Return where the batches of a stream are, from a position on, by origin."""
        scan = AsyncScan(self._cluster, self._info(), self._codec)
        return await scan.origins(stream, since)

    def _close(self, error: LogError | None = None) -> None:
        self._appender.close(error)

    @property
    def id(self) -> str:
        """Random identity of the log, 32 hexadecimal digits; never used again."""
        return self._id.hex()

    @property
    def name(self) -> str:
        """Name of the log, as this client knows it."""
        with contextlib.suppress(LogError):
            return self._info().name
        return self._name

    @property
    def options(self) -> LogOptions:
        """Retention and other options of the log, as far as this client knows."""
        return LogOptions.decode_or_default(self._info().options)

    @property
    def first(self) -> int:
        """First position that can be read, as far as this client knows."""
        return max(1, self._info().trim)

    @property
    def end(self) -> int:
        """Next position, as far as this client knows; `refresh` asks."""
        return max(self._appender.end, self._info().high_watermark + 1)

    async def refresh(self) -> range:
        """Ask the cluster; return the positions that can be read now."""
        await self._cluster.linearize(self._id)
        return range(self.first, self.end)

    async def _positions(self) -> range:
        return await self.refresh()

    # -- append ------------------------------------------------------------------

    def submit(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        timestamp: TimestampLike | None = None,
        headers: HeadersLike | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> asyncio.Future[int]:
        """Append one record; the future returns its position once it is durable.

        Raises:
            NotReadyError: ``outstanding_bytes_max`` bytes are not acknowledged yet.
        """
        appender = self._appender
        plain = headers is None and timestamp is None
        if plain and producer is None and sequence is None:
            entry = appender.plain(value, key)
            if entry is not None:
                return entry.waiter
        self._cluster.check_open()
        row, size = appender.rows.sized(value, key, timestamp, headers)
        entry = appender.begin(row, size, producer, sequence, None)
        if entry is None:
            raise appender.no_room()
        return entry.waiter

    async def append(
        self,
        value: Buffer | None,
        *,
        key: Buffer | None = None,
        timestamp: TimestampLike | None = None,
        headers: HeadersLike | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
        timeout: DurationLike | None = None,  # noqa: ASYNC109
    ) -> int:
        """Append one record and return its position once it is durable.

        The value may be None, which `compact` takes for the deletion of the key. The
        record is stored exactly once, even if nodes fail. A ``producer`` of your
        own extends that across restarts of your program; all of its records go to one
        stream.

        Raises:
            DeadlineError: not acknowledged after ``timeout`` seconds.
            TooLargeError: the record is over its limit.
            NotFoundError: the log was deleted.
            OlderNodesError: a value is null, and some node is of a version that cannot
                store that.
        """
        appender = self._appender
        entry = None
        # Most are like this, and each call of a function costs what this does.
        plain = headers is None and timestamp is None and timeout is None
        if plain and producer is None and sequence is None:
            entry = appender.plain(value, key)
        if entry is None:
            self._cluster.check_open()
            row, size = appender.rows.sized(value, key, timestamp, headers)
            within = None if timeout is None else checked_timeout(timeout)
            entry = appender.begin(row, size, producer, sequence, within)
            if entry is None:
                entry = await appender.begin_later(
                    row, size, producer, sequence, within
                )
        try:
            return await entry.waiter
        except asyncio.CancelledError:
            appender.withdraw(entry)
            raise

    async def append_many(
        self,
        values: Iterable[Buffer | None],
        *,
        keys: Iterable[Buffer | None] | None = None,
        timestamps: Iterable[TimestampLike | None] | TimestampLike | None = None,
        headers: Iterable[HeadersLike | None] | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
        timeout: DurationLike | None = None,  # noqa: ASYNC109
    ) -> Sequence[int]:
        """Append many records and return their positions, in the order of ``values``.

        The result is a range if the positions are consecutive, which is certain if the
        records fit one batch (``batch_bytes_max``) and have keys of one stream or none.
        If the call fails in the middle, stored records stay, and a note on the error
        says how many.
        """
        plain = keys is None and headers is None
        line = None
        if plain and timestamps is None and timeout is None:
            line = self._appender.keyless if producer is None else None
        if line is not None and sequence is None:
            entry = line.append_many(values)
            if entry is not None:
                first = await self._appender.position(entry)
                return range(first, first + entry.count)
        self._cluster.check_open()
        values = checked_values(
            values, keys=keys, timestamps=timestamps, headers=headers
        )
        within = checked_timeout(timeout)
        if plain and (timestamps is None or isinstance(timestamps, int)):
            done = await self._appender.append_plain(
                values, timestamps, producer, sequence, within
            )
            if done is not None:
                return done
        rows = self._appender.rows.many(values, keys, timestamps, headers)
        return await self._appender.append_many(rows, producer, sequence, within)

    async def append_arrow(
        self,
        data: Any,
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
        timeout: DurationLike | None = None,  # noqa: ASYNC109
    ) -> Sequence[int]:
        """Append Arrow data; return the positions once all records are durable.

        ``data`` has the columns that `Log.submit_arrow` takes. Order, positions and a
        failure in the middle are as with `append_many`.
        """
        self._cluster.check_open()
        within = checked_timeout(timeout)
        from braidlog.client.arrow import columns_of

        values, keys, timestamps, headers = await in_thread(columns_of, data)
        rows = self._appender.rows.many(values, keys, timestamps, headers)
        return await self._appender.append_many(rows, producer, sequence, within)

    async def next_sequence(self, producer: Producer) -> int:
        """Return the sequence that the producer must send next, 1 if it is unknown."""
        self._cluster.check_open()
        return await self._appender.next_sequence(checked_producer(producer))

    # -- ownership ---------------------------------------------------------------

    async def acquire(
        self,
        name: str,
        *,
        ttl: DurationLike | None = None,
        expected: int | None = None,
        force: bool = False,
    ) -> AsyncLogWriter:
        """Become the only writer of this shard; durable on return.

        From here on appends without the writer's epoch are refused, and those of
        earlier writers for good: none comes behind the writer's `end`.

        Args:
            name: who writes, for others to see.
            ttl: seconds without a word after which others may take over; None: never.
            expected: the latest epoch, which is taken over.
            force: take over whoever owns the log.

        Raises:
            FencedError: another writer, `owner`, has it; `current` is the epoch.
            InvalidArgumentError: the log is no shard, or the name or ``ttl`` is wrong.
            DeadlineError: the outcome is not known.
        """
        info = self._require_shard()
        within = None if ttl is None else checked_timeout(ttl)
        ttl_ms = 0 if within is None else max(1, int(within * 1000))
        if expected is not None:
            expected = checked_count(expected, "expected")
        message = Acquire(info.streams[0].stream, name, ttl_ms, expected, bool(force))
        compression = self.options.compression
        return await AsyncLogWriter.acquired(
            self._cluster, self._id, message, self._appender, self._codec, compression
        )

    def _require_shard(self) -> LogInfo:
        info = self._info()
        if info.kind is not LogKind.SHARD:
            msg = f"log {info.name!r} is no shard: it has no owner"
            raise InvalidArgumentError(msg)
        return info

    async def owner(self) -> tuple[str, int]:
        """Return the writer that owns this shard ("" if nobody does), and its epoch.

        As of some moment after the call. The epoch is the last one that there was.

        Raises:
            InvalidArgumentError: the log is no shard.
        """
        self._require_shard()
        end = await self._cluster.shard_end(self._id)
        return end.owner, end.epoch

    # -- read --------------------------------------------------------------------

    async def get(self, position: int) -> Record:
        """Return the record at ``position``, from 1; ``await log[-1]`` is the last one.

        Raises:
            PositionError: the position is below 1.
            TrimmedError: the position is below ``first``.
            BeyondEndError: the position is not written yet.
        """
        position = checked_position(position)
        async for chunk in self._read_chunks(position, position + 1):
            return chunk[0]
        raise BeyondEndError(f"position {position} is not written yet", next=self.end)

    async def read(
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
    ) -> AsyncIterator[Record]:
        """Iterate over records ``begin`` to ``end`` (half-open) in position order.

        The end is fixed when the iteration begins. The client applies the filters
        ``key``, ``since`` (inclusive) and ``until`` (exclusive; microseconds or
        datetimes). With ``reverse`` the last record comes first, and ``limit`` counts
        from there; about 2 MiB of the log are held in memory. With ``include_archive``,
        trimmed records come from the log's archive, which the client reads itself; see
        `Log.read`.

        Raises:
            PositionError: ``begin`` is below 1.
            TrimmedError: ``begin`` is below ``first``, or was trimmed meanwhile (and
                the archive, if included, lacks the records too). A reverse read without
                ``begin`` ends at the first record left.
            BeyondEndError: ``begin`` is above the end.
            NotFoundError: there is no archive.
            ArchiveDamagedError: a file of the archive is gone or damaged.
        """
        chunks = self._read_chunks(
            begin,
            end,
            key=key,
            since=since,
            until=until,
            limit=limit,
            reverse=reverse,
            include_archive=include_archive,
        )
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                for record in chunk:
                    yield record

    async def _read_chunks(
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
    ) -> AsyncGenerator[list[Record], None]:
        choice = (
            optional(checked_key, key),
            optional(checked_time, since),
            optional(checked_time, until),
        )
        left = None if limit is None else checked_count(limit, "limit")
        reverse = checked_flag(reverse, "reverse")
        counted = self._reader.counted_back if reverse else self._reader.counted
        if include_archive:
            reading = ArchivedReading(self, include_archive)
            await reading.open(begin, end)
            chunks = reading.records(choice, counted, reverse=reverse)
        else:
            whole = begin is None
            begin, stop = await self._reader.bounds(begin, end)
            if reverse and whole:
                begins_with_log = self._reader.counted_back(
                    begin, stop, choice, whole=True
                )
                chunks = _without_places(begins_with_log)
            else:
                chunks = _without_places(counted(begin, stop, choice))
        if left == 0:
            return
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                yield chunk if left is None else chunk[:left]
                if left is not None and (left := left - len(chunk)) <= 0:
                    return

    def __aiter__(self) -> AsyncIterator[Record]:
        """Iterate over everything that can be read now."""
        return self.read()

    async def wait(self, position: int, *, timeout: DurationLike | None = None) -> bool:  # noqa: ASYNC109
        """Wait until ``position`` can be read; False if ``timeout`` seconds pass first.

        Also returns False once the client is closed.
        """
        timeout = checked_timeout(timeout)
        position = checked_position(position)
        return await self._reader.wait(position, timeout)

    async def subscribe(
        self,
        begin: int | None = None,
        *,
        key: Buffer | None = None,
        timeout: DurationLike | None = None,  # noqa: ASYNC109
    ) -> AsyncIterator[Record]:
        """Follow the log from ``begin`` (default: its first record) for ever.

        Each record comes exactly once, in order, when it is acknowledged, even if nodes
        fail meanwhile. The iteration ends after ``timeout`` seconds without a new
        record; without a timeout, only when the client is closed.

        Raises:
            TrimmedError: trimming overtook the reader.
            NotFoundError: the log was deleted.
        """
        chunks = self._subscribe_chunks(begin, key=key, timeout=timeout)
        async with contextlib.aclosing(chunks):
            async for chunk in chunks:
                for record in chunk:
                    yield record

    async def _subscribe_chunks(
        self,
        begin: int | None = None,
        *,
        key: Buffer | None = None,
        timeout: DurationLike | None = None,  # noqa: ASYNC109
    ) -> AsyncGenerator[list[Record], None]:
        plain = optional(checked_key, key)
        spans = self._reader.follow(begin, timeout)
        try:
            async with contextlib.aclosing(spans):
                async for span in spans:
                    records = self._reader.records(span)
                    yield [r for r in records if matches(r, plain, None, None)]
        except StoreFailedError:
            raise
        except ClosedError:
            return

    async def find(self, timestamp: TimestampLike) -> int | None:
        """Return the first position whose timestamp is at least ``timestamp``.

        None if there is none. Reads from the first record on, because timestamps need
        not increase with positions.
        """
        since = checked_time(timestamp)
        async for chunk in self._read_chunks(since=since, limit=1):
            if chunk:
                return chunk[0].position
        return None

    async def first_timestamp(
        self,
        *,
        timeout: DurationLike | None = None,  # noqa: ASYNC109
    ) -> int | None:
        """Return the timestamp of the first record, in microseconds.

        None if the log has no record. The call costs as much as one `get`, however long
        the log is. Without a ``timeout`` it waits for a replica of the record's stream,
        as every read does.

        Raises:
            DeadlineError: the record was not read after ``timeout`` seconds.
            CorruptionError: all replicas of the record are damaged.
            NotFoundError: the log was deleted.
        """
        within = checked_timeout(timeout)
        try:
            async with asyncio.timeout(within):
                return await self._first_timestamp()
        except TimeoutError as error:
            if isinstance(error, LogError) or within is None:
                raise
        msg = f"the first record of log {self.name!r} was not read in {within:g} s"
        late = DeadlineError(msg)
        late.hint = "`braidlog cluster status` shows which replicas are missing"
        raise late

    async def _first_timestamp(self) -> int | None:
        there = await self.refresh()
        while there:
            try:
                return (await self.get(there.start)).timestamp
            except TrimmedError as error:
                if error.first <= there.start:
                    raise
                # Trimmed since the range was read; records may have come since, too.
                there = await self.refresh()
        return None

    # -- Arrow -------------------------------------------------------------------

    async def batches(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        columns: list[str] | None = None,
        include_archive: Archived = False,
    ) -> AsyncIterator[pa.RecordBatch]:
        """Iterate over the log as `pyarrow.RecordBatch`, one for each batch stored.

        ``include_archive`` is that of `read`.
        """
        chunks = self._batch_chunks(
            begin, end, columns=columns, include_archive=include_archive
        )
        async with contextlib.aclosing(chunks):
            async for (batch,) in chunks:
                yield batch

    async def _batch_chunks(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        columns: list[str] | None = None,
        include_archive: Archived = False,
    ) -> AsyncGenerator[list[pa.RecordBatch], None]:
        from braidlog.client.arrow import log_schema

        names = log_schema(columns).names  # Refuses columns before anything is read.
        if include_archive:
            reading = ArchivedReading(self, include_archive)
            await reading.open(begin, end)
            batches = reading.batches(names, self._reader.rows)
        else:
            batches = self._reader.rows(*await self._reader.bounds(begin, end), names)
        async with contextlib.aclosing(batches):
            async for batch in batches:
                yield [batch]

    async def to_arrow(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        columns: list[str] | None = None,
        include_archive: Archived = False,
    ) -> pa.Table:
        """Return positions ``begin`` to ``end`` as one Arrow table, held in memory."""
        import pyarrow as pa

        from braidlog.client.arrow import log_schema

        found = self.batches(
            begin, end, columns=columns, include_archive=include_archive
        )
        batches = [each async for each in found]
        return pa.Table.from_batches(batches, log_schema(columns))

    # -- keeping -----------------------------------------------------------------

    async def trim(self, before: int, *, ignore_pins: bool = False) -> int:
        """Remove records below ``before``, as far as no pin holds them.

        The trim is durable on return and holds on every replica. Returns the first
        position that is kept.

        Raises:
            BeyondEndError: ``before`` is above the end.
        """
        before = checked_count(before, "before")
        there = await self.refresh()
        if before > there.stop:
            msg = f"position {before} is not written yet"
            raise BeyondEndError(msg, next=there.stop)
        now = self._cluster.settings.clock()  # For leaders before they had their own.
        command = commands.Trim(self._id, max(1, before), now, ignore_pins)
        await self._cluster.told(self._id)
        result = await self._cluster.execute(command)
        if isinstance(result, results.Trimmed):
            return max(1, result.first)
        await self._cluster.linearize()
        return self.first

    async def set_options(
        self,
        *,
        retention_ms: int | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        """Replace the log's retention; None keeps records until they are trimmed.

        ``retention_ms`` is in milliseconds, or a `timedelta`.
        """
        age = retention_of(retention_ms)

        def change(old: LogOptions) -> LogOptions:
            return LogOptions(old.compression, age, retention_bytes, old.unknown)

        await self._alter(change)

    async def set_replication(
        self,
        *,
        replication: int | None = None,
        min_replicas: int | None = None,
        allow_missing: bool = False,
    ) -> None:
        """Change the replicas of each stream, and how many it needs for appends.

        None leaves a number unchanged. The change is durable on return; replicas are
        then added or removed one at a time. Lowering ``min_replicas`` lets streams
        resume that waited for more. More replicas than nodes are refused, unless
        ``allow_missing`` is set: then new nodes get them.

        Raises:
            InvalidArgumentError: ``min_replicas`` is not from 1 to ``replication``, or
                there are too few nodes; nothing was changed.
        """
        command = commands.AlterLog(
            self._id,
            replication=replication,
            min_replicas=min_replicas,
            allow_missing=allow_missing,
        )
        await self._cluster.execute(command)

    async def alter(
        self,
        *,
        name: str | None = None,
        replication: int | None = None,
        min_replicas: int | None = None,
        compression: Compression | None = None,
        retention_ms: int | timedelta | Unchanged | None = UNCHANGED,
        retention_bytes: int | Unchanged | None = UNCHANGED,
        allow_missing: bool = False,
        expect: int | None = None,
    ) -> int:
        """Change settings of the log, all in one step; return their new revision.

        What is left out stays. A new name holds for everybody at once; a new
        compression is for batches that are written from then on. The other settings are
        those of `set_options` and `set_replication`. With ``expect``, settings of
        another revision are not changed: two administrators cannot undo one another.

        Raises:
            FencedError: the revision is another one.
            AlreadyExistsError: another log has this name.
            InvalidArgumentError: a setting cannot be one; nothing was changed.
            OlderNodesError: with ``expect``, some node is of a version without it.
        """
        if name is not None:
            name = checked_new_name(name, "log")

        def change(old: LogOptions) -> LogOptions:
            age, size = old.retention_ms, old.retention_bytes
            if not isinstance(retention_ms, Unchanged):
                age = retention_of(retention_ms)
            if not isinstance(retention_bytes, Unchanged):
                size = retention_bytes
            kept = compression or old.compression
            return LogOptions(kept, age, size, old.unknown)

        await self._alter(
            change,
            name=name,
            replication=replication,
            min_replicas=min_replicas,
            allow_missing=allow_missing,
            expected=expect,
        )
        return self._info().revision

    async def set_streams(
        self, streams: int, *, expect: int | None = None
    ) -> tuple[int, ...]:
        """Change over how many streams records are spread; return these streams.

        Works while the log is written and read: positions go on, no append fails, and
        the records of one key keep their order. Removed streams take no appends any
        more; they are read until their last record is trimmed. Streams that the log was
        created with stay open for producers of your own. With ``expect``, settings of
        another revision are not changed.

        Raises:
            InvalidArgumentError: ``streams`` is not from 1 to 1024.
            FencedError: the revision is another one.
            OlderNodesError: some node is of a version that cannot do this.
            UnavailableError: too few nodes for the replicas of a new stream are up.
            TooLargeError: there are too many streams, with removed ones.
        """
        streams = checked_int(streams, "streams")
        command = commands.SetStreams(self._id, streams, expect)
        result = await self._cluster.execute(command)
        if not isinstance(result, results.Created):
            msg = f"{type(result).__name__} is no answer to SetStreams"
            raise RemoteProtocolError(msg)
        return result.streams

    async def _alter(
        self, change: Callable[[LogOptions], LogOptions], **settings: Any
    ) -> None:
        """Change the options, also if another program changes others of them."""
        while True:
            await self._cluster.linearize()
            known, old = self._info().options, self.options
            new = change(old)
            command = commands.AlterLog(
                self._id,
                # They may be of a version that wrote them in another way.
                options=None if new == old else new.encode(),
                known=None if new == old else known,
                **settings,
            )
            try:
                await self._cluster.execute(command)
            except FencedError:
                revision = settings.get("expected")
                if revision is not None and revision != self._info().revision:
                    raise
                continue  # They were changed meanwhile: whoever did that got on.
            return

    async def archive(self, location: str | os.PathLike[str] | None = None) -> Archive:
        """Open the log's archive to read; see `Log.archive`."""
        from braidlog.archive import open_archive

        if location is None:
            await self._cluster.linearize()
        place = located(self.name, self.options.archive, location)
        return await in_thread(open_archive, place, log_id=self.id)

    async def set_archive(self, location: str | os.PathLike[str] | None) -> None:
        """Record where the log's archive is; see `Log.set_archive`."""
        from braidlog.archive.place import absolute

        where = None if location is None else absolute(location)
        await self._alter(lambda old: old.archived_at(where))

    async def describe(self) -> ClusterLogDescription:
        """Return settings and state of the log."""
        there = await self.refresh()
        # The leader knows which replicas are in sync.
        routes = Routes(await self._cluster.judged())
        info = routes.log(self._id)
        options = self.options
        return ClusterLogDescription(
            name=info.name,
            id=info.log.hex(),
            created=info.created,
            first=there.start,
            end=there.stop,
            records=len(there),
            replication=info.replication,
            min_replicas=info.min_replicas,
            compression=options.compression,
            retention_ms=options.retention_ms,
            retention_bytes=options.retention_bytes,
            streams=info.streams,
            kind=info.kind.name.lower(),
            replicas_missing=sum(
                max(0, info.replication - replicas_there(each, routes.nodes))
                for each in info.streams
            ),
            revision=info.revision,
            key_streams=_known_key_streams(routes, self._id),
            removed=tuple(routes.removed(self._id)),
        )

    # -- cursors -----------------------------------------------------------------

    async def cursor(
        self, name: str, *, pin: bool = False, lease: DurationLike | None = None
    ) -> AsyncCursor:
        """Return the named cursor; a new one begins at the first position."""
        name, us = checked_name(name, "cursor"), lease_us(lease)
        for row in await self._cursor_store.rows():
            if row.name == name:
                return AsyncCursor(self._cursor_store, row)
        checked_new_name(name, "cursor")
        # Another program may create it, and move it on, before this one does.
        await self._cursor_store.set(
            name, self.first, pin, us, commands.CursorChange.CREATE
        )
        return AsyncCursor(
            self._cursor_store, await self._cursor_store._read_cursor(name)
        )

    async def set_cursor(
        self,
        name: str,
        position: int,
        *,
        pin: bool = False,
        lease: DurationLike | None = None,
    ) -> AsyncCursor:
        """Store position, pin and lease of a cursor in one step; durable on return.

        Raises:
            InvalidArgumentError: the position is beyond the end of the log.
        """
        name, us = checked_name(name, "cursor"), lease_us(lease)
        try:
            checked_new_name(name, "cursor")
        except InvalidArgumentError:
            if all(row.name != name for row in await self._cursor_store.rows()):
                raise
        row = await self._cursor_store.set(name, position, pin, us)
        return AsyncCursor(self._cursor_store, row)

    async def cursors(self) -> list[AsyncCursor]:
        """Return the cursors of the log, by name."""
        rows = sorted(await self._cursor_store.rows(), key=lambda row: row.name)
        return [AsyncCursor(self._cursor_store, row) for row in rows]


async def _without_places(
    counted: AsyncGenerator[tuple[list[Record], int], None],
) -> AsyncGenerator[list[Record], None]:
    async with contextlib.aclosing(counted):
        async for chunk, _ in counted:
            yield chunk


def _known_key_streams(routes: Routes, log: bytes) -> tuple[int, ...]:
    """Return the streams for keys; none while the options of the log are unreadable."""
    try:
        return routes.key_streams(log)
    except (InvalidArgumentError, NotReadyError):
        return ()
