"""What a member of the metadata repository is told when it begins."""

from __future__ import annotations

from dataclasses import dataclass, field

from braidlog.metarepo.leader.controller import ControllerSettings
from braidlog.metarepo.leader.liveness import LivenessSettings
from braidlog.metarepo.leader.publisher import PublisherSettings
from braidlog.metarepo.leader.slowness import SlownessSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Names, times in seconds, bounds."""

    cluster: str = ""
    group: int = 1
    """Number of the Raft group in `Consensus`."""
    tick: float = 0.05
    """One tick of Raft."""
    ticks_max: int = 3
    """Ticks that are made up for after a pause; more would begin elections."""
    fold_entries: int = 10_000
    fold_bytes: int = 16 << 20
    """After so much was applied the log is folded into a snapshot."""
    state_bytes_max: int = 12 << 20
    """A larger snapshot would not be stored; the log grows until it is smaller."""
    cuts_in_flight: int = 4
    requests_max: int = 4096
    seal_timeout: float = 5.0
    host_patience: float = 30.0
    """A node that keeps tables is replaced when it was dead for so long."""
    shard_patience: float = 30.0
    """A member of a shard is replaced when its node was dead for so long."""
    fault_logs: bool = False
    """Whether the nodes keep fault logs. Without them nothing can be rescued."""
    liveness: LivenessSettings = field(default_factory=LivenessSettings)
    controller: ControllerSettings = field(default_factory=ControllerSettings)
    publisher: PublisherSettings = field(default_factory=PublisherSettings)
    slowness: SlownessSettings = field(default_factory=SlownessSettings)
