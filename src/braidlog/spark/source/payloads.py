"""Values with a type: text, JSON, Arrow streams.

Theory of operation: a whole batch of values is decoded at once, by Arrow. If that
fails, some value is malformed: the batch is halved until it is found, and is an error
that names its position, or becomes null. So only what is malformed is looked at one by
one.

A JSON value is wrapped before it is parsed, ``{"v":`` value ``}``, so that each gives
exactly one row or fails: a value that is cut off cannot be completed by the next one,
because the brace behind it comes first, and a value that is two gives a row too many.

Invariant: the array that comes out has one element for each value, in their order; a
null value is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.ipc
import pyarrow.json

from braidlog.errors import CorruptionError

_OPEN: Final = b'{"v":'
_CLOSE: Final = b"}\n"


class MalformedPayloadError(CorruptionError):
    """A key or value is not what the options say it is."""

    code = 140
    hint = "Check the record, or pass malformed=null to read such values as null"


def decode(
    values: pa.Array,
    positions: pa.Array,
    field: pa.Field,
    form: str,
    *,
    fail: bool,
) -> pa.Array:
    """Return keys or values as what they are; null ones stay null.

    Raises:
        MalformedPayloadError: one of them is something else, and ``fail``.
    """
    if values.null_count:
        there = pc.is_valid(values)
        found = decode(
            values.filter(there), positions.filter(there), field, form, fail=fail
        )
        # Each null one takes an index that is null.
        at = pc.subtract(pc.cumulative_sum(there.cast(pa.int64())), 1)
        return found.take(pc.if_else(there, at, None))
    read = {"utf8": _texts, "json": _objects, "arrow": _tables}[form]

    def piece(begin: int, end: int) -> list[pa.Array]:
        try:
            return [read(values.slice(begin, end - begin), field.type)]
        except pa.ArrowException as error:
            if end - begin == 1:
                if fail:
                    at = positions[begin].as_py()
                    msg = f"the {field.name} at position {at} is not {form}: {error}"
                    raise MalformedPayloadError(msg) from None
                return [pa.nulls(1, field.type)]
        middle = (begin + end) // 2
        return piece(begin, middle) + piece(middle, end)

    pieces = piece(0, len(values))
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _texts(values: pa.Array, kind: pa.DataType) -> pa.Array:
    return values.cast(kind)


def _objects(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if not len(values):
        return pa.nulls(0, kind)
    wrapped = pc.binary_join_element_wise(_OPEN, values, _CLOSE, b"")
    whole = pa.ListArray.from_arrays(pa.array([0, len(wrapped)], pa.int32()), wrapped)
    text = pc.binary_join(whole, b"")[0].as_buffer()
    table = pyarrow.json.read_json(
        pa.BufferReader(text),
        # One block: lines are told apart by parsing, as values may have newlines.
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text)),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([pa.field("v", kind)]),
            newlines_in_values=True,
            unexpected_field_behavior="ignore",
        ),
    )
    if len(table) != len(values):
        raise pa.ArrowInvalid("one of them is several values")
    found = table.column("v").combine_chunks()
    found = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    found.validate(full=True)  # text that is not UTF-8
    return found


def _tables(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Read an Arrow IPC stream of each value, as a list of rows."""
    tables = [pa.ipc.open_stream(value.as_buffer()).read_all() for value in values]
    rows = kind.value_type
    offsets = [0]
    for table in tables:
        offsets.append(offsets[-1] + len(table))
    parts = [chunk for table in tables for chunk in _structs(table, rows)]
    joined = pa.concat_arrays(parts) if parts else pa.nulls(0, rows)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), joined, type=kind)


def _structs(table: pa.Table, rows: pa.StructType) -> Iterator[pa.Array]:
    names = [rows.field(i).name for i in range(rows.num_fields)]
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise pa.ArrowInvalid(f"there is no column {missing[0]!r}")
    wanted: Callable[[Any], Any] = pa.schema(list(rows)).field
    for batch in table.select(names).to_batches():
        arrays = [batch.column(name).cast(wanted(name).type) for name in names]
        yield pa.StructArray.from_arrays(arrays, fields=list(rows))
