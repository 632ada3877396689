"""Which records are asked for: ranges of positions, times, streams and keys.

Theory of operation: options and filters of Spark both become a `Selection`. A
comparison with a constant is a half-open range (of bytes as well: the next key behind
``k`` is ``k`` and a zero byte), a list is a set of values. So a selection says exactly
which rows match, and what is in it Spark need not check again. Planning leaves out what
cannot hold a match; what a task reads is then compared row by row, in Arrow.

Invariants: a row is kept exactly if it is in all ranges; a null is in none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

T = TypeVar("T", int, bytes)


@dataclass(frozen=True, slots=True)
class Range(Generic[T]):
    """Values from ``begin`` to before ``end`` that are ``among`` some; None is any."""

    begin: T | None = None
    end: T | None = None
    among: frozenset[T] | None = None

    def __bool__(self) -> bool:
        """Return whether it excludes anything."""
        return not (self.begin is None and self.end is None and self.among is None)

    def __contains__(self, value: T) -> bool:
        """Return whether a value is in it."""
        return (
            (self.begin is None or self.begin <= value)
            and (self.end is None or value < self.end)
            and (self.among is None or value in self.among)
        )

    def within(self, other: Range[T]) -> Range[T]:
        """Return what is in both."""
        return Range(
            _tighter(max, self.begin, other.begin),
            _tighter(min, self.end, other.end),
            _tighter(frozenset.__and__, self.among, other.among),
        )


def _tighter(choose: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    if one is None or other is None:
        return other if one is None else one
    return choose(one, other)


def hull(wanted: Range[int]) -> tuple[int | None, int | None]:
    """Return begin and end without the set: what can be in a range lies between."""
    if wanted.among is None:
        return wanted.begin, wanted.end
    known = [value for value in wanted.among if value in wanted]
    return (min(known), max(known) + 1) if known else (0, 0)


@dataclass(frozen=True, slots=True)
class Selection:
    """The records whose columns are in all ranges; times are microseconds."""

    position: Range[int] = Range()
    timestamp: Range[int] = Range()
    stream: Range[int] = Range()
    key: Range[bytes] = Range()

    def within(self, other: Selection) -> Selection:
        """Return what both ask for."""
        return Selection(
            *(mine.within(getattr(other, name)) for name, mine in self._ranges())
        )

    @property
    def columns(self) -> dict[str, Range[Any]]:
        """The ranges that exclude anything, by column."""
        return {name: each for name, each in self._ranges() if each}

    def _ranges(self) -> list[tuple[str, Range[Any]]]:
        return [(each.name, getattr(self, each.name)) for each in fields(self)]

    def behind_plan(self, *, streams: bool) -> Selection:
        """Return what still is to be compared of rows that a plan chose.

        A plan reads no position out of bounds, and no stream that was not asked for
        unless it reads all ``streams`` at once.
        """
        return replace(
            self,
            position=Range(among=self.position.among),
            stream=self.stream if streams else Range(),
        )


EVERYTHING: Final = Selection()


def matching(batch: pa.RecordBatch, ranges: Mapping[str, Range[Any]]) -> pa.RecordBatch:
    """Return the rows of a batch that are in all ranges, by the names of columns."""
    for name, wanted in ranges.items():
        column = batch.column(name)
        if pa.types.is_timestamp(column.type):
            column = column.cast(pa.int64())
        mask = _mask(column, wanted)
        if mask is not None:
            batch = batch.filter(mask)  # a null in the mask drops the row
    return batch


def _held(wanted: Range[int], bound: int) -> Range[int]:
    """Return the same of integers from ``-bound`` to before it, in numbers of theirs.

    Arrow compares no column with a number that it cannot hold.
    """
    begin, end, among = wanted.begin, wanted.end, wanted.among
    if (begin or 0) >= bound or (end or 0) < -bound:
        return Range(among=frozenset())
    return Range(
        None if begin is None else max(begin, -bound),
        None if end is None or end >= bound else end,
        None if among is None else frozenset(n for n in among if -bound <= n < bound),
    )


def _mask(column: pa.Array, wanted: Range[Any]) -> pa.Array | None:
    parts = []
    if pa.types.is_integer(column.type):
        wanted = _held(wanted, 1 << (column.type.bit_width - 1))
    if wanted.begin is not None:
        parts.append(pc.greater_equal(column, pa.scalar(wanted.begin, column.type)))
    if wanted.end is not None:
        parts.append(pc.less(column, pa.scalar(wanted.end, column.type)))
    if wanted.among is not None:
        values = pa.array(sorted(wanted.among), column.type)
        parts.append(pc.is_in(column, value_set=values))
    mask = None
    for part in parts:
        mask = part if mask is None else pc.and_(mask, part)
    return mask
