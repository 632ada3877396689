"""What the tasks of a query on a table read: ranges of keys, or a part of an index.

Theory of operation: Spark offers comparisons of a column, or of a field within the
value, with a constant. Those of the key become a range of keys, or a set of them. Those
of a field become a range of an index over it, if there is one of the same type. What is
read in this way holds every row that matches, and perhaps more: Spark applies all of
its filters again.

An index is taken only where it leads to a small part of the table: each of its entries
costs a look-up. Its tasks have fewer records for that, so that they take about as long
as those that read keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from braidlog.spark.source.selection import Range
from braidlog.store.tables.entry import TablePart

Path: TypeAlias = tuple[str, ...]
"""A column, or names of fields within the value."""

ANY: Final[Range[Any]] = Range()
"""All values."""

WHOLE: Final = TablePart(b"", None, 0)

INDEX_PART_MAX: Final = 0.1
"""Beyond that part of the table its tasks read all of it sooner: so many records are
looked up in the time in which all of them are read."""

_EXACT: Final = 1 << 53
"""Integers below it are floats without loss."""

_INT_MAX: Final = (1 << 63) - 1

_KINDS: Final = ("scalar", "bool", "int", "float", "text", "bytes")


class Index(Protocol):
    """An index at one position, as far as a plan looks at it."""

    @property
    def id(self) -> str:
        """Its identity."""

    def part(self, begin: Any = None, end: Any = None) -> float:
        """Return which part of it is between two values."""

    def divide(
        self, bytes_per_part: int, begin: Any = None, end: Any = None
    ) -> list[TablePart]:
        """Divide what is between two values."""


class Snapshot(Protocol):
    """A table at one position, as far as a plan looks at it."""

    @property
    def position(self) -> int:
        """Position of the last record that counts."""

    def index(self, name: str) -> Index:
        """Return an index."""

    def divide(
        self, bytes_per_part: int, begin: bytes | None = None, end: bytes | None = None
    ) -> list[TablePart]:
        """Divide keys."""


@dataclass(frozen=True, slots=True)
class TableTask:
    """What one task reads of a table at a position: keys, or a part of an index."""

    table: str
    """Identity of the table, so that one made anew under its name is not taken for
    it."""
    position: int
    part: TablePart = WHOLE
    """Keys, or entries of the index."""
    index: str = ""
    index_id: str = ""
    """Identity of it."""
    keys: frozenset[bytes] | None = None
    """Keys to look up, instead of a part."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which rows may match."""

    keys: Range[bytes] = ANY
    fields: Mapping[Path, Range[Any]] = field(default_factory=dict)


def wanted_of(filters: Iterable[Filter]) -> Wanted:
    """Return what may match all filters; what they say beside it is left out."""
    keys: Range[bytes] = ANY
    fields: dict[Path, Range[Any]] = {}
    for given in filters:
        path = tuple(given.attribute) if hasattr(given, "attribute") else ()
        if path == ("key",):
            keys = keys.within(_range(given, _key) or ANY)
        elif len(path) > 1 and path[0] == "value":
            found = _range(given, _scalar)
            if found is not None and _same_type(found, fields.get(path[1:])):
                fields[path[1:]] = found.within(fields.get(path[1:], ANY))
    return Wanted(keys, fields)


def _key(value: Any) -> bytes | None:
    # Text sorts as its bytes do.
    if isinstance(value, str):
        return value.encode()
    return bytes(value) if isinstance(value, (bytes, bytearray)) else None


