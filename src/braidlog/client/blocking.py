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
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from braidlog import _native
from braidlog.client.background import BackgroundLoop
from braidlog.client.client import Client, connect
from braidlog.client.cursor import ClusterCursor
from braidlog.client.ingest import Ingest
from braidlog.client.log import ClusterLog
from braidlog.client.scan import Scan
from braidlog.client.settings import ClientSettings
from braidlog.errors import ClosedError, StoreFailedError
from braidlog.storage.arguments import DurationLike, TimestampLike, checked_timeout
from braidlog.storage.slices import Indexed
from braidlog.types import Compression, HeadersLike, Producer

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from braidlog._native import Record
    from braidlog.storage.catalog import LogOptions

__all__ = [
    "BlockingClient",
    "BlockingClusterCursor",
    "BlockingClusterLog",
    "BlockingIngest",
    "BlockingScan",
    "connect_sync",
]

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)


class _Blocking(Generic[A_co]):
    """Something of the async client, and the loop that it lives on."""

    def __init__(self, loop: BackgroundLoop, target: A_co) -> None:
        """Users get these from a `BlockingClient`."""
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


class BlockingClusterCursor(_Blocking[ClusterCursor]):
    """A cursor; see `ClusterCursor`."""

    commit = _call(ClusterCursor.commit)
    refresh = _call(ClusterCursor.refresh)
    delete = _call(ClusterCursor.delete)

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


class BlockingClusterLog(_Blocking[ClusterLog], Indexed):
    """A log of a cluster with the calls of `Log`; see `ClusterLog`.

    Also an Arrow stream, as `Log` is one.
    """

    refresh = _call(ClusterLog.refresh)
    _positions = refresh
    append = _call(ClusterLog.append)
    append_many = _call(ClusterLog.append_many)
    append_arrow = _call(ClusterLog.append_arrow)
    next_sequence = _call(ClusterLog.next_sequence)
    get = _call(ClusterLog.get)
    read = _iterate(ClusterLog._read_chunks)
    subscribe = _iterate(ClusterLog._subscribe_chunks)
    batches = _iterate(ClusterLog._batch_chunks)
    placed_batches = _iterate(ClusterLog._placed_chunks)
    _wait = _call(ClusterLog.wait)
    find = _call(ClusterLog.find)
    to_arrow = _call(ClusterLog.to_arrow)
    trim = _call(ClusterLog.trim)
    set_options = _call(ClusterLog.set_options)
    set_replication = _call(ClusterLog.set_replication)
    archive = _call(ClusterLog.archive)
    set_archive = _call(ClusterLog.set_archive)
    describe = _call(ClusterLog.describe)
    _cursor = _call(ClusterLog.cursor)
    _store_cursor = _call(ClusterLog.set_cursor)
    _cursors = _call(ClusterLog.cursors)

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
        """Wait until ``position`` can be read; see `ClusterLog.wait`."""
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
        appending = self._target._appending
        rows = appending.rows.many(values, keys, timestamps, headers)
        within = checked_timeout(timeout)
        call = appending.append_many(rows, producer, sequence, within)
        return self._loop.begin(call)

    def cursor(
        self, name: str, *, pin: bool = False, lease: DurationLike | None = None
    ) -> BlockingClusterCursor:
        """Return a cursor; see `ClusterLog.cursor`."""
        found = self._cursor(name, pin=pin, lease=lease)
        return BlockingClusterCursor(self._loop, found)

    def set_cursor(
        self,
        name: str,
        position: int,
        *,
        pin: bool = False,
        lease: DurationLike | None = None,
    ) -> BlockingClusterCursor:
        """Store all of a cursor; see `ClusterLog.set_cursor`."""
        stored = self._store_cursor(name, position, pin=pin, lease=lease)
        return BlockingClusterCursor(self._loop, stored)

    def cursors(self) -> list[BlockingClusterCursor]:
        """Return the cursors of the log, by name."""
        return [BlockingClusterCursor(self._loop, each) for each in self._cursors()]


