"""How well a cluster is, judged by its metadata alone.

A stream that takes no appends although nobody sealed it makes the cluster
*unavailable*; one that has fewer live replicas than it should, or a node that does not
answer, makes it *degraded*. A sealed stream is as somebody wanted it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from braidlog.wire.messages import LogInfo, Metadata, NodeInfo, StreamInfo

__all__ = ["described", "lacks", "log_row", "node_row", "node_rows", "stream_rows"]

OK: Final = "ok"
DEGRADED: Final = "degraded"
UNAVAILABLE: Final = "unavailable"
SEALED: Final = "sealed"


def described(metadata: Metadata) -> dict[str, Any]:
    """Return the whole cluster for programs."""
    streams = stream_rows(metadata)
    nodes = node_rows(metadata)
    return {
        "cluster": metadata.cluster,
        "health": _health(metadata, nodes, streams),
        "leader": metadata.leader or None,
        "index": metadata.index,
        "nodes": nodes,
        "logs": [log_row(metadata, log) for log in _by_name(metadata)],
        "streams": streams,
    }


def lacks(metadata: Metadata) -> list[str]:
    """Return what keeps the cluster from being whole, a sentence each; empty: nothing.

    It is whole when a leader is known, every node answers, and every stream has all its
    replicas in sync. A sealed stream is no trouble, and neither is a node that drains.
    """
    if not metadata.leader:
        return ["no leader of the metadata repository is known"]
    alive = _alive(metadata)
    found = [
        f"node {node.node} is {_node_state(node)}{_since(node.silent_ms)}"
        for node in sorted(metadata.nodes, key=lambda node: node.node)
        if not node.alive or node.readmitting
    ]
    found += [
        _lack(log, stream, alive)
        for log in _by_name(metadata)
        for stream in sorted(log.streams, key=lambda stream: stream.stream)
        if stream.damaged or stream.learners or _missing(log, stream, alive)
    ]
    return found


def _lack(log: LogInfo, stream: StreamInfo, alive: Mapping[int, bool]) -> str:
    there = _in_sync(stream, alive)
    text = f"stream {stream.stream} of {log.name} has {len(there)} of {log.replication}"
    text += f" replicas in sync{_since(stream.lacking_ms)}"
    if stream.lacking_why:
        return f"{text}: {stream.lacking_why}"
    behind = [node for node in stream.replicas if node not in there]
    for nodes, what in (
        (behind, "not in sync"),
        (stream.learners, "copying it"),
        (stream.damaged, "damaged"),
    ):
        if nodes:
            text += f"; {what}: node {', '.join(map(str, nodes))}"
    return text


def _since(ms: int) -> str:
    return f", for {ms / 1000:.1f} s" if ms else ""


def node_rows(metadata: Metadata) -> list[dict[str, Any]]:
    """Return all nodes by number."""
    nodes = sorted(metadata.nodes, key=lambda node: node.node)
    return [node_row(metadata, node) for node in nodes]


def node_row(metadata: Metadata, node: NodeInfo) -> dict[str, Any]:
    """Return one node."""
    placed = [stream for log in metadata.logs for stream in log.streams]
    return {
        "node": node.node,
        "address": node.address,
        "state": _node_state(node),
        "leader": node.node == metadata.leader,
        "voter": node.voter,
        "primary_of": sum(each.replicas[:1] == (node.node,) for each in placed),
        "replicas": sum(node.node in each.replicas for each in placed),
        "learners": sum(node.node in each.learners for each in placed),
    }


def log_row(metadata: Metadata, log: LogInfo) -> dict[str, Any]:
    """Return one log; ``missing`` counts the replicas that its streams lack."""
    alive = _alive(metadata)
    first, end = max(1, log.trim), log.high_watermark + 1
    return {
        "log": log.name,
        "first": first,
        "end": end,
        "records": end - first,
        "streams": len(log.streams),
        "replication": log.replication,
        "min_replicas": log.min_replicas,
        "missing": sum(_missing(log, stream, alive) for stream in log.streams),
    }


def stream_rows(metadata: Metadata, log: str | None = None) -> list[dict[str, Any]]:
    """Return all streams, or those of one log."""
    alive = _alive(metadata)
    return [
        _stream_row(each, stream, alive)
        for each in _by_name(metadata)
        if log in (None, each.name)
        for stream in sorted(each.streams, key=lambda stream: stream.stream)
    ]


def _alive(metadata: Metadata) -> dict[int, bool]:
    return {node.node: node.alive for node in metadata.nodes}


def _in_sync(stream: StreamInfo, alive: Mapping[int, bool]) -> list[int]:
    """Return the replicas in sync; nodes of before only say which nodes live."""
    if stream.in_sync is not None:
        return list(stream.in_sync)
    return [node for node in stream.replicas if alive.get(node)]


def _missing(log: LogInfo, stream: StreamInfo, alive: Mapping[int, bool]) -> int:
    return max(0, log.replication - len(_in_sync(stream, alive)))


def _stream_row(
    log: LogInfo, stream: StreamInfo, alive: Mapping[int, bool]
) -> dict[str, Any]:
    return {
        "log": log.name,
        "stream": stream.stream,
        "state": _stream_state(log, stream, alive),
        "epoch": stream.epoch,
        "primary": stream.replicas[0] if stream.replicas else None,
        "replicas": list(stream.replicas),
        "learners": list(stream.learners),
        "missing": _missing(log, stream, alive),
        "committed": stream.committed,
    }


def _stream_state(log: LogInfo, stream: StreamInfo, alive: Mapping[int, bool]) -> str:
    live = [node for node in stream.replicas if alive.get(node)]
    if stream.status.name == "SEALED":
        return SEALED
    # A cut needs every replica of the epoch.
    if not live or len(live) < len(stream.replicas):
        return UNAVAILABLE
    return OK if len(live) >= log.replication else DEGRADED


def _node_state(node: NodeInfo) -> str:
    if node.readmitting:
        return "readmitting"
    if not node.alive:
        return "down"
    return "draining" if node.draining else "up"


def _health(
    metadata: Metadata, nodes: list[dict[str, Any]], streams: list[dict[str, Any]]
) -> str:
    states = {stream["state"] for stream in streams}
    if not metadata.leader or UNAVAILABLE in states:
        return UNAVAILABLE
    if DEGRADED in states or any(node["state"] == "down" for node in nodes):
        return DEGRADED
    return OK


def _by_name(metadata: Metadata) -> list[LogInfo]:
    return sorted(metadata.logs, key=lambda log: log.name)
