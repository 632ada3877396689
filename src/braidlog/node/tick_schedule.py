"""How often a node ticks: steadily while it has work, seldom while it rests.

*Theory of operation.* What an idle node costs is its turns, for each finds cold caches:
its ticks, and the messages of its Raft group, ten times a second from the leader. When
nothing was written, decided or lost for a while, a node rests. Who leads, and who is in
no group, then ticks once for each heartbeat. A follower ticks in the turn in which a
heartbeat comes, and its timer is there for the heartbeat that does not come.

*Invariants.* Who rests is back at work at the first tick that finds something new, and
at once if a connection to a node broke or came. Ticks are counted by the time that has
passed, so nothing takes longer by a count of them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

_QUIET: Final = 20
"""Ticks without anything new before a node rests."""
_HAIR_S: Final = 0.001
"""A timer may be early by so much, and a heartbeat would then wait for the next."""


class TickSchedule:
    """Says when the next tick comes, and calls it."""

    def __init__(
        self,
        tick: Callable[[], None],
        *,
        tick_s: float,
        heartbeat_ticks: int,
        rest_max_s: float,
    ) -> None:
        """Begin at work; ``tick`` is called until `close`, and calls `again`.

        A node does not rest if that is longer than ``rest_max_s``.
        """
        self._loop = asyncio.get_running_loop()
        self._tick = tick
        self._tick_s = tick_s
        self._heartbeat_s = heartbeat_ticks * tick_s + _HAIR_S
        self._can_rest = heartbeat_ticks * tick_s <= rest_max_s
        self._seen: tuple[object, ...] = ()
        self._quiet = 0
        self._timer: asyncio.TimerHandle | None = None
        self._ticked = 0.0
        self.resting = False
        self.awaits = False
        """Whether it rests, and ticks when the next heartbeat comes."""

    def again(self, seen: tuple[object, ...], *, heartbeats: bool) -> None:
        """Tick again: soon if ``seen`` is new, or was until lately.

        ``heartbeats`` tells whether those of a leader come to this node.
        """
        self._ticked = self._loop.time()
        self._quiet = self._quiet + 1 if seen == self._seen else 0
        self._seen = seen
        self.resting = self._can_rest and self._quiet >= _QUIET
        self.awaits = self.resting and heartbeats
        wait = self._tick_s
        if self.resting:
            wait = self._heartbeat_s + (self._tick_s if heartbeats else 0.0)
        self._set(wait)

    def heard(self) -> None:
        """Tick if that was waited for; once, however many messages come together."""
        if self.awaits and self._loop.time() - self._ticked >= self._tick_s:
            self._tick()

    def late(self, now: float) -> float:
        """Return for how many seconds a tick has been due."""
        timer = self._timer
        return max(0.0, now - timer.when()) if timer is not None else 0.0

    def hurry(self) -> None:
        """Go back to work: what happened may need the next ticks."""
        self._quiet = 0
        if self.resting:
            self.resting = self.awaits = False
            self._set(self._tick_s)

    def _set(self, wait: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(wait, self._tick)

    def close(self) -> None:
        """Tick no more."""
        self.resting = self.awaits = False
        if self._timer is not None:
            self._timer.cancel()
