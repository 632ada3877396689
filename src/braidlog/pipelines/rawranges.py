"""Ranges of positions of raw directories, for many tasks at once; copies are compared.

*Theory of operation.* A merge (`braidlog.storage.merge`) passes over directories front
to back, in one process. Here a range of positions is a range of each stream, found by
the number index (`braidlog.storage.rawstreams`), read from every directory that has it,
and compared a few MiB at a time. Whoever reads holds a lock together with others who
read, so that no node begins to run on a directory meanwhile.

*Invariants.* A range comes out as a merge gives it, or not at all. `look` gives one
range for all where the streams alone do not tell all of the log: where positions are
missing, where only the metadata repository knows what was committed, or where the end
of a directory is damaged. That is for a merge to decide.

A range costs some times the processor time of a merge, the more the shorter commits
are, so a log that a merge reads in seconds is left to one.
"""

from __future__ import annotations

import fcntl
import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from braidlog import _native
from braidlog.errors import CorruptionError, LockedError
from braidlog.node.raw import choose_raw, open_raw
from braidlog.spark.chunks import rechunk
from braidlog.spark.plan import Extent
from braidlog.storage.rawstreams import RawStreams, StoredPart

__all__ = ["RawExtents", "look", "read"]

_log = logging.getLogger(__name__)

_LAST: Final = (1 << 62) - 1
_LOCK: Final = "LOCK"
_COLUMNS: Final = ["position", "timestamp", "key", "value", "headers"]
_BYTES_MIN: Final = 1 << 30
"""A merge reads that in two seconds or so."""
_POSITIONS_PER_LOOK: Final = 64
"""Parts that a log is cut into, at most, to estimate bytes."""


@dataclass(frozen=True, slots=True)
class RawExtents:
    """What directories have of a log: positions without a gap, and bytes."""

    begin: int
    end: int
    extents: tuple[Extent, ...]


def look(directories: Sequence[str], log: str) -> RawExtents | None:
    """Say what ranges can be read; None if a merge has to read all in one.

    Raises:
        LockedError: a node runs on one of the directories, or somebody reads it.
        LogError: what `open_raw` raises.
    """
    found = _look(directories, log)
    if isinstance(found, str):
        _log.info("log %r is read by one task: %s", log, found)
        return None
    return found


def _look(directories: Sequence[str], log: str) -> RawExtents | str:
    """Return what ranges can be read, or why a merge has to read all in one."""
    with open_raw(directories, log) as merge:
        figures = merge.figures()
        first, committed, last = figures.next, merge.committed, merge.end
    if figures.damages:
        return str(figures.damages[0])
    with _opened(directories, log) as streams:
        ends, end = streams.cut(_LAST), streams.end(first)
        if ends != committed:
            return f"its streams end at {ends}, committed is {committed}"
        if end != last:
            return f"position {end} is missing, the last one is {last}"
        extents = tuple(_extents(streams, first, last))
    size = sum(extent.bytes for extent in extents)
    if size < _BYTES_MIN:
        return f"it has {size} bytes only"
    return RawExtents(first, last, extents)


