"""The client for blocking code: the same calls, run on one loop in the background.

Nothing is done twice: each call of a blocking class is the call of the async class of
the same name and arguments. Safe to use from many threads.
"""

from __future__ import annotations

import ssl as tls
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from braidlog import _native
from braidlog.client.append.writer import AsyncLogWriter
from braidlog.client.background import (
    BackgroundLoop,
    Blocking,
    BlockingClient,
    blocking_call,
    blocking_iterator,
    blocking_maker,
)
from braidlog.client.client import AsyncClient, connect_async
from braidlog.client.ingest import AsyncIngest
from braidlog.client.log import AsyncClusterLog
from braidlog.client.read.scan import AsyncScan
from braidlog.client.settings import ClientSettings
from braidlog.client.tables.blocking import ClusterDdl, ClusterTable
from braidlog.errors import ClosedError, StoreFailedError
from braidlog.store.arguments import DurationLike, TimestampLike, checked_timeout
from braidlog.store.cursor import AsyncCursor
from braidlog.store.slices import Indexed
from braidlog.types import HeadersLike, Producer

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from braidlog._native import Record
    from braidlog.store.catalog import LogOptions


class ClusterCursor(Blocking[AsyncCursor]):
    """A cursor; see `AsyncCursor`."""

    commit = blocking_call(AsyncCursor.commit)
    refresh = blocking_call(AsyncCursor.refresh)
    delete = blocking_call(AsyncCursor.delete)

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


class LogWriter(Blocking[AsyncLogWriter]):
    """The owner of a log; see `AsyncLogWriter`."""

    append = blocking_call(AsyncLogWriter.append)
    append_many = blocking_call(AsyncLogWriter.append_many)
    renew = blocking_call(AsyncLogWriter.renew)
    release = blocking_call(AsyncLogWriter.release)

    @property
    def name(self) -> str:
        """Name of the writer."""
        return self._target.name

    @property
    def epoch(self) -> int:
        """Number of this ownership; every later one has a greater number."""
        return self._target.epoch

    @property
    def end(self) -> int:
        """The next position, as far as this writer knows."""
        return self._target.end


class ClusterLog(Blocking[AsyncClusterLog], Indexed):
    """A log of a cluster with the calls of `Log`; see `AsyncClusterLog`.

    Also an Arrow stream, as `Log` is one.
    """

    refresh = blocking_call(AsyncClusterLog.refresh)
    _positions = refresh
    append = blocking_call(AsyncClusterLog.append)
    append_many = blocking_call(AsyncClusterLog.append_many)
    append_arrow = blocking_call(AsyncClusterLog.append_arrow)
    next_sequence = blocking_call(AsyncClusterLog.next_sequence)
    acquire = blocking_maker(AsyncClusterLog.acquire, LogWriter)
    owner = blocking_call(AsyncClusterLog.owner)
    get = blocking_call(AsyncClusterLog.get)
    read = blocking_iterator(AsyncClusterLog._read_chunks)
    subscribe = blocking_iterator(AsyncClusterLog._subscribe_chunks)
    batches = blocking_iterator(AsyncClusterLog._batch_chunks)
    _wait = blocking_call(AsyncClusterLog.wait)
    find = blocking_call(AsyncClusterLog.find)
    first_timestamp = blocking_call(AsyncClusterLog.first_timestamp)
    to_arrow = blocking_call(AsyncClusterLog.to_arrow)
    trim = blocking_call(AsyncClusterLog.trim)
    set_options = blocking_call(AsyncClusterLog.set_options)
    set_replication = blocking_call(AsyncClusterLog.set_replication)
    alter = blocking_call(AsyncClusterLog.alter)
    set_streams = blocking_call(AsyncClusterLog.set_streams)
    archive = blocking_call(AsyncClusterLog.archive)
    set_archive = blocking_call(AsyncClusterLog.set_archive)
    describe = blocking_call(AsyncClusterLog.describe)
    cursor = blocking_maker(AsyncClusterLog.cursor, ClusterCursor)
    set_cursor = blocking_maker(AsyncClusterLog.set_cursor, ClusterCursor)
    _cursors = blocking_call(AsyncClusterLog.cursors)

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
        values: Iterable[Buffer | None],
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


class Scan(Blocking[AsyncScan]):
    """Reads of a log stream by stream; see `Scan`."""

    extents = blocking_call(AsyncScan.extents)
    cut = blocking_call(AsyncScan.cut)
    sizes = blocking_call(AsyncScan.sizes)
    batches = blocking_iterator(AsyncScan.batch_chunks)
    merged = blocking_iterator(AsyncScan.merged_chunks)

    @property
    def log(self) -> str:
        """Random identity of the log, 32 hexadecimal digits."""
        return self._target.log

    @property
    def positions(self) -> range:
        """What could be read when the scan was made."""
        return self._target.positions


class Ingest(Blocking[AsyncIngest]):
    """Appends to a log stream by stream; see `AsyncIngest`."""

    refresh = blocking_call(AsyncIngest.refresh)
    next_sequence = blocking_call(AsyncIngest.next_sequence)
    home = blocking_call(AsyncIngest.home)
    append_all = blocking_call(AsyncIngest.append_all)
    stored = blocking_call(AsyncIngest.stored)

    @property
    def log(self) -> str:
        """Identity of the log."""
        return self._target.log

    @property
    def streams(self) -> tuple[int, ...]:
        """The streams that keys are spread over, in order."""
        return self._target.streams


class Client(BlockingClient[AsyncClient]):
    """A client for blocking code; see `AsyncClient`. Use `braidlog.connect`."""

    logs = blocking_call(AsyncClient.logs)
    backup = blocking_call(AsyncClient.backup)
    delete_log = blocking_call(AsyncClient.delete_log)
    describe = blocking_call(AsyncClient.describe)
    metadata = blocking_call(AsyncClient.metadata)
    look = blocking_call(AsyncClient.look)
    nodes = blocking_call(AsyncClient.nodes)
    drain_node = blocking_call(AsyncClient.drain_node)
    remove_node = blocking_call(AsyncClient.remove_node)
    set_voter = blocking_call(AsyncClient.set_voter)
    readmit_node = blocking_call(AsyncClient.readmit_node)
    reload = blocking_call(AsyncClient.reload)
    timestamps = blocking_call(AsyncClient.timestamps)
    streams = blocking_call(AsyncClient.streams)
    seal = blocking_call(AsyncClient.seal)
    unseal = blocking_call(AsyncClient.unseal)
    move_replica = blocking_call(AsyncClient.move_replica)
    add_learner = blocking_call(AsyncClient.add_learner)
    drop_learner = blocking_call(AsyncClient.drop_learner)
    log = blocking_maker(AsyncClient.log, ClusterLog)
    create_log = blocking_maker(AsyncClient.create_log, ClusterLog)
    tables = blocking_call(AsyncClient.tables)
    table = blocking_maker(AsyncClient.table, ClusterTable)
    create_table = blocking_maker(AsyncClient.create_table, ClusterTable)
    drop_table = blocking_call(AsyncClient.drop_table)
    scan = blocking_maker(AsyncClient.scan, Scan)
    ingest = blocking_maker(AsyncClient.ingest, Ingest)

    def __init__(self, make: Callable[[], AsyncClient]) -> None:
        """Start the loop; entering connects."""
        super().__init__(BackgroundLoop(), make())

    @property
    def cluster(self) -> str:
        """Name of the cluster."""
        return self._target.cluster

    def ddl(self) -> ClusterDdl:
        """Change any tables together; see `AsyncClient.ddl`."""
        return ClusterDdl(self._loop, self._target.ddl())


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
