"""What a node says of itself: one value for HTTP, metrics and `braidlog top`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["GroupStatus", "NodeStatus", "ReplicaStatus"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One replica of the node."""

    stream: int
    log: str
    state: str
    role: str
    """primary, backup or learner."""
    epoch: int
    low: int
    committed: int
    end: int
    version: int
    high_watermark: int
    waiting: int
    """Appends that wait for their commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """The node's member of the metadata repository."""

    role: str
    term: int
    leader: int
    commit: int
    applied: int
    voters: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeStatus:
    """One node at one moment."""

    node: int
    cluster: str
    address: str
    incarnation: int
    healthy: bool
    """It works: its store takes writes and its loop turns."""
    ready: bool
    """It serves: it is registered and knows a leader of the metadata repository."""
    why: str
    """What is missing for being healthy and ready; empty if nothing is."""
    leader: int
    connections: int
    replicas: tuple[ReplicaStatus, ...]
    group: GroupStatus | None
    counters: dict[str, float]
    """Totals since the start: appends, records, bytes, syncs, messages."""
    storage: dict[str, int]
    """Figures of the write-ahead log."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON objects."""
        return asdict(self)
