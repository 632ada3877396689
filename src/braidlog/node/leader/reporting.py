"""Says what this node holds, to those who may decide what is committed.

*Theory of operation.* What became durable goes to the leader of the repository at once.
Everything goes to everybody who may lead each `heartbeat_ms`, and is the sign of life.
A member that answers the leader in its Raft group gives another one by that. It says
everything each `heartbeat_ms` as long as there is news, and for a while after it, for
what is sent may be lost; then seldom. News are another leader, other metadata, a
connection that came or went, and whatever is said.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Final, TypeAlias

from braidlog.node.config import NodeConfig
from braidlog.node.peers.links import Peers
from braidlog.node.repository.route import RepositoryRoute
from braidlog.wire.messages import (
    FEATURES,
    Feature,
    Recorded,
    Report,
    StreamReport,
)

REPEATS: Final = 10
"""How often the same is said each `heartbeat_ms`."""
SELDOM: Final = 10
"""Between two reports of a node that has no news, in `heartbeat_ms`."""
_HAIR_S: Final = 0.001

_Standing: TypeAlias = tuple[object, int, int, int] | None


class Reporting:
    """Numbers the reports of a node and knows to whom they go."""

    def __init__(
        self,
        config: NodeConfig,
        incarnation: int,
        route: RepositoryRoute,
        peers: Peers,
        *,
        stored: Callable[[], tuple[StreamReport, ...]],
        says: Callable[[], Recorded | None],
        features: Feature = FEATURES,
        syncs: Callable[[], tuple[int, int]] = lambda: (0, 0),
        number: Callable[[], int] | None = None,
    ) -> None:
        """Begin with the first.

        ``stored`` gives the report of every replica, ``says`` what the fault log has,
        ``features`` are what the node knows, ``syncs`` gives how long syncs take and
        usually take, in microseconds. ``number`` gives each report its own, which
        rises.
        """
        self._next = number or itertools.count(1).__next__
        self._syncs = syncs
        self._node = config.node.id
        # A tick may come a hair early, and the next one would be late.
        self._heartbeat_s = config.timing.heartbeat_ms / 1000 - _HAIR_S
        self._incarnation = incarnation
        self._route = route
        self._peers = peers
        self._stored = stored
        self._says = says
        self._features = features
        self._looked_at = self._told_at = 0.0
        self._left = REPEATS
        self._said: tuple[object, ...] = ()
        self.standing: _Standing = None
        """Who led, and in which term, when that was looked at last."""

    def tick(self, now: float) -> None:
        """Let time pass, in seconds."""
        if now - self._looked_at < self._heartbeat_s:
            return
        self._looked_at = now
        streams, syncs, recorded = self._stored(), self._syncs(), self._says()
        said = streams, syncs, recorded
        member = self._route.member
        if said != self._said or member is None or not member.is_kept():
            self._said = said
            self.again()
        if self._left:
            self._left -= 1
        elif now - self._told_at < SELDOM * self._heartbeat_s:
            if member is not None:
                # A leader answers nobody, and so hears nothing of itself.
                member.group.kept(self._node, now)
            return
        self._told_at = now
        self._tell_all(streams, recorded, now)

    def again(self) -> None:
        """Say everything with the next heartbeats: it may have been lost."""
        self._left = REPEATS

    def led(self, now: float) -> None:
        """Say everything at once: somebody else leads, or in another term."""
        member = self._route.member
        self.standing = member.group.standing if member is not None else None
        self._looked_at = 0.0
        self.again()
        self.tick(now)

    def durable(self, streams: tuple[StreamReport, ...], now: float) -> None:
        """Tell the leader what became durable."""
        report = self._make(streams, full=False)
        member, leader = self._route.member, self._route.way_to_leader
        if leader == self._node and member is not None:
            member.report(report, now)
        elif leader:
            self._peers.send(leader, report)

    def recorded(self, said: Recorded) -> None:
        """Tell which configuration the fault log has."""
        if self._route.member is not None:
            self._route.member.recorded(said)
        for listener in self._listeners():
            self._peers.send(listener, said)

    def _tell_all(
        self, streams: tuple[StreamReport, ...], said: Recorded | None, now: float
    ) -> None:
        report = self._make(streams, full=True)
        if self._route.member is not None:
            self._route.member.report(report, now)
        for listener in self._listeners():
            self._peers.send(listener, report)
        if said is not None:
            self.recorded(said)

    def _listeners(self) -> tuple[int, ...]:
        if self._route.member is not None:
            leader = self._route.leader
            return (leader,) if leader not in (0, self._node) else ()
        # Whom this node last heard of may be gone; any voter may be the next.
        return self._route.voters

    def _make(self, streams: tuple[StreamReport, ...], *, full: bool) -> Report:
        syncs = self._syncs() if full else (0, 0)
        return Report(
            self._node,
            self._incarnation,
            self._next(),
            full,
            streams,
            self._features,
            *syncs,
        )
