"""Where a pipeline reads a log: a data directory, a cluster, or what is left of one.

=========== ==========================================================================
directory   followed without a lock, beside its writer; each task opens it again
cluster     read from the storage nodes; the log comes in the order of its positions
raw         directories of nodes that do not run: copies are compared, each record comes
            once (`rawranges`); no node may run on them
=========== ==========================================================================

Tasks are ranges of positions, whatever the number of streams: a stream that holds nine
tenths of the log is spread over as many tasks as its bytes need. With its archive a log
begins where that begins: what the log lacks is read there.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import braidlog
from braidlog.archive.place import absolute
from braidlog.archive.seam import missing
from braidlog.errors import BeyondEndError, InvalidArgumentError, TrimmedError
from braidlog.paths import local_path
from braidlog.spark.plan import Bounds, Extent, plan
from braidlog.storage.archived import named

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
_FILES_LOOKED_INTO: Final = 16
"""Files of an archive, at most, that say how much compression saves."""


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

    With ``include_archive`` what was trimmed comes from the archive of the log: the
    recorded one (True), or the one at a place, which all workers see. Raw directories
    have none. For `audit` the archive is one more copy; `archive` reads the log alone.

    The token is not among the parameters of a job, and so is written nowhere; tasks get
    it with what they have to do.
    """

    log: str
    path: str = ""
    cluster: str = ""
    raw: tuple[str, ...] = ()
    ca: str = ""
    token: str = field(default="", repr=False)
    include_archive: bool | str = False

    def __post_init__(self) -> None:
        """Refuse what names no place, or several.

        Raises:
            InvalidArgumentError: the call names none or several, or a URI as a path.
        """
        places = [bool(self.path), bool(self.cluster), bool(self.raw)]
        if sum(places) != 1 or not self.log:
            msg = (
                "a log is named by `log`, and by one of `path` (data directory),"
                " `cluster` (addresses of nodes) and `raw` (directories of dead nodes)"
            )
            raise InvalidArgumentError(msg)
        if self.raw and self.include_archive:
            msg = (
                "raw directories do not say where the archive of their log is: read"
                " archives of logs that run"
            )
            raise InvalidArgumentError(msg)
        # Here, because on a worker the home directory is another one.
        raw = (local_path(each, "a raw directory") for each in self.raw)
        object.__setattr__(self, "raw", tuple(map(str, raw)))
        for name, what in (("path", "the data directory"), ("ca", "`ca`")):
            if given := getattr(self, name):
                object.__setattr__(self, name, str(local_path(given, what)))

    def parameters(self) -> dict[str, Any]:
        """Return what identifies the origin; directories by their absolute paths.

        In which order raw directories are named makes no difference.
        """
        where: dict[str, Any] = {"log": self.log}
        if self.path:
            where["path"] = os.path.abspath(self.path)  # noqa: PTH100
        elif self.raw:
            where["raw"] = sorted(os.path.abspath(r) for r in self.raw)  # noqa: PTH100
        else:
            where["cluster"] = self.cluster
        if self.include_archive:
            where["include_archive"] = _located(self.include_archive)
        return where

    def absolute(self) -> Origin:
        """Return the same origin, for processes that run in another directory."""
        return replace(
            self,
            path=os.path.abspath(self.path) if self.path else "",  # noqa: PTH100
            raw=tuple(os.path.abspath(each) for each in self.raw),  # noqa: PTH100
            ca=os.path.abspath(self.ca) if self.ca else "",  # noqa: PTH100
            include_archive=_located(self.include_archive),
        )

    def directories(self) -> tuple[str, ...]:
        """Return the data directories that workers have to see; of a cluster none."""
        return (self.path,) if self.path else self.raw

    @contextmanager
    def open(self) -> Iterator[Source]:
        """Open the log for reading.

        Raises:
            NotFoundError: it is not there, or has no archive.
            LockedError: a node runs on a raw directory.
            LogError: whatever else keeps it from being read.
        """
        if self.path:
            with braidlog.open(self.path, read_only=True) as node:
                yield _DirectorySource(node.log(self.log), self.include_archive)
        elif self.cluster:
            with self.client() as client:
                log, scan = client.log(self.log), client.scan(self.log)
                yield _ClusterSource(log, scan, self.include_archive)
        else:
            yield _RawSource(self.raw, self.log)

    def archive_location(self) -> str:
        """Return where the archive is that is read too.

        Raises:
            NotFoundError: nobody recorded it, or it is not there.
        """
        place = named(self.include_archive)
        if self.path:
            with braidlog.open(self.path, read_only=True) as node:
                return node.log(self.log).archive(place).location
        with self.client() as client:
            found: str = client.log(self.log).archive(place).location
            return found

    def client(self) -> Any:
        """Connect to the cluster."""
        # Made anew in each process: a context cannot be sent to another one.
        context = ssl.create_default_context(cafile=self.ca) if self.ca else None
        return braidlog.connect(self.cluster, token=self.token, ssl=context)


