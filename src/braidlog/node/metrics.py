"""Prometheus metrics, made of a status when they are asked for: no cost in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from braidlog.node.status import NodeStatus, ReplicaStatus

__all__ = ["StatusCollector"]

_REPLICA: Final = {
    "low": "First LLSN that can be read.",
    "committed": "First LLSN that is not committed.",
    "end": "First LLSN that is not durable.",
    "epoch": "Configuration of the stream that the replica is in.",
    "high_watermark": "Last GLSN of the log that the replica knows of.",
    "waiting": "Appends that wait for their commit.",
}


class StatusCollector(Collector):
    """Turns the status of a node into metrics."""

    def __init__(self, status: Callable[[], NodeStatus]) -> None:
        """Ask `status` at every scrape."""
        self._status = status

    def describe(self) -> list[Metric]:
        """Promise nothing before the first scrape: the node may be starting."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Return all metrics."""
        status = self._status()
        yield _gauge("up", "Whether the node works.", status.healthy)
        yield _gauge("ready", "Whether the node serves.", status.ready)
        yield _gauge("connections", "Clients and peers.", status.connections)
        for name, total in status.counters.items():
            family = CounterMetricFamily(f"braidlog_{name}", f"Total of {name}.")
            family.add_metric([], total)
            yield family
        for name, value in status.storage.items():
            yield _gauge(f"storage_{name}", f"{name} of the log.", value)
        if status.group is not None:
            yield from self._group(status)
        for name, text in _REPLICA.items():
            yield _of_replicas(name, text, status.replicas)

    @staticmethod
    def _group(status: NodeStatus) -> Iterator[Metric]:
        group = status.group
        if group is None:
            return
        leads = group.leader == status.node
        yield _gauge("repository_leader", "Whether the node leads.", leads)
        yield _gauge("repository_term", "Term of the group.", group.term)
        yield _gauge("repository_commit", "Last committed entry.", group.commit)
        yield _gauge("repository_applied", "Last applied entry.", group.applied)


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"braidlog_{name}", text, value=float(value))


def _of_replicas(
    name: str, text: str, replicas: tuple[ReplicaStatus, ...]
) -> GaugeMetricFamily:
    labels = ["log", "stream", "role"]
    family = GaugeMetricFamily(f"braidlog_replica_{name}", text, labels=labels)
    for each in replicas:
        value = float(getattr(each, name))
        family.add_metric([each.log, str(each.stream), each.role], value)
    return family
