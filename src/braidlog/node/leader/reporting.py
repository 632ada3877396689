"""Says what this node holds, to those who may decide what is committed.

What became durable goes to the leader of the repository at once; everything, which is
also the sign of life, goes to everybody who may lead each `heartbeat_ms`.
"""

from __future__ import annotations

from collections.abc import Callable

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
    ) -> None:
        """Begin with the first.

        ``stored`` gives the report of every replica, ``says`` what the fault log has,
        ``features`` are what the node knows, ``syncs`` gives how long syncs take and
        usually take, in microseconds.
        """
        self._syncs = syncs
        self._node = config.node.id
        self._heartbeat_s = config.timing.heartbeat_ms / 1000
        self._incarnation = incarnation
        self._route = route
        self._peers = peers
        self._stored = stored
        self._says = says
        self._features = features
        self._number = 0
        self._told_at = 0.0

    def tick(self, now: float) -> None:
        """Let time pass, in seconds."""
        if now - self._told_at >= self._heartbeat_s:
            self._told_at = now
            self._tell_all(now)

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

    def _tell_all(self, now: float) -> None:
        report = self._make(self._stored(), full=True)
        if self._route.member is not None:
            self._route.member.report(report, now)
        for listener in self._listeners():
            self._peers.send(listener, report)
        if (said := self._says()) is not None:
            self.recorded(said)

    def _listeners(self) -> tuple[int, ...]:
        if self._route.member is not None:
            leader = self._route.leader
            return (leader,) if leader not in (0, self._node) else ()
        # Whom this node last heard of may be gone; any voter may be the next.
        return self._route.voters

    def _make(self, streams: tuple[StreamReport, ...], *, full: bool) -> Report:
        self._number += 1
        syncs = self._syncs() if full else (0, 0)
        return Report(
            self._node,
            self._incarnation,
            self._number,
            full,
            streams,
            self._features,
            *syncs,
        )
