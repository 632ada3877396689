"""Requests that wait until a table has applied a position.

*Invariants.* Each comes out once: reached, due, or of a table that answers no more.
Those of one connection have a bound, and when half of all places are taken, connections
share the rest, as reads of streams do.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from braidlog.errors import NotReadyError
from braidlog.node.share import share_of_one
from braidlog.node.tables.settings import TableSettings
from braidlog.serving.sessions import Request

__all__ = ["PositionWaiter", "Waiters"]


@dataclass(slots=True)
class PositionWaiter:
    """A request that waits."""

    request: Request
    position: int
    deadline: float
    go_on: Callable[[], None]
    late: Callable[[], None]


@dataclass(slots=True)
class _Table:
    by_position: list[tuple[int, int]] = field(default_factory=list)
    waiting: dict[int, PositionWaiter] = field(default_factory=dict)


class Waiters:
    """All requests that wait, of all tables."""

    def __init__(self, settings: TableSettings, connections: Callable[[], int]) -> None:
        """Begin with none; `connections` share the places."""
        self._settings = settings
        self._connections = connections
        self._tables: dict[bytes, _Table] = {}
        self._numbers = itertools.count()
        self._count = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return self._count

    def wait(self, table: bytes, waiter: PositionWaiter) -> None:
        """Let a request wait.

        Raises:
            NotReadyError: its connection has too many already.
        """
        session = waiter.request.session
        if session.readers >= self._share():
            raise NotReadyError(
                f"this connection has {session.readers} waiting reads; a read needs a "
                "free place"
            )
        waiter.request.park()
        session.readers += 1
        self._count += 1
        number = next(self._numbers)
        kept = self._tables.setdefault(table, _Table())
        kept.waiting[number] = waiter
        heapq.heappush(kept.by_position, (waiter.position, number))

    def _share(self) -> int:
        most, of_one = self._settings.waiters_max, self._settings.waiters_of_one_max
        return share_of_one(self._count, most, of_one, self._connections())

    def reached(self, table: bytes, position: int) -> None:
        """Let those go on that wait for this position or an earlier one."""
        kept = self._tables.get(table)
        if kept is None:
            return
        ahead = kept.by_position
        while ahead and ahead[0][0] <= position:
            waiter = self._out(table, heapq.heappop(ahead)[1])
            if waiter is not None:
                waiter.go_on()

    def drop(self, table: bytes) -> None:
        """Refuse those of a table that answers no more."""
        for waiter in self._all_of(table):
            waiter.late()

    def _all_of(self, table: bytes) -> Iterator[PositionWaiter]:
        kept = self._tables.get(table)
        for number in list(kept.waiting) if kept is not None else ():
            if (waiter := self._out(table, number)) is not None:
                yield waiter

    def tick(self, now: float) -> None:
        """Refuse those that have waited long enough; forget whose client has gone."""
        for table, kept in list(self._tables.items()):
            due = [
                number
                for number, waiter in kept.waiting.items()
                if now >= waiter.deadline or waiter.request.gone
            ]
            for number in due:
                if (waiter := self._out(table, number)) is not None:
                    waiter.late()

    def _out(self, table: bytes, number: int) -> PositionWaiter | None:
        kept = self._tables[table] if table in self._tables else _Table()
        waiter = kept.waiting.pop(number, None)
        if waiter is not None:
            waiter.request.session.readers -= 1
            self._count -= 1
        if not kept.waiting:
            # With it go the numbers of those that came out otherwise.
            self._tables.pop(table, None)
            kept.by_position.clear()
        return waiter
