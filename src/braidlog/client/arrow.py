"""Arrow data to columns of Python values, and the schema of a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from braidlog import _native
from braidlog.errors import InvalidArgumentError
from braidlog.store.arguments import checked_columns

_APPENDED: Final = ("value", "key", "timestamp", "headers")

Columns = tuple[list[bytes | None], list[bytes | None], list[int | None], list[Any]]


class _Schema:
    """The schema as the core exports it."""

    def __arrow_c_schema__(self) -> Any:
        return _native.log_schema()


def log_schema(columns: Sequence[str] | None = None) -> pa.Schema:
    """Return the schema of a log, or these columns of it."""
    schema = pa.schema(_Schema())
    columns = checked_columns(columns)
    if columns is None:
        return schema
    unknown = [name for name in columns if name not in schema.names]
    if unknown:
        raise InvalidArgumentError(
            f"column {unknown[0]!r} does not exist (there are: "
            f"{', '.join(schema.names)})"
        )
    if len(set(columns)) < len(columns):
        msg = f"columns names a column twice: {', '.join(columns)}"
        raise InvalidArgumentError(msg)
    return pa.schema([schema.field(name) for name in columns])


def columns_of(data: Any) -> Columns:
    """Return values, keys, timestamps and headers of Arrow data.

    Raises:
        TypeError: it is no Arrow data.
        InvalidArgumentError: a column is missing, of another type, or has a null
            timestamp.
    """
    if hasattr(data, "__arrow_c_stream__"):
        table = pa.table(data)
    elif hasattr(data, "__arrow_c_array__"):
        table = pa.Table.from_batches([pa.record_batch(data)])
    else:
        kind = type(data).__name__
        raise TypeError(f"{kind} has neither __arrow_c_stream__ nor __arrow_c_array__")
    _check_names(table.column_names)
    values = _binary(table, "value")
    count = len(values)
    keys: list[bytes | None] = [None] * count
    if "key" in table.column_names:
        keys = _binary(table, "key")
    times: list[int | None] = [None] * count
    if "timestamp" in table.column_names:
        times = _cast(_microseconds(table["timestamp"]), pa.int64(), "timestamp")
        if None in times:
            raise InvalidArgumentError(f"timestamp {times.index(None)} is null")
    headers: list[Any] = [None] * count
    if "headers" in table.column_names:
        kind = pa.map_(pa.string(), pa.binary())
        headers = _cast(table["headers"], kind, "headers")
    return values, keys, times, headers


def _check_names(names: list[str]) -> None:
    for name in names:
        if name == "position":
            msg = "the log assigns column 'position' itself: drop it from the data"
            raise InvalidArgumentError(msg)
        if name not in _APPENDED or names.count(name) > 1:
            raise InvalidArgumentError(
                f"column {name!r} occurs twice, or is not one of {', '.join(_APPENDED)}"
            )
    if "value" not in names:
        msg = f"the data has no column 'value' (it has: {', '.join(names)})"
        raise InvalidArgumentError(msg)


def _binary(table: pa.Table, name: str) -> list[bytes | None]:
    return _cast(table[name], pa.binary(), name)


def _microseconds(column: Any) -> Any:
    if pa.types.is_timestamp(column.type):
        # Units other than microseconds lose or gain digits; int64 counts them already.
        return column.cast(pa.timestamp("us", column.type.tz), safe=False)
    return column


def _cast(column: Any, kind: Any, name: str) -> list[Any]:
    try:
        found: list[Any] = column.cast(kind).to_pylist()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidArgumentError(
            f"column {name!r} of type {column.type} cannot be converted to "
            f"{kind}: {error}"
        ) from error
    return found
