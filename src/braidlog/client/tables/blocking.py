"""Tables of a cluster for blocking code; see `braidlog.client.background`."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from braidlog import _native
from braidlog.client.background import (
    Blocking,
    blocking_call,
    blocking_iterator,
    blocking_maker,
)
from braidlog.client.tables.change import AsyncClusterDdl, ClusterTableChanges
from braidlog.client.tables.rows import AsyncIndexReads, AsyncTableReads
from braidlog.client.tables.table import (
    AsyncClusterTable,
    AsyncClusterTableIndex,
    AsyncClusterTableSnapshot,
    AsyncSnapshotIndex,
)
from braidlog.closable import Closable
from braidlog.errors import ClosedError, CorruptionError
from braidlog.store.arguments import DurationLike

if TYPE_CHECKING:
    import pyarrow as pa

    from braidlog._native import Record

__all__ = [
    "ClusterDdl",
    "ClusterSnapshotIndex",
    "ClusterTable",
    "ClusterTableIndex",
    "ClusterTableSnapshot",
]


R_co = TypeVar("R_co", bound=AsyncTableReads, covariant=True)
I_co = TypeVar("I_co", bound=AsyncIndexReads, covariant=True)


class _TableReads(Blocking[R_co]):
    """Reading a table of a cluster; see `AsyncTableReads`."""

    get = blocking_call(AsyncTableReads.get)
    get_many = blocking_call(AsyncTableReads.get_many)
    scan = blocking_iterator(AsyncTableReads._scan_chunks)
    batches = blocking_iterator(AsyncTableReads._batch_chunks)
    to_arrow = blocking_call(AsyncTableReads.to_arrow)

    def __iter__(self) -> Iterator[Record]:
        """Iterate over all keys."""
        return self.scan()

    def __arrow_c_stream__(self, requested_schema: Any | None = None) -> Any:
        """Export all keys through the Arrow C stream interface."""
        import pyarrow as pa

        from braidlog.client.arrow import log_schema

        reader = pa.RecordBatchReader.from_batches(log_schema(), self.batches())
        return reader.__arrow_c_stream__()

    def __arrow_c_schema__(self) -> Any:
        """Export the schema through the Arrow C data interface."""
        return _native.log_schema()

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of all batches: that of a log."""
        from braidlog.client.arrow import log_schema

        return log_schema()


class _IndexReads(Blocking[I_co]):
    """Reading by an indexed field; see `AsyncIndexReads`."""

    get = blocking_iterator(AsyncIndexReads._get_chunks)
    scan = blocking_iterator(AsyncIndexReads._scan_chunks)
    batches = blocking_iterator(AsyncIndexReads._batch_chunks)
    to_arrow = blocking_call(AsyncIndexReads.to_arrow)

    def __iter__(self) -> Iterator[Record]:
        """Iterate over all records that have the field."""
        return self.scan()


class ClusterTableIndex(_IndexReads[AsyncClusterTableIndex]):
    """An index of a table of a cluster; see `AsyncClusterTableIndex`."""

    describe = blocking_call(AsyncClusterTableIndex.describe)
    wait = blocking_call(AsyncClusterTableIndex.wait)

    @property
    def name(self) -> str:
        """Name of the index."""
        return self._target.name


class ClusterSnapshotIndex(_IndexReads[AsyncSnapshotIndex]):
    """An index at the position of a snapshot."""

    part = blocking_call(AsyncSnapshotIndex.part)
    divide = blocking_call(AsyncSnapshotIndex.divide)
    part_batches = blocking_iterator(AsyncSnapshotIndex._part_chunks)

    @property
    def id(self) -> str:
        """Identity of the index; one that is made anew under its name has another."""
        return self._target.id


class ClusterTableSnapshot(_TableReads[AsyncClusterTableSnapshot], Closable):
    """A table of a cluster at one position; see `AsyncClusterTableSnapshot`."""

    divide = blocking_call(AsyncClusterTableSnapshot.divide)
    share = blocking_call(AsyncClusterTableSnapshot.share)

    @property
    def position(self) -> int:
        """Position of the last record that counts."""
        return self._target.position

    def index(self, name: str) -> ClusterSnapshotIndex:
        """Return an index; see `AsyncClusterTableSnapshot.index`."""
        return ClusterSnapshotIndex(self._loop, self._target.index(name))

    def close(self) -> None:
        """Let go of what only this needs. Idempotent."""
        try:
            self._loop.end(self._target.close())
        except ClosedError:
            return  # The client was closed before, and nothing is asked for any more.


class ClusterDdl(Blocking[AsyncClusterDdl]):
    """The block in which changes of tables are gathered; see `AsyncClusterDdl`."""

    def __enter__(self) -> ClusterTableChanges:
        """Begin with no changes, of what there is now."""
        return self._loop.run(self._target.__aenter__())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Make all changes, unless the block ended with an error."""
        self._loop.run(self._target.__aexit__(kind, error, trace))


class ClusterTable(_TableReads[AsyncClusterTable]):
    """A table of a cluster with the calls of `Table`; see `AsyncClusterTable`."""

    _applied = blocking_call(AsyncClusterTable.applied)
    _wait = blocking_call(AsyncClusterTable.wait)
    stats = blocking_call(AsyncClusterTable.stats)
    describe = blocking_call(AsyncClusterTable.describe)
    flush = blocking_call(AsyncClusterTable.flush)
    verify = blocking_call(AsyncClusterTable.verify)
    rebuild = blocking_call(AsyncClusterTable.rebuild)
    index = blocking_maker(AsyncClusterTable.index, ClusterTableIndex)
    at = blocking_maker(AsyncClusterTable._held_at, ClusterTableSnapshot)

    @property
    def name(self) -> str:
        """Name of the table, when it was last looked at."""
        return self._target.name

    @property
    def log(self) -> str:
        """Name of the log that it follows."""
        return self._target.log

    @property
    def applied(self) -> int:
        """Position of the last record that the host has which answers."""
        return self._applied()

    def wait(self, position: int, *, timeout: DurationLike | None = None) -> bool:
        """Wait until a host has a record; see `AsyncClusterTable.wait`."""
        try:
            return self._wait(position, timeout=timeout)
        except ClosedError:
            return False  # The loop is closed with the client.

    def damaged_index(self, error: CorruptionError) -> str | None:
        """Return the index that an error is about, or None."""
        return self._target.damaged_index(error)

    def ddl(self) -> ClusterDdl:
        """Change this and other tables together; see `AsyncClient.ddl`."""
        return ClusterDdl(self._loop, self._target.ddl())