def _located(archive: bool | str) -> bool | str:
    return absolute(archive) if isinstance(archive, str) else archive


def _archived(log: Any, included: bool | str, first: int) -> list[Extent]:
    """Return what the archive has before the first position of a log.

    To be asked after the log: what that lacks by then, the archive has.

    Raises:
        TrimmedError: neither of them has some of it.
    """
    if not included:
        return []
    archive = log.archive(named(included))
    if archive.begin < first and archive.end < first:
        there = range(archive.begin, archive.end)
        raise missing(archive.end, first, there, archive.location)
    files = archive.manifest.holding(archive.begin, first)
    some = files[:: len(files) // _FILES_LOOKED_INTO + 1]
    # Tasks are cut by what they hold, and files are compressed.
    grown = sum(map(archive.decoded_bytes, some)) / max(1, sum(f.bytes for f in some))
    return [
        Extent(
            file.begin,
            min(file.end, first),
            int(file.bytes * grown * (min(file.end, first) - file.begin) / file.rows),
        )
        for file in files
    ]


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
    def __init__(self, log: Any, archived: bool | str) -> None:
        self._log = log
        self._archived = archived
        self.id: str = log.id

    def ranges(
        self, until: int | None, bytes_per_task: int, *, ahead: int = 0
    ) -> list[Range]:
        # The end first: segments seen later may reach beyond it, never fall short.
        end, first = self._log.end, self._log.first
        extents = _archived(self._log, self._archived, first)
        begin = min((each.begin for each in extents), default=first)
        bounds = _bounds(begin, end, until, ahead)
        extents += [
            Extent(segment.begin, segment.end, segment.bytes)
            for segment in self._log.segments()
            if segment.begin < segment.end
        ]
        spans = plan(extents, bounds, bytes_per_task)
        return [Range(span.begin, span.end, span.bytes) for span in spans]

    def batches(
        self, begin: int, end: int, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        yield from self._log.batches(
            begin, end, columns=list(columns), include_archive=self._archived
        )

    def placed(self, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        number = pa.scalar(self._log.describe().stream, pa.int64())
        for batch in self._log.batches(begin, end):
            # An embedded log has one stream, so its LLSNs are the positions.
            rows = batch.append_column("stream", pa.repeat(number, batch.num_rows))
            yield rows.append_column("llsn", batch["position"])


class _ClusterSource:
    def __init__(self, log: Any, scan: Any, archived: bool | str) -> None:
        self._log = log
        self._scan = scan
        self._archived = archived
        self.id: str = log.id

    def ranges(
        self, until: int | None, bytes_per_task: int, *, ahead: int = 0
    ) -> list[Range]:
        there = self._scan.positions
        extents = _archived(self._log, self._archived, there.start)
        begin = min((each.begin for each in extents), default=there.start)
        bounds = _bounds(begin, there.stop, until, ahead)
        extents += self._extents(max(bounds.begin, there.start), bounds.end)
        spans = plan(extents, bounds, bytes_per_task)
        return [Range(span.begin, span.end, span.bytes) for span in spans]

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
        yield from self._log.batches(
            begin, end, columns=list(columns), include_archive=self._archived
        )

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
                if after >= end:
                    return
        if end != _END and after < end:
            msg = f"what is left of the log ends at {after - 1}, before {end - 1}"
            raise BeyondEndError(msg, next=after)
