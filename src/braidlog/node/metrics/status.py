"""What a node says of itself: one value for HTTP, metrics and `braidlog top`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from braidlog.serving.quotas import TokenUse

if TYPE_CHECKING:
    from braidlog.node.metrics.latency import Histogram
    from braidlog.wire.messages import Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaStatus:
    """One replica of the node."""

    stream: int
    log: str
    state: str
    role: str
    """primary, backup or learner; of a shard leader, follower or learner."""
    epoch: int
    """Of a member of a shard: its term."""
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
    lags: dict[int, int]
    """Entries that each follower lacks, as the leader knows; empty elsewhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerStatus:
    """The link to another node."""

    node: int
    connected: bool
    waiting_bytes: int
    """Bytes of messages that the other side has not taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedStatus:
    """A table as the node has it."""

    table: str
    """Identity, 32 hexadecimal digits."""
    name: str
    log: str
    state: str
    applied: int
    flushed: int
    behind: int
    """Records that are committed, as far as is known here, and not applied."""
    file_bytes: int
    memory_bytes: int
    """Both as they were about a second ago."""
    copied_bytes: int
    """Of a copy that is under way."""
    joined: bool
    why: str
    """What went wrong last; empty if nothing did, or it is over."""


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
    leader_since: int
    """When the node saw that leader first, or that there is none: microseconds since
    the Unix epoch."""
    started: int
    """When it was started."""
    connections: int
    sockets: str
    """Who reads and writes them: ``core``, or ``loop``, the event loop of Python."""
    waiting: dict[str, int]
    """Lengths of queues: appends, reads and requests that are not answered, and bytes
    of answers that clients have not taken."""
    peers: tuple[PeerStatus, ...]
    replicas: tuple[ReplicaStatus, ...]
    tables: tuple[HostedStatus, ...] = ()
    """Tables that the node keeps."""
    group: GroupStatus | None
    counters: dict[str, float]
    """Totals since the start: appends, records, bytes, syncs, messages."""
    storage: dict[str, int]
    """Figures of the write-ahead log."""
    quotas: tuple[TokenUse, ...] = ()
    """What tokens with quotas use of the node."""

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON objects."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """What metrics are made of."""

    status: NodeStatus
    metadata: Metadata | None
    """As the leader of the repository knows it; None elsewhere."""
    copying: dict[int, int]
    """Records that nodes have to copy before they are in sync; empty elsewhere."""
    answer_times: dict[int, float]
    """Seconds that nodes took to make records durable, as the leader saw them last;
    empty elsewhere."""
    cuts_in_flight: int
    latencies: dict[str, Histogram]
    now: int
    """Microseconds since the Unix epoch."""
    directory: str
    """Where the log is."""