class BlockingScan(_Blocking[Scan]):
    """Reads of a log stream by stream; see `Scan`."""

    extents = _call(Scan.extents)
    cut = _call(Scan.cut)
    size = _call(Scan.size)
    batches = _iterate(Scan._batch_chunks)
    merged = _iterate(Scan._merged_chunks)

    @property
    def log(self) -> str:
        """Random identity of the log, 32 hexadecimal digits."""
        return self._target.log

    @property
    def positions(self) -> range:
        """What could be read when the scan was made."""
        return self._target.positions


class BlockingIngest(_Blocking[Ingest]):
    """Appends to a log stream by stream; see `Ingest`."""

    refresh = _call(Ingest.refresh)
    next_sequence = _call(Ingest.next_sequence)
    append_all = _call(Ingest.append_all)
    stored = _call(Ingest.stored)

    @property
    def log(self) -> str:
        """Identity of the log."""
        return self._target.log

    @property
    def streams(self) -> tuple[int, ...]:
        """The streams that keys are spread over, in order."""
        return self._target.streams


class BlockingClient(_Blocking[Client]):
    """A client for blocking code; see `Client`. Use `braidlog.connect_sync`."""

    logs = _call(Client.logs)
    delete_log = _call(Client.delete_log)
    describe = _call(Client.describe)
    metadata = _call(Client.metadata)
    look = _call(Client.look)
    nodes = _call(Client.nodes)
    drain_node = _call(Client.drain_node)
    remove_node = _call(Client.remove_node)
    set_voter = _call(Client.set_voter)
    readmit_node = _call(Client.readmit_node)
    streams = _call(Client.streams)
    seal = _call(Client.seal)
    unseal = _call(Client.unseal)
    move_replica = _call(Client.move_replica)
    add_learner = _call(Client.add_learner)
    drop_learner = _call(Client.drop_learner)
    _enter = _call(Client.__aenter__)
    _close = _call(Client.close)
    _log = _call(Client.log)
    _create_log = _call(Client.create_log)
    _scan = _call(Client.scan)
    _ingest = _call(Client.ingest)

    def __init__(self, make: Callable[[], Client]) -> None:
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

    def log(self, name: str) -> BlockingClusterLog:
        """Return an existing log; see `Client.log`."""
        return BlockingClusterLog(self._loop, self._log(name))

    def scan(self, name: str, *, node: int = 0) -> BlockingScan:
        """Return reads of a log stream by stream; see `Client.scan`."""
        return BlockingScan(self._loop, self._scan(name, node=node))

    def ingest(self, name: str) -> BlockingIngest:
        """Return appends to a log stream by stream; see `Client.ingest`."""
        return BlockingIngest(self._loop, self._ingest(name))

    def create_log(
        self,
        name: str,
        *,
        exist_ok: bool = False,
        streams: int = 1,
        replication: int | None = None,
        min_replicas: int | None = None,
        allow_missing: bool = False,
        compression: Compression = "none",
        retention_ms: int | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> BlockingClusterLog:
        """Create a log; see `Client.create_log`."""
        created = self._create_log(
            name,
            exist_ok=exist_ok,
            streams=streams,
            replication=replication,
            min_replicas=min_replicas,
            allow_missing=allow_missing,
            compression=compression,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
        )
        return BlockingClusterLog(self._loop, created)


def connect_sync(
    seeds: str | Iterable[str],
    *,
    token: str = "",
    ssl: tls.SSLContext | None = None,
    cluster: str = "",
    settings: ClientSettings | None = None,
) -> BlockingClient:
    """Connect to a cluster from blocking code, with ``with``; as `connect`."""
    return BlockingClient(
        lambda: connect(seeds, token=token, ssl=ssl, cluster=cluster, settings=settings)
    )
