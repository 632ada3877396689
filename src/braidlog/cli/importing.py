"""``braidlog import``: files into a log, exactly once if asked."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import click

import braidlog
from braidlog.cli.output import line, message
from braidlog.cli.progress import meter
from braidlog.cli.session import Session, command
from braidlog.cli.sources import FORMATS, UNITS, Fields, Row, format_of, rows_of
from braidlog.types import Producer

__all__ = ["import_"]

# A batch this large is written in one go; some of them in flight hide the syncs.
_BATCH_BYTES = 1 << 20
_BATCHES_IN_FLIGHT = 8


@command("import")
@click.argument("log")
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
)
@click.option(
    "--format",
    "layout",
    type=click.Choice(FORMATS),
    help="Format of the files [default: what the name tells].",
)
@click.option("--value", metavar="FIELD", help="Value [default: the row as JSON].")
@click.option("--key", metavar="FIELD", help="Key [default: none].")
@click.option("--timestamp", metavar="FIELD", help="Timestamp [default: now].")
@click.option(
    "--timestamp-unit",
    "unit",
    type=click.Choice(list(UNITS)),
    default="us",
    show_default=True,
    help="Unit of timestamps that are numbers.",
)
@click.option(
    "--producer",
    metavar="NAME",
    help="Store each row once, however often this runs: a repeat with the same NAME"
    " and the same files goes on where the log says it stopped.",
)
@click.option(
    "--batch",
    "records_max",
    type=click.IntRange(1, 1 << 20),
    default=4096,
    show_default=True,
    help="Most records in a batch.",
)
@click.option("--create", is_flag=True, help="Create the log if there is none.")
@click.pass_obj
def import_(
    session: Session,
    /,
    log: str,
    files: tuple[Path, ...],
    *,
    layout: str | None,
    producer: str | None,
    records_max: int,
    create: bool,
    **names: Any,
) -> None:
    """Append the rows of files.

    FILES are JSONL, CSV or Parquet, plain, .gz or .zst; their rows go to LOG in order.
    """
    with session.writer(create=create) as node:
        target = node.create_log(log, exist_ok=True) if create else node.log(log)
        ingest = Ingest(target, _producer(producer))
        with meter("import", _size(files), unit="bytes") as progress:
            rows = _rows(files, layout, Fields(**names), progress.at)
            ingest.run(rows, records_max)
    line(
        session,
        f"imported {ingest.appended} records into {log}"
        + (f", {ingest.skipped} were there" if ingest.skipped else ""),
        log=log,
        records=ingest.appended,
        skipped=ingest.skipped,
        first=ingest.first,
        end=ingest.end,
    )


@dataclass(slots=True)
class Ingest:
    """Appends rows in batches, a few of them in flight."""

    log: braidlog.Log
    producer: Producer | None
    appended: int = 0
    skipped: int = 0
    first: int | None = None
    end: int | None = None
    pending: deque[Any] = field(default_factory=deque)

    def run(self, rows: Iterator[Row], records_max: int) -> None:
        """Append all rows; on a failure or an interrupt say how far it came."""
        if self.producer is not None:
            stored = self.log.next_sequence(self.producer) - 1
            self.skipped = sum(1 for _ in islice(rows, stored))
        try:
            for batch in _batches(rows, records_max):
                self._submit(batch)
                if len(self.pending) >= _BATCHES_IN_FLIGHT:
                    self._settle()
            while self.pending:
                self._settle()
        except BaseException:
            message(f"{self.appended} records are known to be durable")
            raise

    def _submit(self, batch: Sequence[Row]) -> None:
        sent = self.skipped + self.appended + sum(n for _, n in self.pending)
        once = (
            {}
            if self.producer is None
            else {"producer": self.producer, "sequence": sent + 1}
        )
        keys = [row.key for row in batch]
        timestamps = [row.timestamp for row in batch]
        pending = self.log.submit_many(
            [row.value for row in batch],
            keys=keys if any(key is not None for key in keys) else None,
            timestamps=timestamps,
            **once,
        )
        self.pending.append((pending, len(batch)))

    def _settle(self) -> None:
        pending, count = self.pending.popleft()
        positions = pending.result()
        if self.first is None:
            self.first = positions.start
        self.end = positions.stop
        self.appended += count


def _batches(rows: Iterator[Row], records_max: int) -> Iterator[list[Row]]:
    batch: list[Row] = []
    size = 0
    for row in rows:
        batch.append(row)
        size += len(row.value) + len(row.key or b"")
        if size >= _BATCH_BYTES or len(batch) >= records_max:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _rows(
    files: Sequence[Path],
    layout: str | None,
    fields: Fields,
    at: Callable[[int], None],
) -> Iterator[Row]:
    layouts = [layout or format_of(path) for path in files]
    before = 0

    def seen(done: int) -> None:
        at(before + done)

    for path, name in zip(files, layouts, strict=True):
        yield from rows_of(path, name, fields, seen)
        before += path.stat().st_size


def _size(files: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in files)


def _producer(name: str | None) -> Producer | None:
    """Make the same identity of the same name, in every run and on every machine."""
    if name is None:
        return None
    digest = hashlib.sha256(name.encode()).digest()
    return Producer(int.from_bytes(digest[:8], "little") or 1)
