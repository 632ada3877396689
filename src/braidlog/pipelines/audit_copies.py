"""Copies of a log, as an audit looks at them: one hash for each record.

=========== ==========================================================================
log         the log of a data directory, beside its writer or without one
raw         the directory of a node that does not run, on its own
node        a node of a running cluster: what it answers itself
archive     an archive of the log
=========== ==========================================================================

Bytes go no further than to the task that reads them: what it keeps of a record is
position, stream, LLSN and a hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import pyarrow as pa

import braidlog
from braidlog import _native
from braidlog.errors import InvalidArgumentError, NotFoundError
from braidlog.node.rescue.raw import streams_in
from braidlog.sources.chunks import rechunk
from braidlog.sources.origin import Origin
from braidlog.sources.plan import Bounds, Extent, plan
from braidlog.store.merge import RawDirectory, RawMerge

if TYPE_CHECKING:
    from braidlog.archive import Archive

Kind = Literal["log", "raw", "node", "archive"]

_RECORD: Final = ["timestamp", "key", "value", "headers"]
_PLACED: Final = ["position", "stream", "llsn", *_RECORD]
_LAST: Final = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a log."""

    name: str
    kind: Kind
    place: str
    """A directory, addresses of a cluster, or where an archive is."""
    node: int = 0


@dataclass(frozen=True, slots=True)
class CopyPart:
    """A part of a copy that one task reads.

    Of a node LLSNs of one stream; otherwise positions. ``files`` are looked at as such.
    """

    copy: Copy
    stream: int = 0
    begin: int = 0
    end: int = _LAST
    files: bool = False


def looks(copy: Copy, origin: Origin, bytes_per_task: int) -> list[CopyPart]:
    """Cut a copy into parts.

    Raises:
        NotFoundError: the log is not there.
    """
    if copy.kind == "raw":
        # One pass, front to back; the directory is locked while it is read.
        return [CopyPart(copy, files=True), CopyPart(copy)]
    if copy.kind == "archive":
        manifest = _archive(copy).manifest
        return [
            CopyPart(copy, files=True),
            *(CopyPart(copy, 0, file.begin, file.end) for file in manifest.files),
        ]
    if copy.kind == "log":
        with braidlog.open(copy.place, read_only=True):
            pass
        with Origin(origin.log, path=copy.place).open() as source:
            ranges = source.ranges(None, bytes_per_task)
        return [
            CopyPart(copy, files=True),
            *(CopyPart(copy, 1, each.begin, each.end) for each in ranges),
        ]
    return list(_looks_at_node(copy, origin, bytes_per_task))


def _looks_at_node(
    copy: Copy, origin: Origin, bytes_per_task: int
) -> Iterator[CopyPart]:
    with origin.client() as client:
        scan, described = client.scan(origin.log), client.log(origin.log).describe()
        there = scan.positions
        held = {info.stream for info in described.streams if copy.node in info.replicas}
        for extent in scan.extents(there.start, there.stop):
            if extent.stream not in held:
                continue
            whole = Bounds(extent.begin, extent.end)
            parts = [Extent(extent.begin, extent.end, extent.bytes)]
            for span in plan(parts, whole, bytes_per_task):
                yield CopyPart(copy, extent.stream, span.begin, span.end)


def rows_of(look: CopyPart, origin: Origin) -> Iterator[pa.RecordBatch]:
    """Give out position, stream, LLSN and hash of each record, in stored order.

    Raises:
        CorruptionError: bytes are not what was written; what comes before was given.
    """
    for batch in rechunk(_placed(look, origin)):
        digests = _native.digest_records(batch.select(_RECORD))
        columns = [batch.column(name) for name in ("position", "stream", "llsn")]
        columns.append(pa.record_batch(digests).column(0))
        yield pa.RecordBatch.from_arrays(
            [column.cast(pa.int64()) for column in columns],
            ["position", "stream", "llsn", "digest"],
        )


def _placed(look: CopyPart, origin: Origin) -> Iterator[pa.RecordBatch]:
    """Give out records with their places."""
    copy = look.copy
    if copy.kind == "archive":
        yield from _archive(copy).batches(look.begin, look.end, columns=_PLACED)
    elif copy.kind == "raw":
        yield from _raw(copy, origin.log)
    elif copy.kind == "node":
        with origin.client() as client:
            yield from client.scan(origin.log, node=copy.node).batches(
                look.stream, look.begin, look.end, columns=_PLACED
            )
    else:
        with Origin(origin.log, path=copy.place).open() as source:
            for batch in source.batches(
                look.begin, look.end, columns=["position", *_RECORD]
            ):
                position = batch.column("position")
                yield _with(batch, position, look.stream, position)


def _with(batch: pa.RecordBatch, position: Any, stream: int, llsn: Any) -> Any:
    streams = pa.repeat(pa.scalar(stream, pa.int64()), batch.num_rows)
    columns = [position, streams, llsn, *(batch.column(name) for name in _RECORD)]
    return pa.RecordBatch.from_arrays(columns, _PLACED)


def _raw(copy: Copy, log: str) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    with RawDirectory(copy.place) as directory:
        streams = streams_in(directory, log)
        if not streams:
            raise NotFoundError(f"there is no log {log!r} in {copy.place}")
        with closing(RawMerge([(directory, streams)], on_hole="skip")) as merge:
            for rows in merge.encoded():
                for row in rows:
                    last = row.first + row.count
                    made = _native.Batch(row.batch).arrow(
                        row.position - row.first,
                        row.first,
                        last,
                        ["position", *_RECORD],
                    )
                    batch = pa.record_batch(made)
                    position = batch.column("position")
                    llsn = pc.add(position, row.llsn - row.position)
                    yield _with(batch, position, row.stream, llsn)


def _archive(copy: Copy) -> Archive:
    from braidlog.archive import open_archive

    return open_archive(copy.place)


def problems_of(look: CopyPart) -> list[tuple[str, str]]:
    """Return what is wrong with the files of a copy: which file, and what.

    Raises:
        InvalidArgumentError: of such a copy no files are seen.
    """
    copy = look.copy
    if copy.kind in ("raw", "log"):
        from braidlog.store import inspect

        report = inspect.verify(Path(copy.place))
        return [
            (
                found.path
                if found.offset is None
                else f"{found.path} at {found.offset}",
                found.problem,
            )
            for found in report.findings
        ]
    if copy.kind == "archive":
        from braidlog.archive import verify

        return [(each.path, each.problem) for each in verify(_archive(copy)).damage]
    raise InvalidArgumentError(f"the files of {copy.name} cannot be read from here")
