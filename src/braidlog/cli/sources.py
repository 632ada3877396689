"""Rows of the files that ``braidlog import`` takes: JSONL, CSV and Parquet.

A row becomes a value, and a key and a timestamp where fields are named for them.
Without a value field the value is the whole row as JSON; a line of JSONL is then stored
as it is.
"""

from __future__ import annotations

import base64
import codecs
import csv
import gzip
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal, TypeAlias, cast

from braidlog.cli.failures import USAGE, Problem
from braidlog.cli.parameters import microseconds
from braidlog.cli.session import stdin

__all__ = ["FORMATS", "UNITS", "Fields", "Row", "format_of", "rows_of"]

FORMATS = ("jsonl", "csv", "parquet")
UNITS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}

_BLOCK_BYTES = 1 << 20
# A record holds no more.
_FIELD_BYTES = 16 << 20
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}

Unit: TypeAlias = Literal["s", "ms", "us", "ns"]


@dataclass(frozen=True, slots=True)
class Fields:
    """Which field of a row becomes what; None takes none."""

    value: str | None = None
    key: str | None = None
    timestamp: str | None = None
    unit: Unit = "us"

    @property
    def names_none(self) -> bool:
        """Tell whether a row is taken as it is."""
        return self.value is None and self.key is None and self.timestamp is None


@dataclass(frozen=True, slots=True)
class Row:
    """One record to be."""

    value: bytes
    key: bytes | None = None
    timestamp: int | None = None


def format_of(path: Path) -> str:
    """Return the format that a file's name tells.

    Raises:
        Problem: It tells none.
    """
    suffixes = [suffix for suffix in path.suffixes if suffix not in {".gz", ".zst"}]
    name = _SUFFIXES.get(suffixes[-1].lower()) if suffixes else None
    if name is None:
        raise Problem(
            f"{path}: the name tells no format", "say it with --format", USAGE
        )
    return name


def rows_of(
    path: Path, layout: str, fields: Fields, seen: Callable[[int], None]
) -> Iterator[Row]:
    """Yield the rows of a file in order, and tell `seen` how many bytes were read.

    Raises:
        Problem: A row cannot be read or lacks a named field; names file and row.
    """
    with _opened(path) as raw:
        if layout == "parquet":
            parsed = _parquet_rows(raw, seen)
        else:

            def progressed() -> None:
                if raw.seekable():
                    seen(raw.tell())

            parsed = _TEXT_ROWS[layout](_lines(_decompressed(path, raw), progressed))
        for number in itertools.count(1):
            try:
                item = next(parsed, None)
                if item is None:
                    return
                row = _row(item, fields)
            except RecursionError:
                raise Problem(f"{path}, row {number}: nested too deeply") from None
            except (ValueError, EOFError, OSError, csv.Error) as error:
                raise Problem(f"{path}, row {number}: {error}") from None
            yield row


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield stdin()
    else:
        with path.open("rb") as raw:
            yield raw


# A JSON line, to be parsed only if its fields are needed, or the fields.
_Item: TypeAlias = bytes | Mapping[str, Any]


def _json_rows(lines: Iterator[bytes]) -> Iterator[_Item]:
    return (text for line in lines if (text := line.strip()))


def _csv_rows(lines: Iterator[bytes]) -> Iterator[_Item]:
    csv.field_size_limit(_FIELD_BYTES)
    # A quoted line end is part of a field, so the reader gets lines with their ends.
    reader = csv.DictReader(codecs.iterdecode(lines, "utf-8-sig"), strict=True)
    for row in reader:
        if None in row or None in row.values():
            raise ValueError("the number of fields differs from the header's")
        yield row


def _parquet_rows(raw: BinaryIO, seen: Callable[[int], None]) -> Iterator[_Item]:
    from pyarrow import parquet

    if not raw.seekable():
        raise ValueError("Parquet cannot be read from a pipe; save it in a file")
    for batch in parquet.ParquetFile(raw).iter_batches():
        yield from batch.to_pylist()
        seen(raw.tell())


_TEXT_ROWS = {"jsonl": _json_rows, "csv": _csv_rows}


def _row(item: _Item, fields: Fields) -> Row:
    if isinstance(item, bytes) and fields.names_none:
        return Row(item)
    row = _object(item) if isinstance(item, bytes) else item
    if fields.value is not None:
        value = _bytes(_field(row, fields.value))
    else:
        value = item if isinstance(item, bytes) else _whole(item)
    if value is None:
        raise ValueError(f"field {fields.value!r} is null, and a value cannot be")
    key = timestamp = None
    if fields.key is not None:
        key = _bytes(_field(row, fields.key))
    if fields.timestamp is not None:
        timestamp = _timestamp(_field(row, fields.timestamp), fields.unit)
    return Row(value, key, timestamp)


def _object(text: bytes) -> Mapping[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object, so it has no fields")  # noqa: TRY004
    return value


def _field(row: Mapping[str, Any], name: str) -> Any:
    try:
        return row[name]
    except KeyError:
        there = ", ".join(row)
        raise ValueError(f"no field {name!r}; it has {there}") from None


def _bytes(value: Any) -> bytes | None:
    match value:
        case None | bytes():
            return value
        case str():
            return value.encode()
        case {"base64": str(text), **rest} if not rest:
            return base64.b64decode(text, validate=True)
        case {"hex": str(text), **rest} if not rest:
            return bytes.fromhex(text)
    return _whole(value)


def _whole(value: Any) -> bytes:
    text = json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), default=_json_default
    )
    return text.encode()


def _json_default(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value.isoformat() if isinstance(value, date) else str(value)


def _timestamp(value: Any, unit: Unit) -> int:
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return microseconds(aware.isoformat())
    if isinstance(value, str):
        try:
            value = int(value)
        except ValueError:
            try:
                return microseconds(value)
            except ValueError:
                raise ValueError(f"{value!r} is no time") from None
    times, divided = UNITS[unit]
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r} is no time")  # noqa: TRY004
    micros = int(value * times) // divided if math.isfinite(value) else 1 << 63
    if not -(1 << 63) <= micros < 1 << 63:
        raise ValueError(f"{value!r} {unit} is no time")
    return micros


def _decompressed(path: Path, raw: BinaryIO) -> BinaryIO:
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    if path.suffix == ".zst":
        import pyarrow

        return cast(BinaryIO, pyarrow.CompressedInputStream(raw, "zstd"))
    return raw


def _lines(stream: BinaryIO, progressed: Callable[[], None]) -> Iterator[bytes]:
    """Yield lines with their ends; a stream of pyarrow has no fast way to do it."""
    rest = b""
    while block := stream.read(_BLOCK_BYTES):
        progressed()
        *complete, rest = (rest + bytes(block)).split(b"\n")
        for line in complete:
            yield line + b"\n"
    if rest:
        yield rest
