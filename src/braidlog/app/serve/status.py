"""What a host says of itself: one value for the wire, HTTP, metrics and consoles."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from braidlog.app.host.runner import Runner
from braidlog.app.snapshots.files import Snapshot
from braidlog.app.snapshots.snapshotter import SnapshotStatus
from braidlog.wire.messages import AppStatus

_LAG_MAX = 10_000
"""A host that is further behind than this is not ready."""


def status_of(
    runner: Runner,
    *,
    connections: int = 0,
    kept: int = 0,
    draining: bool = False,
    snapshot: Snapshot | None = None,
    growth: SnapshotStatus | None = None,
    hashes: tuple[bytes, ...] = (),
    alarms: tuple[str, ...] = (),
) -> AppStatus:
    """Return how a host is."""
    known, applied = runner.known, runner.position
    stopped = runner.stopped_partitions()
    why = _why(runner, known.stop - 1 - applied, stopped, draining=draining)
    return AppStatus(
        application=runner.application.name,
        partitions=runner.partitions,
        host=runner.role.host,
        active=runner.role.active,
        epoch=runner.role.epoch,
        active_host=runner.role.active_host,
        ready=not why,
        why=why,
        applied=applied,
        end=known.stop,
        first=known.start,
        calls=runner.answered,
        waiting=runner.waiting,
        connections=connections,
        executed=runner.applied,
        busy_us=int(runner.busy_s * 1_000_000),
        stopped=stopped,
        mismatches=runner.mismatches,
        kept=max(0, kept),
        snapshot=snapshot.position if snapshot is not None else 0,
        snapshot_us=snapshot.time if snapshot is not None else 0,
        hashes=hashes,
        level=growth.level.name.lower() if growth is not None else "",
        since_bytes=growth.bytes_since if growth is not None else 0,
        since_us=int(growth.seconds_since * 1_000_000) if growth is not None else 0,
        failures=growth.failures if growth is not None else 0,
        alarms=(*alarms, *(growth.alarms if growth is not None else ())),
    )


def _why(runner: Runner, lag: int, stopped: tuple[int, ...], *, draining: bool) -> str:
    if runner.failure is not None:
        return f"the host stopped: {runner.failure}"
    if draining:
        return "the host stops"
    if stopped:
        return f"partitions diverged: {', '.join(map(str, stopped))}"
    if lag > _LAG_MAX:
        return f"{lag} records of the log are not applied yet"
    return ""


def replay_seconds(status: AppStatus) -> float:
    """Return how long a replay of what follows the newest snapshot would take.

    By the time that the records since the start took here; 0 before there are any.
    """
    if not status.executed:
        return 0.0
    behind = status.applied - max(status.snapshot, status.first - 1)
    return max(0, behind) * status.busy_us / status.executed / 1_000_000


def row(status: AppStatus) -> dict[str, Any]:
    """Return a status as JSON objects."""
    return {
        "application": status.application,
        "host": status.host.hex(),
        "role": "active" if status.active else "standby",
        "ready": status.ready,
        "why": status.why,
        "epoch": status.epoch,
        "active_host": status.active_host.hex(),
        "partitions": status.partitions,
        "applied": status.applied,
        "end": status.end,
        "lag": max(0, status.end - 1 - status.applied),
        "first": status.first,
        "kept": status.kept,
        "calls": status.calls,
        "waiting": status.waiting,
        "connections": status.connections,
        "stopped": list(status.stopped),
        "mismatches": status.mismatches,
        "snapshot": status.snapshot or None,
        "snapshot_us": status.snapshot_us or None,
        "replay_seconds": round(replay_seconds(status), 3),
        "level": status.level or None,
        "bytes_since_snapshot": status.since_bytes,
        "seconds_since_snapshot": round(status.since_us / 1_000_000, 3),
        "snapshot_failures": status.failures,
        "alarms": list(status.alarms),
        "hashes": [each.hex() for each in status.hashes],
    }


@dataclass(frozen=True, slots=True)
class HostStatus:
    """The status for HTTP."""

    said: AppStatus
    healthy: bool

    @property
    def ready(self) -> bool:
        """Whether the host serves."""
        return self.said.ready

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON objects."""
        return {"healthy": self.healthy, **row(self.said)}
