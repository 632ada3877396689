"""Which of Spark's filters the reader takes over.

Theory of operation: comparisons of ``position``, ``timestamp``, ``stream`` and ``key``
with a constant, and lists of constants, become ranges of a `Selection`. The reader
applies these exactly, row by row, so Spark need not check them again: they are not
returned. Whatever else Spark offers is returned untouched.
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

from braidlog.spark.source.options import micros
from braidlog.spark.source.selection import EVERYTHING, Range, Selection

_COMPARISONS: Final = (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    LessThan,
    LessThanOrEqual,
)


def narrow(filters: Iterable[Filter]) -> tuple[Selection, list[Filter]]:
    """Return what the filters select, and those that Spark must still apply."""
    selection, left = EVERYTHING, []
    for given in filters:
        found = _selection_of(given)
        if found is None:
            left.append(given)
        else:
            selection = selection.within(found)
    return selection, left


def _selection_of(given: Filter) -> Selection | None:
    """Return what one filter selects, None if that is Spark's to say."""
    if isinstance(given, In):
        values = [_value(given.attribute, value) for value in given.value]
        known = frozenset(value for value in values if value is not None)
        if not known or None in values:
            return None
        return _select(given.attribute, Range(among=known))
    if not isinstance(given, _COMPARISONS):
        return None
    value = _value(given.attribute, given.value)
    return None if value is None else _select(given.attribute, _range(given, value))


def _value(attribute: tuple[str, ...], value: Any) -> Any:
    """Return the value as the column compares it, None if it does not."""
    if attribute in (("position",), ("stream",)) and type(value) is int:
        return value
    if attribute == ("timestamp",) and isinstance(value, datetime) and value.tzinfo:
        return micros(value)
    if attribute == ("key",) and isinstance(value, (bytes, bytearray)):
        return bytes(value)
    return None


def _range(given: Filter, value: Any) -> Range[Any]:
    # The values up to and including one end before the next one that there can be.
    behind = value + b"\x00" if isinstance(value, bytes) else value + 1
    match given:
        case EqualTo():
            return Range(value, behind)
        case GreaterThan():
            return Range(begin=behind)
        case GreaterThanOrEqual():
            return Range(begin=value)
        case LessThan():
            return Range(end=value)
        case _:
            return Range(end=behind)


def _select(attribute: tuple[str, ...], wanted: Range[Any]) -> Selection:
    [column] = attribute
    return Selection(**{column: wanted})
