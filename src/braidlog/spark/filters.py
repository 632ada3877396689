"""Which of Spark's filters the reader takes over.

Theory of operation: comparisons of ``position`` and ``timestamp`` with a constant
become tighter bounds. The reader applies bounds exactly, row by row, so Spark need
not check them again: they are not returned. ``In`` only narrows the bounds to its
smallest and largest value, so it is returned and Spark still checks each row.
Whatever else Spark offers is returned untouched.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from braidlog.spark.options import micros
from braidlog.spark.plan import Bounds

__all__ = ["EVERYTHING", "narrow"]

EVERYTHING: Final = Bounds(begin=0, end=(1 << 63) - 1)

_COMPARISONS: Final = (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)


def narrow(filters: Iterable[Filter]) -> tuple[Bounds, list[Filter]]:
    """Return the bounds that the filters imply, and those Spark must still apply."""
    bounds, left = EVERYTHING, []
    for given in filters:
        found = _bounds_of(given)
        if found is not None:
            bounds = bounds.within(found)
        if found is None or isinstance(given, In):
            left.append(given)
    return bounds, left


def _bounds_of(given: Filter) -> Bounds | None:
    """Return the bounds of one filter, None if it implies none."""
    if isinstance(given, In):
        values = [_number(given.attribute, value) for value in given.value]
        known = [value for value in values if value is not None]
        if not known or len(known) != len(values):
            return None
        return _bounds(given.attribute, min(known), max(known) + 1)
    if not isinstance(given, _COMPARISONS):
        return None
    value = _number(given.attribute, given.value)
    return None if value is None else _bounds(given.attribute, *_range(given, value))


def _number(attribute: tuple[str, ...], value: Any) -> int | None:
    """Return the value as position or microseconds, None if it is neither."""
    if attribute == ("position",) and type(value) is int:
        return value
    if attribute == ("timestamp",) and isinstance(value, datetime) and value.tzinfo:
        return micros(value)
    return None


def _range(given: Filter, value: int) -> tuple[int | None, int | None]:
    match given:
        case EqualTo():
            return value, value + 1
        case GreaterThan():
            return value + 1, None
        case GreaterThanOrEqual():
            return value, None
        case LessThan():
            return None, value
        case _:
            return None, value + 1


def _bounds(attribute: tuple[str, ...], begin: int | None, end: int | None) -> Bounds:
    if attribute == ("timestamp",):
        return Bounds(EVERYTHING.begin, EVERYTHING.end, since=begin, until=end)
    return Bounds(
        EVERYTHING.begin if begin is None else begin,
        EVERYTHING.end if end is None else end,
    )
