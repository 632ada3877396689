"""What a node exports: names, types, how many series, and the states of a cluster."""

from __future__ import annotations

from braidlog.node.metrics.latency import BOUNDS_S, Histogram
from braidlog.node.metrics.status import HostedStatus
from braidlog.node.metrics.status_collector import LOGS_SHOWN
from braidlog.serving.quotas import TokenUse
from unit.node.observed import (
    NOW_S,
    log,
    metadata,
    metrics,
    observed,
    replica,
    series,
    status,
    stream,
)

SECONDS = "timestamp_seconds"


def test_every_metric_has_a_type_a_unit_and_a_help_text() -> None:
    for each in metrics(observed()):
        assert each.name.startswith("braidlog_"), each
        assert each.type in {"gauge", "counter", "histogram"}, each
        assert each.documentation.endswith((".", "1.", "it.")), each
        if each.type == "histogram":
            assert each.name.endswith("_duration_seconds"), each
        # A count that only grows is a counter, and nothing else is called total.
        assert not each.name.endswith("_total"), each


def test_a_healthy_cluster_shows_nothing_to_worry_about() -> None:
    found = series(observed())
    assert found['braidlog_cluster_streams{state="ok"}'] == 1
    assert found['braidlog_cluster_nodes{state="up"}'] == 3
    for name in (
        'braidlog_cluster_nodes{state="down"}',
        'braidlog_cluster_streams{state="degraded"}',
        'braidlog_cluster_streams{state="unavailable"}',
        "braidlog_cluster_replicas_missing",
        "braidlog_cluster_replicas_damaged",
        "braidlog_cluster_learners",
        "braidlog_cluster_streams_without_primary",
        "braidlog_cluster_lacking_since_timestamp_seconds",
    ):
        assert found[name] == 0, name
    assert found["braidlog_repository_has_leader"] == 1
    assert found["braidlog_wal_used_bytes"] == 4 << 20
    assert found["braidlog_wal_max_bytes"] == 16 << 20
    assert found["braidlog_disk_free_bytes"] > 0
    assert found["braidlog_appends_waiting"] == 1
    assert found['braidlog_peer_waiting_bytes{peer="2"}'] == 5
    assert found['braidlog_repository_follower_lag_entries{peer="3"}'] == 1
    assert found['braidlog_log_uncommitted_records{log="orders"}'] == 2


def test_what_is_lacking_and_since_when() -> None:
    short = stream(1, replicas=(2, 3), in_sync=(2, 3), learners=(1,), lacking_ms=9_000)
    waits = stream(2, in_sync=(2, 3), lacking_ms=4_000)
    rotten = stream(3, in_sync=(2, 3), damaged=(2,))
    cluster = metadata(log("orders", short, waits, rotten), down=[1], silent_ms=5_000)
    found = series(observed(metadata=cluster, copying={1: 70}))
    assert found['braidlog_cluster_nodes{state="down"}'] == 1
    down = 'braidlog_cluster_node_down_since_timestamp_seconds{peer="1"}'
    assert found[down] == NOW_S - 5
    states = ("ok", "degraded", "unavailable", "sealed")
    counts = [found[f'braidlog_cluster_streams{{state="{each}"}}'] for each in states]
    assert counts == [0, 1, 2, 0]
    assert found["braidlog_cluster_replicas_missing"] == 3
    assert found["braidlog_cluster_replicas_damaged"] == 1
    assert found["braidlog_cluster_learners"] == 1
    assert found["braidlog_cluster_streams_without_primary"] == 2
    assert found[f"braidlog_cluster_lacking_since_{SECONDS}"] == NOW_S - 9
    assert found['braidlog_cluster_log_replicas_missing{log="orders"}'] == 3
    assert found['braidlog_cluster_node_lag_records{peer="1"}'] == 70


def test_which_nodes_are_slow() -> None:
    times = {1: 0.001, 2: 0.021}
    found = series(observed(metadata=metadata(slow=[2]), answer_times=times))
    assert found['braidlog_cluster_nodes{state="slow"}'] == 1
    assert found['braidlog_cluster_nodes{state="up"}'] == 2
    since = f'braidlog_cluster_node_slow_since_{SECONDS}{{peer="2"}}'
    assert found[since] == NOW_S - 7
    assert found['braidlog_cluster_node_answer_seconds{peer="2"}'] == 0.021


