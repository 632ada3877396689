"""Fold the records of a log into file trees, and prove on the way that none is missing.

Theory of operation: the log is read once, in order of position. Each record is
checked against its neighbours (position dense, sequence of its source dense) and
against itself (key and timestamp say the same as the event inside), then applied:
``put`` stores, ``delete`` removes. What was counted on the way is what Spark's answer
is compared with.

Invariants: ``records == applied + doubled``; a sequence that is skipped counts as
lost, one that comes again as doubled and is not applied twice.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from examples.demo.events import Entry, Tree, decode, key_of, month_of, shown

__all__ = ["Counts", "Difference", "Replay", "Row", "compare"]

Row = tuple[int, int, bytes | None, bytes]
"""Position, timestamp in microseconds, key and value of a record."""


@dataclass(slots=True)
class Counts:
    """What the job counts: changes per source and month, and per path (as key)."""

    months: Counter[tuple[str, str]] = field(default_factory=Counter)
    paths: Counter[bytes] = field(default_factory=Counter)

    def top(self, count: int) -> list[tuple[bytes, int]]:
        """Return the paths with the most changes, equal ones in order of bytes."""
        return sorted(self.paths.items(), key=lambda pair: (-pair[1], pair[0]))[:count]


@dataclass(frozen=True, slots=True)
class Difference:
    """A path whose content after the replay is not what the oracle says."""

    source: str
    path: str
    expected: Entry | None
    found: Entry | None

    def __str__(self) -> str:
        """Describe it on one line."""
        place = f"{shown(self.source)}/{shown(self.path)}"
        expected, found = _describe(self.expected), _describe(self.found)
        return f"{place}: expected {expected}, found {found}"


class Replay:
    """State of a replay; ``feed`` takes the records in order."""

    def __init__(self, first: int = 1) -> None:
        """Begin with nothing, at the first position of the log."""
        self.trees: dict[str, Tree] = {}
        self.counts = Counts()
        self.sequences: dict[str, int] = {}
        self.records = 0
        self.lost = 0
        self.doubled = 0
        self.mismatched = 0
        self._next = first
        self._digest = hashlib.sha256()

    def feed(self, rows: Iterable[Row]) -> None:
        """Check and apply records.

        Raises:
            ValueError: A value is not a change event.
        """
        for position, timestamp, key, value in rows:
            event = decode(value)
            name = key_of(event)
            stated = key == name and timestamp == event.ts * 1_000_000
            self.mismatched += position != self._next or not stated
            self._next = position + 1
            self.records += 1
            self._digest.update(value + b"\n")
            if self._advance(event.source, event.seq):
                self._apply(event.source, event.path, event.entry)
                self.counts.months[event.source, month_of(event.ts)] += 1
                self.counts.paths[name] += 1

    @property
    def digest(self) -> str:
        """Return the digest of all values in order."""
        return self._digest.hexdigest()

    def _advance(self, source: str, seq: int) -> bool:
        """Count what is missing before ``seq``; tell whether it is new."""
        expected = self.sequences.get(source, 0)
        if seq < expected:
            self.doubled += 1
            return False
        self.lost += seq - expected
        self.sequences[source] = seq + 1
        return True

    def _apply(self, source: str, path: str, entry: Entry | None) -> None:
        tree = self.trees.setdefault(source, {})
        if entry is None:
            tree.pop(path, None)
        else:
            tree[path] = entry


def compare(
    expected: Mapping[str, Tree], found: Mapping[str, Tree]
) -> Iterator[Difference]:
    """Yield every path on which the two disagree, in order."""
    for source in sorted(expected.keys() | found.keys()):
        right, ours = expected.get(source, {}), found.get(source, {})
        for path in sorted(right.keys() | ours.keys()):
            if right.get(path) != ours.get(path):
                yield Difference(source, path, right.get(path), ours.get(path))


def _describe(entry: Entry | None) -> str:
    return "nothing" if entry is None else f"{entry[1]} {entry[0][:12]}"
