"""Columns that a log has in Spark, and how its Arrow batches become them.

Theory of operation: Spark cannot prune columns of a Python source, but it passes a
schema given by the user to the reader as it is. So ``.schema("position bigint, key
binary")`` is the projection: columns that it does not name are never read. Keys and
values are bytes unless an option says what they are (`payloads`); Spark
parses the schema of a typed value, and hands it back in the schema of the reader.

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
from braidlog.spark.source.options import ReadOptions
from braidlog.spark.source.payloads import decode
from braidlog.spark.source.selection import Selection, matching

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

IN_THE_PLACE: Final = ("stream", "llsn")
"""Columns that say where a record is in its log, which a table of a cluster does not
know."""

_MAY_BE_NULL: Final = ("key",)
# Headers are not: a record without any has an empty map, in every kind of place.
_WRAPPED: Final = {"json": "struct<{}>", "arrow": "array<struct<{}>>"}
_HOLDS: Final = {"json": "struct<", "arrow": "array<struct<"}


def ddl_of(options: ReadOptions) -> str:
    """Return all columns as Spark's DDL.

    Raises:
        InvalidArgumentError: the values have a format that needs a schema.
    """
    kinds = _kinds(options)
    if options.value_format in _WRAPPED:
        if not options.value_schema:
            raise InvalidArgumentError(
                f"valueFormat={options.value_format} needs .option('valueSchema', "
                "'name type, ...'), or a .schema(...) with the type of the value"
            )
        kinds["value"] = _WRAPPED[options.value_format].format(options.value_schema)
    return ", ".join(f"{name} {kind}" for name, kind in kinds.items())


def _kinds(options: ReadOptions) -> dict[str, str]:
    of_cluster = options.table and options.origin.cluster
    left_out = IN_THE_PLACE if of_cluster else ()
    kinds = {name: kind for name, (kind, _) in COLUMNS.items() if name not in left_out}
    for name, form in (("key", options.key_format), ("value", options.value_format)):
        if form == "utf8":
            kinds[name] = "string"
        elif form != "raw":
            kinds[name] = _WRAPPED[form].format("...")
    return kinds


DDL: Final = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())


@dataclass(frozen=True, slots=True)
class Column:
    """A column that Spark asked for."""

    name: str
    type: pa.DataType
    nullable: bool = True

    @property
    def field(self) -> pa.Field:
        """What Spark expects."""
        return pa.field(self.name, self.type, self.nullable)


def requested(schema: Any, options: ReadOptions) -> tuple[Column, ...]:
    """Return the columns of a Spark schema.

    Raises:
        InvalidArgumentError: A column does not exist, has another type, or is declared
            NOT NULL although it may be null.
    """
    from pyspark.sql.pandas.types import to_arrow_type

    kinds = _kinds(options)
    what = "table" if options.table else "log"
    may_be_null = {*_MAY_BE_NULL, *(["value"] if options.malformed == "null" else [])}
    columns = []
    for field in schema.fields:
        kind = field.dataType.simpleString()
        if not _fits(kind, field.name, kinds, options):
            there = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
            raise InvalidArgumentError(
                f"a {what} has no column `{field.name} {kind}`; its columns are: "
                f"{there}"
            )
        if field.name in may_be_null and not field.nullable:
            raise InvalidArgumentError(
                f"column {field.name!r} of a log can be null: declare it nullable"
            )
        kept = to_arrow_type(field.dataType, timezone="UTC")
        columns.append(Column(field.name, kept, field.nullable))
    return tuple(columns)


def _fits(kind: str, name: str, kinds: dict[str, str], options: ReadOptions) -> bool:
    if name == "value" and options.value_format in _HOLDS:
        return kind.startswith(_HOLDS[options.value_format])
    return kinds.get(name) == kind


@dataclass(frozen=True, slots=True)
class Rows:
    """What to make of stored batches: which columns, of which rows."""

    columns: Sequence[Column]
    selection: Selection
    options: ReadOptions

    @property
    def stored(self) -> list[str]:
        """The columns to read: what is asked for, and what rows are chosen by."""
        names = {column.name for column in self.columns} | set(self.selection.columns)
        names.add("position")  # counts the rows, and costs nothing: it is not stored
        return [name for name in COLUMNS if name in names]

    def of(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Turn batches of the log into Spark's, with only the rows selected."""
        schema = pa.schema([column.field for column in self.columns])
        for batch in batches:
            kept = matching(batch, self.selection.columns)
            if kept.num_rows:
                self._check(kept)
                arrays = [self._array(kept, column) for column in self.columns]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, batch: pa.RecordBatch, column: Column) -> pa.Array:
        array = batch.column(column.name)
        form = {"key": self.options.key_format, "value": self.options.value_format}
        if form.get(column.name, "raw") != "raw":
            return decode(
                array,
                batch.column("position"),
                column.field,
                form[column.name],
                fail=self.options.malformed == "fail",
            )
        return array if array.type.equals(column.type) else array.cast(column.type)

    def _check(self, batch: pa.RecordBatch) -> None:
        """Refuse a null value where the schema has none: Spark would take any bytes."""
        if not self._never_null or not batch.column("value").null_count:
            return
        nulls = pc.indices_nonzero(pc.is_null(batch.column("value")))
        at = batch.column("position")[nulls[0].as_py()].as_py()
        raise InvalidArgumentError(
            f"the value at position {at} is null, but the schema of the read declares "
            "the column NOT NULL: declare it nullable"
        )

    @property
    def _never_null(self) -> bool:
        return any(not each.nullable and each.name == "value" for each in self.columns)
