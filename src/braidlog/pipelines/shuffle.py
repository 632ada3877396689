"""The shuffle of a job: records between two stages, in files that are split into parts.

A task of the first stage reads a range of the log and sorts its records into parts, by
their keys the way a cluster spreads keys over streams, or as it is told. What it holds
is bounded: when it is enough, it is written as a chunk. At the end its chunks become
one shuffle file, in which each part is in one place. A task of the second stage reads
one part of all these files, or several. Which files there are is in a list, which is a
file as well, so that the descriptor of a task is as small for ten thousand as for one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from braidlog import _native, durable
from braidlog.client.arrow import log_schema
from braidlog.errors import CorruptionError
from braidlog.pipelines.job import Attempt, File, Job, Result
from braidlog.pipelines.manifest import finished
from braidlog.pipelines.shuffle_file import ShuffleFile, join, write

COLUMNS: Final = ("position", "timestamp", "key", "value", "headers")

HELD_BYTES: Final = 64 << 20
"""Most bytes of records that a task holds before it writes them."""

_CHUNKS_MAX: Final = 32
"""Of a file: what a task of more than 2 GiB writes is several files."""

Split: TypeAlias = Callable[[pa.RecordBatch, int], list[pa.RecordBatch]]
"""Gives the records of each part, in their order."""


@dataclass(frozen=True, slots=True)
class ShuffleRange:
    """A shuffle file, and the positions that it has of a log."""

    path: str
    begin: int
    end: int


def split(batch: pa.RecordBatch, parts: int) -> list[pa.RecordBatch]:
    """Return the records of each part, in their order: by key."""
    rows, bounds = _native.split_by_key(batch, parts)
    ordered = batch.take(pa.record_batch(rows).column(0))
    return _cut(ordered, bounds)


def split_at(batch: pa.RecordBatch, parts: int) -> list[pa.RecordBatch]:
    """Return the records of each part, in their order: by the column ``part``."""
    numbers = batch.column("part").to_numpy()
    rows = pa.array(np.argsort(numbers, kind="stable"))
    bounds = np.concatenate([[0], np.cumsum(np.bincount(numbers, minlength=parts))])
    return _cut(batch.drop_columns(["part"]).take(rows), bounds.tolist())


def _cut(ordered: pa.RecordBatch, bounds: Sequence[int]) -> list[pa.RecordBatch]:
    return [ordered.slice(begin, end - begin) for begin, end in pairwise(bounds)]


@dataclass(slots=True)
class Counted:
    """Counts the records that a task reads of a range of positions."""

    begin: int
    """Position of the first, once there is one."""
    records: int = 0
    bytes: int = 0

    @property
    def end(self) -> int:
        """Position behind the last."""
        return self.begin + self.records

    def dense(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the batches.

        Raises:
            CorruptionError: there was not one record for each position.
        """
        after = self.begin
        for batch in batches:
            positions = batch.column("position")
            if not self.records:
                self.begin = positions[0].as_py()
            after = positions[-1].as_py() + 1
            self.records += batch.num_rows
            self.bytes += batch.nbytes
            yield batch
        if self.end != after:
            raise CorruptionError(
                f"positions {self.begin} to {after - 1} gave {self.records} records, "
                "not one each"
            )


