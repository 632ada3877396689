"""The record that a row of a file becomes: its value, key, timestamp and headers.

Without a value field the value is the whole row as JSON; a line of JSONL is then stored
as it is. What a field of JSONL has that is no text is stored as it is written: a number
keeps its digits.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import ROUND_FLOOR, Decimal, InvalidOperation
from typing import Any, Literal, NoReturn, TypeAlias, TypeVar, cast

from braidlog.cli.command.parameters import microseconds
from braidlog.types import Headers

UNITS = {"s": (1_000_000, 1), "ms": (1000, 1), "us": (1, 1), "ns": (1, 1000)}

Item: TypeAlias = bytes | Mapping[str, Any]
"""A JSON line, to be parsed only if its fields are needed, or the fields."""

# More before the point are no time in any unit.
_TIME_DIGITS_MAX = 22

Unit: TypeAlias = Literal["s", "ms", "us", "ns"]


@dataclass(frozen=True, slots=True)
class Fields:
    """Which field of a row becomes what; None takes none."""

    value: str | None = None
    key: str | None = None
    timestamp: str | None = None
    headers: str | None = None
    unit: Unit = "us"
    null: str | None = None
    """Text that stands for a null value, where the format has no other."""

    @property
    def names(self) -> list[str]:
        """The fields that are named; of none a row is taken as it is."""
        named = (self.value, self.key, self.timestamp, self.headers)
        return [name for name in named if name is not None]


@dataclass(frozen=True, slots=True)
class Row:
    """One record to be."""

    value: bytes | None
    key: bytes | None = None
    timestamp: int | None = None
    headers: Headers = ()

    @property
    def size(self) -> int:
        """Its bytes, about."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.value or b"") + len(self.key or b"") + headers


class Micros(int):
    """A time in microseconds, whatever the unit of numbers."""


def row_of(item: Item, fields: Fields) -> Row:
    """Return the record that a row becomes.

    A line that is no JSON is none, also where no field is looked for: else a file of
    another kind would be stored line by line, and nobody told.

    Raises:
        ValueError: It lacks a named field, or a field is not what it has to be.
    """
    if isinstance(item, bytes):
        if not fields.names:
            _check(item.decode())
            return Row(item)
        line = item.decode()
        row: Mapping[str, Any] = _object(line)
    else:
        line, row = "", item
    key = timestamp = None
    headers: Headers = ()
    value: bytes | None
    if fields.value is None:
        value = item if isinstance(item, bytes) else _whole(item)
    else:
        value = _stored(line, row, fields.value)
        if fields.null is not None and value == fields.null.encode():
            value = None
    if fields.key is not None:
        key = _stored(line, row, fields.key)
    if fields.timestamp is not None:
        found = _required(_field(row, fields.timestamp), fields.timestamp)
        timestamp = _timestamp(found, fields.unit)
    # A line of JSONL that has none does not say so.
    if fields.headers is not None and not (line and fields.headers not in row):
        headers = _headers(_field(row, fields.headers), fields.headers)
    return Row(value, key, timestamp, headers)


def _check(line: str) -> None:
    try:
        _CHECK(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"the line is not a JSON value: {error}") from None


def _object(text: str) -> Mapping[str, Any]:
    value = json.loads(text, parse_constant=_refuse)
    if not isinstance(value, dict):
        raise ValueError("the line is not a JSON object, so it has no fields")  # noqa: TRY004
    return value


def _field(row: Mapping[str, Any], name: str) -> Any:
    try:
        return row[name]
    except KeyError:
        there = ", ".join(row)
        raise ValueError(
            f"field {name!r} does not exist (the row has: {there})"
        ) from None


_T = TypeVar("_T")


def _required(value: _T | None, name: str) -> _T:
    if value is None:
        raise ValueError(f"field {name!r} is null, but it needs a value")
    return value


