"""Records that wait for the next stage: Arrow files with one batch for each part.

A task of the first stage reads a range of the log and sorts its records into parts by
their keys, the way a cluster spreads keys over streams. What it holds is bounded: when
it is enough, it is written. A task of the second stage reads one part of all files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from braidlog import _native
from braidlog.client.arrow import log_schema
from braidlog.pipelines.frame import Attempt, File
from braidlog.pipelines.manifest import finished

__all__ = ["COLUMNS", "HELD_BYTES", "Piece", "Pieces", "part_of", "split"]

COLUMNS: Final = ("position", "timestamp", "key", "value", "headers")

HELD_BYTES: Final = 64 << 20
"""Most bytes of records that a task holds before it writes them."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A file of one batch for each part, and the first position in it."""

    path: str
    begin: int


def split(batch: pa.RecordBatch, parts: int) -> list[pa.RecordBatch]:
    """Return the records of each part, in their order."""
    rows, bounds = _native.split_by_key(batch, parts)
    ordered = batch.take(pa.record_batch(rows).column(0))
    return [
        ordered.slice(bounds[part], bounds[part + 1] - bounds[part])
        for part in range(parts)
    ]


class Pieces:
    """Takes records in the order of positions, and writes pieces of them."""

    def __init__(
        self,
        attempt: Attempt,
        parts: int,
        *,
        held_bytes: int = HELD_BYTES,
        shrink: Callable[[pa.Table], pa.Table] | None = None,
    ) -> None:
        """Begin with nothing; ``shrink`` drops records that are of no use any more."""
        self.files: list[File] = []
        self.begins: list[int] = []
        self._attempt = attempt
        self._parts = parts
        self._held_bytes = held_bytes
        self._shrink = shrink
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take records."""
        if not batch.num_rows:
            return
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes < self._held_bytes:
            return
        if self._shrink is not None:
            table = self._shrink(pa.Table.from_batches(self._held))
            if table.nbytes < self._held_bytes // 2:
                # Copied: a slice would keep all of what it was cut from.
                self._held = table.combine_chunks().to_batches()
                self._bytes = table.nbytes
                return
        self.flush()

    def flush(self) -> None:
        """Write what is held."""
        if not self._held:
            return
        table = pa.Table.from_batches(self._held)
        self._held, self._bytes = [], 0
        if self._shrink is not None:
            table = self._shrink(table)
        name = f"{self._attempt.name}-{len(self.files)}.arrow"
        path = self._attempt.scratch / name
        begin = table.column("position")[0].as_py()
        with pa.OSFile(str(path), "wb") as sink:
            _write(sink, table, self._parts)
        self.files.append(finished(self._attempt.home, path))
        self.begins.append(begin)


def _write(sink: Any, table: pa.Table, parts: int) -> None:
    """Write one batch for each part."""
    batches = table.combine_chunks().to_batches()
    if len(batches) != 1:  # More than fits into one array of bytes.
        msg = f"{table.nbytes} bytes of records are more than one piece holds"
        raise AssertionError(msg)
    # Headers and keys compress well, and disks are slower than this.
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    with pa.ipc.new_file(sink, table.schema, options=options) as writer:
        for batch in split(batches[0], parts):
            writer.write_batch(batch)


def part_of(
    home: Path, pieces: Iterable[Piece], part: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Give out one part of each piece in the order of positions, with its number."""
    ordered: Sequence[Piece] = sorted(pieces, key=lambda piece: piece.begin)
    for number, piece in enumerate(ordered):
        with pa.memory_map(str(home / piece.path)) as file:
            batch = pa.ipc.open_file(file).get_batch(part)
            yield number, batch.cast(log_schema(list(batch.schema.names)))
