"""Says what this node holds, to those who may decide what is committed.

What became durable goes to the leader of the repository at once; everything, which is
also the sign of life, goes to everybody who may lead each `heartbeat_ms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.wire.messages import Recorded, Report, StreamReport

if TYPE_CHECKING:
    from braidlog.node.context import NodeContext

__all__ = ["Reporting"]


class Reporting:
    """Numbers the reports of a node and knows to whom they go."""

    def __init__(self, node: NodeContext) -> None:
        """Begin with the first."""
        self._node = node
        self._number = 0
        self._told_at = 0.0

    def tick(self, now: float) -> None:
        """Let time pass, in seconds."""
        if now - self._told_at >= self._node.config.timing.heartbeat_ms / 1000:
            self._told_at = now
            self._tell_all(now)

    def durable(self, streams: tuple[StreamReport, ...]) -> None:
        """Tell the leader what became durable."""
        node = self._node
        report = self._make(streams, full=False)
        leader = node.way_to_leader
        if leader == node.id and node.member is not None:
            node.member.report(report, node.now)
        elif leader:
            node.peers.send(leader, report)

    def recorded(self, said: Recorded) -> None:
        """Tell which configuration the fault log has."""
        node = self._node
        if node.member is not None:
            node.member.recorded(said)
        for listener in self._listeners():
            node.peers.send(listener, said)
        node.changed()

    def _tell_all(self, now: float) -> None:
        node = self._node
        report = self._make(node.replicas.reports(), full=True)
        if node.member is not None:
            node.member.report(report, now)
        for listener in self._listeners():
            node.peers.send(listener, report)
        if (said := node.says()) is not None:
            self.recorded(said)

    def _listeners(self) -> tuple[int, ...]:
        node = self._node
        if node.member is not None:
            return (node.leader,) if node.leader not in (0, node.id) else ()
        # Whom this node last heard of may be gone; any voter may be the next.
        return node.voters

    def _make(self, streams: tuple[StreamReport, ...], *, full: bool) -> Report:
        self._number += 1
        node = self._node
        return Report(node.id, node.incarnation, self._number, full, streams)
