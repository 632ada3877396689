"""Where a pipeline reads a log: a data directory, a cluster, or what is left of one.

=========== ==========================================================================
directory   followed without a lock, beside its writer; each task opens it again
cluster     read from the storage nodes; the log comes in the order of its positions
raw         directories of nodes that do not run: copies are compared, each record comes
            once (`rawranges`); no node may run on them
=========== ==========================================================================

Tasks are ranges of positions, whatever the number of streams: a stream that holds nine
tenths of the log is spread over as many tasks as its bytes need.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import braidlog
from braidlog.errors import BeyondEndError, InvalidArgumentError, TrimmedError
from braidlog.spark.plan import Bounds, Extent, plan

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["BYTES_PER_TASK", "Origin", "Range", "Source", "joined"]

BYTES_PER_TASK: Final = 64 << 20
"""About how much of a log one task reads."""

_TASKS_MAX: Final = 8192
"""Tasks of a stage that others follow: each of those reads something of all of them."""

_END: Final = (1 << 62) - 1
_POSITIONS_PER_LOOK: Final = 16
"""Parts that a log of a cluster is cut into, at most, to estimate bytes."""


@dataclass(frozen=True, slots=True)
class Range:
    """What one task reads: positions, and about how many bytes they hold."""

    begin: int
    end: int
    bytes: int


def joined(ranges: Sequence[Range], tasks_max: int = _TASKS_MAX) -> list[Range]:
    """Join neighbours, as few as it takes, to at most so many ranges."""
    count = max(1, -(-len(ranges) // tasks_max))
    found = []
    for at in range(0, len(ranges), count):
        some = ranges[at : at + count]
        size = sum(each.bytes for each in some)
        found.append(Range(some[0].begin, some[-1].end, size))
    return found


class Source(Protocol):
    """A log that is open for reading."""

    @property
    def id(self) -> str:
        """Identity of the log, where it is known."""

    def ranges(
        self, until: int | None, bytes_per_task: int, *, ahead: int = 0
    ) -> list[Range]:
        """Cut what can be read now, up to the position ``until``, into tasks.

        And so many positions ``ahead`` of it, as far as they are there.

        Raises:
            BeyondEndError: the log ends before ``until``.
        """

    def batches(
        self, begin: int, end: int, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """Give out records in the order of positions, without a gap."""

    def placed(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """Give out records with all that there is of them: stream and LLSN too."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A log, and how to get at it. Exactly one of the three ways is named.

    The token is not among the parameters of a job, and so is written nowhere; tasks get
    it with what they have to do.
    """

    log: str
    path: str = ""
    cluster: str = ""
    raw: tuple[str, ...] = ()
    ca: str = ""
    token: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        """Refuse what names no place, or several.

        Raises:
            InvalidArgumentError: the call names none or several.
        """
        places = [bool(self.path), bool(self.cluster), bool(self.raw)]
        if sum(places) != 1 or not self.log:
            msg = (
                "a log is named by `log`, and by one of `path` (data directory),"
                " `cluster` (addresses of nodes) and `raw` (directories of dead nodes)"
            )
            raise InvalidArgumentError(msg)

    def parameters(self) -> dict[str, Any]:
        """Return what identifies the origin; directories by their absolute paths.

        In which order raw directories are named makes no difference.
        """
        if self.path:
            return {"log": self.log, "path": os.path.abspath(self.path)}  # noqa: PTH100
        if self.raw:
            found = sorted(os.path.abspath(each) for each in self.raw)  # noqa: PTH100
            return {"log": self.log, "raw": found}
        return {"log": self.log, "cluster": self.cluster}

    def absolute(self) -> Origin:
        """Return the same origin, for processes that run in another directory."""
        return Origin(
            self.log,
            os.path.abspath(self.path) if self.path else "",  # noqa: PTH100
            self.cluster,
            tuple(os.path.abspath(each) for each in self.raw),  # noqa: PTH100
            os.path.abspath(self.ca) if self.ca else "",  # noqa: PTH100
            self.token,
        )

    @contextmanager
    def open(self) -> Iterator[Source]:
        """Open the log for reading.

        Raises:
            NotFoundError: it is not there.
            LockedError: a node runs on a raw directory.
            LogError: whatever else keeps it from being read.
        """
        if self.path:
            with braidlog.open(self.path, read_only=True) as node:
                yield _DirectorySource(node.log(self.log))
        elif self.cluster:
            with self.client() as client:
                yield _ClusterSource(client.log(self.log), client.scan(self.log))
        else:
            yield _RawSource(self.raw, self.log)

    def client(self) -> Any:
        """Connect to the cluster."""
        # Made anew in each process: a context cannot be sent to another one.
        context = ssl.create_default_context(cafile=self.ca) if self.ca else None
        return braidlog.connect_sync(self.cluster, token=self.token, ssl=context)


def _bounds(first: int, end: int, until: int | None, ahead: int) -> Bounds:
    """Return what can be read up to a position."""
    if until is not None and until >= end:
        msg = f"the log ends at {end - 1}, before {until}"
        raise BeyondEndError(msg, next=end)
    if until is not None and until < first:
        msg = f"the log begins at {first}, behind {until}"
        raise TrimmedError(msg, first=first)
    return Bounds(first, end if until is None else min(end, until + 1 + ahead))


class _DirectorySource:
    def __init__(self, log: Any) -> None:
        self._log = log
        self.id: str = log.id

    def ranges(
        self, until: int | None, bytes_per_task: int, *, ahead: int = 0
    ) -> list[Range]:
        # The end first: segments seen later may reach beyond it, never fall short.
        bounds = _bounds(self._log.first, self._log.end, until, ahead)
        extents = [
            Extent(segment.begin, segment.end, segment.bytes)
            for segment in self._log.segments()
            if segment.begin < segment.end
        ]
        spans = plan(extents, bounds, bytes_per_task)
        return [Range(span.begin, span.end, span.bytes) for span in spans]

    def batches(
        self, begin: int, end: int, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        yield from self._log.batches(begin, end, columns=list(columns))

    def placed(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        number = pa.scalar(self._log.describe().stream, pa.int64())
        for batch in self._log.batches(begin, end):
            # An embedded log has one stream, so its LLSNs are the positions.
            rows = batch.append_column("stream", pa.repeat(number, batch.num_rows))
            yield rows.append_column("llsn", batch["position"])


class _ClusterSource:
    def __init__(self, log: Any, scan: Any) -> None:
        self._log = log
        self._scan = scan
        self.id: str = log.id

    def ranges(
        self, until: int | None, bytes_per_task: int, *, ahead: int = 0
    ) -> list[Range]:
        there = self._scan.positions
        bounds = _bounds(there.start, there.stop, until, ahead)
        return [
            Range(span.begin, span.end, span.bytes)
            for span in plan(
                self._extents(bounds.begin, bounds.end), bounds, bytes_per_task
            )
        ]

    def _extents(self, begin: int, end: int) -> list[Extent]:
        """Estimate bytes: records in one part of a log may be larger than elsewhere."""
        step = max(1, -(-(end - begin) // _POSITIONS_PER_LOOK))
        found = []
        for start in range(begin, end, step):
            stop = min(end, start + step)
            size = sum(each.bytes for each in self._scan.extents(start, stop))
            found.append(Extent(start, stop, size))
        return found

    def batches(
        self, begin: int, end: int, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        self._log.refresh()
        yield from self._log.batches(begin, end, columns=list(columns))

    def placed(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        yield from self._log.placed_batches(begin, end)


class _RawSource:
    id = ""

    def __init__(self, directories: Sequence[str], log: str) -> None:
        self._directories = directories
        self._name = log

    def ranges(
        self, until: int | None, bytes_per_task: int, *, ahead: int = 0
    ) -> list[Range]:
        from braidlog.pipelines.rawranges import look

        found = look(self._directories, self._name)
        if found is not None:
            bounds = _bounds(found.begin, found.end, until, ahead)
            spans = plan(found.extents, bounds, bytes_per_task)
            return [Range(span.begin, span.end, span.bytes) for span in spans]
        # Where the log ends is known when all of it was read.
        size = sum(
            file.stat().st_size
            for directory in self._directories
            for file in Path(directory, "wal").glob("*.wal")
        )
        end = _END if until is None or ahead else until + 1
        return [Range(0, end, size)]

    def placed(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        msg = "raw directories keep no cursors: archive the log that goes on from them"
        raise InvalidArgumentError(msg)

    def batches(
        self, begin: int, end: int, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        if begin:
            from braidlog.pipelines.rawranges import read

            yield from read(self._directories, self._name, begin, end, columns)
        else:
            yield from self._all(end, columns)

    def _all(self, end: int, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Read all up to a position, in one pass."""
        import pyarrow as pa

        from braidlog.node.raw import open_raw

        merge = open_raw(self._directories, self._name)
        after = 0
        with closing(merge):
            for each in merge:
                batch = pa.record_batch(each)
                first = batch.column("position")[0].as_py()
                rows = batch.slice(0, max(0, end - first))
                if rows.num_rows:
                    yield rows.select(list(columns))
                after = first + rows.num_rows
                if rows.num_rows < batch.num_rows:
                    return
        if end != _END and after < end:
            msg = f"what is left of the log ends at {after - 1}, before {end - 1}"
            raise BeyondEndError(msg, next=after)
