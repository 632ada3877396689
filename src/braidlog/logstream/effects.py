"""What a replica asks its node to do, and the bounds it keeps."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TypeAlias

from msgspec import Struct

from braidlog.errors import LogError
from braidlog.logstream.storage import Batch
from braidlog.wire.messages import Appended, Message, StreamReport

__all__ = ["Answer", "Limits", "Outgoing", "ReplicaEffects", "Request"]

Request: TypeAlias = Hashable
"""Whatever the node knows a request by."""

Outgoing: TypeAlias = tuple[int, Message, tuple[Batch, ...]]
"""Node, message, payload."""

Answer: TypeAlias = tuple[Request, Appended | LogError]


class ReplicaEffects(Struct, frozen=True):
    """What has to be done since the last call. Nothing of it waits for a sync."""

    messages: tuple[Outgoing, ...] = ()
    answers: tuple[Answer, ...] = ()
    report: StreamReport | None = None
    """Send it now; otherwise the next heartbeat is early enough."""
    advanced: bool = False
    """Something new can be read."""
    unsynced: bool = False
    """Something was written that is not known to be durable."""
    trouble: tuple[str, str, LogError | None] = "", "", None
    """What is wrong with what the disk has, what it said when it had no room, and why
    it takes no entries of others; all of it false while there is no trouble."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one replica."""

    uncommitted_bytes_max: int = 64 << 20
    """What a primary takes before something is committed. One batch is always taken."""
    fetch_bytes_max: int = 4 << 20
    """Batches in one answer to a fetch; one batch is always sent."""
    fetch_timeout: float = 1.0
    """Seconds until a fetch that was not answered goes to the next source."""
    poll_interval: float = 0.2
    """Seconds between fetches that bring nothing new, and between reports that ask."""
    probe_interval: float = 0.5
    """Seconds between the reminders of a primary that waits for commits."""
    asks_max: int = 3
    """How often reports ask for missed cuts before another replica is asked."""
