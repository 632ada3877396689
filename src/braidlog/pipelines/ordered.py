"""A command log in order, and spread over its virtual partitions.

*Theory of operation.* The first stage of a replay puts each command into the part of
the partition that it begins with; partitions that a command touches together are made
by one task, so that is where it is looked for. Outcomes go to the parts of the commands
that they are of. What is left is for everybody: entries that are no commands, and the
outcomes of commands before the range that a task reads. `OrderedInput` reads the parts
of some partitions and these two, and merges them by position.

*Invariants.* A command is in one part, and so is its outcome. What everybody reads does
not grow with the number of commands in a range.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from braidlog.app.execution.entries import (
    Command,
    Create,
    Effect,
    Entry,
    Outcomes,
    Resize,
    pack,
    unpack,
)
from braidlog.errors import CorruptionError, InvalidArgumentError
from braidlog.pipelines.shuffle import ShuffleRange
from braidlog.pipelines.shuffle_file import ShuffleFile

COLUMNS: Final = ("position", "timestamp", "value")

# A host logs outcomes within a few thousand records. Of older commands they go to all
# tasks, which is right as well.
_WINDOW: Final = 65_536


class Record(NamedTuple):
    """A record of the log, as an executor takes it."""

    position: int
    timestamp: int
    value: bytes


def records_of(batch: pa.RecordBatch) -> Iterator[Record]:
    """Make the records of a batch with the columns `COLUMNS`."""
    columns = (
        batch.column("position").to_pylist(),
        batch.column("timestamp").cast(pa.int64()).to_pylist(),
        batch.column("value").to_pylist(),
    )
    return map(Record._make, zip(*columns, strict=True))


class PartitionSorter:
    """Sorts a range of a log into parts: one for each partition, and two for all."""

    def __init__(self, partitions: int, until: int | None) -> None:
        """Begin with nothing; commands up to ``until`` are counted."""
        self.parts = partitions + 2
        self.control, self.elsewhere = partitions, partitions + 1
        self.commands = 0
        self._until = until
        self._recent: list[int] = []
        """Parts of the records from `_first` on."""
        self._first = 0
        self._numbers: list[int] = []
        """Parts of the records of a batch; of outcomes, -1."""
        self._split: list[tuple[int, int, bytes]] = []
        """Row, part and value of what is left of the outcomes of a batch."""

    def see(self, position: int, entry: Entry) -> None:
        """Take the entry at a position; they come in their order."""
        if not self._first:
            self._first = position
        part = self.control
        if type(entry) is Command or type(entry) is Effect:
            part = entry.partitions[0] if entry.partitions else 0
            self.commands += self._until is None or position <= self._until
        elif type(entry) is Resize or type(entry) is Create:
            self._check(position, entry)
        elif type(entry) is Outcomes and entry.digests:
            self._split_outcomes(entry)
            part = -1
        self._numbers.append(part)
        self._recent.append(part)
        if len(self._recent) > 2 * _WINDOW:
            del self._recent[:_WINDOW]
            self._first += _WINDOW

    def _check(self, position: int, entry: Resize | Create) -> None:
        if type(entry) is Create and entry.partitions == self.control:
            return
        raise InvalidArgumentError(
            f"the entry at {position} gives the application {entry.partitions} "
            f"partitions, and the program has {self.control}: use `braidlog replay`"
        )

    def _split_outcomes(self, entry: Outcomes) -> None:
        digests: dict[int, list[tuple[int, bytes]]] = {}
        first, recent = self._first, self._recent
        for each in entry.digests:
            at = each[0] - first
            part = recent[at] if 0 <= at < len(recent) else -1
            digests.setdefault(part, []).append(each)
        row = len(self._numbers)
        for part, some in digests.items():
            where = part if part >= 0 else self.elsewhere
            self._split.append((row, where, pack(Outcomes(entry.epoch, some))))

    def sort(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the records that were seen since, with the column ``part``."""
        numbers, self._numbers = np.array(self._numbers, np.int32), []
        split, self._split = self._split, []
        whole = batch.select(list(COLUMNS))
        whole = whole.append_column("part", pa.array(numbers, pa.int32()))
        if not split:
            return whole
        rows, parts, values = zip(*split, strict=True)
        cut = whole.take(pa.array(rows, pa.int64()))
        cut = cut.set_column(2, whole.schema.field("value"), pa.array(values))
        cut = cut.set_column(3, whole.schema.field("part"), pa.array(parts, pa.int32()))
        return pa.concat_batches([whole.filter(pa.array(numbers >= 0)), cut])


class OrderedInput:
    """Some partitions of a log as the first stage left it: an `Input` of a replay."""

    gaps: Final = True
    """Positions of other partitions are missing."""
    id: Final = ""

    def __init__(
        self,
        name: str,
        home: Path,
        shuffle: Sequence[ShuffleRange],
        parts: Collection[int],
    ) -> None:
        """Name shuffle, in order, and the parts to read of them."""
        self.name = name
        self.bytes_read = 0
        """Of messages, as `ShuffleFile.bytes_read` counts them."""
        self.records_read = 0
        self._home = home
        self._shuffle = shuffle
        self._parts = sorted(parts)

    def records(self, begin: int | None, end: int | None = None) -> Iterator[Record]:
        """Read the records from ``begin`` up to ``end``.

        Raises:
            CorruptionError: bytes are not what was written.
        """
        low = 0 if begin is None else begin
        for each in self._shuffle:
            if each.end <= low or (end is not None and each.begin >= end):
                continue
            for batch in self._chunks(each):
                some = _within(batch, low, end)
                self.records_read += some.num_rows
                yield from _joined(some)

    def _chunks(self, named: ShuffleRange) -> Iterator[pa.RecordBatch]:
        """Read the records of each chunk, by position."""
        with ShuffleFile(self._home / named.path) as file:
            entries = [file.entries(part) for part in self._parts]
            for chunk in range(file.chunks):
                found = [each[chunk] for each in entries if each[chunk]["bytes"]]
                if not found:
                    continue
                before = file.bytes_read
                batch = pa.concat_batches([file.decode(entry) for entry in found])
                self.bytes_read += file.bytes_read - before
                positions = batch.column("position").to_numpy()
                yield batch.take(pa.array(np.argsort(positions, kind="stable")))

    def close(self) -> None:
        """Do nothing: files are open while they are read."""


def _within(batch: pa.RecordBatch, begin: int, end: int | None) -> pa.RecordBatch:
    positions = batch.column("position").to_numpy()
    first = int(np.searchsorted(positions, begin))
    stop = batch.num_rows if end is None else int(np.searchsorted(positions, end))
    return batch.slice(first, max(0, stop - first))


def _joined(batch: pa.RecordBatch) -> Iterator[Record]:
    """Make records, of those at one position one: outcomes in several parts."""
    positions = batch.column("position").to_numpy()
    if not (positions[1:] == positions[:-1]).any():
        yield from records_of(batch)
        return
    held: list[Record] = []
    for record in records_of(batch):
        if held and held[0].position != record.position:
            yield _one(held)
            held.clear()
        held.append(record)
    if held:
        yield _one(held)


def _one(records: list[Record]) -> Record:
    if len(records) == 1:
        return records[0]
    position, timestamp, _ = records[0]
    epoch, digests = 0, []
    for record in records:
        entry = unpack(record.value, position)
        if not isinstance(entry, Outcomes):
            msg = f"position {position} occurs twice in the result of a stage"
            raise CorruptionError(msg)
        epoch = entry.epoch
        digests += entry.digests
    digests.sort()
    return Record(position, timestamp, pack(Outcomes(epoch, digests)))
