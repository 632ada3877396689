"""How much of a node each client's connection gets: turns, requests in work, answers.

*Theory of operation.* Requests other than appends, which have bounds of their own, are
taken a few in each turn of the loop, one of each connection after the other, so that
work of peers and appends of others come between, however many one sends. What a
connection sends beyond that waits with it, and it is not read until that was served:
TCP holds it up. The same happens to a connection that has `work_max` requests in work
(`ShareBounds`), and to one that does not take its answers.

Questions for the metadata and commands have a rate besides, of all connections
together, and each gets its turn: they need the leader, which appends of everybody need
too, and a client that does its work asks for few.

What all clients have not taken has a bound too. At the bound nobody is served until
there is room, and connections that have not taken theirs for `stalled_s` are closed.

*Invariants.* Peers never wait here. A request waits only while others are served, or
while its connection has too much.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from dataclasses import dataclass
from typing import Final, Protocol

_log = logging.getLogger(__name__)

TURN: Final = 32
"""Requests of clients that are taken in one turn of the loop."""
_PACE_S: Final = 0.005
"""Between two looks whether the rate allows more."""
_LOOKS: Final = 16
"""How often all connections are counted again while answers fill the bound of all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareBounds:
    """What one connection of a client gets, and all of them together."""

    rate: int = 5000
    """Questions for the metadata and commands of clients that are taken in a second."""
    burst: int = 250
    """How many of them are taken at once when there were few."""
    work_max: int = 256
    """Requests of a connection that are neither answered nor wait for news."""
    unread_max: int = 8 << 20
    """Bytes of answers that a connection may not have taken when the next is made."""
    unread_of_all_max: int = 256 << 20
    """The same for all connections of clients."""
    stalled_s: float = 5.0
    """A connection whose answers were not taken for so long is closed when there is no
    room."""


class Sharer(Protocol):
    """A connection, as it is seen here."""

    @property
    def unread_bytes(self) -> int:
        """Return the bytes of answers that the other side has not taken."""

    @property
    def ready(self) -> bool:
        """Whether a request waits and may be served."""

    @property
    def paced(self) -> bool:
        """Return whether the request that is next counts for the rate."""

    def serve_one(self) -> None:
        """Serve the request that has waited longest."""

    def stalls(self) -> None:
        """Be closed, because answers are not taken."""


class Shares:
    """All connections of clients, as far as they share."""

    def __init__(self, bounds: ShareBounds | None = None) -> None:
        """Begin with nobody."""
        self.bounds = bounds or ShareBounds()
        self._loop = asyncio.get_running_loop()
        self._left = TURN
        self._handle: asyncio.Handle | None = None
        # Dicts, for their order.
        self._line: dict[Sharer, None] = {}
        """Who has requests that may be served."""
        self._paced: dict[Sharer, None] = {}
        """Who has some that the rate allows later."""
        self._pacing: asyncio.Handle | None = None
        self._allowed = float(self.bounds.burst)
        self._filled_at = self._loop.time()
        self._held: dict[Sharer, None] = {}
        """Who has requests that may not be served yet."""
        self._unread: dict[Sharer, float] = {}
        """Who has more to read than the socket takes, and since when."""
        self._unseen = 0
        self.full = False
        """Whether all together have not taken as much as they may."""

    def takes(self, *, paced: bool) -> bool:
        """Tell whether another request may be served in this turn; then it counts."""
        if self._left <= 0 or (paced and (self._paced or not self._allows())):
            return False
        self._allowed -= paced
        self._left -= 1
        self._soon()
        return True

    def _allows(self) -> bool:
        """Tell whether the rate allows one more."""
        if self._allowed < 1:
            now = self._loop.time()
            more = (now - self._filled_at) * self.bounds.rate
            self._allowed = min(self.bounds.burst, self._allowed + more)
            self._filled_at = now
        return self._allowed >= 1

    def look(self, sharer: Sharer) -> None:
        """Look at a connection with requests that wait: whether they may be served."""
        if sharer.ready:
            self._held.pop(sharer, None)
            if sharer not in self._paced:
                self._line[sharer] = None
                self._soon()
        else:
            self._line.pop(sharer, None)
            self._paced.pop(sharer, None)
            self._held[sharer] = None

    def gone(self, sharer: Sharer) -> None:
        """Forget a connection."""
        for known in (self._line, self._paced, self._held, self._unread):
            known.pop(sharer, None)

    def _soon(self) -> None:
        if self._handle is None:
            self._handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._handle = None
        self._left = TURN
        line = deque(self._line)
        while line and self._left and not self.full:
            sharer = line.popleft()
            if self._line.pop(sharer, 0) is not None:
                continue  # It has gone, or is held by now.
            if (paced := sharer.paced) and not self._allows():
                self._pace(sharer)
                continue
            self._allowed -= paced
            self._left -= 1
            sharer.serve_one()
            if sharer in self._line or sharer.ready:
                self._line[sharer] = None
                line.append(sharer)
        if self._left < TURN or (self._line and not self.full):
            self._soon()

    def _pace(self, sharer: Sharer) -> None:
        self._paced[sharer] = None
        if self._pacing is None:
            self._pacing = self._loop.call_later(_PACE_S, self._again)

    def _again(self) -> None:
        """Let those in line again that the rate held, before those that came since."""
        self._pacing = None
        paced, self._paced = self._paced, {}
        self._line = {**paced, **self._line}
        if self._line:
            self._soon()

    # --- answers that are not taken

    def answered(self, size: int) -> None:
        """Count an answer."""
        self._unseen += size
        if self._unseen >= self.bounds.unread_of_all_max // _LOOKS:
            self._count()

    def unread(self, sharer: Sharer, now: float) -> None:
        """Note that the socket of a connection takes no more."""
        self._unread.setdefault(sharer, now)

    def read(self, sharer: Sharer) -> None:
        """Note that it does again."""
        self._unread.pop(sharer, None)

    def tick(self, now: float) -> None:
        """Let time pass."""
        if self._unread or self.full:
            self._count()
        if self.full:
            self._make_room(now)
        for sharer in list(self._held):
            if sharer.ready:
                self.look(sharer)
        if self._line:
            self._soon()

    def _count(self) -> None:
        self._unseen = 0
        total = sum(each.unread_bytes for each in self._unread)
        self.full = total >= self.bounds.unread_of_all_max

    def _make_room(self, now: float) -> None:
        bounds = self.bounds
        stalled = [
            each
            for each, since in self._unread.items()
            if now >= since + bounds.stalled_s
        ]
        total = sum(each.unread_bytes for each in self._unread)
        room = total - bounds.unread_of_all_max // 2
        for each in stalled:  # Who has waited longest comes first.
            if room <= 0:
                break
            room -= each.unread_bytes
            _log.warning("closing a connection that does not read its answers")
            self._unread.pop(each, None)
            each.stalls()
        self._count()
