"""The client for blocking code: the same calls, run on one loop in the background.

Nothing is done twice: each call of a blocking class is the call of the async class of
the same name and arguments. Safe to use from many threads.
"""

from __future__ import annotations

import contextlib
import functools
import ssl as tls
from collections.abc import (
    AsyncGenerator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from braidlog import _native
from braidlog.client.background import BackgroundLoop
from braidlog.client.client import AsyncClient, connect_async
from braidlog.client.ingest import AsyncIngest
from braidlog.client.log import AsyncClusterLog
from braidlog.client.scan import AsyncScan
from braidlog.client.settings import ClientSettings
from braidlog.errors import ClosedError, StoreFailedError
from braidlog.store.arguments import DurationLike, TimestampLike, checked_timeout
from braidlog.store.cursor import AsyncCursor
from braidlog.store.slices import Indexed
from braidlog.types import HeadersLike, Producer

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from braidlog._native import Record
    from braidlog.store.catalog import LogOptions

__all__ = [
    "Client",
    "ClusterCursor",
    "ClusterLog",
    "Ingest",
    "Scan",
    "connect",
]

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
A_co = TypeVar("A_co", covariant=True)


class _Blocking(Generic[A_co]):
    """Something of the async client, and the loop that it lives on."""

    def __init__(self, loop: BackgroundLoop, target: A_co) -> None:
        """Users get these from a `Client`."""
        self._loop = loop
        self._target = target

    def __repr__(self) -> str:
        """Show what is delegated to."""
        return f"<{type(self).__name__} of {self._target!r}>"


def _call(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[_Blocking[A], P], T]:
    """Make a blocking method of an async one."""

    @functools.wraps(method)
    def call(self: _Blocking[A], /, *args: P.args, **keywords: P.kwargs) -> T:
        return self._loop.run(method(self._target, *args, **keywords))

    return call


def _give(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
    kind: Callable[[BackgroundLoop, T], B],
) -> Callable[Concatenate[_Blocking[A], P], B]:
    """Make a blocking method of an async one whose result lives on the loop, too."""

    @functools.wraps(method)
    def call(self: _Blocking[A], /, *args: P.args, **keywords: P.kwargs) -> B:
        found = self._loop.run(method(self._target, *args, **keywords))
        return kind(self._loop, found)

    return call


def _iterate(
    method: Callable[Concatenate[A, P], AsyncGenerator[list[T], None]],
) -> Callable[Concatenate[_Blocking[A], P], Iterator[T]]:
    """Make a blocking iterator of an async one that gives chunks."""

    @functools.wraps(method)
    def call(self: _Blocking[A], /, *args: P.args, **keywords: P.kwargs) -> Iterator[T]:
        chunks = method(self._target, *args, **keywords)
        try:
            while (chunk := self._loop.run(_next(chunks))) is not None:
                yield from chunk
        finally:
            # After a close the loop has ended it.
            with contextlib.suppress(ClosedError):
                self._loop.end(chunks.aclose())

    return call


async def _next(chunks: AsyncGenerator[T, None]) -> T | None:
    return await anext(chunks, None)


class ClusterCursor(_Blocking[AsyncCursor]):
    """A cursor; see `AsyncCursor`."""

    commit = _call(AsyncCursor.commit)
    refresh = _call(AsyncCursor.refresh)
    delete = _call(AsyncCursor.delete)

    @property
    def name(self) -> str:
        """Name of the cursor."""
        return self._target.name

    @property
    def position(self) -> int:
        """Next position to read."""
        return self._target.position

    @property
    def pin(self) -> bool:
        """Whether the cursor asks to keep what it has not read."""
        return self._target.pin

    @property
    def touched(self) -> int:
        """When the cursor was last written, microseconds since the epoch."""
        return self._target.touched

    @property
    def lease(self) -> float | None:
        """Seconds that a pin holds after the last commit; None for ever."""
        return self._target.lease


class ClusterLog(_Blocking[AsyncClusterLog], Indexed):
    """A log of a cluster with the calls of `Log`; see `AsyncClusterLog`.

    Also an Arrow stream, as `Log` is one.
    """

    refresh = _call(AsyncClusterLog.refresh)
    _positions = refresh
    append = _call(AsyncClusterLog.append)
    append_many = _call(AsyncClusterLog.append_many)
    append_arrow = _call(AsyncClusterLog.append_arrow)
    next_sequence = _call(AsyncClusterLog.next_sequence)
    get = _call(AsyncClusterLog.get)
    read = _iterate(AsyncClusterLog._read_chunks)
    subscribe = _iterate(AsyncClusterLog._subscribe_chunks)
    batches = _iterate(AsyncClusterLog._batch_chunks)
    _wait = _call(AsyncClusterLog.wait)
    find = _call(AsyncClusterLog.find)
    to_arrow = _call(AsyncClusterLog.to_arrow)
    trim = _call(AsyncClusterLog.trim)
    set_options = _call(AsyncClusterLog.set_options)
    set_replication = _call(AsyncClusterLog.set_replication)
    archive = _call(AsyncClusterLog.archive)
    set_archive = _call(AsyncClusterLog.set_archive)
    describe = _call(AsyncClusterLog.describe)
    cursor = _give(AsyncClusterLog.cursor, ClusterCursor)
    set_cursor = _give(AsyncClusterLog.set_cursor, ClusterCursor)
    _cursors = _call(AsyncClusterLog.cursors)

    @property
    def id(self) -> str:
        """Random identity of the log, 32 hexadecimal digits."""
        return self._target.id

    @property
    def name(self) -> str:
        """Name of the log."""
        return self._target.name

    @property
    def options(self) -> LogOptions:
        """How the log is kept, as far as this client knows."""
        return self._target.options

    @property
    def first(self) -> int:
        """First position that can be read, as far as this client knows."""
        return self._target.first

    @property
    def end(self) -> int:
        """Next position, as far as this client knows."""
        return self._target.end

    def __iter__(self) -> Iterator[Record]:
        """Iterate over everything that can be read now."""
        return self.read()

    def wait(self, position: int, *, timeout: DurationLike | None = None) -> bool:
        """Wait until ``position`` can be read; see `AsyncClusterLog.wait`."""
        try:
            return self._wait(position, timeout=timeout)
        except StoreFailedError:
            raise
        except ClosedError:
            return False  # The loop is closed with the client.

    def __len__(self) -> int:
        """Ask the cluster; return the number of records that can be read."""
        return len(self.refresh())

    def __arrow_c_stream__(self, requested_schema: Any | None = None) -> Any:
        """Export the whole log, as it is now, through the Arrow C stream interface.

        Batches are read when they are asked for. A requested schema is best effort by
        the protocol, and is not looked at.
        """
        import pyarrow as pa

        from braidlog.client.arrow import log_schema

        there = self.refresh()
        batches = self.batches(there.start, there.stop)
        reader = pa.RecordBatchReader.from_batches(log_schema(), batches)
        return reader.__arrow_c_stream__()

    def __arrow_c_schema__(self) -> Any:
        """Export the schema through the Arrow C data interface."""
        return _native.log_schema()

    def submit_many(
        self,
        values: Iterable[Buffer],
        *,
        keys: Iterable[Buffer | None] | None = None,
        timestamps: Iterable[TimestampLike | None] | TimestampLike | None = None,
        headers: Iterable[HeadersLike | None] | None = None,
        producer: Producer | None = None,
        sequence: int | None = None,
        timeout: DurationLike | None = None,
    ) -> Future[Sequence[int]]:
        """Begin `append_many`; the future gives its result.

        Records are checked before the return. What is submitted after something else
        comes behind it in each stream.
        """
        # Checking needs nothing of the loop.
        appender = self._target._appender
        rows = appender.rows.many(values, keys, timestamps, headers)
        within = checked_timeout(timeout)
        call = appender.append_many(rows, producer, sequence, within)
        return self._loop.begin(call)

    def cursors(self) -> list[ClusterCursor]:
        """Return the cursors of the log, by name."""
        return [ClusterCursor(self._loop, each) for each in self._cursors()]


class Scan(_Blocking[AsyncScan]):
    """Reads of a log stream by stream; see `Scan`."""

    extents = _call(AsyncScan.extents)
    cut = _call(AsyncScan.cut)
    size = _call(AsyncScan.size)
    sizes = _call(AsyncScan.sizes)
    batches = _iterate(AsyncScan._batch_chunks)
    merged = _iterate(AsyncScan._merged_chunks)

    @property
    def log(self) -> str:
        """Random identity of the log, 32 hexadecimal digits."""
        return self._target.log

    @property
    def positions(self) -> range:
        """What could be read when the scan was made."""
        return self._target.positions


class Ingest(_Blocking[AsyncIngest]):
    """Appends to a log stream by stream; see `AsyncIngest`."""

    refresh = _call(AsyncIngest.refresh)
    next_sequence = _call(AsyncIngest.next_sequence)
    append_all = _call(AsyncIngest.append_all)
    stored = _call(AsyncIngest.stored)

    @property
    def log(self) -> str:
        """Identity of the log."""
        return self._target.log

    @property
    def streams(self) -> tuple[int, ...]:
        """The streams that keys are spread over, in order."""
        return self._target.streams


class Client(_Blocking[AsyncClient]):
    """A client for blocking code; see `AsyncClient`. Use `braidlog.connect`."""

    logs = _call(AsyncClient.logs)
    delete_log = _call(AsyncClient.delete_log)
    describe = _call(AsyncClient.describe)
    metadata = _call(AsyncClient.metadata)
    look = _call(AsyncClient.look)
    nodes = _call(AsyncClient.nodes)
    drain_node = _call(AsyncClient.drain_node)
    remove_node = _call(AsyncClient.remove_node)
    set_voter = _call(AsyncClient.set_voter)
    readmit_node = _call(AsyncClient.readmit_node)
    streams = _call(AsyncClient.streams)
    seal = _call(AsyncClient.seal)
    unseal = _call(AsyncClient.unseal)
    move_replica = _call(AsyncClient.move_replica)
    add_learner = _call(AsyncClient.add_learner)
    drop_learner = _call(AsyncClient.drop_learner)
    _enter = _call(AsyncClient.__aenter__)
    _close = _call(AsyncClient.close)
    log = _give(AsyncClient.log, ClusterLog)
    create_log = _give(AsyncClient.create_log, ClusterLog)
    scan = _give(AsyncClient.scan, Scan)
    ingest = _give(AsyncClient.ingest, Ingest)

    def __init__(self, make: Callable[[], AsyncClient]) -> None:
        """Start the loop; entering connects."""
        super().__init__(BackgroundLoop(), make())

    def __enter__(self) -> Self:
        """Find the cluster."""
        try:
            self._enter()
        except BaseException:
            self._loop.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the client."""
        self.close()

    def close(self) -> None:
        """Close all connections and the loop. Idempotent."""
        if self._loop.alive:
            self._close()
        self._loop.close()

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return self._target.cluster


def connect(
    seeds: str | Iterable[str],
    *,
    token: str = "",
    ssl: tls.SSLContext | None = None,
    cluster: str = "",
    settings: ClientSettings | None = None,
) -> Client:
    """Connect to a cluster from blocking code, with ``with``; see `connect_async`."""
    return Client(
        lambda: connect_async(
            seeds, token=token, ssl=ssl, cluster=cluster, settings=settings
        )
    )
