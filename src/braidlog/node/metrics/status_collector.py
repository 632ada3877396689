"""Prometheus metrics of a node, made of what it observes when they are asked for.

*How many series.* A node has those of itself, four histograms, and a few for each other
node. Logs may be thousands and streams tens of thousands, so nothing has a stream for a
label, and only the first `LOGS_SHOWN` logs, by name, have series of their own: the
others are summed up in one without the label. `braidlog cluster status` and `/status`
say which stream it is.

*Who knows what.* Metrics that begin with `braidlog_cluster_` come from the leader of
the metadata repository alone, and are absent elsewhere: take the `max` over all nodes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from braidlog.metarepo import health
from braidlog.node.metrics.status import NodeStatus, Observed, ReplicaStatus
from braidlog.wire.messages import Metadata

__all__ = ["LOGS_SHOWN", "StatusCollector"]

LOGS_SHOWN: Final = 200
"""Logs with series of their own."""

_COUNTERS: Final = {
    "appends": "Requests to append that came in.",
    "append_bytes": "Bytes of batches that came in.",
    "acknowledged": "Requests to append that were acknowledged.",
    "refused": "Requests to append that were refused.",
    "reads": "Reads that were answered with records.",
    "read_bytes": "Bytes of batches that reads were answered with.",
    "messages_dropped": "Messages to peers that were not sent: too much waits.",
    "scrubbed_bytes": "Bytes that were read to find damage.",
    "scrub_passes": "Passes over all that is on the disk that ended.",
    "scrub_damages": "Damaged places that such passes found, each once.",
    "connections_refused": "Connections that were sent away for want of room.",
    "strangers_dropped": "Connections closed before they said who they are.",
    "frames_overdue": "Connections closed because a frame was not whole in time.",
}
_LATENCIES: Final = {
    "append": "From the request to append to its answer, on the primary.",
    "sync": "From the end of a turn that wrote until all of it was durable.",
    "cut": "From the proposal of a cut until it was committed, on the leader.",
    "read": "Reading what a read is answered with, without waiting for news.",
}
_WAITING: Final = {
    "appends": ("appends_waiting", "Requests to append that have no answer yet."),
    "reads": ("reads_waiting", "Reads that wait for news, or for room."),
    "requests": (
        "requests_waiting",
        "Commands and questions for metadata that have no answer yet.",
    ),
    "answer_bytes": (
        "answers_waiting_bytes",
        "Bytes of answers that clients have not taken.",
    ),
}


class StatusCollector(Collector):
    """Turns what a node observes into metrics."""

    def __init__(self, observed: Callable[[], Observed]) -> None:
        """Ask `observed` at every scrape."""
        self._observed = observed

    def describe(self) -> list[Metric]:
        """Promise nothing before the first scrape: the node may be starting."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return all metrics."""
        seen = self._observed()
        yield from _of_node(seen.status)
        yield from _of_disk(seen)
        yield from _of_queues(seen.status)
        for name, histogram in seen.latencies.items():
            family = HistogramMetricFamily(
                f"braidlog_{name}_duration_seconds", _LATENCIES[name]
            )
            family.add_metric([], histogram.buckets(), histogram.sum)
            yield family
        yield from _of_repository(seen)
        yield from _of_replicas(seen.status.replicas)
        if seen.metadata is not None:
            yield from _of_cluster(seen, seen.metadata)


def _of_node(status: NodeStatus) -> Iterator[Metric]:
    about = {"node": str(status.node), "cluster": status.cluster}
    about["version"] = version("braidlog")
    yield _gauges("node_info", "What the node is; always 1.", about, [(about, 1)])
    yield _gauge("up", "Whether the node works.", status.healthy)
    yield _gauge("ready", "Whether the node serves.", status.ready)
    text = "When the node was started."
    yield _gauge("start_timestamp_seconds", text, status.started / 1e6)
    yield _gauge("connections", "Connections that others made.", status.connections)
    for name, total in status.counters.items():
        text = _COUNTERS.get(name, f"Total of {name}.")
        family = CounterMetricFamily(f"braidlog_{name}", text)
        family.add_metric([], total)
        yield family


