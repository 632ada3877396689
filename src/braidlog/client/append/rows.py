"""Records as callers give them, checked and in the form in which they are encoded."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from braidlog import _native
from braidlog.errors import InvalidArgumentError, TooLargeError
from braidlog.store.arguments import (
    TimestampLike,
    checked_bytes,
    checked_int,
    checked_key,
    checked_producer,
    checked_time,
    checked_times,
    checked_value,
    checked_values,
    optional,
)
from braidlog.types import Headers, HeadersLike

if TYPE_CHECKING:
    from typing_extensions import Buffer

Row: TypeAlias = tuple[bytes | None, bytes | None, int, Headers]
"""Value, key, timestamp and headers."""

# No producer gets this far, so the primary must refuse it and say what comes next. The
# core has no number for what would follow a greater one.
SEQUENCE_NEVER: Final = (1 << 62) - 3

# Bytes that a record is counted with beyond its key, value and headers.
_RECORD_COST: Final = 64


def size_of(row: Row) -> int:
    """Return the bytes that a record is counted with."""
    value, key, _, headers = row
    size = _RECORD_COST
    if value is not None:
        size += len(value)
    if key is not None:
        size += len(key)
    if headers:
        size += sum(len(name) + len(data or b"") for name, data in headers)
    return size


def check_producer(producer: Any, sequence: int | None) -> None:
    """Check the producer and the sequence that a caller brings: both or neither."""
    if producer is None and sequence is None:
        return
    if producer is None:
        raise InvalidArgumentError("sequence= needs producer= as well")
    checked_producer(producer)
    if sequence is None or not 0 < checked_int(sequence, "sequence") <= SEQUENCE_NEVER:
        msg = f"producer= needs sequence=, a number from 1 on, got {sequence!r}"
        raise InvalidArgumentError(msg)


class Rows:
    """Checks records before anything happens with them."""

    def __init__(
        self,
        record_bytes_max: int,
        clock: Callable[[], int],
        require_nulls: Callable[[], None],
    ) -> None:
        """Bound the size of a record; the clock gives times that callers leave out.

        `require_nulls` refuses a null value where it cannot be stored.
        """
        self._limit = record_bytes_max
        self._clock = clock
        self._require_nulls = require_nulls

    def one(
        self,
        value: Buffer | None,
        key: Buffer | None,
        timestamp: TimestampLike | None,
        headers: HeadersLike | None,
    ) -> Row:
        """Check one record.

        Raises:
            TypeError: something is not what it must be.
            TooLargeError: the record is over its limit.
            OlderNodesError: a value is null, and not every node knows that.
        """
        return self.sized(value, key, timestamp, headers)[0]

    def sized(
        self,
        value: Buffer | None,
        key: Buffer | None,
        timestamp: TimestampLike | None,
        headers: HeadersLike | None,
    ) -> tuple[Row, int]:
        """Check one record as `one` does; return the bytes it is counted with too."""
        if key is None and headers is None and type(value) is bytes:
            # Most are like this, and each call of a function costs what this does.
            when = self._clock() if timestamp is None else self._time(timestamp)
            if (size := _RECORD_COST + len(value)) <= self._limit:
                return (value, None, when, ()), size
        named: Headers = ()
        if headers is not None:
            named = _named(headers)
        plain_key = optional(checked_key, key)
        when = self._clock() if timestamp is None else self._time(timestamp)
        plain_value = optional(checked_value, value)
        if value is None or any(data is None for _, data in named):
            self._require_nulls()
        row = (plain_value, plain_key, when, named)
        if (size := size_of(row)) > self._limit:
            msg = f"the record has {size} bytes, but at most {self._limit} are allowed"
            raise TooLargeError(msg, size=size, limit=self._limit)
        return row, size

    def many(
        self,
        values: Iterable[Buffer | None],
        keys: Iterable[Buffer | None] | None,
        timestamps: Iterable[TimestampLike | None] | TimestampLike | None,
        headers: Iterable[HeadersLike | None] | None,
    ) -> list[Row]:
        """Check records that are given by columns; one timestamp may stand for all.

        Raises:
            TypeError: something is not what it must be.
            InvalidArgumentError: the columns do not have the same length.
            TooLargeError: a record is over its limit.
            OlderNodesError: a value is null, and not every node knows that.
        """
        plain = checked_values(
            values, keys=keys, timestamps=timestamps, headers=headers
        )
        times = checked_times(timestamps)
        one = times if isinstance(times, int) else None
        times = None if isinstance(times, int) else times
        columns = [
            _column(name, column, len(plain))
            for name, column in (
                ("keys", keys),
                ("timestamps", times),
                ("headers", headers),
            )
        ]
        return [
            self.one(value, key, one if time is None else time, named)
            for value, key, time, named in zip(plain, *columns, strict=True)
        ]

    def plain(
        self, values: list[Any], timestamp: int | None
    ) -> tuple[list[bytes], int, int] | None:
        """Return values, timestamp and size of records that are ``bytes`` alone.

        None if they are something else: then each has to be looked at. This way they
        cost a batch, and not Python code for each of them.
        """
        found = _native.bytes_of(values)
        if found is None or found[1] + _RECORD_COST > self._limit:
            return None
        size = _RECORD_COST * len(values) + found[0]
        return values, self._time(timestamp), size

    def _time(self, timestamp: Any) -> int:
        if timestamp is None:
            return self._clock()
        return checked_time(timestamp)


def _column(name: str, column: Iterable[Any] | None, count: int) -> Iterator[Any]:
    if column is None:
        return iter([None] * count)
    # One more than there are values is enough to know: it may go on for ever.
    found = list(itertools.islice(column, count + 1))
    if len(found) != count:
        size = f"more than {count}" if len(found) > count else len(found)
        raise InvalidArgumentError(f"{count} values were given, but {size} {name}")
    return iter(found)


def _named(headers: Any) -> Headers:
    if isinstance(headers, Mapping):
        headers = headers.items()
    pairs = "headers must be a dict or (name, value) pairs"
    if not isinstance(headers, Iterable):
        raise TypeError(f"{pairs}, not {type(headers).__name__}")
    found = []
    for pair in headers:
        # A text of two letters can be unpacked too, and so can a dict of two keys.
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise TypeError(f"{pairs}: the name a str, the value bytes or None")
        name, value = pair
        if not isinstance(name, str):
            raise TypeError(f"header name must be str, not {type(name).__name__}")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            # A `str` may hold half of a surrogate pair, which UTF-8 cannot.
            msg = f"header name {name!r} cannot be stored as UTF-8"
            raise InvalidArgumentError(msg) from error
        data = None if value is None else checked_bytes(value, "header value")
        found.append((name, data))
    return tuple(found)