def test_only_the_leader_speaks_for_the_cluster() -> None:
    found = series(observed(metadata=None, status=status(leader=0, group=None)))
    assert [name for name in found if "cluster_" in name] == []
    assert found["braidlog_repository_has_leader"] == 0
    assert found[f"braidlog_repository_leader_since_{SECONDS}"] == NOW_S - 900


def test_thousands_of_logs_and_streams_are_a_bounded_number_of_series() -> None:
    names = [f"log-{number:04}" for number in range(3000)]
    placed = tuple(replica(n, log=name) for n, name in enumerate([*names, "", ""]))
    cluster = metadata(*(log(name, *map(stream, range(8))) for name in names))
    found = series(observed(status=status(replicas=placed), metadata=cluster))
    assert len(found) < 6 * (LOGS_SHOWN + 1) + 200
    shown = 'braidlog_log_uncommitted_records{log="%s"}'
    assert found[shown % "log-0199"] == 2
    assert shown % "log-0200" not in found
    assert found[shown % ""] == 2 * (3002 - LOGS_SHOWN)
    assert found['braidlog_log_committed_position{log=""}'] == 4


def test_tokens_with_quotas_are_a_bounded_number_of_series() -> None:
    used = [
        TokenUse(
            token=f"token-{number:04}",
            quotas={"bytes_per_s": 500, "connections": 9},
            connections=2,
            requests=7,
            bytes=70,
            refused={"bytes_per_s": 3, "connections": 0},
        )
        for number in range(3000)
    ]
    before = len(series(observed()))
    found = series(observed(status=status(quotas=tuple(used))))
    assert len(found) - before <= 7 * (LOGS_SHOWN + 1)
    shown, others = "token-0199", 3000 - LOGS_SHOWN
    assert found[f'braidlog_token_connections{{token="{shown}"}}'] == 2
    assert found['braidlog_token_connections{token=""}'] == 2 * others
    assert found['braidlog_token_requests_total{token=""}'] == 7 * others
    assert found['braidlog_token_bytes_total{token=""}'] == 70 * others
    quota = 'quota="bytes_per_s"'
    assert found[f'braidlog_token_refused_total{{{quota},token=""}}'] == 3 * others
    assert found[f'braidlog_token_quota{{{quota},token="{shown}"}}'] == 500
    assert f'braidlog_token_quota{{{quota},token=""}}' not in found
    assert not any("token-0200" in name for name in found)


def test_buckets_count_what_took_no_longer() -> None:
    histogram = Histogram()
    for seconds, count in ((0.0001, 3), (0.00011, 1), (99.0, 2)):
        histogram.observe(seconds, count)
    copied = histogram.copy()
    histogram.observe(1.0)
    found = dict(copied.buckets())
    assert (found["0.0001"], found["0.00025"], found["30.0"]) == (3, 4, 4)
    assert found["+Inf"] == 6
    assert len(found) == len(BOUNDS_S) + 1
    assert round(copied.sum, 5) == round(3 * 0.0001 + 0.00011 + 198, 5)


def hosted(name: str, **changes: object) -> HostedStatus:
    plain: dict[str, object] = {
        "table": "00",
        "name": name,
        "log": "orders",
        "state": "serving",
        "applied": 90,
        "flushed": 50,
        "behind": 10,
        "file_bytes": 1000,
        "memory_bytes": 20,
        "copied_bytes": 0,
        "joined": True,
        "why": "",
    }
    return HostedStatus(**(plain | changes))  # type: ignore[arg-type]


def test_tables_that_the_node_keeps() -> None:
    tables = (hosted("stock"), hosted("goods", joined=False, state="copying"))
    found = series(observed(status=status(tables=tables)))
    assert found['braidlog_tables{joined="yes",state="serving"}'] == 1
    assert found['braidlog_tables{joined="no",state="copying"}'] == 1
    assert found['braidlog_table_lag_records{table="stock"}'] == 10
    assert found['braidlog_table_file_bytes{table="goods"}'] == 1000
    assert found['braidlog_table_memory_bytes{table="goods"}'] == 20
    many = tuple(hosted(f"table-{number:04}") for number in range(LOGS_SHOWN + 5))
    found = series(observed(status=status(tables=many)))
    assert found['braidlog_table_lag_records{table=""}'] == 50