def _of_disk(seen: Observed) -> Iterator[Metric]:
    stored = seen.status.storage
    for name, text in {
        "syncs": "Writes that were made durable.",
        "synced_bytes": "Bytes of these writes.",
    }.items():
        family = CounterMetricFamily(f"braidlog_{name}", text)
        family.add_metric([], stored[name])
        yield family
    size = stored["segment_bytes"]
    used, most = stored["segments"] * size, stored["segments_max"] * size
    yield _gauge("wal_used_bytes", "Segments in use of the write-ahead log.", used)
    yield _gauge("wal_max_bytes", "What they may take: [limits] wal_bytes_max.", most)
    text = "Files that are ready for the next segments."
    yield _gauge("wal_free_slots", text, stored["free_slots"])
    text = "Number indexes of sealed segments in memory."
    yield _gauge("wal_index_memory_bytes", text, stored["index_memory"])
    yield _gauge("wal_index_bytes", "Their files.", stored["index_bytes"])
    text = "Index files of dropped segments that could not be removed yet."
    yield _gauge("wal_side_files_left", text, stored["side_files_left"])
    try:
        disk = os.statvfs(seen.directory)
    except OSError:
        return  # It says so itself, to whom it fails.
    text = "Free bytes of the file system with the data directory."
    yield _gauge("disk_free_bytes", text, disk.f_bavail * disk.f_frsize)
    text = "All bytes of that file system."
    yield _gauge("disk_size_bytes", text, disk.f_blocks * disk.f_frsize)


def _of_queues(status: NodeStatus) -> Iterator[Metric]:
    for key, (name, text) in _WAITING.items():
        yield _gauge(name, text, status.waiting[key])
    peers = [({"peer": str(each.node)}, each) for each in status.peers]
    yield _gauges(
        "peer_connected",
        "Whether there is a link to another node; it is made when it is needed.",
        ["peer"],
        [(labels, each.connected) for labels, each in peers],
    )
    yield _gauges(
        "peer_waiting_bytes",
        "Bytes of messages that another node has not taken.",
        ["peer"],
        [(labels, each.waiting_bytes) for labels, each in peers],
    )


def _of_repository(seen: Observed) -> Iterator[Metric]:
    status = seen.status
    group, since = status.group, status.leader_since / 1e6
    text = "Whether the node knows a leader of the metadata repository."
    yield _gauge("repository_has_leader", text, bool(status.leader))
    text = "When it saw that leader first, or that there is none."
    yield _gauge("repository_leader_since_timestamp_seconds", text, since)
    if group is None:
        return
    leads = group.leader == status.node
    yield _gauge("repository_leader", "Whether the node leads it.", leads)
    yield _gauge("repository_term", "Term of the Raft group.", group.term)
    yield _gauge("repository_commit_index", "Last committed entry.", group.commit)
    yield _gauge("repository_applied_index", "Last applied entry.", group.applied)
    text = "Entries that a follower lacks; the leader says it."
    rows = [({"peer": str(node)}, lag) for node, lag in group.lags.items()]
    yield _gauges("repository_follower_lag_entries", text, ["peer"], rows)
    text = "Cuts on their way through the Raft group; the leader says it."
    yield _gauge("repository_cuts_in_flight", text, seen.cuts_in_flight)


def _of_replicas(replicas: Iterable[ReplicaStatus]) -> Iterator[Metric]:
    kinds: Counter[tuple[str, str]] = Counter()
    uncommitted: Counter[str] = Counter()
    waiting: Counter[str] = Counter()
    ends: dict[str, int] = {}
    for each in replicas:
        kinds[each.role, each.state] += 1
        uncommitted[each.log] += max(0, each.end - each.committed)
        waiting[each.log] += each.waiting
        ends[each.log] = max(ends.get(each.log, 0), each.high_watermark)
    yield _gauges(
        "replicas",
        "Replicas on the node.",
        ["role", "state"],
        [({"role": r, "state": s}, count) for (r, s), count in sorted(kinds.items())],
    )
    text = "Records that are durable here and not committed, of all streams."
    yield _by_log("log_uncommitted_records", text, uncommitted)
    text = "Requests to append to the log that have no answer yet."
    yield _by_log("log_appends_waiting", text, waiting)
    text = "Last position of the log that the node knows to be committed."
    yield _by_log("log_committed_position", text, ends, total=max)


