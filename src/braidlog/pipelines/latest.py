"""Of each key the last record: which one that is, and where it comes from.

*Theory of operation.* A log that is rewritten often has many records that no longer
count, and moving those from stage to stage costs more than reading them. So the stages
``choose`` and ``fetch`` stand between looking at keys and writing records: a task of
the first takes the keys and positions of one part, of all ranges, and leaves the
positions that count, by range; a task of the second reads one range again, and moves
those of its records that count.

*Invariants.* What is fetched is what was chosen, no record more or less, or the task
fails. A record is chosen by one part, because keys are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from braidlog import _native
from braidlog.client.arrow import log_schema
from braidlog.errors import CorruptionError
from braidlog.pipelines.job import Attempt, Result
from braidlog.pipelines.shuffle import (
    COLUMNS,
    HELD_BYTES,
    ShuffleReader,
    ShuffleWriter,
    read_list,
    split_at,
)
from braidlog.sources.origin import Origin

KEYS: Final = ("position", "key")
"""What it takes to tell which record of a key is the last."""


@dataclass(frozen=True, slots=True)
class Whole:
    """What all tasks of a job are about: positions of a log, and the parts of keys."""

    begin: int
    end: int
    log: str
    parts: int


@dataclass(frozen=True, slots=True)
class Choose:
    """Of one part of the keys, the positions that count."""

    part: int
    shuffle: str
    """The file that lists shuffle files of keys and positions, one for each range."""
    whole: Whole


@dataclass(frozen=True, slots=True)
class Fetch:
    """Of one range, the records that were chosen."""

    range: int
    chosen: str
    """The file that lists what has their positions."""
    whole: Whole


def latest(table: pa.Table) -> pa.Table:
    """Keep of each key the last record; they are in the order of positions.

    Records without a key are dropped.
    """
    keys = table.select(["key"]).combine_chunks().to_batches()
    if not keys:
        return table
    [batch] = keys
    is_latest = pa.record_batch(_native.latest_by_key(batch)).column(0)
    return table if is_latest.true_count == len(is_latest) else table.filter(is_latest)


def latest_of(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> pa.Table:
    """Keep the last record of each key; hold twice that, or `HELD_BYTES` more."""
    kept = log_schema(list(columns)).empty_table()
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        held.append(batch)
        size += batch.nbytes
        # Not with each batch: the same keys would be gone through again and again.
        if size >= max(HELD_BYTES, kept.nbytes):
            kept = latest(pa.concat_tables([kept, pa.Table.from_batches(held)]))
            held, size = [], 0
    if held:
        kept = latest(pa.concat_tables([kept, pa.Table.from_batches(held)]))
    return kept.combine_chunks()


def choose(task: Choose, attempt: Attempt) -> Result:
    """Leave the positions that count of one part, by the ranges that they are in."""
    part = ShuffleReader(attempt.home, task.shuffle, task.part)
    positions = latest_of(part.batches(), KEYS)["position"].to_numpy()
    begins = [each.begin for each in read_list(attempt.home, task.shuffle)]
    chosen = ShuffleWriter(attempt, len(begins), split=split_at)
    ranges = np.searchsorted(begins, positions, side="right") - 1
    chosen.add(pa.record_batch({"position": positions, "part": ranges}))
    chosen.finish()
    return Result(
        {
            "shuffle_bytes_read": part.bytes_read,
            "shuffle_bytes_written": chosen.bytes_written,
        },
        tuple(chosen.files),
        {"whole": asdict(task.whole), "ranges": len(begins), "spans": chosen.spans},
    )


def fetch(origin: Origin, task: Fetch, attempt: Attempt) -> Result:
    """Read the records of one range that were chosen, and spread them over parts."""
    part = ShuffleReader(attempt.home, task.chosen, task.range)
    found = [batch.column("position").to_numpy() for batch in part.batches()]
    chosen = np.sort(np.concatenate(found)) if found else np.array([], np.int64)
    shuffle = ShuffleWriter(attempt, task.whole.parts)
    fetched = size = 0
    if len(chosen):
        with origin.open() as source:
            begin, end = int(chosen[0]), int(chosen[-1]) + 1
            for batch in source.batches(begin, end, columns=COLUMNS):
                rows = _rows(batch, chosen)
                shuffle.add(rows)
                fetched += rows.num_rows
                size += batch.nbytes
    if fetched != len(chosen):
        raise CorruptionError(f"{fetched} of {len(chosen)} chosen records were found")
    shuffle.finish()
    return Result(
        {
            "bytes_read": size,
            "records_fetched": fetched,
            "shuffle_bytes_read": part.bytes_read,
            "shuffle_bytes_written": shuffle.bytes_written,
        },
        tuple(shuffle.files),
        {"whole": asdict(task.whole), "spans": shuffle.spans},
    )


def _rows(batch: pa.RecordBatch, chosen: Any) -> pa.RecordBatch:
    """Copy the rows that were chosen; positions of a batch have no gap.

    Raises:
        CorruptionError: they have one.
    """
    first, last = (batch.column("position")[at].as_py() for at in (0, -1))
    if last - first + 1 != batch.num_rows:
        msg = f"positions {first} to {last} gave {batch.num_rows} records, not one each"
        raise CorruptionError(msg)
    begin, end = np.searchsorted(chosen, [first, last + 1])
    return batch.take(pa.array(chosen[begin:end] - first))
