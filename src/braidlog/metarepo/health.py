"""How well a cluster is, and why it is not better: judged by its metadata alone.

A stream that takes no appends although nobody sealed it makes the cluster
*unavailable*; one that has fewer replicas in sync than it should, or a node that does
not answer, makes it *degraded*. A sealed stream is as somebody wanted it, but it may
lack replicas like any other. Who the leader is, which nodes live and which replicas are
in sync is what the metadata says: it should be that of the leader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from braidlog.wire.messages import LogInfo, Metadata, NodeInfo, StreamInfo

__all__ = [
    "DEGRADED",
    "NODE_STATES",
    "OK",
    "SEALED",
    "STREAM_STATES",
    "UNAVAILABLE",
    "Reason",
    "health",
    "missing",
    "node_state",
    "reasons",
    "stream_state",
]

OK: Final = "ok"
DEGRADED: Final = "degraded"
UNAVAILABLE: Final = "unavailable"
SEALED: Final = "sealed"
STREAM_STATES: Final = (OK, DEGRADED, UNAVAILABLE, SEALED)
NODE_STATES: Final = ("up", "down", "draining", "readmitting")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One thing that is not as it should be."""

    what: str
    """`no_leader`, `node_down`, `unavailable`, `replicas_missing`, `damaged` or
    `not_in_sync`."""
    text: str
    """For people."""
    since_ms: int = 0
    """For how long, as far as the leader knows; 0: not known."""
    nodes: tuple[int, ...] = ()
    """The nodes that it is about."""
    log: str = ""
    streams: tuple[int, ...] = ()
    """The streams that are alike in this."""


def node_state(node: NodeInfo) -> str:
    """Return one of `NODE_STATES`."""
    if node.readmitting:
        return "readmitting"
    if not node.alive:
        return "down"
    return "draining" if node.draining else "up"


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
    """Return how many replicas are not there and in sync, of those the log asks for."""
    return max(0, log.replication - len(_live(stream, alive)))


def _live(stream: StreamInfo, alive: Mapping[int, bool]) -> list[int]:
    in_sync = stream.replicas if stream.in_sync is None else stream.in_sync
    return [node for node in in_sync if alive.get(node)]


def health(metadata: Metadata) -> str:
    """Return `ok`, `degraded` or `unavailable`."""
    alive = {node.node: node.alive for node in metadata.nodes}
    placed = [(log, stream) for log in metadata.logs for stream in log.streams]
    waits = any(stream_state(*each, alive) == UNAVAILABLE for each in placed)
    if not metadata.leader or waits:
        return UNAVAILABLE
    down = any(node_state(node) == "down" for node in metadata.nodes)
    lacks = any(each[1].damaged or missing(*each, alive) for each in placed)
    return DEGRADED if down or lacks else OK


def reasons(metadata: Metadata) -> Iterator[Reason]:
    """Return why the cluster is not well, the worst first."""
    if not metadata.leader:
        text = "no leader of the metadata repository is known: nothing is committed"
        yield Reason(what="no_leader", text=text)
    alive = {node.node: node.alive for node in metadata.nodes}
    for node in metadata.nodes:
        if not node.alive and not node.readmitting:
            yield Reason(
                what="node_down",
                text=f"node {node.node} ({node.address}) does not answer",
                since_ms=node.silent_ms,
                nodes=(node.node,),
            )
    found = [
        (kind, each, log, stream)
        for log in metadata.logs
        for stream in log.streams
        for kind, each in _of_stream(log, stream, alive)
    ]
    yield from _gathered(found)


_Found = tuple[str, tuple[int, ...], "LogInfo", "StreamInfo"]
_ORDER: Final = ("unavailable", "replicas_missing", "damaged", "not_in_sync")


def _of_stream(
    log: LogInfo, stream: StreamInfo, alive: Mapping[int, bool]
) -> Iterator[tuple[str, tuple[int, ...]]]:
    gone = tuple(node for node in stream.replicas if not alive.get(node))
    live = _live(stream, alive)
    entering = tuple(n for n in stream.replicas if alive.get(n) and n not in live)
    if gone:
        yield "unavailable", gone
    elif len(stream.replicas) < log.replication:
        yield "replicas_missing", stream.learners
    if stream.damaged:
        yield "damaged", stream.damaged
    if entering:
        yield "not_in_sync", entering


def _gathered(found: list[_Found]) -> Iterator[Reason]:
    """Say once what holds for many streams of a log."""
    groups: dict[tuple[int, str, tuple[int, ...], int], list[_Found]] = {}
    for each in found:
        kind, nodes, log, stream = each
        key = _ORDER.index(kind), log.name, nodes, len(stream.replicas)
        groups.setdefault(key, []).append(each)
    for key in sorted(groups):
        alike = groups[key]
        kind, nodes, log, stream = alike[0]
        streams = tuple(each[3].stream for each in alike)
        sealed = stream.status.name == "SEALED"
        yield Reason(
            what=kind,
            text=f"{_named(streams)} of {log.name} {_said(kind, nodes, log, stream)}"
            + (", sealed" if sealed else ""),
            since_ms=max(each[3].lacking_ms for each in alike),
            nodes=nodes,
            log=log.name,
            streams=streams,
        )


def _said(kind: str, nodes: tuple[int, ...], log: LogInfo, stream: StreamInfo) -> str:
    on = ", ".join(map(str, nodes))
    have, want = len(stream.replicas), log.replication
    where = ", ".join(map(str, stream.replicas))
    match kind:
        case "unavailable":
            return f"waits for the replica on node {on} (replicas on {where})"
        case "replicas_missing" if nodes:
            return f"has {have} of {want} replicas, on {where}; node {on} copies it"
        case "replicas_missing":
            return f"has {have} of {want} replicas, on {where}; no other node takes one"
        case "damaged":
            return f"has a damaged replica on node {on}"
        case _:
            return f"has a replica on node {on} that is catching up"


def _named(streams: tuple[int, ...]) -> str:
    if len(streams) == 1:
        return f"stream {streams[0]}"
    first = ", ".join(map(str, streams[:4]))
    more = ", ..." if len(streams) > 4 else ""  # noqa: PLR2004, RUF100
    return f"each of {len(streams)} streams ({first}{more})"