class ShuffleWriter:
    """Takes records in the order of positions, and writes shuffle files of them."""

    def __init__(
        self,
        attempt: Attempt,
        parts: int,
        *,
        held_bytes: int = HELD_BYTES,
        split: Split = split,
        shrink: Callable[[pa.Table], pa.Table] | None = None,
    ) -> None:
        """Begin with nothing; ``shrink`` drops records that are of no use any more."""
        self.files: list[File] = []
        self.spans: list[tuple[int, int]] = []
        """The positions of each file: begin, end."""
        self.counts = [0] * parts
        """Records of each part."""
        self.bytes_written = 0
        """Of messages, as `ShuffleFile.bytes_read` counts them."""
        self._attempt = attempt
        self._parts = parts
        self._held_bytes = held_bytes
        self._split = split
        self._shrink = shrink
        self._held: list[pa.RecordBatch] = []
        self._bytes = 0
        self._chunks: list[Path] = []
        self._begin = self._end = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take records."""
        if not batch.num_rows:
            return
        self._held.append(batch)
        self._bytes += batch.nbytes
        if self._bytes < self._held_bytes:
            return
        table = self._take_held()
        if self._shrink is not None and table.nbytes < self._held_bytes // 2:
            # Copied: a slice would keep all of what it was cut from.
            self._held = table.combine_chunks().to_batches()
            self._bytes = table.nbytes
        else:
            self._write_chunk(table)

    def finish(self) -> None:
        """Write what is held; the files are durable on return."""
        if self._held:
            self._write_chunk(self._take_held())
        self._finish_file()

    def _take_held(self) -> pa.Table:
        table = pa.Table.from_batches(self._held)
        self._held, self._bytes = [], 0
        return table if self._shrink is None else self._shrink(table)

    def _write_chunk(self, table: pa.Table) -> None:
        if not table.num_rows:
            return
        batches = table.combine_chunks().to_batches()
        if len(batches) != 1:  # More than fits into one array of bytes.
            msg = f"{table.nbytes} bytes of records are more than one chunk holds"
            raise AssertionError(msg)
        # Not the first and the last: outcomes of a command log come behind.
        span = pc.min_max(table["position"]).as_py()
        self._end = span["max"] + 1
        if not self._chunks:
            self._begin = span["min"]
        parts = self._split(batches[0], self._parts)
        for part, batch in enumerate(parts):
            self.counts[part] += batch.num_rows
        path = self._path(f"{len(self.files)}-{len(self._chunks)}.chunk")
        self.bytes_written += write(path, parts[0].schema, parts)
        self._chunks.append(path)
        if len(self._chunks) == _CHUNKS_MAX:
            self._finish_file()

    def _finish_file(self) -> None:
        if not self._chunks:
            return
        path = self._path(f"{len(self.files)}.piece")
        if len(self._chunks) == 1:
            # Not by `durable`: `finished` syncs it.
            self._chunks[0].rename(path)
        else:
            join(path, self._chunks)
            for chunk in self._chunks:
                chunk.unlink()
        self._chunks = []
        # Each message has a CRC of its own, and is read once.
        self.files.append(finished(self._attempt.home, path, checked=True))
        self.spans.append((self._begin, self._end))

    def _path(self, end: str) -> Path:
        return self._attempt.scratch / f"{self._attempt.name}-{end}"


def write_list(job: Job, stage: str, results: Sequence[Result]) -> str:
    """Write down which shuffle files a stage made, in order; durable on return.

    Returns the path of that file, relative to the home of the job.
    """
    shuffle = [
        ShuffleRange(file.path, begin, end)
        for each in results
        for file, (begin, end) in zip(each.files, each.facts["spans"], strict=True)
    ]
    shuffle.sort(key=lambda each: each.begin)
    path = job.scratch / f"{stage}.pieces"
    durable.replace(path, msgspec.json.encode(shuffle))
    return str(path.relative_to(job.home))


def read_list(home: Path, path: str) -> list[ShuffleRange]:
    """Return the shuffle files in the order of their positions.

    Raises:
        CorruptionError: the list is gone or damaged.
    """
    try:
        return msgspec.json.decode((home / path).read_bytes(), type=list[ShuffleRange])
    except (OSError, msgspec.MsgspecError) as error:
        msg = (
            f"the list of the results of a stage cannot be read: {home / path}:"
            f" {error}; remove the directory of the job and run it again"
        )
        raise CorruptionError(msg, path=str(home / path)) from error


class ShuffleReader:
    """One part of all shuffle files of a list, in the order of positions."""

    def __init__(self, home: Path, shuffle: str, part: int) -> None:
        """Name it; files are opened when they are read."""
        self.bytes_read = 0
        """Of messages, so far: nothing of other parts is decoded."""
        self._home = home
        self._shuffle = shuffle
        self._part = part

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Read it.

        Raises:
            CorruptionError: bytes are not what was written.
        """
        for each in read_list(self._home, self._shuffle):
            with ShuffleFile(self._home / each.path) as file:
                schema = log_schema(list(file.schema.names))
                for batch in file.batches(self._part):
                    yield batch.cast(schema)
                self.bytes_read += file.bytes_read
