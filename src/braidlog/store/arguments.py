"""What callers give, checked before anything is done with it. Pure."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, SupportsIndex, TypeAlias, TypeVar

from braidlog.errors import InvalidArgumentError, PositionError, TooLargeError
from braidlog.types import Producer

if TYPE_CHECKING:
    from typing_extensions import Buffer

T = TypeVar("T")

TimestampLike: TypeAlias = int | datetime
"""A time as callers give it: a `Timestamp`, or a `datetime` with a time zone."""

DurationLike: TypeAlias = float | timedelta
"""How long, as callers give it: seconds, or a `timedelta`."""

_NUMBERS: Final = range(1 << 64)
_TIMES: Final = range(-(1 << 63), 1 << 63)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)

# `SECONDS_MAX` of the core, about thirty years: threads wait no longer either.
_SECONDS_MAX: Final = 1e9

# `BATCH_BYTES_MAX` of the core: nothing in a record is longer.
_BYTES_MAX: Final = 16 << 20


def checked_timeout(timeout: Any) -> float | None:
    """Return how many seconds to wait, as a number that can be added to a clock.

    Raises:
        TypeError: it is neither a number nor a `timedelta`.
        InvalidArgumentError: it is not a number (NaN).
    """
    if timeout is None:
        return None
    if isinstance(timeout, timedelta):
        timeout = timeout.total_seconds()
    if not hasattr(timeout, "__float__") and not hasattr(timeout, "__index__"):
        msg = f"timeout must be seconds or a timedelta, not {type(timeout).__name__}"
        raise TypeError(msg)
    try:
        unclear = math.isnan(timeout)
    except OverflowError:
        # An integer that is larger than any float.
        return _SECONDS_MAX if timeout > 0 else -_SECONDS_MAX
    if unclear:
        msg = f"timeout must be a number of seconds, got {timeout!r}"
        raise InvalidArgumentError(msg)
    return min(float(timeout), _SECONDS_MAX)


def checked_producer(producer: object) -> Producer:
    """Return a producer.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(producer, Producer):
        msg = f"producer must be a braidlog.Producer, not {type(producer).__name__}"
        raise TypeError(msg)
    return producer


def checked_int(number: object, what: str) -> int:
    """Return a number of which ``what`` is the name.

    Raises:
        TypeError: it is no integer.
    """
    if type(number) is int:
        return number
    if not isinstance(number, SupportsIndex):
        raise TypeError(f"{what} must be an int, not {type(number).__name__}")
    return int(operator.index(number))


def checked_flag(flag: object, what: str) -> bool:
    """Return True or False; anything else is a mistake, such as the text "no".

    Raises:
        TypeError: it is neither.
    """
    # NumPy has a type of its own, which is called so.
    if isinstance(flag, bool) or type(flag).__name__ in {"bool", "bool_"}:
        return bool(flag)
    raise TypeError(f"{what} must be a bool, not {type(flag).__name__}")


def checked_columns(columns: Any) -> list[str] | None:
    """Return names of columns; None stands for all.

    Raises:
        TypeError: it is no list of names.
    """
    if columns is None:
        return None
    if isinstance(columns, str) or not isinstance(columns, Iterable):
        msg = f"columns must be a list of names, not {type(columns).__name__}"
        raise TypeError(msg)
    names = list(columns)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"columns must be a list of names, but one is {name!r}")
    return names


def checked_position(position: object, what: str = "position") -> int:
    """Return a position of a log, from 1.

    Raises:
        TypeError: it is no integer.
        PositionError: no log has it.
    """
    number = checked_int(position, what)
    if number < 1 or number not in _NUMBERS:
        raise PositionError(f"there is no position {number}")
    return number


def checked_limit(limit: int | None) -> int | None:
    """Return how many records of a table are wanted at most, None: all.

    Raises:
        InvalidArgumentError: it is no such number.
    """
    if limit is None:
        return None
    given: object = limit
    if not isinstance(given, int) or isinstance(given, bool) or given < 0:
        msg = f"limit must be a number of records or None, got {limit!r}"
        raise InvalidArgumentError(msg)
    return limit


