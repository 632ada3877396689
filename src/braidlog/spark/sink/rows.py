"""What Spark hands to the sink, as records of a log, by the stream they go to.

Theory of operation: a batch of the query is brought to the columns and types of a log,
the core checks what an append would check and says for each row where its key leads,
and Arrow takes the rows apart. No row is looked at in Python.

Records without a time get it when they are stored, so that a task that runs again gives
the same bytes.

Invariants: rows of one stream keep their order; what comes out can be appended, up to
the largest size of a record, which depends on where it goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from braidlog import _native
from braidlog.errors import InvalidArgumentError
from braidlog.types import Timestamp

SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("headers", pa.map_(pa.string(), pa.binary())),
    ]
)
"""Columns of a staged file; of a record without a time that is null."""

_TIME: Final = SCHEMA.get_field_index("timestamp")
_STREAM: Final = "stream"
_COLUMNS: Final = (*SCHEMA.names, _STREAM)
_KINDS: Final = {
    "key": ("binary", "string"),
    "value": ("binary", "string"),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "headers": ("map<string,binary>", "map<string,string>"),
    _STREAM: ("int", "bigint", "smallint", "tinyint"),
}


def check_columns(columns: Sequence[tuple[str, str]]) -> None:
    """Refuse columns, each a name and Spark's type, that are not those of a record.

    Raises:
        InvalidArgumentError: one is unknown, missing or of another type.
    """
    names = [name for name, _ in columns]
    for name, kind in columns:
        if name not in _KINDS or names.count(name) > 1:
            assigned = name in ("position", "llsn")
            why = (
                "is assigned by the log: drop it" if assigned else "is not one of them"
            )
            raise InvalidArgumentError(
                f"the sink writes the columns {', '.join(_COLUMNS)}; column "
                f"{name!r} {why}"
            )
        if kind not in _KINDS[name]:
            wanted = " or ".join(_KINDS[name])
            raise InvalidArgumentError(
                f"column {name!r} must be {wanted}, not {kind}: cast it"
            )
    if "value" not in names:
        raise InvalidArgumentError(
            "the data has no column 'value', which becomes the value of each "
            "record: add it, for example with select(col(...).alias('value'))"
        )


@dataclass(slots=True)
class Router:
    """Takes batches of one task apart by stream."""

    keyed: tuple[int, ...]
    """The streams that keys are spread over, in the order in which they count."""
    turn: int
    """Which of them gets records without a key, so that tasks spread."""
    largest: int = 0
    """Bytes that the largest record so far takes, encoded."""

    def route(self, batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of each stream that gets any.

        Raises:
            InvalidArgumentError: a row cannot be a record; names column and row.
        """
        if not batch.num_rows:
            return
        rows = self._records(batch)
        places = batch.schema.get_field_index(_STREAM)
        if places >= 0 and batch.column(places).null_count < batch.num_rows:
            yield from self._placed(rows, batch.column(places))
        else:
            yield from self._hashed(rows)

    def _records(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = [self._column(batch, field) for field in SCHEMA]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def _column(self, batch: pa.RecordBatch, field: pa.Field) -> pa.Array:
        at = batch.schema.get_field_index(field.name)
        if at < 0:
            return pa.nulls(batch.num_rows, field.type)
        column = batch.column(at)
        if field.name == "timestamp":
            # What has no zone is UTC, as everywhere in a log.
            return column.cast(pa.timestamp("us")).cast(pa.int64()).cast(field.type)
        return column.cast(field.type)

    def _placed(
        self, rows: pa.RecordBatch, places: pa.Array
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        for stream in pc.unique(places).to_pylist():
            if stream is None:
                yield from self._hashed(rows.filter(pc.is_null(places)))
                continue
            if stream not in self.keyed:
                known = ", ".join(map(str, self.keyed))
                raise InvalidArgumentError(
                    f"column 'stream' has the value {stream}, but the streams of the "
                    f"log are {known}"
                )
            chosen = rows.filter(pc.equal(places, stream))
            self._check(chosen)
            yield stream, chosen

    def _hashed(self, rows: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
        *groups, keyless = self._check(rows)
        groups[self.turn % len(groups)] = _merged(
            groups[self.turn % len(groups)], keyless
        )
        for stream, group in zip(self.keyed, groups, strict=True):
            indexes = _numbers(group)
            if len(indexes) == rows.num_rows:
                yield stream, rows
            elif len(indexes):
                yield stream, rows.take(indexes)

    def _check(self, rows: pa.RecordBatch) -> list[bytes]:
        # What a record takes is the same for every time.
        checked = timed(rows, 0)
        groups, largest = _native.route_arrow(checked, len(self.keyed))
        self.largest = max(self.largest, largest)
        return groups


def timed(rows: pa.RecordBatch, now: Timestamp) -> pa.RecordBatch:
    """Return records with a time for those that have none."""
    column = rows.column(_TIME)
    if not column.null_count:
        return rows
    filled = pc.fill_null(column, pa.scalar(now, column.type))
    return rows.set_column(_TIME, SCHEMA.field(_TIME), filled)


def _numbers(group: bytes) -> Any:
    return pa.Array.from_buffers(
        pa.int32(), len(group) // 4, [None, pa.py_buffer(group)]
    )


def _merged(one: bytes, other: bytes) -> bytes:
    """Return both groups of row numbers, ascending: rows keep their order."""
    if not one or not other:
        return one or other
    both = pa.concat_arrays([_numbers(one), _numbers(other)])
    ordered = both.take(pc.sort_indices(both))
    numbers: bytes = ordered.buffers()[1].to_pybytes()
    return numbers[: 4 * len(ordered)]
