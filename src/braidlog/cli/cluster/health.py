"""Rows about a cluster, of its metadata; and what there is to say without a leader."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from braidlog.metarepo import health

if TYPE_CHECKING:
    from braidlog.client.connection.look import Look
    from braidlog.wire.messages import LogInfo, Metadata, NodeInfo, StreamInfo

OK: Final = health.OK
_REASONS_MAX: Final = 50


def looked(look: Look) -> dict[str, Any]:
    """Return the whole cluster for programs, as far as it could be seen."""
    if look.judged is not None:
        return described(look.judged)
    return leaderless(look)


def described(metadata: Metadata) -> dict[str, Any]:
    """Return the whole cluster for programs, as the leader knows it."""
    return _facts(metadata, health.health(metadata), _why(metadata)) | {
        "told_by": metadata.leader or None,
        "nodes": node_rows(metadata),
        "logs": [log_row(metadata, log) for log in _by_name(metadata)],
        "streams": stream_rows(metadata),
        "tables": table_rows(metadata),
    }


def leaderless(look: Look) -> dict[str, Any]:
    """Return what nodes that answer know for themselves, when nobody leads."""
    metadata = look.newest
    if metadata is None:
        return {"health": health.UNAVAILABLE, "leader": None}
    nodes = [
        node_row(metadata, node) | _answers(look, node)
        for node in sorted(metadata.nodes, key=lambda node: node.node)
    ]
    streams = [
        row | {"state": _without_leader(row["state"])} for row in stream_rows(metadata)
    ]
    told = [row["node"] for row in nodes if row["state"] == "answers"]
    why = [_no_leader(metadata, told)]
    why += [
        _reason("node_down", f"node {row['node']} ({row['address']}): {row['says']}")
        | {"nodes": [row["node"]]}
        for row in nodes
        if row["state"] != "answers"
    ]
    return _facts(metadata, health.UNAVAILABLE, why) | {
        "leader": None,
        "told_by": told,
        "nodes": nodes,
        "logs": [log_row(metadata, log) for log in _by_name(metadata)],
        "streams": streams,
        "tables": table_rows(metadata),
    }


def _facts(metadata: Metadata, state: str, why: list[dict[str, Any]]) -> dict[str, Any]:
    since = [each["since"] for each in why if each["since"]]
    return {
        "cluster": metadata.cluster,
        "health": state,
        "since": min(since, default=None) if state != health.OK else None,
        "why": why,
        "leader": metadata.leader or None,
        "index": metadata.index,
    }


def lacks(metadata: Metadata) -> list[str]:
    """Return what keeps the cluster from being whole, a sentence each; empty: nothing.

    See `braidlog.metarepo.health.reasons`.
    """
    return [
        f"{each.fact}{f', for {each.for_ms / 1000:.1f} s' if each.for_ms else ''}"
        f"{each.details}"
        for each in health.reasons(metadata)
    ]


def _why(metadata: Metadata) -> list[dict[str, Any]]:
    reasons = list(health.reasons(metadata))
    found = [
        _reason(each.what, each.fact + each.details, each.for_ms)
        | {"nodes": list(each.nodes), "log": each.log, "stream": each.stream or None}
        for each in reasons[:_REASONS_MAX]
    ]
    if len(reasons) > _REASONS_MAX:
        found.append(_reason("more", f"and {len(reasons) - _REASONS_MAX} more"))
    return found


def _reason(what: str, text: str, for_ms: int = 0) -> dict[str, Any]:
    since = None
    if for_ms:
        began = datetime.fromtimestamp(time.time() - for_ms / 1000, UTC)
        since = began.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "what": what,
        "why": text,
        "since": since,
        "seconds": round(for_ms / 1000, 1) if for_ms else None,
        "nodes": [],
        "log": "",
        "stream": None,
    }


def _no_leader(metadata: Metadata, told: list[int]) -> dict[str, Any]:
    voters = [node.node for node in metadata.nodes if node.voter]
    here = sum(node in told for node in voters)
    needed = len(voters) // 2 + 1
    text = (
        "the metadata repository has no leader, so nothing is committed: "
        f"{here} of its {len(voters)} voters answer"
    )
    if here < needed:
        text += f", and {needed} are needed"
    else:
        text += (
            "; an election takes about a second, unless the voters cannot "
            "reach one another"
        )
    return _reason("no_leader", text)


def _answers(look: Look, node: NodeInfo) -> dict[str, Any]:
    """Say whether a node answered, and what: the leader is not there to say it."""
    if (known := look.known.get(node.address)) is not None:
        leader = f"node {known.leader}" if known.leader else "no leader"
        return {"state": "answers", "says": f"it knows {leader}"}
    if (error := look.silent.get(node.address)) is not None:
        return {"state": "silent", "says": error.message}
    return {"state": "silent", "says": "it did not answer in time"}


def _without_leader(state: str) -> str:
    return state if state == health.SEALED else health.UNAVAILABLE


def node_rows(metadata: Metadata) -> list[dict[str, Any]]:
    """Return all nodes by number."""
    nodes = sorted(metadata.nodes, key=lambda node: node.node)
    return [node_row(metadata, node) for node in nodes]


def node_row(metadata: Metadata, node: NodeInfo) -> dict[str, Any]:
    """Return one node."""
    from braidlog.wire.messages import Feature

    placed = [stream for log in metadata.logs for stream in log.streams]
    return {
        "node": node.node,
        "address": node.address,
        "state": health.node_state(node),
        "leader": node.node == metadata.leader,
        "voter": node.voter,
        "sockets": "core" if node.features & Feature.CORE_SOCKETS else "loop",
        "primary_of": sum(each.replicas[:1] == (node.node,) for each in placed),
        "replicas": sum(node.node in each.replicas for each in placed),
        "learners": sum(node.node in each.learners for each in placed),
    }


def log_row(metadata: Metadata, log: LogInfo) -> dict[str, Any]:
    """Return one log; ``missing`` counts the replicas that its streams lack."""
    alive = health.alive_nodes(metadata)
    first, end = max(1, log.trim), log.high_watermark + 1
    return {
        "log": log.name,
        "first": first,
        "end": end,
        "records": end - first,
        "streams": len(log.streams),
        "replication": log.replication,
        "min_replicas": log.min_replicas,
        "missing": sum(health.missing(log, stream, alive) for stream in log.streams),
    }


def stream_rows(metadata: Metadata, log: str | None = None) -> list[dict[str, Any]]:
    """Return all streams, or those of one log."""
    alive = health.alive_nodes(metadata)
    return [
        {
            "log": each.name,
            "stream": stream.stream,
            "state": health.stream_state(each, stream, alive),
            "epoch": stream.epoch,
            "primary": stream.replicas[0] if stream.replicas else None,
            "replicas": list(stream.replicas),
            "learners": list(stream.learners),
            "missing": health.missing(each, stream, alive),
            "committed": stream.committed,
        }
        for each in _by_name(metadata)
        if log in (None, each.name)
        for stream in _by_number(each)
    ]


def table_rows(metadata: Metadata) -> list[dict[str, Any]]:
    """Return all tables; ``missing`` counts the live hosts that each lacks.

    How far hosts lag only they know: `lag` is added by whoever asks them.
    """
    alive = health.alive_nodes(metadata)
    logs = {log.log: log for log in metadata.logs}
    rows = []
    for table in sorted(metadata.tables, key=lambda table: table.name):
        log = logs.get(table.log)
        wanted = table.replicas or (log.replication if log is not None else 0)
        there = sum(alive.get(node, False) for node in table.joined)
        rows.append(
            {
                "table": table.name,
                "log": log.name if log is not None else None,
                "hosts": list(table.hosts),
                "joined": list(table.joined),
                "missing": max(0, wanted - there),
                "indexes": len(table.indexes),
                "lag": None,
            }
        )
    return rows


def _by_number(log: LogInfo) -> list[StreamInfo]:
    return sorted(log.streams, key=lambda stream: stream.stream)


def _by_name(metadata: Metadata) -> list[LogInfo]:
    return sorted(metadata.logs, key=lambda log: log.name)
