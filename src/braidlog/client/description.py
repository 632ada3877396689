"""What `describe` says of a log of a cluster."""

from __future__ import annotations

from dataclasses import dataclass

from braidlog.types import Compression
from braidlog.wire.messages import StreamInfo


@dataclass(frozen=True, slots=True)
class ClusterLogDescription:
    """Settings and state of a log. Times in microseconds since the epoch."""

    name: str
    id: str
    created: int
    first: int
    end: int
    records: int
    replication: int
    min_replicas: int
    compression: Compression
    retention_ms: int | None
    retention_bytes: int | None
    streams: tuple[StreamInfo, ...]
    replicas_missing: int = 0
    """How many replicas the streams lack together of ``replication`` each."""
    revision: int = 0
    """Of the settings: rises with each change of them, and is 0 before the first."""
    key_streams: tuple[int, ...] = ()
    """The streams over which records are spread."""
    removed: tuple[int, ...] = ()
    """Streams that are sealed for good; they go when their last record is trimmed."""
    kind: str = "streams"
    """Or "shard"; see `AsyncClient.create_log`."""
