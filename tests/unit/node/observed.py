"""What a node observes, made up: for metrics, alerts and the dashboard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric

from braidlog.node.metrics.latency import Histogram
from braidlog.node.metrics.status import (
    GroupStatus,
    NodeStatus,
    Observed,
    PeerStatus,
    ReplicaStatus,
)
from braidlog.node.metrics.status_collector import StatusCollector
from braidlog.node.replication.reader import ReadCounters
from braidlog.node.replication.replicas import Counters
from braidlog.node.replication.scrub import ScrubCounters
from braidlog.wire.messages import (
    LogInfo,
    Metadata,
    NodeInfo,
    StreamInfo,
    StreamStatus,
)

NOW_S = 1_700_000_000.0
Series = dict[str, float]


def stream(number: int = 1, **changes: Any) -> StreamInfo:
    whole = StreamInfo(
        number, 1, StreamStatus.RUNNING, (1, 2, 3), (), 1, in_sync=(1, 2, 3)
    )
    return msgspec.structs.replace(whole, **changes)


def log(name: str = "orders", *streams: StreamInfo) -> LogInfo:
    key = name.encode().ljust(16)[:16]
    return LogInfo(key, name, streams or (stream(),), 1, 1, 1, 3, 2, b"", 0)


def metadata(
    *logs: LogInfo,
    down: Sequence[int] = (),
    slow: Sequence[int] = (),
    silent_ms: int = 0,
    leader: int = 1,
) -> Metadata:
    nodes = tuple(
        NodeInfo(
            number,
            f"n{number}:7400",
            alive=number not in down,
            voter=True,
            silent_ms=silent_ms if number in down else 0,
            slow_ms=7_000 if number in slow else 0,
        )
        for number in (1, 2, 3)
    )
    return Metadata(9, leader, "green", nodes, logs or (log(),))


def replica(number: int = 1, **changes: Any) -> ReplicaStatus:
    fields: dict[str, Any] = {
        "stream": number, "log": "orders", "state": "running", "role": "primary",
        "epoch": 1, "low": 1, "committed": 5, "end": 7, "version": 3,
        "high_watermark": 4, "waiting": 2,
    }  # fmt: skip
    return ReplicaStatus(**fields | changes)


def status(**changes: Any) -> NodeStatus:
    fields: dict[str, Any] = {
        "node": 1, "cluster": "green", "address": "n1:7400", "incarnation": 1,
        "healthy": True, "ready": True, "why": "", "leader": 1,
        "leader_since": int((NOW_S - 900) * 1e6), "started": int((NOW_S - 1000) * 1e6),
        "connections": 2, "sockets": "core",
        "waiting": {"appends": 1, "reads": 2, "requests": 3, "answer_bytes": 4},
        "peers": (PeerStatus(node=2, connected=True, waiting_bytes=5),),
        "replicas": (replica(),),
        "group": GroupStatus(
            role="leader", term=2, leader=1, commit=9, applied=9, voters=(1, 2, 3),
            lags={2: 0, 3: 1},
        ),
        "counters": asdict(Counters()) | asdict(ReadCounters())
        | asdict(ScrubCounters()) | {"messages_dropped": 0, "connections_refused": 0},
        "storage": {"syncs": 3, "synced_bytes": 4096, "segments": 4,
            "segments_max": 16, "segment_bytes": 1 << 20, "free_slots": 1,
            "index_memory": 1, "index_bytes": 1, "side_files_left": 0},
    }  # fmt: skip
    return NodeStatus(**fields | changes)


def observed(**changes: Any) -> Observed:
    histogram = Histogram()
    histogram.observe(0.003)
    fields: dict[str, Any] = {
        "status": status(), "metadata": metadata(), "copying": {}, "cuts_in_flight": 1,
        "answer_times": {},
        "latencies": dict.fromkeys(("append", "sync", "cut", "read"), histogram),
        "now": int(NOW_S * 1e6), "directory": "/",
    }  # fmt: skip
    return Observed(**fields | changes)


def metrics(seen: Observed) -> list[Metric]:
    """Return what a node exports that observes this."""
    registry = CollectorRegistry()
    registry.register(StatusCollector(lambda: seen))
    return list(registry.collect())


def series(seen: Observed) -> Series:
    """Return every sample by its name and labels, as `name{label="value"}`."""
    found: Series = {}
    for metric in metrics(seen):
        for sample in metric.samples:
            labels = ",".join(f'{k}="{v}"' for k, v in sorted(sample.labels.items()))
            name = f"{sample.name}{{{labels}}}" if labels else sample.name
            assert name not in found, name
            found[name] = sample.value
    return found
