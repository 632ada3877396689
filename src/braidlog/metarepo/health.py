"""How well a cluster is, and why it is not better: judged by its metadata alone.

A stream that takes no appends although nobody sealed it makes the cluster
*unavailable*; one that has fewer replicas in sync than it should, or a node that does
not answer or is slow, makes it *degraded*. A sealed stream is as somebody wanted it,
but it may lack replicas like any other. Who the leader is, which nodes live and which
replicas are in sync is what the metadata says: it should be that of the leader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from braidlog.wire.messages import LogInfo, Metadata, NodeInfo, StreamInfo

OK: Final = "ok"
DEGRADED: Final = "degraded"
UNAVAILABLE: Final = "unavailable"
SEALED: Final = "sealed"
STREAM_STATES: Final = (OK, DEGRADED, UNAVAILABLE, SEALED)
NODE_STATES: Final = ("up", "down", "slow", "draining", "readmitting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One thing that is not as it should be."""

    what: str
    """`no_leader`, `node_down`, `node_slow`, `readmitting`, `unavailable`,
    `replicas_missing`, `damaged` or `copying`."""
    fact: str
    """What is so; for people."""
    details: str = ""
    """Which nodes it is about; goes on where `fact` ends."""
    for_ms: int = 0
    """For how long, as far as the leader knows; 0: not known."""
    nodes: tuple[int, ...] = ()
    """The nodes that it is about."""
    log: str = ""
    stream: int = 0


def node_state(node: NodeInfo) -> str:
    """Return one of `NODE_STATES`."""
    if node.readmitting:
        return "readmitting"
    if not node.alive:
        return "down"
    if node.draining:
        return "draining"
    return "slow" if node.slow_ms else "up"


def stream_state(log: LogInfo, stream: StreamInfo, alive: Mapping[int, bool]) -> str:
    """Return one of `STREAM_STATES`."""
    if stream.status.name == "SEALED":
        return SEALED
    live = [node for node in stream.replicas if alive.get(node)]
    # A cut needs every replica of the epoch.
    if not live or len(live) < len(stream.replicas):
        return UNAVAILABLE
    return DEGRADED if stream.damaged or missing(log, stream, alive) else OK


def missing(log: LogInfo, stream: StreamInfo, alive: Mapping[int, bool]) -> int:
    """Return how many replicas are not in sync, of those that the log asks for."""
    return max(0, log.replication - len(in_sync(stream, alive)))


def in_sync(stream: StreamInfo, alive: Mapping[int, bool]) -> list[int]:
    """Return the replicas in sync; nodes of before only say which nodes live."""
    if stream.in_sync is not None:
        return list(stream.in_sync)
    return [node for node in stream.replicas if alive.get(node)]


def alive_nodes(metadata: Metadata) -> dict[int, bool]:
    """Return which nodes live."""
    return {node.node: node.alive for node in metadata.nodes}


def health(metadata: Metadata) -> str:
    """Return `ok`, `degraded` or `unavailable`."""
    alive = alive_nodes(metadata)
    placed = [(log, stream) for log in metadata.logs for stream in log.streams]
    waits = any(stream_state(*each, alive) == UNAVAILABLE for each in placed)
    if not metadata.leader or waits:
        return UNAVAILABLE
    down = any(node_state(node) in {"down", "slow"} for node in metadata.nodes)
    lacks = any(each[1].damaged or missing(*each, alive) for each in placed)
    return DEGRADED if down or lacks else OK


def reasons(metadata: Metadata) -> Iterator[Reason]:
    """Return why the cluster is not whole.

    It is whole when a leader is known, every node answers in time, and every stream has
    all its replicas in sync. A sealed stream is no trouble, and neither is a node that
    drains.
    """
    if not metadata.leader:
        fact = "the metadata repository has no known leader"
        yield Reason(what="no_leader", fact=fact)
        return  # Only the leader knows the rest.
    for node in sorted(metadata.nodes, key=lambda node: node.node):
        state = node_state(node)
        if not node.alive or node.readmitting:
            yield Reason(
                what="node_down" if state == "down" else state,
                fact=f"node {node.node} is {state}",
                for_ms=node.silent_ms,
                nodes=(node.node,),
            )
        elif node.slow_ms:
            yield Reason(
                what="node_slow",
                fact=f"node {node.node} is slow",
                for_ms=node.slow_ms,
                nodes=(node.node,),
            )
    alive = alive_nodes(metadata)
    for log in sorted(metadata.logs, key=lambda log: log.name):
        for stream in sorted(log.streams, key=lambda stream: stream.stream):
            if stream.damaged or stream.learners or missing(log, stream, alive):
                yield _of_stream(log, stream, metadata.nodes)


def _of_stream(log: LogInfo, stream: StreamInfo, nodes: tuple[NodeInfo, ...]) -> Reason:
    alive = {node.node: node.alive for node in nodes}
    there = in_sync(stream, alive)
    behind = tuple(node for node in stream.replicas if node not in there)
    details = "".join(
        f"; {what}: node {', '.join(map(str, nodes))}"
        for nodes, what in (
            (behind, "not in sync"),
            (stream.learners, "copying it"),
            (stream.damaged, "damaged"),
        )
        if nodes
    )
    away: tuple[int, ...] = ()
    if missing(log, stream, alive) and not behind and not stream.learners:
        held = {*stream.replicas, *stream.learners}
        others = [node for node in nodes if node.node not in held]
        if not any(node_state(node) == "up" for node in others):
            details += "; no other node can take a replica"
            away = tuple(n.node for n in others if node_state(n) != "draining")
        if away:
            details += f": node {', '.join(map(str, away))} is not there"
    # That there are too few is said; where the one that lacks could be is not.
    if stream.lacking_why and not away:
        details = f": {stream.lacking_why}"
    what = "copying"
    if stream_state(log, stream, alive) == UNAVAILABLE:
        what = "unavailable"
    elif missing(log, stream, alive):
        what = "replicas_missing"
    elif stream.damaged:
        what = "damaged"
    return Reason(
        what=what,
        fact=f"stream {stream.stream} of {log.name} has {len(there)} of"
        f" {log.replication} replicas in sync",
        details=details,
        for_ms=stream.lacking_ms,
        nodes=tuple(dict.fromkeys((*behind, *stream.learners, *stream.damaged, *away))),
        log=log.name,
        stream=stream.stream,
    )
