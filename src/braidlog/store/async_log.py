"""The embedded log for asyncio, over the same native store.

An append is submitted at once and its future is resolved when the sync thread reports
the group durable: one wake-up of the loop per sync, however many records it covered.
Calls that may touch the disk run in a worker thread.
"""
# One file: the asynchronous face of `Store` and of `Log`, which mirror each other.

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    ParamSpec,
    Self,
    TypeVar,
    cast,
)

from braidlog.closable import AsyncClosable
from braidlog.errors import ClosedError, LogError, ReadOnlyError, StoreFailedError
from braidlog.store.arguments import (
    DurationLike,
    checked_position,
    checked_timeout,
)
from braidlog.store.backend import WriterBackend
from braidlog.store.catalog import LogOptions
from braidlog.store.cursor import AsyncCursor, Cursor, StoredCursor
from braidlog.store.log import Log
from braidlog.store.mirror import call_of, iterate_of
from braidlog.store.opening import Opening
from braidlog.store.slices import AsyncIndexed
from braidlog.store.store import Store
from braidlog.store.tables.async_table import AsyncDdl, AsyncTable
from braidlog.store.tables.table import Table
from braidlog.store.threads import close_in_thread, in_thread
from braidlog.store.waits import Waits

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from braidlog._native import Pending, Record

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)

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


def _append(
    method: Callable[Concatenate[Log, P], T],
    submit: Callable[Concatenate[Log, P], Pending],
    *,
    many: bool = False,
) -> Callable[Concatenate[AsyncLog, P], Coroutine[Any, Any, T]]:
    """Make an append of a submit; one of ``many`` records takes a thread."""

    @functools.wraps(method)
    async def call(self: AsyncLog, /, *args: P.args, **keywords: P.kwargs) -> T:
        waker = self._store._waker()
        if many:
            pending = await in_thread(submit, self.blocking, *args, **keywords)
        else:
            pending = submit(self.blocking, *args, **keywords)
        return cast("T", await waker.wait(pending))

    return call


def _submit(
    method: Callable[Concatenate[Log, P], Pending],
) -> Callable[Concatenate[AsyncLog, P], asyncio.Future[int]]:
    """Make a submit with a future of one with a `Pending`."""

    @functools.wraps(method)
    def call(
        self: AsyncLog, /, *args: P.args, **keywords: P.kwargs
    ) -> asyncio.Future[int]:
        waker = self._store._waker()
        return waker.wait(method(self.blocking, *args, **keywords))

    return call


def _cursor(
    method: Callable[Concatenate[Log, P], Cursor],
) -> Callable[Concatenate[AsyncLog, P], Coroutine[Any, Any, AsyncCursor]]:
    """Make a method that gives a cursor for asyncio of a blocking one."""

    @functools.wraps(method)
    async def call(
        self: AsyncLog, /, *args: P.args, **keywords: P.kwargs
    ) -> AsyncCursor:
        found = await in_thread(method, self.blocking, *args, **keywords)
        return AsyncCursor(self, await self._read_cursor(found.name))

    return call


def _log(
    method: Callable[Concatenate[Store, P], Log],
) -> Callable[Concatenate[AsyncStore, P], Coroutine[Any, Any, AsyncLog]]:
    """Make a method that gives a log for asyncio of a blocking one."""

    @functools.wraps(method)
    async def call(
        self: AsyncStore, /, *args: P.args, **keywords: P.kwargs
    ) -> AsyncLog:
        return AsyncLog(self, await in_thread(method, self.blocking, *args, **keywords))

    return call


def _table(
    method: Callable[Concatenate[Store, P], Table],
) -> Callable[Concatenate[AsyncStore, P], Coroutine[Any, Any, AsyncTable]]:
    """Make a method that gives a table for asyncio of a blocking one."""

    @functools.wraps(method)
    async def call(
        self: AsyncStore, /, *args: P.args, **keywords: P.kwargs
    ) -> AsyncTable:
        table = await in_thread(method, self.blocking, *args, **keywords)
        return AsyncTable(table, AsyncLog(self, cast("Log", table._log)))

    return call


