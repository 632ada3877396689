"""Rows of the files that ``braidlog import`` takes: JSONL, CSV and Parquet."""

from __future__ import annotations

import codecs
import csv
import gzip
import itertools
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

from braidlog.cli.command.failures import USAGE, Problem
from braidlog.cli.command.session import stdin
from braidlog.cli.files.fields import Fields, Item, Micros, Row, row_of

if TYPE_CHECKING:
    import pyarrow as pa

FORMATS = ("jsonl", "csv", "parquet")

_BLOCK_BYTES = 1 << 20
# A record holds no more.
_FIELD_BYTES = 16 << 20
# Of text: six times as much, if each byte is escaped, and some for other fields.
_LINE_BYTES = 128 << 20
_COMPRESSIONS = {".gz", ".zst"}
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
}


def format_of(path: Path) -> str:
    """Return the format that a file's name tells.

    Raises:
        Problem: It tells none.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    suffixes = [suffix for suffix in suffixes if suffix not in _COMPRESSIONS]
    name = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    if name is None:
        raise Problem(
            f"{path}: the format cannot be told from the name of the file",
            "pass --format",
            USAGE,
        )
    if name == "parquet" and path.suffix.lower() in _COMPRESSIONS:
        hint = "unpack the file first"
        raise Problem(
            f"{path}: a compressed Parquet file cannot be read (Parquet has its "
            "compression inside)",
            hint,
            USAGE,
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
            parsed = _parquet_rows(raw, fields, seen)
        else:

            def progressed() -> None:
                if raw.seekable():
                    seen(raw.tell())

            lines = _lines(_decompressed(path, raw), progressed)
            parsed = _TEXT_ROWS[layout](lines, fields)
        for number in itertools.count(1):
            try:
                item = next(parsed, None)
                if item is None:
                    return
                row = row_of(item, fields)
            except RecursionError:
                raise Problem(f"{path}, row {number}: nested too deeply") from None
            except _UNREADABLE as error:
                raise Problem(f"{path}, row {number}: {error}") from None
            yield row


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    if str(path) == "-":
        yield stdin()
    else:
        with path.open("rb") as raw:
            yield raw


# Damaged or foreign files; times that Python has no dates for overflow.
_UNREADABLE = (ValueError, EOFError, OSError, OverflowError, csv.Error, zlib.error)


def _json_rows(lines: Iterator[bytes], _: Fields) -> Iterator[Item]:
    for number, line in enumerate(lines):
        if text := (line if number else line.removeprefix(codecs.BOM_UTF8)).strip():
            yield text


def _csv_rows(lines: Iterator[bytes], fields: Fields) -> Iterator[Item]:
    csv.field_size_limit(_FIELD_BYTES)
    # A quoted line end is part of a field, so the reader gets lines with their ends.
    reader = csv.DictReader(codecs.iterdecode(lines, "utf-8-sig"), strict=True)
    _used(reader.fieldnames or (), fields)
    for row in reader:
        if None in row or None in row.values():
            raise ValueError("the number of fields differs from the header's")
        yield row


def _parquet_rows(
    raw: BinaryIO, fields: Fields, seen: Callable[[int], None]
) -> Iterator[Item]:
    from pyarrow import parquet

    if not raw.seekable():
        raise ValueError("Parquet cannot be read from a pipe: save it to a file")
    # No thread of Arrow reads: one that holds bytes of Python when the interpreter ends
    # aborts the process.
    file = parquet.ParquetFile(raw, pre_buffer=False)
    used = _used(file.schema_arrow.names, fields)
    for batch in file.iter_batches(use_threads=False):
        micros = _micros(batch, fields)
        if micros is not None:
            used = [name for name in used if name != fields.timestamp]
        rows = batch.select(used).to_pylist()
        if micros is not None:
            for row, time in zip(rows, micros, strict=True):
                row[fields.timestamp] = time
        yield from rows
        seen(raw.tell())


def _micros(batch: pa.RecordBatch, fields: Fields) -> list[Micros | None] | None:
    """Return the times of a batch if they are times of Arrow, which reach further."""
    import pyarrow as pa

    if fields.timestamp is None or fields.value in {None, fields.timestamp}:
        return None
    if fields.key == fields.timestamp or fields.timestamp not in batch.schema.names:
        return None
    times = batch.column(fields.timestamp)
    if not (pa.types.is_timestamp(times.type) or pa.types.is_date(times.type)):
        return None
    micros = times.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_pylist()
    return [None if each is None else Micros(each) for each in micros]


def _used(columns: Sequence[str], fields: Fields) -> list[str]:
    """Return the columns that a record is made of.

    Raises:
        ValueError: Two have one name, so nobody can tell which is meant.
    """
    columns = list(columns)
    missing = set(fields.names) - set(columns)
    # Where one is missing the row says so, and what there is.
    used = columns if missing or fields.value is None else fields.names
    for name in used:
        if columns.count(name) > 1:
            raise ValueError(f"two fields are named {name!r}")
    return list(dict.fromkeys(used))


_TEXT_ROWS = {"jsonl": _json_rows, "csv": _csv_rows}


def _decompressed(path: Path, raw: BinaryIO) -> BinaryIO:
    compression = path.suffix.lower()
    if compression == ".gz":
        return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
    if compression == ".zst":
        import pyarrow

        return cast(BinaryIO, pyarrow.CompressedInputStream(raw, "zstd"))
    return raw


def _lines(stream: BinaryIO, progressed: Callable[[], None]) -> Iterator[bytes]:
    """Yield lines with their ends; a stream of pyarrow has no fast way to do it.

    Raises:
        ValueError: A line does not end where the largest record would have.
    """
    begun: list[bytes] = []
    size = 0
    while block := stream.read(_BLOCK_BYTES):
        progressed()
        first, *others = bytes(block).split(b"\n")
        begun.append(first)
        size += len(first)
        if size > _LINE_BYTES:
            raise ValueError(f"a line has more than {_LINE_BYTES >> 20} MiB")
        if others:
            yield b"".join([*begun, b"\n"])
            *complete, last = others
            for line in complete:
                yield line + b"\n"
            begun, size = [last], len(last)
    if size:
        yield b"".join(begun)
