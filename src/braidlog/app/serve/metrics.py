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

__all__ = ["HostCollector"]


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
            "up": ("Whether the host works.", status.healthy),
            "ready": ("Whether the host serves.", said.ready),
            "active": ("Whether it is the active host.", said.active),
            "epoch": ("Epoch of the active host.", said.epoch),
            "applied_position": ("Last position that is executed.", said.applied),
            "end_position": ("First position that is not in the log.", said.end),
            "lag_records": ("Records that are not applied yet.", lag),
            "kept_position": ("Position that the state is durable up to.", said.kept),
            "waiting_calls": ("Calls that have no answer yet.", said.waiting),
            "connections": ("Connections of callers.", said.connections),
            "stopped_partitions": ("Partitions that diverged.", len(said.stopped)),
            "snapshot_position": ("Newest snapshot; 0: none.", said.snapshot),
            "snapshot_age_seconds": ("Since the newest snapshot; 0: none.", since),
            "snapshot_level": ("Of the log.", LEVELS.index(said.level or "open")),
            "log_bytes_since_snapshot": ("Log to replay.", said.since_bytes),
            "log_seconds_since_snapshot": ("Its estimate.", said.since_us / 1_000_000),
            "snapshot_failures": ("Attempts that failed in a row.", said.failures),
            "snapshot_alarms": ("What is wrong with them.", len(said.alarms)),
            "replay_seconds": ("Estimated time of a replay.", replay_seconds(said)),
        }
        labels = ["application"]
        for name, (text, value) in gauges.items():
            gauge = GaugeMetricFamily(f"braidlog_app_{name}", text, labels=labels)
            gauge.add_metric([said.application], float(value))
            yield gauge
        counters = {
            "calls": ("Calls that were answered.", said.calls),
            "records_applied": ("Records that were applied.", said.executed),
            "outcome_mismatches": ("Outcomes that differ.", said.mismatches),
            "busy_seconds": ("Time spent executing.", said.busy_us / 1_000_000),
        }
        for name, (text, total) in counters.items():
            family = CounterMetricFamily(f"braidlog_app_{name}", text, labels=labels)
            family.add_metric([said.application], total)
            yield family
