"""Settings of a node of a group. Nothing is unlimited."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from braidlog.errors import InvalidArgumentError

__all__ = ["RaftConfig"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftConfig:
    """Identity, timing in ticks, and bounds."""

    id: int
    """Node id, from 1. Never used again after the node was removed."""
    incarnation: int
    """A number that no earlier start of this node had."""
    jitter: Callable[[], int]
    """Source of randomness: each call returns ticks in `0 .. election_ticks`."""
    election_ticks: int = 10
    """A follower waits so long for its leader, plus jitter; also the lease of the
    leader, the period in which it has to hear a quorum, and the deadline of a transfer
    and of a forwarded read."""
    heartbeat_ticks: int = 1
    message_bytes_max: int = 1 << 20
    """Entries in one message; a larger entry goes alone."""
    window_messages: int = 64
    """Appends on the way to a follower."""
    window_bytes: int = 8 << 20
    """Bytes on the way to a follower; the last message may exceed it."""
    tail_bytes_max: int = 32 << 20
    """Uncommitted data; one larger entry is taken if the tail is empty."""
    apply_bytes_max: int = 16 << 20
    """Committed entries handed out and not applied; at least one."""
    cache_bytes_max: int = 64 << 20
    """Entries kept in memory when they can be read back from storage."""
    commit_lag: int = 1
    """How far the stored commit index may stay behind. A restart begins with it, and
    learns the rest from the leader."""
    eager_commit: bool = True
    """Tell followers at once what is committed. Else the next entries or heartbeat tell
    it; a follower that reads, or `RaftNode.tell_commit`, makes it at once again."""
    reads_max: int = 4096
    """Reads that wait for an answer."""

    def __post_init__(self) -> None:
        """Refuse settings that cannot work.

        Raises:
            InvalidArgumentError: one of them makes no sense.
        """
        numbers = {
            name: getattr(self, name)
            for name in self.__dataclass_fields__
            if name not in ("jitter", "eager_commit")
        }
        wrong = [name for name, value in numbers.items() if value < 1]
        if wrong:
            msg = f"{', '.join(wrong)}: must be at least 1"
            raise InvalidArgumentError(msg)
        if self.election_ticks <= self.heartbeat_ticks:
            msg = "election_ticks must be more than heartbeat_ticks"
            raise InvalidArgumentError(msg)
