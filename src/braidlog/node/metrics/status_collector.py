"""Prometheus metrics of a node, made of what it observes when they are asked for.

*How many series.* A node has those of itself, four histograms, and a few for each other
node. Logs may be thousands and streams tens of thousands, so nothing has a stream for a
label, and only the first `LOGS_SHOWN` logs, by name, have series of their own: the
others are summed up in one without the label. `braidlog cluster status` and `/status`
say which stream it is. Of tokens only those with quotas have series, as many at most.

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
from braidlog.node.metrics.status import (
    HostedStatus,
    NodeStatus,
    Observed,
    ReplicaStatus,
)
from braidlog.serving.quotas import TokenUse
from braidlog.wire.messages import Metadata

LOGS_SHOWN: Final = 200
"""Logs with series of their own."""

_COUNTERS: Final = {
    "appends": "Append requests received.",
    "append_bytes": "Bytes of record batches received.",
    "acknowledged": "Append requests acknowledged as durable.",
    "refused": "Append requests refused.",
    "reads": "Reads answered with records.",
    "read_bytes": "Bytes of record batches sent to readers.",
    "messages_dropped": "Messages to peers dropped because too much was queued.",
    "scrubbed_bytes": "Bytes read by the scrub to find damage.",
    "scrub_passes": "Completed scrub passes over the whole disk.",
    "scrub_damages": "Damaged places found by scrubs, each counted once.",
    "table_reads": "Reads of tables answered.",
    "table_rows": "Rows sent to readers of tables.",
    "table_bytes": "Bytes of these rows.",
    "table_copies": "Tables copied from other nodes.",
    "table_copied_bytes": "Bytes of these copies.",
    "table_damages": "Tables found damaged, each time.",
    "table_reliefs": "Tables flushed because all together had too much in memory.",
    "connections_refused": "Connections refused because the limit was reached.",
    "strangers_dropped": "Connections closed before they identified themselves.",
    "reloads": "Reloads of settings, tokens and certificates.",
    "reloads_refused": "Reloads that changed nothing, because a file was wrong.",
    "connections_revoked": "Connections closed because a reload took their rights.",
    "frames_overdue": "Connections closed because a frame took too long.",
}
_LATENCIES: Final = {
    "append": "Time from an append request to its answer, on the primary.",
    "sync": "Time from the end of a turn that wrote to durability.",
    "cut": "Time from proposing a cut to its commit, on the leader.",
    "read": "Time to read an answer, without waiting for new records.",
}
_WAITING: Final = {
    "appends": ("appends_waiting", "Append requests that have no answer yet."),
    "reads": ("reads_waiting", "Reads that wait for new records or for memory."),
    "requests": (
        "requests_waiting",
        "Metadata commands and queries that have no answer yet.",
    ),
    "table_reads": (
        "table_reads_waiting",
        "Reads of tables that wait for a position of the log.",
    ),
    "answer_bytes": (
        "answers_waiting_bytes",
        "Bytes of answers that clients have not read yet.",
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
        yield from _of_tables(seen.status.tables)
        yield from _of_tokens(seen.status.quotas)
        if seen.metadata is not None:
            yield from _of_cluster(seen, seen.metadata)


def _of_node(status: NodeStatus) -> Iterator[Metric]:
    about = {"node": str(status.node), "cluster": status.cluster}
    about |= {"sockets": status.sockets, "version": version("braidlog")}
    yield _gauges(
        "node_info", "Facts about the node as labels; always 1.", about, [(about, 1)]
    )
    yield _gauge("up", "1 if the node works.", status.healthy)
    yield _gauge("ready", "1 if the node serves requests.", status.ready)
    text = "Time at which the node was started."
    yield _gauge("start_timestamp_seconds", text, status.started / 1e6)
    yield _gauge("connections", "Open connections to the node.", status.connections)
    for name, total in status.counters.items():
        text = _COUNTERS.get(name, f"Total of {name}.")
        family = CounterMetricFamily(f"braidlog_{name}", text)
        family.add_metric([], total)
        yield family


def _of_disk(seen: Observed) -> Iterator[Metric]:
    stored = seen.status.storage
    for name, text in {
        "syncs": "Writes made durable.",
        "synced_bytes": "Bytes made durable.",
    }.items():
        family = CounterMetricFamily(f"braidlog_{name}", text)
        family.add_metric([], stored[name])
        yield family
    size = stored["segment_bytes"]
    used, most = stored["segments"] * size, stored["segments_max"] * size
    yield _gauge("wal_used_bytes", "Segments in use of the write-ahead log.", used)
    yield _gauge("wal_max_bytes", "Limit of these: [limits] wal_bytes_max.", most)
    text = "Files ready for the next segments."
    yield _gauge("wal_free_slots", text, stored["free_slots"])
    text = "Number indexes of sealed segments in memory."
    yield _gauge("wal_index_memory_bytes", text, stored["index_memory"])
    yield _gauge(
        "wal_index_bytes", "Bytes of number index files.", stored["index_bytes"]
    )
    text = "Index files of dropped segments that could not be removed yet."
    yield _gauge("wal_side_files_left", text, stored["side_files_left"])
    try:
        disk = os.statvfs(seen.directory)
    except OSError:
        return  # It says so itself, to whom it fails.
    text = "Free bytes of the file system with the data directory."
    yield _gauge("disk_free_bytes", text, disk.f_bavail * disk.f_frsize)
    text = "Total bytes of that file system."
    yield _gauge("disk_size_bytes", text, disk.f_blocks * disk.f_frsize)


def _of_queues(status: NodeStatus) -> Iterator[Metric]:
    for key, (name, text) in _WAITING.items():
        if key in status.waiting:
            yield _gauge(name, text, status.waiting[key])
    peers = [({"peer": str(each.node)}, each) for each in status.peers]
    yield _gauges(
        "peer_connected",
        "1 if there is a link to another node; links are made on demand.",
        ["peer"],
        [(labels, each.connected) for labels, each in peers],
    )
    yield _gauges(
        "peer_waiting_bytes",
        "Bytes of messages queued for another node.",
        ["peer"],
        [(labels, each.waiting_bytes) for labels, each in peers],
    )


def _of_repository(seen: Observed) -> Iterator[Metric]:
    status = seen.status
    group, since = status.group, status.leader_since / 1e6
    text = "1 if the node knows a leader of the metadata repository."
    yield _gauge("repository_has_leader", text, bool(status.leader))
    text = "Time at which it first saw that leader, or saw none."
    yield _gauge("repository_leader_since_timestamp_seconds", text, since)
    if group is None:
        return
    leads = group.leader == status.node
    yield _gauge("repository_leader", "1 if the node is the leader.", leads)
    yield _gauge("repository_term", "Term of the Raft group.", group.term)
    yield _gauge("repository_commit_index", "Last committed entry.", group.commit)
    yield _gauge("repository_applied_index", "Last applied entry.", group.applied)
    text = "Entries that a follower lacks; leader only."
    rows = [({"peer": str(node)}, lag) for node, lag in group.lags.items()]
    yield _gauges("repository_follower_lag_entries", text, ["peer"], rows)
    text = "Cuts proposed and not committed yet; leader only."
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
    text = "Records durable here and not committed yet, in all streams."
    yield _by_log("log_uncommitted_records", text, uncommitted)
    text = "Append requests to the log that have no answer yet."
    yield _by_log("log_appends_waiting", text, waiting)
    text = "Last committed position of the log that the node knows."
    yield _by_log("log_committed_position", text, ends, total=max)


def _of_tables(tables: Iterable[HostedStatus]) -> Iterator[Metric]:
    kinds: Counter[tuple[str, str]] = Counter()
    lags: Counter[str] = Counter()
    files: Counter[str] = Counter()
    memory: Counter[str] = Counter()
    for each in tables:
        kinds["yes" if each.joined else "no", each.state] += 1
        lags[each.name] += each.behind
        files[each.name] += each.file_bytes
        memory[each.name] += each.memory_bytes
    yield _gauges(
        "tables",
        "Tables that the node keeps; joined if it has all of the table.",
        ["joined", "state"],
        [({"joined": j, "state": s}, count) for (j, s), count in sorted(kinds.items())],
    )
    for name, text, values in (
        ("lag_records", "Committed records that the node has not applied.", lags),
        ("file_bytes", "Bytes of the files of the table on the node.", files),
        ("memory_bytes", "Bytes of the table that are in memory only.", memory),
    ):
        yield _by(f"table_{name}", text, values, label="table")


def _of_tokens(uses: Iterable[TokenUse]) -> Iterator[Metric]:
    connections: Counter[str] = Counter()
    requests: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    limits: Counter[tuple[str, str]] = Counter()
    refused: Counter[tuple[str, str]] = Counter()
    for place, each in enumerate(uses):
        # All others are one without a name, and a sum of limits is none.
        token = each.token if place < LOGS_SHOWN else ""
        connections[token] += each.connections
        requests[token] += each.requests
        sizes[token] += each.bytes
        limits.update({(token, name): most for name, most in each.quotas.items()})
        refused.update({(token, name): n for name, n in each.refused.items()})
    text = "Open connections of a token that has quotas."
    yield _by("token_connections", text, connections, label="token")
    text = "Quotas of a token on the node."
    rows = [({"token": t, "quota": q}, most) for (t, q), most in limits.items() if t]
    yield _gauges("token_quota", text, ["token", "quota"], rows)
    for name, text, totals in (
        ("requests", "Requests of a token that its quotas let through.", requests),
        ("bytes", "Bytes of payloads of a token, in both directions.", sizes),
    ):
        family = CounterMetricFamily(f"braidlog_token_{name}", text, labels=["token"])
        for token, total in totals.items():
            family.add_metric([token], total)
        yield family
    text = "Requests and connections of a token that a quota refused."
    labels = ["token", "quota"]
    family = CounterMetricFamily("braidlog_token_refused", text, labels=labels)
    for pair, total in refused.items():
        family.add_metric(pair, total)
    yield family


def _of_cluster(seen: Observed, metadata: Metadata) -> Iterator[Metric]:
    """Return what the leader knows of all nodes and streams."""
    alive = health.alive_nodes(metadata)
    nodes = Counter(dict.fromkeys(health.NODE_STATES, 0))
    nodes.update(health.node_state(each) for each in metadata.nodes)
    text = "Nodes by state, as the leader sees them."
    yield _states("cluster_nodes", text, nodes)
    down = [each for each in metadata.nodes if not each.alive]
    yield _gauges(
        "cluster_node_down_since_timestamp_seconds",
        "Time at which a node that is down was last heard.",
        ["peer"],
        [({"peer": str(n.node)}, seen.now / 1e6 - n.silent_ms / 1e3) for n in down],
    )
    slow = [each for each in metadata.nodes if each.slow_ms]
    yield _gauges(
        "cluster_node_slow_since_timestamp_seconds",
        "Time at which a node was found slow that still is.",
        ["peer"],
        [({"peer": str(n.node)}, seen.now / 1e6 - n.slow_ms / 1e3) for n in slow],
    )
    text = "Time that a node took to make records durable, in the last window."
    times = [({"peer": str(n)}, each) for n, each in seen.answer_times.items()]
    yield _gauges("cluster_node_answer_seconds", text, ["peer"], times)
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
    text = "Replicas that the streams of a log lack."
    yield _by_log("cluster_log_replicas_missing", text, missing)
    for name, text, value in (
        ("replicas_missing", "Replicas that all streams lack.", missing.total()),
        ("replicas_damaged", "Replicas that lost records.", damaged),
        ("learners", "Replicas that are still copying (learners).", learners),
        ("streams_without_primary", "Streams with a primary that is down.", headless),
    ):
        yield _gauge(f"cluster_{name}", text, value)
    since = seen.now / 1e6 - lacking_ms / 1e3 if lacking_ms else 0.0
    text = "Time since which a stream is incomplete; 0 if none is."
    yield _gauge("cluster_lacking_since_timestamp_seconds", text, since)
    text = "Committed records that a node still has to copy."
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
    return _by(name, text, values, total, label="log")


def _by(
    name: str,
    text: str,
    values: Mapping[str, int],
    total: Callable[[Iterable[int]], int] = sum,
    *,
    label: str,
) -> GaugeMetricFamily:
    """Return a gauge for each of the first logs or tables, and one for all others."""
    named = sorted(filter(None, values))
    rows = [({label: each}, values[each]) for each in named[:LOGS_SHOWN]]
    # A replica of which the node was told nothing yet has no log.
    if rest := [*named[LOGS_SHOWN:], *({""} & values.keys())]:
        rows.append(({label: ""}, total(values[each] for each in rest)))
    return _gauges(name, text, [label], rows)
