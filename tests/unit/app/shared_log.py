"""A log in memory that several hosts share; each of them sees as much as it is let."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple


class Record(NamedTuple):
    position: int
    timestamp: int
    value: bytes


class Contents:
    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.records: list[Record] = []
        self.first = 1
        self.trims = 0
        self.pins: dict[str, int] = {}
        self.cursors: dict[str, int] = {}
        self.leases: dict[str, float | None] = {}

    def append(self, value: bytes) -> int:
        with self.changed:
            position = len(self.records) + 1
            self.records.append(Record(position, position, value))
            self.changed.notify_all()
            return position


class SharedLog:
    """What one host has of the log; a `CommandLog`."""

    first = 1

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.before_append: Callable[[], None] = lambda: None
        self.asked = 0
        self._held: int | None = None
        self._known: int | None = None
        self.looked = 0.0
        self._woken = False

    def hold(self) -> None:
        """See nothing that comes from here on: the host is cut off."""
        self.looked = time.monotonic()
        self._held = len(self.contents.records) + 1

    def hold_back(self, records: int) -> None:
        """Have read fewer records than are known to be there."""
        self._known = self.end
        self._held = self.end - records

    def let_go(self) -> None:
        with self.contents.changed:
            self._held = self._known = None
            self.contents.changed.notify_all()

    @property
    def end(self) -> int:
        there = len(self.contents.records) + 1
        return there if self._held is None else self._held

    @property
    def as_of(self) -> tuple[float, int]:
        moment = time.monotonic() if self._held is None else self.looked
        return moment, self._known or self.end

    def latest(self, timeout: float | None = None) -> int:
        self.asked += 1
        return len(self.contents.records) + 1

    def submit(
        self, value: bytes, key: bytes | None, failed: Callable[[Exception], None]
    ) -> None:
        self.append(value)

    def append(self, value: bytes) -> int:
        self.before_append()
        return self.contents.append(value)

    def read(self, begin: int, limit: int) -> Sequence[Record]:
        while not self.wait(begin, 1.0) and not self._woken:
            pass
        return self.contents.records[begin - 1 : min(self.end - 1, begin - 1 + limit)]

    def wait(self, position: int, timeout: float) -> bool:
        with self.contents.changed:
            self.contents.changed.wait_for(
                lambda: self.end > position or self._woken, timeout
            )
            return self.end > position

    def wake(self) -> None:
        with self.contents.changed:
            self._woken = True
            self.contents.changed.notify_all()

    def close(self) -> None:
        pass


class KeptSharedLog(SharedLog):
    """The same with what snapshots need; a `TrimmableLog`."""

    identity = "shared"
    capacity = None

    @property
    def first(self) -> int:  # type: ignore[override]
        return self.contents.first

    def size(self, begin: int, end: int) -> int:
        return sum(len(r.value) for r in self.contents.records[begin - 1 : end - 1])

    def trim(self, before: int) -> int:
        with self.contents.changed:
            allowed = min([before, *self.contents.pins.values()])
            if allowed > self.contents.first:
                self.contents.first = allowed
                self.contents.trims += 1
            return self.contents.first

    def pin(self, name: str, position: int) -> None:
        self.contents.pins[name] = position

    def pinned(self) -> int | None:
        return min(self.contents.pins.values(), default=None)

    def cursors(self) -> dict[str, int]:
        return dict(self.contents.cursors)

    def set_cursor(self, name: str, position: int, lease_s: float | None) -> None:
        self.contents.cursors[name] = position
        self.contents.leases[name] = lease_s