def _stored(line: str, row: Mapping[str, Any], name: str) -> bytes | None:
    """Return the bytes of a field, of a line of JSON or of other fields."""
    value = _field(row, name)
    plain = _plain(value)
    if plain is not None or value is None:
        return plain
    # Through a Python float a number would lose digits, or become Infinity.
    return _written(line, name).encode() if line else _whole(value)


def _plain(value: Any) -> bytes | None:
    match value:
        case bytes():
            return value
        case str():
            return value.encode()
        case date() | time() | timedelta() | Decimal():
            return str(_json_default(value)).encode()
        case {"base64": str(text), **rest} if not rest:
            return base64.b64decode(text, validate=True)
        case {"hex": str(text), **rest} if not rest:
            return bytes.fromhex(text)
    return None


def _refuse(constant: str) -> NoReturn:
    """Take no number that JSON does not have, as Python would."""
    raise ValueError(f"{constant} is not JSON: write null, or text in quotes")


# Of a line that is only looked at, no number has to become one.
_CHECK = json.JSONDecoder(parse_int=len, parse_float=len, parse_constant=_refuse).decode
_DECODE = json.JSONDecoder().raw_decode
_SPACE = re.compile(r"[ \t\r\n]*")


def _written(line: str, name: str) -> str:
    """Return how a field of a JSON object is written; of two of a name the last."""

    def behind(at: int) -> int:
        return cast(re.Match[str], _SPACE.match(line, at)).end()

    written = ""
    at = behind(line.index("{") + 1)
    while line[at] != "}":
        key, at = _DECODE(line, at)
        begin = behind(behind(at) + 1)
        _, end = _DECODE(line, begin)
        if key == name:
            written = line[begin:end]
        at = behind(end)
        if line[at] == ",":
            at = behind(at + 1)
    return written


def _headers(value: Any, name: str) -> Headers:
    """Return headers of pairs, as `export` writes them, or of an object."""
    try:
        if isinstance(value, str):
            value = json.loads(value, parse_constant=_refuse) if value else None
        pairs = value.items() if isinstance(value, dict) else value or ()
        for text, _ in pairs:
            text.encode()
        found = tuple((text, _content(content)) for text, content in pairs)
    except (AttributeError, TypeError, ValueError):
        found = None
    if found is None or not all(isinstance(text, str) for text, _ in found):
        raise ValueError(
            f"field {name!r} does not hold headers: write pairs of name and text"
        )
    return found


def _content(value: Any) -> bytes | None:
    plain = _plain(value)
    if plain is None and value is not None:
        raise ValueError("a header holds text")
    return plain


def _whole(value: Any) -> bytes:
    """Return JSON; what it has no number for is null in a row, a word of its own."""
    if not isinstance(value, float):
        value = _finite(value)
    text = json.dumps(
        value, ensure_ascii=False, separators=(",", ":"), default=_json_default
    )
    return text.encode()


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {name: _finite(each) for name, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
    return value


def _json_default(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value.isoformat() if isinstance(value, date) else str(value)


def _timestamp(value: Any, unit: Unit) -> int:
    if isinstance(value, Micros):
        return value
    if isinstance(value, datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=UTC)
        return microseconds(aware.isoformat())
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise ValueError(f"{value!r} is not a time")  # noqa: TRY004
    try:
        # As it is written: times a factor, a float may be a microsecond less.
        number = Decimal(str(value))
    except InvalidOperation:
        try:
            return microseconds(str(value))
        except ValueError:
            raise ValueError(f"{value!r} is not a time") from None
    micros = _micros(number, unit) if number.is_finite() else 1 << 63
    if not -(1 << 63) <= micros < 1 << 63:
        raise ValueError(f"{value!r} {unit} is not a time")
    return micros


def _micros(number: Decimal, unit: Unit) -> int:
    if number.adjusted() > _TIME_DIGITS_MAX:
        return 1 << 63
    times, divided = UNITS[unit]
    return int((number * times / divided).to_integral_value(ROUND_FLOOR))
