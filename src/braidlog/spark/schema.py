"""Columns that a log has in Spark, and how its Arrow batches become them.

Theory of operation: Spark cannot prune columns of a Python source, but it passes a
schema given by the user to the reader as it is. So ``.schema("position bigint, key
binary")`` is the projection: columns that it does not name are never read. ``stream``
and ``llsn`` are not stored: an embedded log has one stream, and there positions are
LLSNs.

Invariants: a batch equals Spark's Arrow schema exactly, in names, order, types and
nullability; Spark refuses anything else. All columns are nullable in the default
schema, which always matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from braidlog.errors import InvalidArgumentError

__all__ = ["COLUMNS", "DDL", "Column", "Slice", "project", "requested", "stored"]

COLUMNS: Final = {
    "stream": ("int", pa.int32()),
    "llsn": ("bigint", pa.int64()),
    "position": ("bigint", pa.int64()),
    "timestamp": ("timestamp", pa.timestamp("us", tz="UTC")),
    "key": ("binary", pa.binary()),
    "value": ("binary", pa.binary()),
    "headers": ("map<string,binary>", pa.map_(pa.string(), pa.binary())),
}
"""Spark's and Arrow's type of each column, in the order of the default schema."""

DDL: Final = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())

_MAY_BE_NULL: Final = ("key", "headers")


@dataclass(frozen=True, slots=True)
class Column:
    """A column that Spark asked for."""

    name: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Slice:
    """What to make of stored batches: columns, a time range, the stream to name."""

    columns: tuple[Column, ...]
    since: int | None
    until: int | None
    stream: int

    @property
    def timed(self) -> bool:
        """Tell whether rows are chosen by their timestamps."""
        return self.since is not None or self.until is not None


def requested(schema: Any) -> tuple[Column, ...]:
    """Return the columns of a Spark schema.

    Raises:
        InvalidArgumentError: A column does not exist, has another type, or is declared
            NOT NULL although it may be null.
    """
    columns = []
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if field.name not in COLUMNS or kind != COLUMNS[field.name][0]:
            raise InvalidArgumentError(
                f"a log has no column `{field.name} {kind}`; its columns are: {DDL}"
            )
        if field.name in _MAY_BE_NULL and not field.nullable:
            raise InvalidArgumentError(f"column {field.name!r} of a log may be null")
        columns.append(Column(field.name, field.nullable))
    return tuple(columns)


def stored(
    columns: Sequence[Column], *, timestamps: bool, llsn: bool = False
) -> list[str]:
    """Return the stored columns to read; timestamps too if rows are chosen by them.

    With ``llsn`` that is one of them.
    """
    computed = {"stream"} if llsn else {"stream", "llsn"}
    names = {column.name for column in columns} - computed
    names.add("position")  # counts the rows, and costs nothing: it is not stored either
    if timestamps:
        names.add("timestamp")
    return [name for name in COLUMNS if name in names]


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    """Return what Spark expects for these columns."""
    return pa.schema(
        pa.field(column.name, COLUMNS[column.name][1], column.nullable)
        for column in columns
    )


def project(
    batches: Iterator[pa.RecordBatch], wanted: Slice
) -> Iterator[pa.RecordBatch]:
    """Turn batches of the log into Spark's, with only the rows in the time range."""
    schema = arrow_schema(wanted.columns)
    for batch in batches:
        kept = _in_time(batch, wanted) if wanted.timed else batch
        if kept.num_rows:
            arrays = [_column(kept, field, wanted.stream) for field in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _in_time(batch: pa.RecordBatch, wanted: Slice) -> pa.RecordBatch:
    for bound, keeps in ((wanted.since, pc.greater_equal), (wanted.until, pc.less)):
        if bound is not None:
            instants = batch.column("timestamp").cast(pa.int64())
            batch = batch.filter(keeps(instants, bound))
    return batch


def _column(batch: pa.RecordBatch, field: pa.Field, stream: int) -> pa.Array:
    if field.name == "stream":
        return pa.repeat(pa.scalar(stream, field.type), batch.num_rows)
    name = field.name
    if name == "llsn" and name not in batch.schema.names:
        name = "position"  # of an embedded log
    array = batch.column(name)
    return array if array.type.equals(field.type) else array.cast(field.type)
