"""What logs in memory hold, and the rule of sequences."""

from __future__ import annotations

import operator
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Final, SupportsIndex

from braidlog._native import Record
from braidlog.errors import FencedError, InvalidArgumentError, SequenceGapError
from braidlog.storage.catalog import LogOptions
from braidlog.storage.retention import CursorRow
from braidlog.types import Producer

__all__ = [
    "Contents",
    "Directory",
    "checked_position",
    "checked_time",
    "checked_times",
    "now_us",
    "repeated",
]

_NUMBERS: Final = range(1 << 64)
_TIMES: Final = range(-(1 << 63), 1 << 63)


def now_us() -> int:
    """Return the time in microseconds since the Unix epoch."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class Contents:
    """What a log holds; outlives the nodes that have it open."""

    number: int
    created: int
    options: LogOptions
    records: list[Record] = field(default_factory=list)
    first: int = 1
    cursors: dict[str, CursorRow] = field(default_factory=dict)
    # Producer: its epoch and next sequence; and where each sequence was placed.
    producers: dict[int, tuple[int, int]] = field(default_factory=dict)
    placed: dict[tuple[int, int, int], range] = field(default_factory=dict)
    deleted: bool = False

    @property
    def end(self) -> int:
        """Next position."""
        return self.first + len(self.records)


class Directory:
    """All logs of a node, under one lock."""

    def __init__(self) -> None:
        """Begin without logs."""
        self.logs: dict[str, Contents] = {}
        self.changed = threading.Condition(threading.RLock())
        self.made = 0


def checked_position(position: SupportsIndex) -> int:
    """Return a position, a count or a limit.

    Raises:
        TypeError: it is no integer.
        InvalidArgumentError: the core has no number like that.
    """
    number = int(operator.index(position))
    if number not in _NUMBERS:
        msg = f"{number} is not in 0..2**64"
        raise InvalidArgumentError(msg)
    return number


def checked_time(timestamp: SupportsIndex) -> int:
    """Return a timestamp.

    Raises:
        TypeError: it is no integer.
        InvalidArgumentError: it does not fit 64 bits.
    """
    number = int(operator.index(timestamp))
    if number not in _TIMES:
        msg = f"{number} is not a timestamp: microseconds in -2**63..2**63"
        raise InvalidArgumentError(msg)
    return number


def checked_times(timestamps: Any) -> Any:
    """Return one timestamp for all records, or a list with one for each."""
    if timestamps is None:
        return None
    try:
        return checked_time(timestamps)
    except TypeError:
        return [None if each is None else checked_time(each) for each in timestamps]


def repeated(
    there: Contents, producer: Any, sequence: int | None, count: int
) -> range | None:
    """Return the positions of a repeat, None for what is new.

    Raises:
        FencedError: a newer epoch of the producer took over.
        SequenceGapError: a sequence was skipped.
    """
    if producer is None and sequence is None:
        return None
    if producer is None:
        raise InvalidArgumentError("a sequence needs a producer")
    if not isinstance(producer, Producer):
        msg = f"producer must be a Producer, not {producer!r}"
        raise TypeError(msg)
    if sequence is None or sequence < 1:
        msg = f"a producer needs a sequence from 1 on, got {sequence!r}"
        raise InvalidArgumentError(msg)
    epoch, expected = there.producers.get(producer.id, (producer.epoch, 1))
    if producer.epoch < epoch:
        msg = f"epoch {producer.epoch} of producer {producer.id} is over"
        raise FencedError(msg, given=producer.epoch, current=epoch)
    expected = expected if producer.epoch == epoch else 1
    if sequence > expected:
        msg = f"sequence {sequence} skips {expected}"
        raise SequenceGapError(msg, expected=expected)
    if sequence == expected:
        return None
    placed = there.placed.get((producer.id, producer.epoch, sequence))
    if placed is None or len(placed) != count:
        msg = f"sequence {sequence} was stored as part of another append"
        raise InvalidArgumentError(msg)
    return placed