def _scalar(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return None  # Spark's order of it is its own.
    return value if isinstance(value, (bool, int, float, str)) else None


def _behind(value: Any) -> Any:
    """Return the next value that there can be; None if there is none."""
    match value:
        case bool():
            return None if value else True
        case int():
            return value + 1
        case float():
            return None if value == math.inf else math.nextafter(value, math.inf)
        case str():
            return value + "\0"
        case _:
            return value + b"\0"


def _range(given: Filter, of: Callable[[Any], Any]) -> Range[Any] | None:
    """Return what one filter selects, or more; None if that is not known."""
    if isinstance(given, In):
        values = [of(value) for value in given.value]
        if not values or any(value is None for value in values):
            return None
        if len({type(value) for value in values}) > 1:
            return None
        return Range(min(values), _behind(max(values)), frozenset(values))
    value = of(getattr(given, "value", None))
    if value is None:
        return None
    match given:
        case EqualTo():
            return Range(value, _behind(value))
        case GreaterThan() | GreaterThanOrEqual():
            return Range(begin=value)
        case LessThan():
            return Range(end=value)
        case LessThanOrEqual():
            return Range(end=_behind(value))
        case StringStartsWith() if isinstance(value, bytes):
            return Range(value, _successor(value))
        case _:
            return None


def _successor(prefix: bytes) -> bytes | None:
    """Return the first key behind all that begin with a prefix."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


def _kind_of(values: Range[Any]) -> type | None:
    known = values.begin if values.begin is not None else values.end
    return None if known is None else type(known)


def _same_type(one: Range[Any], other: Range[Any] | None) -> bool:
    return other is None or _kind_of(one) is _kind_of(other)


def index_for(indexes: Mapping[str, str], wanted: Wanted) -> dict[str, Range[Any]]:
    """Return the indexes over the fields in question, and which part of each matters.

    ``indexes`` gives the field of each.
    """
    found = {}
    for name, described in indexes.items():
        place = _place(described)
        if place is None or place[0] not in wanted.fields:
            continue
        values = _as(place[1], wanted.fields[place[0]])
        if values is not None:
            found[name] = values
    return found


def _place(described: str) -> tuple[Path, str] | None:
    """Return path and type of the field of an index over one place in JSON."""
    text = described.removeprefix("strict ")
    if not text.startswith("json:/"):
        return None
    if any(f"+{source}" in text for source in ("json:", "header:", "value")):
        return None
    pointer, colon, kind = text.removeprefix("json:").rpartition(":")
    if not colon:
        pointer, kind = kind, "scalar"
    if kind not in _KINDS:
        return None
    names = pointer.split("/")[1:]
    return tuple(name.replace("~1", "/").replace("~0", "~") for name in names), kind


def _as(kind: str, values: Range[Any]) -> Range[Any] | None:
    """Return bounds for an index of a type; None if it sorts otherwise than Spark."""
    given = _kind_of(values)
    if (kind, given) == ("int", int):
        # What is beyond 64 bits is in no index.
        begin, end = values.begin, values.end
        if begin is not None and begin > _INT_MAX:
            return None
        low = None if begin is None or begin < -_INT_MAX else begin
        return Range(low, None if end is None or end > _INT_MAX else end)
    if (kind, given) in {
        ("text", str),
        ("scalar", str),
        ("bool", bool),
        ("float", float),
    }:
        # Behind the last text an untyped index has nothing else.
        return Range(values.begin, values.end)
    if (kind, given) == ("float", int):
        bounds = [each for each in (values.begin, values.end) if each is not None]
        if all(-_EXACT < each < _EXACT for each in bounds):
            begin, end = values.begin, values.end
            return Range(
                None if begin is None else float(begin),
                None if end is None else float(end),
            )
    return None


def plan_table(
    table: str,
    snapshot: Snapshot,
    keys: Range[bytes],
    indexes: Mapping[str, Range[Any]],
    bytes_per_partition: int,
) -> list[TableTask]:
    """Return tasks that read everything that may match.

    ``indexes`` are those that may be used, with what matters of each. A set of keys is
    one task.
    """
    position = snapshot.position
    if not position:
        return []  # There is no record yet.
    if keys.among is not None:
        among = frozenset(key for key in keys.among if key in keys)
        return [TableTask(table, position, keys=among)] if among else []
    if not keys and indexes:
        parts = {
            name: snapshot.index(name).part(values.begin, values.end)
            for name, values in indexes.items()
        }
        name = min(parts, key=lambda name: (parts[name], name))
        if parts[name] <= INDEX_PART_MAX:
            values, size = indexes[name], bytes_per_partition
            return _plan_index(table, snapshot, name, values, size)
    found = snapshot.divide(bytes_per_partition, keys.begin, keys.end)
    return [TableTask(table, position, part) for part in found]


def _plan_index(
    table: str, snapshot: Snapshot, name: str, values: Range[Any], size: int
) -> list[TableTask]:
    index = snapshot.index(name)
    whole = sum(part.bytes for part in snapshot.divide(size))
    entries = sum(part.bytes for part in index.divide(size))
    # So many bytes of entries lead to as many records as a task has time to look up.
    each = int(size * INDEX_PART_MAX * entries / whole) if whole else size
    parts = index.divide(max(1, each), values.begin, values.end)
    at = snapshot.position
    return [TableTask(table, at, part, name, index.id) for part in parts]
