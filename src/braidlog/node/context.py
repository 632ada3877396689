"""What the parts of a node know of the node that they are parts of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from braidlog.errors import LogError
from braidlog.node.config import NodeConfig
from braidlog.node.forwarding import Answer
from braidlog.node.peer_identity import PeerIdentity
from braidlog.node.peers import Peers
from braidlog.node.replicas import Replicas
from braidlog.node.repository import RepositoryMember
from braidlog.serving.sessions import Sessions
from braidlog.wire.messages import GetMetadata, Message, Metadata, Recorded

__all__ = ["KnownCluster", "LeaderRequests", "NodeContext"]


class KnownCluster(Protocol):
    """What the node was last told of its cluster."""

    @property
    def metadata(self) -> Metadata | None:
        """The newest metadata, None before any was heard."""


class LeaderRequests(Protocol):
    """Requests that the leader of the repository answers."""

    def execute(
        self, call: bytes, command: bytes, answer: Answer, *, forward: bool = True
    ) -> None:
        """Execute a command on the leader; elsewhere only with ``forward``."""

    def forward(
        self,
        node: int,
        message: GetMetadata,
        done: Callable[[Message | LogError], None],
    ) -> None:
        """Ask another node for the metadata."""


class NodeContext(Protocol):
    """One node, as its parts see it; `ClusterNode` is it."""

    config: NodeConfig
    id: int
    incarnation: int
    identity: bytes
    peer_identity: PeerIdentity
    peers: Peers
    replicas: Replicas
    member: RepositoryMember | None
    sessions: Sessions

    @property
    def directory(self) -> KnownCluster:
        """What the node was last told of its cluster."""

    @property
    def requests(self) -> LeaderRequests:
        """Requests that the leader answers."""

    @property
    def leader(self) -> int:
        """The leader of the repository, 0 if none is known."""

    @property
    def way_to_leader(self) -> int:
        """The node to ask for what the leader decides, 0 if none is known."""

    @property
    def voters(self) -> tuple[int, ...]:
        """The other nodes that may lead, for a node that is no member."""

    @property
    def now(self) -> float:
        """The time of the loop."""

    def wall_clock(self) -> int:
        """Return the time in microseconds since the epoch."""

    def says(self) -> Recorded | None:
        """Return what the fault log has recorded, None if there is no such log."""

    def changed(self) -> None:
        """Ask for a flush at the end of this turn."""

    def soon(self, call: Callable[[], None], seconds: float = 0.0) -> None:
        """Call something in another turn of the loop, with other work between."""
