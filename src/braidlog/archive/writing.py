"""Writes data files of an archive.

A file is hashed as it is written, made durable under a name of its own attempt, and
counts for nothing until a generation lists it. What is written is checked on the way:
positions without a gap, the LLSNs of each stream without a gap. Memory is one row
group, however long the range is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa
import pyarrow.parquet as pq

from braidlog import durable
from braidlog.archive.groups import ROW_GROUPS, RowGroup, encode_groups, footer_of
from braidlog.archive.layout import ArchivedFile, data_name
from braidlog.archive.place import Place
from braidlog.archive.rows import COLUMNS
from braidlog.archive.tally import Tally
from braidlog.documents import checksum_of, hashing
from braidlog.errors import CorruptionError

# What a reader of one record decodes at most, unless the record itself is larger; and
# what a writer holds in memory.
ROW_GROUP_BYTES: Final = 16 << 20
_ROW_GROUP_ROWS: Final = 1 << 17

SCHEMA: Final = pa.schema(
    [
        pa.field(name, kind, nullable=name in ("key", "value", "headers"))
        for name, kind in COLUMNS.items()
    ]
)

# Numbers that count up cost next to nothing this way; streams and keys repeat.
_DELTA: Final = ("position", "llsn", "timestamp")
_PARQUET: Final[dict[str, Any]] = {
    "compression": "zstd",
    "use_dictionary": ["stream", "key"],
    "column_encoding": dict.fromkeys(_DELTA, "DELTA_BINARY_PACKED"),
    "write_statistics": True,
    "write_page_checksum": True,
    "store_schema": True,
    "version": "2.6",
}


class _Hashed:
    """A file that knows the checksums of what was written: of all, and of a part."""

    closed = False

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.hash = hashing()
        self.group = hashing()
        self.bytes = 0

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self.hash.update(view)
        self.group.update(view)
        self.bytes += view.nbytes
        self._raw.write(view)
        return view.nbytes

    def tell(self) -> int:
        return self.bytes

    def flush(self) -> None:
        self._raw.flush()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Leave it to who opened the file."""


def write_file(
    place: Place, begin: int, end: int, batches: Iterable[pa.RecordBatch], attempt: str
) -> ArchivedFile:
    """Write positions ``begin`` to ``end`` as one file; durable on return.

    ``batches`` have all columns of an archive, in any order of columns. ``attempt`` is
    a name that nobody else uses. The file is part of the archive when a generation
    lists it. Nothing is left of a failure.

    Raises:
        CorruptionError: the records are not the range, or not dense.
        UnavailableError: the system refuses.
    """
    name = data_name(begin, end, attempt)
    path = place.directory / name
    tally = Tally(begin)
    with place._explained(name):
        durable.make_directory(path.parent)
        with durable.replacing(path) as raw:
            sink = _Hashed(raw)
            _write(sink, batches, tally)
            raw.flush()
            _check_whole(tally, end)
            footer = footer_of(Path(raw.name))
    assert tally.times is not None  # noqa: S101, RUF100
    low, high = tally.times
    return ArchivedFile(
        path=name,
        begin=begin,
        end=end,
        bytes=sink.bytes,
        checksum=sink.hash.hexdigest(),
        footer_bytes=len(footer),
        footer_checksum=checksum_of(footer),
        timestamp_min=low,
        timestamp_max=high,
        streams=tally.ranges(),
    )


def _check_whole(tally: Tally, end: int) -> None:
    if tally.position != end:
        msg = f"the records end at position {tally.position} instead of {end}"
        raise CorruptionError(msg)


def _write(sink: _Hashed, batches: Iterable[pa.RecordBatch], tally: Tally) -> None:
    with pq.ParquetWriter(pa.PythonFile(sink, mode="w"), SCHEMA, **_PARQUET) as writer:
        groups = []
        for group in _groups(batches, tally):
            begin, sink.group = sink.bytes, hashing()
            table = pa.Table.from_batches([group])
            writer.write_table(table, row_group_size=group.num_rows)
            size = sink.bytes - begin
            groups.append(RowGroup(begin, size, sink.group.hexdigest()))
        writer.add_key_value_metadata({ROW_GROUPS: encode_groups(groups)})


def _groups(
    batches: Iterable[pa.RecordBatch], tally: Tally
) -> Iterator[pa.RecordBatch]:
    """Join batches into ones that are worth a row group; split larger ones."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        arrays = [batch[field.name].cast(field.type) for field in SCHEMA]
        ours = pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
        tally.add(ours)
        for piece in _slices(ours):
            if held and (
                size + piece.nbytes > ROW_GROUP_BYTES
                or rows + piece.num_rows > _ROW_GROUP_ROWS
            ):
                yield pa.concat_batches(held)
                held, rows, size = [], 0, 0
            held.append(piece)
            rows, size = rows + piece.num_rows, size + piece.nbytes
    if held:
        yield pa.concat_batches(held)


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    pieces = max(1, -(-batch.nbytes // ROW_GROUP_BYTES))
    rows = min(_ROW_GROUP_ROWS, max(1, -(-batch.num_rows // pieces)))
    for begin in range(0, batch.num_rows, rows):
        yield batch.slice(begin, rows)
