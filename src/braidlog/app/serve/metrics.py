"""Prometheus metrics of a host, made of its status when they are asked for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from braidlog.app.serve.status import HostStatus, replay_seconds

# 0: open, 1: a snapshot is asked for, 2: calls are refused.
LEVELS: Final = ("open", "snapshot", "full")


class HostCollector(Collector):
    """Turns the status of a host into metrics."""

    def __init__(self, status: Callable[[], HostStatus]) -> None:
        """Ask `status` at every scrape."""
        self._status = status

    def describe(self) -> list[Metric]:
        """Promise nothing before the first scrape."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return all metrics."""
        status = self._status()
        said = status.said
        lag = max(0, said.end - 1 - said.applied)
        since = time.time() - said.snapshot_us / 1_000_000 if said.snapshot else 0.0
        gauges = {
            "up": ("1 if the host works.", status.healthy),
            "ready": ("1 if the host takes calls.", said.ready),
            "active": ("1 if this is the active host.", said.active),
            "epoch": ("Epoch of the active host.", said.epoch),
            "applied_position": ("Last executed position.", said.applied),
            "end_position": ("Next position of the log.", said.end),
            "lag_records": ("Records not executed yet.", lag),
            "kept_position": ("Last position that is durable in the state.", said.kept),
            "waiting_calls": ("Calls that have no answer yet.", said.waiting),
            "connections": ("Connections of callers.", said.connections),
            "stopped_partitions": ("Partitions that diverged.", len(said.stopped)),
            "snapshot_position": (
                "Position of the newest snapshot, 0 if none.",
                said.snapshot,
            ),
            "snapshot_age_seconds": ("Age of the newest snapshot, 0 if none.", since),
            "snapshot_level": (
                "0 open, 1 snapshot due, 2 calls are refused.",
                LEVELS.index(said.level or "open"),
            ),
            "log_bytes_since_snapshot": (
                "Bytes of log to replay after the snapshot.",
                said.since_bytes,
            ),
            "log_seconds_since_snapshot": (
                "Estimated seconds of replay after the snapshot.",
                said.since_us / 1_000_000,
            ),
            "snapshot_failures": (
                "Snapshot attempts that failed in a row.",
                said.failures,
            ),
            "snapshot_alarms": ("Alarms about snapshots.", len(said.alarms)),
            "replay_seconds": (
                "Estimated seconds to replay the log.",
                replay_seconds(said),
            ),
        }
        labels = ["application"]
        for name, (text, value) in gauges.items():
            gauge = GaugeMetricFamily(f"braidlog_app_{name}", text, labels=labels)
            gauge.add_metric([said.application], float(value))
            yield gauge
        counters = {
            "calls": ("Calls answered.", said.calls),
            "records_applied": ("Records executed.", said.executed),
            "outcome_mismatches": (
                "Outcomes that differ from the log.",
                said.mismatches,
            ),
            "busy_seconds": ("Time spent executing.", said.busy_us / 1_000_000),
        }
        for name, (text, total) in counters.items():
            family = CounterMetricFamily(f"braidlog_app_{name}", text, labels=labels)
            family.add_metric([said.application], total)
            yield family