def checked_count(number: object, what: str) -> int:
    """Return a count, a limit, or the end of a range.

    Raises:
        TypeError: it is no integer.
        InvalidArgumentError: it is negative, or does not fit 64 bits.
    """
    count = checked_int(number, what)
    if count not in _NUMBERS:
        raise InvalidArgumentError(f"{what} must be from 0 to 2**64 - 1, got {count}")
    return count


def checked_time(timestamp: object) -> int:
    """Return a timestamp in microseconds.

    Raises:
        TypeError: it is neither an integer nor a `datetime`.
        InvalidArgumentError: it does not fit 64 bits, or has no time zone.
    """
    if type(timestamp) is int and timestamp in _TIMES:
        return timestamp
    if isinstance(timestamp, datetime):
        if timestamp.utcoffset() is None:
            raise InvalidArgumentError(
                f"{timestamp!r} has no time zone. Add one: "
                "datetime(..., tzinfo=timezone.utc), or .astimezone() for local time"
            )
        return (timestamp - _EPOCH) // _MICROSECOND
    if not isinstance(timestamp, SupportsIndex):
        # Numbers of seconds, texts: only the caller knows what is meant.
        kind = type(timestamp).__name__
        raise TypeError(
            "a timestamp must be an int (microseconds since 1970, UTC) or a datetime "
            f"with a time zone, not {kind}"
        )
    number = int(operator.index(timestamp))
    if number not in _TIMES:
        raise InvalidArgumentError(
            "expected a timestamp in microseconds from -2**63 to 2**63 - 1, got "
            f"{number}"
        )
    return number


def optional(check: Callable[[Any], T], value: Any) -> T | None:
    """Return what a check gives, None for None."""
    return None if value is None else check(value)


def checked_times(timestamps: Any) -> Any:
    """Return one timestamp for all records, or an iterator over one for each."""
    if timestamps is None:
        return None
    try:
        return checked_time(timestamps)
    except TypeError:
        if not isinstance(timestamps, Iterable):
            raise
        return (None if each is None else checked_time(each) for each in timestamps)


def checked_bytes(value: Buffer, what: str) -> bytes:
    """Return a value, key or header as bytes; ``what`` says which.

    Raises:
        TypeError: it is no buffer. ``bytes(5)`` would be five zeros.
        TooLargeError: no record can hold it.
    """
    if isinstance(value, bytes):
        return value
    view = _view(value, what)
    # A view that repeats one byte is as long as it says, in no memory of its own.
    if view.nbytes > _BYTES_MAX:
        msg = (
            f"the {what} has {view.nbytes} bytes, but at most {_BYTES_MAX} are allowed"
        )
        raise TooLargeError(msg, size=view.nbytes, limit=_BYTES_MAX)
    return view.tobytes()


def _view(value: Any, what: str) -> memoryview:
    try:
        return memoryview(value)
    except TypeError:
        kind = type(value).__name__
        msg = f"{what} must be bytes or a buffer of bytes, not {kind}"
        raise TypeError(msg) from None


def checked_value(value: Buffer) -> bytes:
    """Return a value as bytes; see `checked_bytes`."""
    return checked_bytes(value, "value")


def checked_key(key: Buffer) -> bytes:
    """Return a key as bytes; see `checked_bytes`."""
    return checked_bytes(key, "key")


def checked_values(
    values: Iterable[Buffer | None], **columns: object
) -> list[Buffer | None]:
    """Return the values of many records, each still to be checked.

    What belongs to them, ``columns``, is refused by its length where it has one, before
    any of it is read.

    Raises:
        TypeError: it is a single one.
        InvalidArgumentError: a column does not have the length of the values.
    """
    if isinstance(values, str | bytes | bytearray | memoryview):
        raise TypeError(f"values must be a list, not one {type(values).__name__}")
    count = _known_len(values)
    for name, column in columns.items():
        size = None if count is None else _known_len(column)
        if size not in (None, count):
            raise InvalidArgumentError(f"{count} values were given, but {size} {name}")
    if type(values) in {list, tuple}:
        return list(values)
    # `list` would reserve what a length promises, and numbers without end would take
    # all memory before one is looked at.
    return list(map(_buffer, values))


def _buffer(value: Any) -> Any:
    if type(value) is not bytes:
        _view(value, "value")
    return value


def _known_len(items: Any) -> int | None:
    try:
        return len(items)
    except (TypeError, OverflowError):
        return None  # It has none, or one that no list can have.
