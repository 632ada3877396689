"""``braidlog export``: a log as JSONL, CSV, Parquet or Arrow."""

from __future__ import annotations

import csv
import gzip
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, cast

import click

from braidlog.cli import parameters
from braidlog.cli.commands import EitherCommand, command
from braidlog.cli.failures import NOT_FOUND, USAGE, Problem
from braidlog.cli.including import archive_options, hole_option, include, skipping
from braidlog.cli.output import line
from braidlog.cli.progress import Meter, meter
from braidlog.cli.records import encoder, escape, json_value
from braidlog.cli.session import Session
from braidlog.cli.text import counted, human_bytes

__all__ = ["export"]

if TYPE_CHECKING:
    from braidlog import Record
    from braidlog.cli.session import Log

Writer: TypeAlias = Callable[["_Reach", int, int, BinaryIO, Meter], None]

_ROW_GROUP_RECORDS = 1 << 17
_ROW_GROUP_BYTES = 64 << 20

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
@click.pass_obj
def export(
    session: Session,
    log: str,
    file: Path,
    *,
    layout: str | None,
    begin: int | None,
    end: int | None,
    force: bool,
    include_archive: bool,
    archive: str | None,
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
    with session.logs() as store:
        known = store.log(log)
        more = skipping(known, skip_holes)
        source = _Reach(known, include(include_archive, archive), more)
        begin = source.first if begin is None else begin
        stop = source.end if end is None else min(end, source.end)
        with meter("export", max(0, stop - begin), unit="records") as progress:
            if to_stdout:
                write(source, begin, stop, sys.stdout.buffer, progress)
                return
            with _replacing(file) as stream:
                write(source, begin, stop, stream, progress)
    records, size = source.given, file.stat().st_size
    line(
        session,
        f"exported {counted(records, 'record')} to {file}, {human_bytes(size)}",
        log=log,
        file=str(file),
        records=records,
        bytes=size,
    )


@dataclass(slots=True)
class _Reach:
    """A log, and how far back it is read."""

    log: Log
    archive: bool | str
    more: dict[str, Any]
    given: int = 0
    """Records so far."""

    @property
    def first(self) -> int:
        """First position that can be read."""
        first = self.log.first
        if not self.archive:
            return first
        place = None if self.archive is True else self.archive
        found: int = self.log.archive(place).begin
        return min(first, found)

    @property
    def end(self) -> int:
        """Next position."""
        return self.log.end

    def read(self, begin: int, end: int) -> Iterator[Record]:
        """Iterate over records."""
        for record in self.log.read(
            begin, end, include_archive=self.archive, **self.more
        ):
            self.given += 1
            yield record

    def batches(self, begin: int, end: int) -> Iterator[Any]:
        """Iterate over batches."""
        for batch in self.log.batches(
            begin, end, include_archive=self.archive, **self.more
        ):
            self.given += batch.num_rows
            yield batch

    def schema(self) -> Any:
        """Return the columns."""
        end = self.log.end
        return self.log.to_arrow(end, end).schema


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


def _write_jsonl(
    log: _Reach, begin: int, end: int, stream: BinaryIO, progress: Meter
) -> None:
    encode = encoder("json", binary="base64", delimiter=b"")
    for record in log.read(begin, end):
        stream.write(encode(record))
        if record.position % 1000 == 0:
            progress.at(record.position - begin)


def _write_csv(
    log: _Reach, begin: int, end: int, stream: BinaryIO, progress: Meter
) -> None:
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="", write_through=True)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["position", "timestamp", "key", "value", "headers"])
    for record in log.read(begin, end):
        writer.writerow(_csv_row(record))
        if record.position % 1000 == 0:
            progress.at(record.position - begin)
    text.detach()


def _csv_row(record: Record) -> list[Any]:
    headers = [[name, json_value(value, "base64")] for name, value in record.headers]
    return [
        record.position,
        record.timestamp,
        "" if record.key is None else _csv_text(record.key),
        _csv_text(record.value),
        json.dumps(headers, ensure_ascii=False) if headers else "",
    ]


def _csv_text(data: bytes) -> str:
    # CSV quotes line ends itself; only what is no text at all needs an escape.
    try:
        return data.decode()
    except UnicodeDecodeError:
        return escape(data)


def _write_parquet(
    log: _Reach, begin: int, end: int, stream: BinaryIO, progress: Meter
) -> None:
    import pyarrow.parquet as parquet

    def opened(schema: Any) -> Any:
        return parquet.ParquetWriter(stream, schema, compression="zstd")

    batches = log.batches(begin, end)
    _write_batches(log, begin, _row_groups(batches), opened, progress)


def _row_groups(batches: Iterable[Any]) -> Iterator[Any]:
    """Join batches as they were appended into ones that are worth a row group."""
    import pyarrow

    group: list[Any] = []
    for batch in batches:
        group.append(batch)
        rows, size = sum(b.num_rows for b in group), sum(b.nbytes for b in group)
        if rows >= _ROW_GROUP_RECORDS or size >= _ROW_GROUP_BYTES:
            yield pyarrow.concat_batches(group)
            group = []
    if group:
        yield pyarrow.concat_batches(group)


def _write_arrow(
    log: _Reach, begin: int, end: int, stream: BinaryIO, progress: Meter
) -> None:
    import pyarrow

    def opened(schema: Any) -> Any:
        return pyarrow.ipc.new_stream(stream, schema)

    _write_batches(log, begin, log.batches(begin, end), opened, progress)


def _write_batches(
    log: _Reach,
    begin: int,
    batches: Iterable[Any],
    opened: Callable[[Any], Any],
    progress: Meter,
) -> None:
    # An empty range has no batch, yet the file needs the schema.
    done = 0
    with opened(log.schema()) as writer:
        for batch in batches:
            writer.write_batch(batch)
            done += batch.num_rows
            progress.at(done)


_WRITERS: dict[str, Writer] = {
    "jsonl": _write_jsonl,
    "csv": _write_csv,
    "parquet": _write_parquet,
    "arrow": _write_arrow,
}
