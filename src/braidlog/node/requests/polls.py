"""Clients that wait for newer metadata: one poll of each connection.

*Theory of operation.* A poll is answered when the metadata is newer than what its
client knows, or when it has waited long enough. A connection has one: another one takes
its place, and the older is answered with what there is. So a connection takes one place
however often it asks, and there is no bound that all clients share. Only a node asks
for others over its connection, and may have as many as others may connect to it.

Deadlines are kept in slices of time, so that to wait, to be replaced and to go cost the
same however many wait, and nothing is left behind.

*Invariants.* Each poll comes out once: replaced, due, with news, or gone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from msgspec import Struct

SLICE_S: Final = 0.25
"""A poll may wait so much longer than it asked for."""

_Request = TypeVar("_Request")


class _Poll(Struct, eq=False):
    """Somebody who waits."""

    request: object
    known: int
    slice: int


class Polls(Generic[_Request]):
    """Who waits, by connection."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self._polls: dict[Hashable, _Poll] = {}
        self._slices: dict[int, dict[Hashable, None]] = {}
        self._next = 0
        """First slice that was not looked at."""

    def __len__(self) -> int:
        """Return how many wait."""
        return len(self._polls)

    def wait(
        self, who: Hashable, request: _Request, known: int, deadline: float
    ) -> _Request | None:
        """Let a request wait; return the one whose place it takes, to be answered."""
        before = self.gone(who)
        number = max(int(deadline / SLICE_S) + 1, self._next)
        self._polls[who] = _Poll(request, known, number)
        self._slices.setdefault(number, {})[who] = None
        return before

    def gone(self, who: Hashable) -> _Request | None:
        """Forget the poll of a connection; return it, if there is one."""
        poll = self._polls.pop(who, None)
        if poll is None:
            return None
        waiting = self._slices[poll.slice]
        del waiting[who]
        if not waiting:
            del self._slices[poll.slice]
        request: _Request = poll.request  # type: ignore[assignment]
        return request

    def drop(self, gone: Callable[[Hashable], bool]) -> None:
        """Forget the polls of all for whom `gone` holds; every one is looked at."""
        for who in [who for who in self._polls if gone(who)]:
            self.gone(who)

    def due(self, now: float) -> list[_Request]:
        """Return and forget those that have waited long enough, the oldest first."""
        end = int(now / SLICE_S) + 1
        if end <= self._next:
            return []
        self._next = end
        late = sorted(number for number in self._slices if number < end)
        return self._take([who for number in late for who in self._slices[number]])

    def news(self, revision: int) -> list[_Request]:
        """Return and forget those that know less than this revision."""
        polls = self._polls.items()
        return self._take([who for who, poll in polls if poll.known < revision])

    def _take(self, found: list[Hashable]) -> list[_Request]:
        requests = [self.gone(who) for who in found]
        return [request for request in requests if request is not None]
