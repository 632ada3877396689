"""Records of one entry that have to go to several streams since these were changed.

The one who appended waits for one entry; it is settled when all of its parts are.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TypeAlias

from braidlog.client.append.change import Records
from braidlog.client.batches import Columns
from braidlog.errors import LogError

Part: TypeAlias = "tuple[Sequence[int], Records]"
"""Numbers of records of the whole, and the entry that they are now."""


class Places(int):
    """Positions of records that need not be in a row; as a number, the first one."""

    all: tuple[int, ...]

    def __new__(cls, positions: tuple[int, ...]) -> Places:
        """Take the positions, in the order of the records."""
        places = super().__new__(cls, positions[0])
        places.all = positions
        return places


def positions_of(first: int, count: int) -> Sequence[int]:
    """Return the positions of an entry with so many records."""
    return first.all if isinstance(first, Places) else range(first, first + count)


def columns_of(records: Columns, indexes: Sequence[int]) -> Columns:
    """Return some of the records."""
    values, keys, timestamps, headers = records
    return Columns(
        [values[at] for at in indexes],
        None if keys is None else [keys[at] for at in indexes],
        timestamps if isinstance(timestamps, int) else [timestamps[i] for i in indexes],
        None if headers is None else [headers[at] for at in indexes],
    )


class Parts:
    """Waits for the parts of an entry."""

    def __init__(
        self, whole: Records, parts: list[Part], take_back: Callable[[Records], bool]
    ) -> None:
        """Watch the parts, which are appended next, and who waits for the whole."""
        self._whole = whole
        self._parts = parts
        self._take_back = take_back
        self._open = len(parts)
        for _, entry in parts:
            entry.waiter.add_done_callback(self._settled)
        whole.waiter.add_done_callback(self._done)

    def withdraw(self) -> bool:
        """Take all parts back; False if one of them may be stored."""
        open_ = [entry for _, entry in self._parts if not entry.waiter.done()]
        back = [self._take_back(entry) for entry in open_]
        return all(back) and not any(map(_may_be_stored, self._parts))

    def _done(self, waiter: object) -> None:
        if self._open:
            self.withdraw()
            for _, entry in self._parts:
                entry.waiter.cancel()

    def _settled(self, waiter: object) -> None:
        self._open -= 1
        if self._open or self._whole.waiter.done():
            return
        failures = [_failure(entry) for _, entry in self._parts]
        errors = [error for error in failures if error is not None]
        if not errors:
            self._whole.waiter.set_result(Places(self._positions()))
            return
        error = copy.copy(errors[0])
        if any(map(_may_be_stored, self._parts)) and error.outcome == "not_stored":
            error.outcome = "unknown"
        self._whole.waiter.set_exception(error)

    def _positions(self) -> tuple[int, ...]:
        positions = [0] * self._whole.count
        for indexes, entry in self._parts:
            # A part that was parted again, by a further change, is in no row either.
            found = positions_of(entry.waiter.result(), len(indexes))
            for at, position in zip(indexes, found, strict=True):
                positions[at] = position
        return tuple(positions)


def _failure(entry: Records) -> LogError | None:
    if entry.waiter.cancelled():
        return None
    error = entry.waiter.exception()
    return error if isinstance(error, LogError) else None


def _may_be_stored(part: Part) -> bool:
    waiter = part[1].waiter
    if not waiter.done() or waiter.cancelled():
        return False
    error = waiter.exception()
    return not isinstance(error, LogError) or error.outcome != "not_stored"


def divide(
    whole: Records,
    streams: Sequence[int],
    make: Callable[[Columns, int, int], Records],
) -> list[tuple[int, Part]]:
    """Return the parts of an entry, with the stream of each.

    ``streams`` has that of each record; ``make`` gets records, their number and bytes.
    """
    by_stream: dict[int, list[int]] = {}
    for at, stream in enumerate(streams):
        by_stream.setdefault(stream, []).append(at)
    parts: list[tuple[int, Part]] = []
    left = whole.size
    for number, (stream, indexes) in enumerate(by_stream.items(), 1):
        # They give back together what the whole took.
        last = number == len(by_stream)
        size = left if last else whole.size * len(indexes) // whole.count
        left -= size
        records = columns_of(Columns(*whole.records), indexes)
        parts.append((stream, (indexes, make(records, len(indexes), size))))
    return parts
