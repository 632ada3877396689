"""Who is alive, as far as the leader heard.

A node is dead when it was silent for `failure_timeout`, or when its connection broke
and it did not report again within `confirm_timeout`. A new leader, and one that was
itself away, gives everybody `grace` to report first. Once it has reported, a node that
answers the leader of the Raft group need not report to be alive.

*Invariants.* Silence is counted only while the leader was listening.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from braidlog.errors import InvalidArgumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class LivenessSettings:
    """Seconds of patience."""

    failure_timeout: float = 0.5
    confirm_timeout: float = 0.15
    grace: float = 1.0
    away: float = 0.25
    """The leader itself was away if it was not called for so long."""

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            InvalidArgumentError: a time is not positive.
        """
        if min(self.failure_timeout, self.confirm_timeout, self.grace, self.away) <= 0:
            msg = "failure_timeout, confirm_timeout, grace and away must be positive"
            raise InvalidArgumentError(msg)


class Liveness:
    """When each node was heard of."""

    def __init__(self, settings: LivenessSettings, now: float) -> None:
        """Begin to listen."""
        self._settings = settings
        self._heard: dict[int, float] = {}
        self._lost: dict[int, float] = {}
        self._due = math.inf
        self._began = now
        self._patient_until = now + settings.grace
        self._called = now

    def called(self, now: float) -> None:
        """Note that the leader is at work."""
        if now - self._called > self._settings.away:
            self._patient_until = max(
                self._patient_until, now + self._settings.failure_timeout
            )
        self._called = max(now, self._called)

    def heard(self, node: int, now: float) -> None:
        """Note a sign of life."""
        self._heard[node] = now
        self._lost.pop(node, None)

    def kept(self, node: int, now: float) -> None:
        """Note any other message of a node that has reported.

        It may be of a start that is over, so only a report brings a node back.
        """
        if node in self._heard:
            self._heard[node] = now

    def lost(self, node: int, now: float) -> None:
        """Note that the connection to a node broke."""
        self._lost.setdefault(node, now)
        self._due = min(self._due, now + self._settings.confirm_timeout)

    def due(self, now: float) -> bool:
        """Tell, once, when a node whose connection broke was waited for long enough."""
        if now < self._due:
            return False
        later = (at + self._settings.confirm_timeout for at in self._lost.values())
        self._due = min((at for at in later if at > now), default=math.inf)
        return True

    def forget(self, known: set[int]) -> None:
        """Drop nodes that were removed."""
        for times in (self._heard, self._lost):
            for node in set(times) - known:
                del times[node]

    def misses(self, now: float) -> bool:
        """Tell whether somebody is silent for too long, or a connection broke."""
        silent = now - self._settings.failure_timeout
        return bool(self._lost) or min(self._heard.values(), default=now) <= silent

    def dead(self, node: int, now: float) -> bool:
        """Tell whether a node is taken for dead."""
        lost = self._lost.get(node)
        if lost is not None and now - lost >= self._settings.confirm_timeout:
            return True
        if now < self._patient_until:
            return False
        heard = self._heard.get(node)
        return heard is None or now - heard >= self._settings.failure_timeout

    def known(self, node: int) -> bool:
        """Tell whether a node was ever heard of."""
        return node in self._heard

    def doubted(self, node: int) -> bool:
        """Tell whether the connection to a node broke and it was not heard since."""
        return node in self._lost

    def silence(self, node: int, now: float) -> float:
        """Return for how many seconds a node was not heard.

        Who was never heard was not for as long as this leader has listened, or since
        the connection to it broke.
        """
        unheard = min(self._began, self._lost.get(node, self._began))
        return max(0.0, now - self._heard.get(node, unheard))

    def alive(self, node: int, now: float) -> bool:
        """Tell whether a node was heard of and is not taken for dead."""
        return node in self._heard and not self.dead(node, now)