def _of_cluster(seen: Observed, metadata: Metadata) -> Iterator[Metric]:
    """Return what the leader knows of all nodes and streams."""
    alive = health.alive_nodes(metadata)
    nodes = Counter(dict.fromkeys(health.NODE_STATES, 0))
    nodes.update(health.node_state(each) for each in metadata.nodes)
    text = "Nodes by state, as the leader takes them."
    yield _states("cluster_nodes", text, nodes)
    down = [each for each in metadata.nodes if not each.alive]
    yield _gauges(
        "cluster_node_down_since_timestamp_seconds",
        "When a node that is down was heard last.",
        ["peer"],
        [({"peer": str(n.node)}, seen.now / 1e6 - n.silent_ms / 1e3) for n in down],
    )
    states = Counter(dict.fromkeys(health.STREAM_STATES, 0))
    troubled: Counter[str] = Counter()
    missing: Counter[str] = Counter()
    damaged = learners = headless = lacking_ms = 0
    for log in metadata.logs:
        for stream in log.streams:
            state = health.stream_state(log, stream, alive)
            states[state] += 1
            troubled[log.name] += state in {health.DEGRADED, health.UNAVAILABLE}
            missing[log.name] += health.missing(log, stream, alive)
            damaged += len(stream.damaged)
            learners += len(stream.learners)
            headless += not (stream.replicas and alive.get(stream.replicas[0]))
            lacking_ms = max(lacking_ms, stream.lacking_ms)
    yield _states("cluster_streams", "Streams by state.", states)
    text = "Streams of a log that are degraded or unavailable."
    yield _by_log("cluster_log_troubled_streams", text, troubled)
    text = "Replicas that the streams of a log lack, of those that it asks for."
    yield _by_log("cluster_log_replicas_missing", text, missing)
    for name, text, value in (
        ("replicas_missing", "Replicas that all streams lack.", missing.total()),
        ("replicas_damaged", "Replicas that lost records.", damaged),
        ("learners", "Replicas that copy, to make up the number.", learners),
        ("streams_without_primary", "Streams with a primary that is down.", headless),
    ):
        yield _gauge(f"cluster_{name}", text, value)
    since = seen.now / 1e6 - lacking_ms / 1e3 if lacking_ms else 0.0
    text = "Since when a stream has not had all that it should; 0: none is so."
    yield _gauge("cluster_lacking_since_timestamp_seconds", text, since)
    text = "Committed records that a node has to copy."
    rows = [({"peer": str(node)}, lag) for node, lag in seen.copying.items()]
    yield _gauges("cluster_node_lag_records", text, ["peer"], rows)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"braidlog_{name}", text, value=float(value))


def _gauges(
    name: str,
    text: str,
    labels: Iterable[str],
    rows: Iterable[tuple[Mapping[str, str], float]],
) -> GaugeMetricFamily:
    names = list(labels)
    family = GaugeMetricFamily(f"braidlog_{name}", text, labels=names)
    for values, value in rows:
        family.add_metric([values[each] for each in names], float(value))
    return family


def _states(name: str, text: str, counts: Mapping[str, int]) -> GaugeMetricFamily:
    rows = [({"state": state}, count) for state, count in counts.items()]
    return _gauges(name, text, ["state"], rows)


def _by_log(
    name: str,
    text: str,
    values: Mapping[str, int],
    total: Callable[[Iterable[int]], int] = sum,
) -> GaugeMetricFamily:
    """Return a gauge for each of the first logs, and one for all others."""
    named = sorted(filter(None, values))
    rows = [({"log": log}, values[log]) for log in named[:LOGS_SHOWN]]
    # A replica of which the node was told nothing yet has no log.
    if rest := [*named[LOGS_SHOWN:], *({""} & values.keys())]:
        rows.append(({"log": ""}, total(values[log] for log in rest)))
    return _gauges(name, text, ["log"], rows)
