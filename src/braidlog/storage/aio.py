"""The embedded log for asyncio, over the same native store.

An append is submitted at once and its future is resolved when the sync thread reports
the group durable: one wake-up of the loop per sync, however many records it covered.
Calls that may touch the disk run in a worker thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import os
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast

from braidlog.errors import ClosedError, LogError, ReadOnlyError, StoreFailedError
from braidlog.storage.archived import Archived
from braidlog.storage.arguments import (
    DurationLike,
    TimestampLike,
    checked_position,
    checked_timeout,
)
from braidlog.storage.backend import WriterBackend
from braidlog.storage.catalog import LogDescription, LogOptions, LogStats
from braidlog.storage.cursor import Cursor
from braidlog.storage.log import Log
from braidlog.storage.node import Store, StoreStats
from braidlog.storage.opening import Opening
from braidlog.storage.slices import AsyncIndexed
from braidlog.storage.threads import close_in_thread, in_thread
from braidlog.storage.waits import Waits
from braidlog.types import Compression, HeadersLike, Producer

if TYPE_CHECKING:
    import pyarrow as pa
    from typing_extensions import Buffer

    from braidlog._native import Pending, Record
    from braidlog.archive import Archive

__all__ = ["AsyncLog", "AsyncStore", "open_async"]

# Records handed to the loop at a time.
_CHUNK: Final = 1024
# How long those who wait may still be told of records while a close hangs.
_CLOSING_S: Final = 0.1


class _Waker:
    """Resolves futures of one loop when their sync groups are durable."""

    def __init__(self, backend: WriterBackend, waits: Waits) -> None:
        self._waits = waits
        self._loop = asyncio.get_running_loop()
        self._store = backend.store
        self._waiting: deque[tuple[int, Pending, asyncio.Future[Any]]] = deque()
        self._looking = False
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        # A loop that ends before the store is closed cannot do it.
        self._close_event = weakref.finalize(self, os.close, self._event)
        # When the program ends, a loop in a daemon thread may still listen to it.
        self._close_event.atexit = False
        # The sync thread has a descriptor of its own: it may outlive the loop, and must
        # not write into whatever gets the number then.
        try:
            backend.start_syncer(os.dup(self._event))
        except BaseException:
            self._close_event()
            raise
        self._loop.add_reader(self._event, self._wake)

    def wait(self, pending: Pending) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self._waiting.append((pending.group, pending, future))
        # It may be durable already (a repeat, nothing, a sync on another thread), and
        # then no wake-up comes for it.
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)
        return future

    def _look(self) -> None:
        self._looking = False
        self._resolve()

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        self._resolve()
        self._waits.look()

    def _resolve(self) -> None:
        waiting = self._waiting
        durable = 0
        while waiting:
            group, pending, future = waiting[0]
            try:
                if group > durable and not self._store.is_durable(group):
                    return
                durable = max(durable, group)
                if not future.done():
                    future.set_result(pending.result())
            except LogError as error:
                if not future.done():
                    future.set_exception(error)
            waiting.popleft()

    def close(self) -> None:
        if not self._close_event.alive:
            return  # Closed before: another waker may have the number now.
        if not self._loop.is_closed():
            self._resolve()
            self._loop.remove_reader(self._event)
        self._close_event()


class AsyncLog(AsyncIndexed):
    """A log for asyncio; see `Log` for what each call promises.

    Cancelling an append does not take the record back: it was given its position and
    becomes durable with its group.
    """

    def __init__(self, store: AsyncStore, log: Log) -> None:
        """Wrap a log; users call `AsyncStore.log`."""
        self._node = store
        self.blocking = log

    def __repr__(self) -> str:
        """Show what it wraps."""
        return f"<AsyncLog of {self.blocking!r}>"

    @property
    def name(self) -> str:
        """Name of the log."""
        return self.blocking.name

    @property
    def id(self) -> str:
        """Random identity of the log, 32 hexadecimal digits; never used again."""
        return self.blocking.id

    @property
    def options(self) -> LogOptions:
        """How the log is stored and kept."""
        return self.blocking.options

    @property
    def first(self) -> int:
        """First position that can be read."""
        return self.blocking.first

    @property
    def end(self) -> int:
        """Next position."""
        return self.blocking.end

    def submit(
        self,
        value: Buffer,
        *,
        key: Buffer | None = None,
        timestamp: TimestampLike | None = None,
        headers: HeadersLike | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> asyncio.Future[int]:
        """Append one record; the future gives its position once it is durable."""
        waker = self._node._waker()
        pending = self.blocking.submit(
            value,
            key=key,
            timestamp=timestamp,
            headers=headers,
            producer=producer,
            sequence=sequence,
        )
        return waker.wait(pending)

    async def append(
        self,
        value: Buffer,
        *,
        key: Buffer | None = None,
        timestamp: TimestampLike | None = None,
        headers: HeadersLike | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> int:
        """Append one record and return its position once it is durable."""
        return await self.submit(
            value,
            key=key,
            timestamp=timestamp,
            headers=headers,
            producer=producer,
            sequence=sequence,
        )

    async def append_many(
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
        waker = self._node._waker()
        pending = await in_thread(
            self.blocking.submit_many,
            values,
            keys=keys,
            timestamps=timestamps,
            headers=headers,
            producer=producer,
            sequence=sequence,
        )
        positions: range = await waker.wait(pending)
        return positions

    async def append_arrow(
        self,
        data: Any,
        *,
        producer: Producer | None = None,
        sequence: int | None = None,
    ) -> range:
        """Append Arrow data at consecutive positions; see `Log.append_arrow`."""
        waker = self._node._waker()
        submit = self.blocking.submit_arrow
        pending = await in_thread(submit, data, producer=producer, sequence=sequence)
        positions: range = await waker.wait(pending)
        return positions

    async def get(self, position: int) -> Record:
        """Return the record at ``position``; see `Log.get`."""
        return await in_thread(self.blocking.get, position)

    async def _positions(self) -> range:
        return await in_thread(self.blocking._positions)

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
        skip_holes: bool = False,
    ) -> AsyncIterator[Record]:
        """Iterate over records; see `Log.read`."""
        read = functools.partial(
            self.blocking.read,
            begin,
            end,
            key=key,
            since=since,
            until=until,
            limit=limit,
            reverse=reverse,
            include_archive=include_archive,
            skip_holes=skip_holes,
        )
        # Looks for the archive first, which may be far away.
        records = await in_thread(read) if include_archive else read()
        while True:
            chunk = await in_thread(list, itertools.islice(records, _CHUNK))
            if not chunk:
                return
            for record in chunk:
                yield record

    def __aiter__(self) -> AsyncIterator[Record]:
        """Iterate over everything that can be read now."""
        return self.read()

    async def wait(self, position: int, *, timeout: DurationLike | None = None) -> bool:  # noqa: ASYNC109
        """Wait until ``position`` can be read; see `Log.wait`."""
        timeout = checked_timeout(timeout)
        position = checked_position(position)
        if timeout is not None and not timeout > 0:
            return await in_thread(self.blocking.wait, position, timeout=timeout)
        return await self._node._waiting_tasks().wait(self.blocking, position, timeout)

    async def subscribe(
        self,
        begin: int | None = None,
        *,
        key: Buffer | None = None,
        timeout: DurationLike | None = None,  # noqa: ASYNC109
        skip_holes: bool = False,
    ) -> AsyncIterator[Record]:
        """Follow the log; see `Log.subscribe`."""
        position = self.first if begin is None else checked_position(begin, "begin")
        try:
            while await self.wait(position, timeout=timeout):
                end = self.end
                ahead = self.read(position, end, key=key, skip_holes=skip_holes)
                async for record in ahead:
                    yield record
                position = end
        except StoreFailedError:
            raise
        except ClosedError:
            return  # In the middle of what had been written when the store was closed.

    async def find(self, timestamp: TimestampLike) -> int | None:
        """Return the first position at or after a time; see `Log.find`."""
        return await in_thread(self.blocking.find, timestamp)

    async def to_arrow(
        self,
        begin: int | None = None,
        end: int | None = None,
        *,
        columns: list[str] | None = None,
        include_archive: Archived = False,
        skip_holes: bool = False,
    ) -> pa.Table:
        """Return the log as an Arrow table; see `Log.to_arrow`."""
        read = self.blocking.to_arrow
        options: dict[str, Any] = {
            "include_archive": include_archive,
            "skip_holes": skip_holes,
        }
        return await in_thread(read, begin, end, columns=columns, **options)

    async def archive(self, location: str | os.PathLike[str] | None = None) -> Archive:
        """Open the log's archive to read; see `Log.archive`."""
        return await in_thread(self.blocking.archive, location)

    async def set_archive(self, location: str | os.PathLike[str] | None) -> None:
        """Record where the log's archive is; see `Log.set_archive`."""
        await in_thread(self.blocking.set_archive, location)

    async def trim(self, before: int, *, ignore_pins: bool = False) -> int:
        """Let records go; see `Log.trim`."""
        trim = self.blocking.trim
        return await in_thread(trim, before, ignore_pins=ignore_pins)

    async def cursor(
        self, name: str, *, pin: bool = False, lease: DurationLike | None = None
    ) -> Cursor:
        """Return a cursor; see `Log.cursor`.

        It is the blocking one: ``commit`` and ``delete`` are not awaited, and hold up
        the loop for a sync. ``await in_thread(cursor.commit, position)`` does
        not.
        """
        return await in_thread(self.blocking.cursor, name, pin=pin, lease=lease)

    async def set_cursor(
        self,
        name: str,
        position: int,
        *,
        pin: bool = False,
        lease: DurationLike | None = None,
    ) -> Cursor:
        """Store all of a cursor; see `Log.set_cursor`."""
        return await in_thread(
            self.blocking.set_cursor, name, position, pin=pin, lease=lease
        )

    async def cursors(self) -> list[Cursor]:
        """Return the cursors of the log, by name."""
        return await in_thread(self.blocking.cursors)

    async def next_sequence(self, producer: Producer) -> int:
        """Return the producer's next sequence; see `Log.next_sequence`."""
        return await in_thread(self.blocking.next_sequence, producer)

    async def set_options(
        self,
        *,
        retention_ms: int | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        """Replace the log's retention; see `Log.set_options`."""
        await in_thread(
            self.blocking.set_options,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
        )

    async def describe(self) -> LogDescription:
        """Return what there is to know of the log."""
        return await in_thread(self.blocking.describe)

    async def stats(self) -> LogStats:
        """Return figures of the log."""
        return await in_thread(self.blocking.stats)


class AsyncStore:
    """A store for asyncio: ``async with braidlog.open_async("data/") as store``.

    It belongs to the event loop in which it was entered: appending and waiting in
    another one raise ``RuntimeError`` and change nothing.
    """

    def __init__(self, path: str | os.PathLike[str], options: dict[str, Any]) -> None:
        """Remember what to open; entering opens it."""
        self._path = path
        self._options = options
        self._node: Store | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakers: _Waker | None = None
        self._waits: Waits | None = None

    def __repr__(self) -> str:
        """Show the path."""
        return f"<AsyncStore {os.fspath(self._path)!r}>"

    async def __aenter__(self) -> Self:
        """Open the directory; again, once it is closed."""
        if self._node is not None and not self._node.closed:
            msg = "the store is open already"
            raise RuntimeError(msg)
        opening = Opening(self._path, self._options)
        try:
            store = await in_thread(opening.run)
            loop = asyncio.get_running_loop()
            waits = Waits(store)
            backend = store._backend
            waker = (
                _Waker(backend, waits) if isinstance(backend, WriterBackend) else None
            )
        except BaseException:
            # The thread goes on; what it opens must not stay locked.
            opening.give_up()
            raise
        self._node, self._loop, self._waits, self._wakers = store, loop, waits, waker
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the directory."""
        await self.close()

    @property
    def blocking(self) -> Store:
        """The same store for blocking code."""
        if self._node is None:
            msg = "enter the store first: async with braidlog.open_async(...)"
            raise RuntimeError(msg)
        return self._node

    def _check_loop(self) -> None:
        # Before anything is stored: the future could never be told.
        if asyncio.get_running_loop() is not self._loop:
            msg = "the store was opened in another event loop; open it in this one"
            raise RuntimeError(msg)

    def _waker(self) -> _Waker:
        store = self.blocking
        if store.read_only:
            msg = "this directory was opened read-only"
            raise ReadOnlyError(msg)
        if self._wakers is None:
            store._check_open()
        self._check_loop()
        return cast("_Waker", self._wakers)

    def _waiting_tasks(self) -> Waits:
        _ = self.blocking
        self._check_loop()
        return cast("Waits", self._waits)

    async def create_log(
        self,
        name: str,
        *,
        exist_ok: bool = False,
        compression: Compression = "none",
        retention_ms: int | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> AsyncLog:
        """Create a log; see `Store.create_log`."""
        created = await in_thread(
            self.blocking.create_log,
            name,
            exist_ok=exist_ok,
            compression=compression,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
        )
        return AsyncLog(self, created)

    async def log(self, name: str) -> AsyncLog:
        """Return an existing log; see `Store.log`."""
        return AsyncLog(self, await in_thread(self.blocking.log, name))

    async def logs(self) -> list[str]:
        """Return the names of all logs."""
        return await in_thread(self.blocking.logs)

    async def delete_log(self, name: str) -> None:
        """Delete a log; see `Store.delete_log`."""
        await in_thread(self.blocking.delete_log, name)

    async def stats(self) -> StoreStats:
        """Return figures of the store."""
        return await in_thread(self.blocking.stats)

    async def sync(self) -> None:
        """Make everything submitted so far durable."""
        await in_thread(self.blocking.sync)

    async def maintain(self) -> None:
        """Keep house now; see `Store.maintain`."""
        await in_thread(self.blocking.maintain)

    async def close(self) -> None:
        """Make everything durable and release the directory. Idempotent.

        Another event loop may do it once that of the store is closed.
        """
        if self._node is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._check_loop()
        closing = asyncio.create_task(close_in_thread(self._node.close))
        ending = functools.partial(_end_waits, self._loop, self._waits)
        # A write that hangs holds up the close, but not those who wait for a record.
        asyncio.get_running_loop().call_later(_CLOSING_S, ending)
        ended = functools.partial(self._closed, self._wakers, ending)
        closing.add_done_callback(ended)
        await asyncio.shield(closing)

    def _closed(
        self, waker: _Waker | None, end_waits: Callable[[], None], _: object
    ) -> None:
        # Of the store that was closed: by now another one may be open.
        if waker is not None:
            waker.close()
        if self._wakers is waker:
            self._wakers = None
        end_waits()


def _end_waits(loop: asyncio.AbstractEventLoop | None, waits: Waits | None) -> None:
    if waits is not None and loop is not None and not loop.is_closed():
        waits.look()
        waits.end(ClosedError("the store is closed"))


def open_async(path: str | os.PathLike[str], **options: Any) -> AsyncStore:
    """Open a directory for asyncio, with ``async with``; options as `braidlog.open`.

    Raises:
        LogError: when it is entered, what `braidlog.open` raises.
    """
    return AsyncStore(path, options)
