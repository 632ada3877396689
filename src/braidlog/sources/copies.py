"""Compares the copies that directories of dead nodes have of one stream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from braidlog import _native
from braidlog.errors import CorruptionError
from braidlog.store.raw_streams import RawStreams, StoredPart

if TYPE_CHECKING:
    import pyarrow as pa

_COMPARED: Final = ["position", "timestamp", "key", "value", "headers"]


def compared(
    streams: RawStreams, stream: int, begin: int, end: int
) -> Iterator[tuple[StoredPart, pa.RecordBatch]]:
    """Yield LLSNs of a stream, the same in all copies, which are read in turn.

    A copy that is damaged is passed over as long as another one is whole.

    Raises:
        CorruptionError: no copy is whole, or two that are whole differ.
    """
    import pyarrow as pa

    copies = streams.copies(stream)
    damaged: dict[int, CorruptionError] = {}
    while begin < end:
        able = [
            copy
            for copy, (_, there) in enumerate(copies)
            if begin in there and copy not in damaged
        ]
        if not able:
            msg = f"no directory has LLSNs {begin} to {end} of stream {stream}"
            raise next(iter(damaged.values()), CorruptionError(msg))
        try:
            stop = min(end, copies[able[0]][1].stop)
            parts = streams.copy_chunk(stream, able[0], begin, stop)
            rows = [_decoded(part) for part in parts]
        except CorruptionError as error:
            damaged[able[0]] = error
            continue
        found = pa.Table.from_batches(rows)
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
        yield from zip(parts, rows, strict=True)
        begin = stop


def _rows(
    streams: RawStreams, stream: int, copy: int, begin: int, end: int
) -> pa.Table:
    """Return what a copy has of a range."""
    import pyarrow as pa

    found = []
    while begin < end:
        parts = streams.copy_chunk(stream, copy, begin, end)
        found += [_decoded(part) for part in parts]
        begin = parts[-1].llsn + parts[-1].count
    return pa.Table.from_batches(found)


def _decoded(part: StoredPart) -> pa.RecordBatch:
    """Return the records of a part, whose bytes are verified here."""
    import pyarrow as pa

    batch = _native.Batch(part.data)
    if batch.count != part.size:
        msg = f"a batch of {batch.count} records is listed with {part.size} records"
        raise CorruptionError(msg)
    position, last = part.glsn - part.skip, part.skip + part.count
    return pa.record_batch(batch.arrow(position, part.skip, last, _COMPARED))


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
