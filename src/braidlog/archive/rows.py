"""Columns of an archive, and rows of it as records of a log.

Records are made in the core: rows are encoded as the log encodes them, and the batch
gives them back. So a record of an archive is one of the log in every respect, and no
Python runs for each of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from braidlog import _native
from braidlog.errors import InvalidArgumentError

if TYPE_CHECKING:
    from braidlog._native import Record

COLUMNS: Final = {
    "position": pa.int64(),
    "stream": pa.int64(),
    "llsn": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.map_(pa.string(), pa.binary()),
}
"""Everything that there is of a record."""

LOG_COLUMNS: Final = ("position", "timestamp", "key", "value", "headers")
"""What a log gives where nothing else is asked for."""

_APPENDED: Final = ["timestamp", "key", "value", "headers"]


@dataclass(frozen=True, slots=True)
class Choice:
    """Which records are wanted; times in microseconds, half-open."""

    key: bytes | None = None
    since: int | None = None
    until: int | None = None

    @property
    def chooses(self) -> bool:
        """Whether any record is left out."""
        return any(bound is not None for bound in (self.key, self.since, self.until))

    def may_hold(self, first: int, last: int) -> bool:
        """Return whether records with times ``first`` to ``last`` may be wanted."""
        late = self.until is not None and first >= self.until
        return not late and (self.since is None or last >= self.since)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return which rows are wanted."""
        kept = pa.repeat(pa.scalar(True), batch.num_rows)
        if self.key is not None:
            same = pc.equal(batch["key"], pa.scalar(self.key, pa.binary()))
            kept = pc.and_(kept, pc.fill_null(same, False))
        times = batch["timestamp"].cast(pa.int64())
        if self.since is not None:
            kept = pc.and_(kept, pc.greater_equal(times, self.since))
        if self.until is not None:
            kept = pc.and_(kept, pc.less(times, self.until))
        return kept


EVERY: Final = Choice()


def chosen_columns(columns: Sequence[str] | None) -> list[str]:
    """Return the names of the columns to read.

    Raises:
        InvalidArgumentError: there is no such column, or it is named twice.
    """
    names = list(LOG_COLUMNS if columns is None else columns)
    unknown = [name for name in names if name not in COLUMNS]
    if unknown:
        msg = f"column {unknown[0]!r} does not exist (there are: {', '.join(COLUMNS)})"
        raise InvalidArgumentError(msg)
    if len(set(names)) < len(names):
        raise InvalidArgumentError(f"columns names a column twice: {', '.join(names)}")
    return names


def records_of(batch: pa.RecordBatch, position: int, choice: Choice) -> list[Record]:
    """Return the wanted rows of a batch as records; the first row is at a position."""
    if not choice.chooses:
        return _all_records(batch, position)
    wanted = pc.indices_nonzero(choice.mask(batch)).to_pylist()
    if not wanted:
        return []
    first, last = wanted[0], wanted[-1]
    near = _all_records(batch.slice(first, last + 1 - first), position + first)
    return [near[row - first] for row in wanted]


def _all_records(batch: pa.RecordBatch, position: int) -> list[Record]:
    records: list[Record] = []
    table = pa.Table.from_batches([batch.select(_APPENDED)])
    for data in _native.encode_arrow(table):
        records += _native.Batch(data).records(position + len(records))
    return records
