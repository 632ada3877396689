"""What logs in memory hold, and the rule of sequences."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Any

from braidlog._native import Record
from braidlog.errors import FencedError, InvalidArgumentError, SequenceGapError
from braidlog.store.arguments import checked_int, checked_producer
from braidlog.store.catalog import LogOptions
from braidlog.store.retention import CursorRow

__all__ = [
    "Contents",
    "Directory",
    "now_us",
    "repeated",
]


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
        raise InvalidArgumentError("sequence= needs producer= as well")
    producer = checked_producer(producer)
    if sequence is None or checked_int(sequence, "sequence") < 1:
        msg = f"producer= needs sequence=, a number from 1 on, got {sequence!r}"
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