def _extents(streams: RawStreams, begin: int, end: int) -> Iterator[Extent]:
    step = max(1, -(-(end - begin) // _POSITIONS_PER_LOOK))
    segments = {stream: streams.segments(stream) for stream in streams.streams}
    lows = streams.cut(begin)
    for start in range(begin, end, step):
        stop = min(end, start + step)
        highs = streams.cut(stop)
        size = 0
        for stream, low in lows.items():
            for each in segments[stream]:
                there = min(highs[stream], each.end) - max(low, each.begin)
                if there > 0:
                    size += each.bytes * there // (each.end - each.begin)
        yield Extent(start, stop, size)
        lows = highs


def read(
    directories: Sequence[str],
    log: str,
    begin: int,
    end: int,
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """Give out the records of a range that `look` found, once each, in order.

    Raises:
        LockedError: a node runs on one of the directories.
        CorruptionError: copies differ, or no directory has a record undamaged.
    """
    with _opened(directories, log) as streams:
        lows, highs = streams.cut(begin), streams.cut(end)
        each = [_compared(streams, n, low, highs[n]) for n, low in lows.items()]
        for batch in rechunk(_merged(each)):
            positions = batch.column("position").to_numpy()
            if not (positions == np.arange(begin, begin + len(positions))).all():
                break
            begin += len(positions)
            yield batch.select(list(columns))
        if begin != end:
            msg = f"one of the positions from {begin} on is in none of the directories"
            raise CorruptionError(msg)


def _merged(streams: Sequence[Iterator[pa.Table]]) -> Iterator[pa.RecordBatch]:
    """Merge tables by position, a part of each that all of them reach at a time."""
    held: list[tuple[Iterator[pa.Table], pa.Table]] = []
    for coming in streams:
        held += [(coming, table) for table in islice(coming, 1)]
    while held:
        reach = min(table["position"][-1].as_py() for _, table in held)
        taken, left = [], []
        for coming, table in held:
            count = int(np.searchsorted(table["position"].to_numpy(), reach, "right"))
            taken.append(table.slice(0, count))
            if count < table.num_rows:
                left.append((coming, table.slice(count)))
            else:
                left += [(coming, following) for following in islice(coming, 1)]
        held = left
        merged = pa.concat_tables(taken)
        rows = np.argsort(merged["position"].to_numpy(), kind="stable")
        yield from merged.take(pa.array(rows)).combine_chunks().to_batches()


def _compared(
    streams: RawStreams, stream: int, begin: int, end: int
) -> Iterator[pa.Table]:
    """Yield LLSNs of a stream, some MiB at a time, the same in all copies."""
    copies = streams.copies(stream)
    damaged: dict[int, CorruptionError] = {}
    while begin < end:
        able = [
            copy
            for copy, (_, there) in enumerate(copies)
            if begin in there and copy not in damaged
        ]
        if not able:
            msg = f"no directory has {begin} to {end} of stream {stream}"
            raise next(iter(damaged.values()), CorruptionError(msg))
        try:
            stop = min(end, copies[able[0]][1].stop)
            parts = streams.copy_chunk(stream, able[0], begin, stop)
            found = pa.Table.from_batches([_decoded(part) for part in parts])
        except CorruptionError as error:
            damaged[able[0]] = error
            continue
        stop = parts[-1].llsn + parts[-1].count
        for copy, (where, there) in enumerate(copies):
            low, high = max(begin, there.start), min(stop, there.stop)
            if copy == able[0] or copy in damaged or low >= high:
                continue
            try:
                if low == begin and parts == streams.copy_chunk(
                    stream, copy, begin, high
                ):
                    continue  # To the byte, as long as nobody cut batches anew.
                others = _rows(streams, stream, copy, low, high)
            except CorruptionError as error:
                damaged[copy] = error
                continue
            mine = found.slice(low - begin, high - low)
            if not mine.equals(others):
                raise _differ(mine, others, copies[able[0]][0], where)
        yield found.combine_chunks()
        begin = stop


def _rows(
    streams: RawStreams, stream: int, copy: int, begin: int, end: int
) -> pa.Table:
    """Return what a copy has of a range."""
    found = []
    while begin < end:
        parts = streams.copy_chunk(stream, copy, begin, end)
        found += [_decoded(part) for part in parts]
        begin = parts[-1].llsn + parts[-1].count
    return pa.Table.from_batches(found)


def _decoded(part: StoredPart) -> pa.RecordBatch:
    """Return the records of a part, whose bytes are verified here."""
    batch = _native.Batch(part.data)
    if batch.count != part.size:
        msg = f"a batch of {batch.count} records is stored as one of {part.size}"
        raise CorruptionError(msg)
    position, last = part.glsn - part.skip, part.skip + part.count
    return pa.record_batch(batch.arrow(position, part.skip, last, _COLUMNS))


def _differ(
    mine: pa.Table, theirs: pa.Table, one: Path, other: Path
) -> CorruptionError:
    low, high = 0, mine.num_rows
    while high - low > 1:  # The first half that differs, again and again.
        middle = (low + high) // 2
        same = mine.slice(low, middle - low).equals(theirs.slice(low, middle - low))
        low, high = (middle, high) if same else (low, middle)
    position = mine["position"][low].as_py()
    msg = f"the copies of the record at {position} in {one} and {other} differ"
    return CorruptionError(msg, path=str(one))


@contextmanager
def _opened(directories: Sequence[str], log: str) -> Iterator[RawStreams]:
    with ExitStack() as stack:
        for directory in directories:
            stack.enter_context(_shared(Path(directory)))
        yield stack.enter_context(RawStreams(choose_raw(directories, log)))


@contextmanager
def _shared(directory: Path) -> Iterator[None]:
    """Hold the lock of a directory together with others who read."""
    with (directory / _LOCK).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            msg = f"a node runs on {directory}: read the log from it, or stop it"
            raise LockedError(msg, path=str(directory)) from None
        yield