class AsyncLog(AsyncIndexed):
    """A log for asyncio: each call is the call of `Log` with the same name.

    Cancelling an append only stops the wait: the record has its position and becomes
    durable with its group.
    """

    def __init__(self, store: AsyncStore, log: Log) -> None:
        """Wrap a log; users call `AsyncStore.log`."""
        self._store = store
        self._log = log

    def __repr__(self) -> str:
        """Show what it wraps."""
        return f"<AsyncLog of {self._log!r}>"

    @property
    def blocking(self) -> Log:
        """The same log for blocking code."""
        return self._log

    @property
    def name(self) -> str:
        """Name of the log."""
        return self._log.name

    @property
    def id(self) -> str:
        """Random identity of the log, 32 hexadecimal digits; never used again."""
        return self._log.id

    @property
    def options(self) -> LogOptions:
        """How the log is stored and kept."""
        return self._log.options

    @property
    def first(self) -> int:
        """First position that can be read (low watermark)."""
        return self._log.first

    @property
    def end(self) -> int:
        """Next position: one past the last durable record."""
        return self._log.end

    submit = _submit(Log.submit)
    append = _append(Log.append, Log.submit)
    append_many = _append(Log.append_many, Log.submit_many, many=True)
    append_arrow = _append(Log.append_arrow, Log.submit_arrow, many=True)
    next_sequence = call_of(Log.next_sequence)
    get = call_of(Log.get)
    read = iterate_of(Log.read)
    # Each is about 1 MiB.
    batches = iterate_of(Log.batches, 1)
    find = call_of(Log.find)
    first_timestamp = call_of(Log.first_timestamp)
    to_arrow = call_of(Log.to_arrow)
    trim = call_of(Log.trim)
    apply_retention = call_of(Log.apply_retention)
    set_options = call_of(Log.set_options)
    archive = call_of(Log.archive)
    set_archive = call_of(Log.set_archive)
    segments = call_of(Log.segments)
    stats = call_of(Log.stats)
    describe = call_of(Log.describe)
    _positions = call_of(Log._positions)
    cursor = _cursor(Log.cursor)
    set_cursor = _cursor(Log.set_cursor)

    def __aiter__(self) -> AsyncIterator[Record]:
        """Iterate over everything that can be read now."""
        return self.read()

    async def wait(self, position: int, *, timeout: DurationLike | None = None) -> bool:  # noqa: ASYNC109
        """Wait until ``position`` can be read; see `Log.wait`."""
        timeout = checked_timeout(timeout)
        position = checked_position(position)
        if timeout is not None and not timeout > 0:
            return await in_thread(self._log.wait, position, timeout=timeout)
        return await self._store._waiting_tasks().wait(self._log, position, timeout)

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

    async def cursors(self) -> list[AsyncCursor]:
        """Return the cursors of the log, by name."""
        rows = await in_thread(self._log._cursor_rows)
        return [
            AsyncCursor(self, StoredCursor(name, *row))
            for name, row in sorted(rows.items())
        ]

    async def _read_cursor(self, name: str) -> StoredCursor:
        return StoredCursor(name, *await in_thread(self._log._cursor_row, name))

    async def _move_cursor(self, row: StoredCursor, position: int) -> StoredCursor:
        await in_thread(self._log._move_cursor, row.name, position)
        return await self._read_cursor(row.name)

    async def _delete_cursor(self, name: str) -> None:
        await in_thread(self._log._delete_cursor, name)


class AsyncStore(AsyncClosable):
    """A store for asyncio: ``async with braidlog.open_async("data/") as store``.

    It belongs to the event loop in which it was entered: appending and waiting in
    another one raise ``RuntimeError`` and change nothing.
    """

    def __init__(self, path: str | os.PathLike[str], options: dict[str, Any]) -> None:
        """Remember what to open; entering opens it."""
        self._path = path
        self._options = options
        self._store: Store | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wakers: _Waker | None = None
        self._waits: Waits | None = None

    def __repr__(self) -> str:
        """Show the path."""
        return f"<AsyncStore {os.fspath(self._path)!r}>"

    async def __aenter__(self) -> Self:
        """Open the directory; again, once it is closed."""
        if self._store is not None and not self._store.closed:
            raise RuntimeError("the store is open already")
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
        self._store, self._loop, self._waits, self._wakers = store, loop, waits, waker
        return self

    @property
    def blocking(self) -> Store:
        """The same store for blocking code."""
        if self._store is None:
            raise RuntimeError(
                "the store is not open yet: use it in `async with "
                "braidlog.open_async(...)`"
            )
        return self._store

    def _check_loop(self) -> None:
        # Before anything is stored: the future could never be told.
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                "the store belongs to the event loop in which it was opened: open "
                "it again in this one"
            )

    def _waker(self) -> _Waker:
        store = self.blocking
        if store.read_only:
            raise ReadOnlyError("the directory was opened read-only")
        if self._wakers is None:
            store._check_open()
        self._check_loop()
        return cast("_Waker", self._wakers)

    def _waiting_tasks(self) -> Waits:
        _ = self.blocking
        self._check_loop()
        return cast("Waits", self._waits)

    logs = call_of(Store.logs)
    delete_log = call_of(Store.delete_log)
    stats = call_of(Store.stats)
    sync = call_of(Store.sync)
    provision = call_of(Store.provision)
    maintain = call_of(Store.maintain)
    backup = call_of(Store.backup)
    log = _log(Store.log)
    create_log = _log(Store.create_log)
    tables = call_of(Store.tables)
    drop_table = call_of(Store.drop_table)
    table = _table(Store.table)
    create_table = _table(Store.create_table)

    def ddl(self) -> AsyncDdl:
        """Change any tables together: ``async with store.ddl() as change:``.

        See `Store.ddl`; the change is the same object.
        """
        return AsyncDdl(self.blocking.ddl())

    async def close(self) -> None:
        """Make everything durable and release the directory. Idempotent.

        Once the event loop of the store is closed, another loop may close the store.
        """
        if self._store is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._check_loop()
        closing = asyncio.create_task(close_in_thread(self._store.close))
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
        LogError: on entry, any error that `braidlog.open` raises.
    """
    return AsyncStore(path, options)
