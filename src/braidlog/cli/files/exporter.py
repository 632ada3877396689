"""``braidlog export``: a log as JSONL, CSV, Parquet or Arrow."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

import click

from braidlog.cli.command import parameters
from braidlog.cli.command.commands import EitherCommand, command
from braidlog.cli.command.failures import NOT_FOUND, USAGE, Problem
from braidlog.cli.command.options import archive_options, hole_option
from braidlog.cli.command.session import Session
from braidlog.cli.terminal.output import line
from braidlog.cli.terminal.progress import Meter, meter
from braidlog.cli.terminal.records import NULL, encoder, escape, json_value
from braidlog.cli.terminal.text import counted, human_bytes
from braidlog.errors import BeyondEndError

if TYPE_CHECKING:
    import pyarrow as pa

    from braidlog import Record
    from braidlog.sources.source import LogSource

Writer: TypeAlias = Callable[["LogSource", range, BinaryIO, Meter], int]
"""Writes positions of a log, and returns how many records they hold."""

_ROW_GROUP_BYTES = 64 << 20
_BATCH_BYTES = 1 << 20

_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".arrows": "arrow",
}


@command(kind=EitherCommand)
@click.argument("log")
@click.argument("file", type=parameters.LocalPath(dir_okay=False))
@click.option(
    "--format",
    "layout",
    type=click.Choice(["jsonl", "csv", "parquet", "arrow"]),
    help=("Format [default: from the name of FILE]; arrow is an IPC stream."),
)
@click.option("--begin", type=parameters.POSITION, help="First position.")
@click.option("--end", type=parameters.POSITION, help="Stop before this position.")
@archive_options
@hole_option
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def export(
    session: Session,
    log: str,
    file: Path,
    *,
    layout: str | None,
    begin: int | None,
    end: int | None,
    force: bool,
    archive: bool | str,
    skip_holes: bool,
) -> None:
    """Write a log to a file.

    FILE can be - for stdout. JSONL, CSV and Arrow are compressed if the name ends in
    .gz or .zst. To load JSONL or Parquet again, use `import --value value --key key
    --timestamp timestamp --headers headers`.
    """
    to_stdout = str(file) == "-"
    write: Writer = _WRITERS[layout or _layout_of(file)]
    if file.is_file() and not force and not to_stdout:
        raise Problem(f"{file} exists already", "pass --force to replace it", USAGE)
    if not file.parent.is_dir():
        raise Problem(
            f"{file}: the directory {file.parent} does not exist", "", NOT_FOUND
        )
    if begin is not None and end is not None and end < begin:
        raise click.UsageError(f"--end {end} is before --begin {begin}")
    with session.source(log, archive=archive, skip_holes=skip_holes) as source:
        look = source.look()
        first = look.first if begin is None else begin
        if first > look.end:
            msg = f"position {first} is beyond the end of the log, which is {look.end}"
            raise BeyondEndError(msg, next=look.end)
        asked = range(first, look.end if end is None else min(end, look.end))
        with meter("export", len(asked), unit="records") as progress:
            if to_stdout:
                write(source, asked, sys.stdout.buffer, progress)
                return
            with _replacing(file) as stream:
                records = write(source, asked, stream, progress)
    size = file.stat().st_size
    line(
        session,
        f"exported {counted(records, 'record')} to {file}, {human_bytes(size)}",
        log=log,
        file=str(file),
        records=records,
        bytes=size,
    )


def _layout_of(file: Path) -> str:
    suffixes = [suffix.lower() for suffix in file.suffixes]
    suffixes = [suffix for suffix in suffixes if suffix not in {".gz", ".zst"}]
    layout = _SUFFIXES.get(suffixes[-1]) if suffixes else None
    if layout is None:
        raise Problem(
            f"{file}: the format cannot be told from the name of the file",
            "pass --format",
            USAGE,
        )
    if layout == "parquet" and file.suffix.lower() != ".parquet":
        hint = "let the name end in .parquet, without a compression"
        text = (
            f"{file}: Parquet files have their compression inside and cannot be "
            "compressed again"
        )
        raise Problem(text, hint, USAGE)
    return layout


@contextmanager
def _replacing(file: Path) -> Iterator[BinaryIO]:
    """Write beside `file` and rename at the end, so that no half file is ever seen.

    A pipe or a device stays what it is and is written to.
    """
    if file.exists() and not file.is_file():
        with file.open("wb") as raw, _compressed(file, raw) as stream:
            yield stream
        return
    file = file.resolve()
    partial = file.with_name(f".{file.name}.partial")
    try:
        with partial.open("wb") as raw, _compressed(file, raw) as stream:
            yield stream
        # Not by `durable`: an export can be made again.
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _compressed(file: Path, raw: BinaryIO) -> Iterator[BinaryIO]:
    compression = file.suffix.lower()
    if compression == ".gz":
        with gzip.GzipFile(fileobj=raw, mode="wb", compresslevel=6) as stream:
            yield cast(BinaryIO, stream)
    elif compression == ".zst":
        import pyarrow

        with pyarrow.CompressedOutputStream(raw, "zstd") as stream:
            yield stream
    else:
        yield raw


def _records(log: LogSource, asked: range, progress: Meter) -> Iterator[Record]:
    for record in log.records(asked.start, asked.stop):
        yield record
        if record.position % 1000 == 0:
            progress.at(record.position - asked.start)


def _write_jsonl(
    log: LogSource, asked: range, stream: BinaryIO, progress: Meter
) -> int:
    encode, count = encoder("json", binary="base64", delimiter=b""), 0
    for record in _records(log, asked, progress):
        stream.write(encode(record))
        count += 1
    return count


def _write_csv(log: LogSource, asked: range, stream: BinaryIO, progress: Meter) -> int:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    writer, count = csv.writer(text, lineterminator="\n"), 0
    writer.writerow(["position", "timestamp", "key", "value", "headers"])
    for record in _records(log, asked, progress):
        writer.writerow(_csv_row(record))
        count += 1
    text.detach()
    return count


def _csv_row(record: Record) -> list[Any]:
    headers = [[name, json_value(value, "base64")] for name, value in record.headers]
    return [
        record.position,
        record.timestamp,
        "" if record.key is None else _csv_text(record.key),
        _csv_text(record.value),
        json.dumps(headers, ensure_ascii=False) if headers else "",
    ]


def _csv_text(data: bytes | None) -> str:
    if data is None:
        return NULL
    # CSV quotes line ends itself; only what is no text at all needs an escape.
    try:
        return data.decode()
    except UnicodeDecodeError:
        return escape(data)


def _write_parquet(
    log: LogSource, asked: range, stream: BinaryIO, progress: Meter
) -> int:
    import pyarrow.parquet as parquet

    def opened(schema: pa.Schema) -> parquet.ParquetWriter:
        return parquet.ParquetWriter(stream, schema, compression="zstd")

    # Batches as they were appended would be row groups that are too small.
    return _write_batches(log, asked, _ROW_GROUP_BYTES, opened, progress)


def _write_arrow(
    log: LogSource, asked: range, stream: BinaryIO, progress: Meter
) -> int:
    import pyarrow

    def opened(schema: pa.Schema) -> Any:
        return pyarrow.ipc.new_stream(stream, schema)

    return _write_batches(log, asked, _BATCH_BYTES, opened, progress)


def _write_batches(
    log: LogSource,
    asked: range,
    bytes_each: int,
    opened: Callable[[pa.Schema], Any],
    progress: Meter,
) -> int:
    from braidlog.client.arrow import log_schema
    from braidlog.sources.chunks import rechunk

    schema, count = log_schema(), 0
    found = log.batches(asked.start, asked.stop, columns=schema.names)
    with opened(schema) as writer:  # A file without a batch has the schema, too.
        for batch in rechunk(found, bytes_each):
            writer.write_batch(batch.cast(schema))
            count += batch.num_rows
            progress.at(count)
    return count


_WRITERS: dict[str, Writer] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "arrow": _write_arrow,
}
