"""What `braidlog top` looks at: metadata and statuses, and what changed in between.

The metadata says what was decided and how far each stream is committed. How far each
replica is on its own disk only its node knows, and says over HTTP if it was told to.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections import deque
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http.client import HTTPException
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from braidlog.cli.cluster import health
from braidlog.errors import InvalidArgumentError
from braidlog.store.threads import no_thread

if TYPE_CHECKING:
    from braidlog.wire.messages import Metadata

BRAID_SAMPLES: Final = 32
"""How many of the last samples a braid shows."""

_TIMEOUT_S: Final = 1.0
_STATUS_BYTES_MAX: Final = 16 << 20
_THREADS_MAX: Final = 16
_OF_A_NODE: Final = {
    "cluster", "connections", "counters", "incarnation", "ready", "replicas", "storage",
    "why",
}  # fmt: skip
_OF_A_HOST: Final = {
    "host", "role", "ready", "why", "applied", "lag", "calls", "waiting", "snapshot",
    "bytes_since_snapshot", "replay_seconds", "level", "alarms",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the cluster."""

    seconds: float
    """On a clock that only goes forward."""
    metadata: Metadata | None
    """None where hosts of applications alone are looked at."""
    statuses: dict[int, dict[str, Any]] = field(default_factory=dict)
    """By node: what those say that can be asked."""
    hosts: tuple[dict[str, Any], ...] = ()
    """Of applications: what those say that can be asked."""


class Statuses:
    """Asks nodes and hosts for their status over HTTP, all at a time."""

    def __init__(self, urls: Iterable[str]) -> None:
        """Ask nothing yet."""
        self._urls = tuple(urls)

    def ask(self) -> tuple[dict[int, dict[str, Any]], tuple[dict[str, Any], ...]]:
        """Return what each node and each host of an application says.

        Those that say nothing are left out.
        """
        if not self._urls:
            return {}, ()
        with ThreadPoolExecutor(min(_THREADS_MAX, len(self._urls))) as pool:
            try:
                asked = pool.map(_status, self._urls)
            except RuntimeError as error:
                raise no_thread("to ask for statuses", error) from error
            found = [status for status in asked if status]
        nodes = {status["node"]: status for status in found if "node" in status}
        return nodes, tuple(status for status in found if "application" in status)


def status_urls(text: str | None) -> tuple[str, ...]:
    """Return the addresses of statuses in a list with commas.

    Raises:
        InvalidArgumentError: one is not host:port.
    """
    urls = []
    for part in filter(None, (part.strip() for part in (text or "").split(","))):
        host, colon, port = part.removeprefix("http://").rstrip("/").rpartition(":")
        if not colon or not host or not port.isdecimal():
            raise InvalidArgumentError(f"--status: {part!r} is not host:port")
        urls.append(f"http://{host}:{port}/status")
    return tuple(urls)


def _status(url: str) -> dict[str, Any] | None:
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            status = json.loads(answer.read(_STATUS_BYTES_MAX))
    except (urllib.error.URLError, HTTPException, OSError, ValueError):
        return None  # The metadata says whether the node is down.
    return status if isinstance(status, dict) and _is_known(status) else None


def _is_known(status: dict[str, Any]) -> bool:
    """Tell a status of ours from what something else answers there."""
    if type(status.get("node")) is int:
        return status.keys() >= _OF_A_NODE
    return "application" in status and status.keys() >= _OF_A_HOST


class Sampler:
    """Turns samples into rows with rates, lags and braids."""

    def __init__(self) -> None:
        """Begin without a sample before the first."""
        self._before: Sample | None = None
        self._braids: dict[int, deque[int]] = {}

    def rows(self, sample: Sample) -> dict[str, Any]:
        """Return the cluster as it is, and how it moved since the sample before."""
        sample = _of_one_cluster(sample)
        before, self._before = self._before, sample
        elapsed = sample.seconds - before.seconds if before else 0.0
        described = self._cluster(sample, before, elapsed)
        described["hosts"] = [
            _hosted(host, before, elapsed)
            for host in sorted(sample.hosts, key=itemgetter("application", "host"))
        ]
        return described

    def _cluster(
        self, sample: Sample, before: Sample | None, elapsed: float
    ) -> dict[str, Any]:
        if sample.metadata is None:
            return {}
        described = health.described(sample.metadata)
        for name in ("index", "why", "since", "told_by"):
            described.pop(name)
        described["logs"] = [
            row | self._moved(row["log"], sample, before, elapsed)
            for row in described["logs"]
        ]
        old = _committed(before)
        described["streams"] = [
            row
            | {"lag": _lags(row, sample.statuses)}
            | {"braid": self._braid(row, old)}
            for row in described["streams"]
        ]
        present = {row["stream"] for row in described["streams"]}
        self._braids = {n: b for n, b in self._braids.items() if n in present}
        described["nodes"] = [
            row | _said(row["node"], sample, before, elapsed)
            for row in described["nodes"]
        ]
        return described

    @staticmethod
    def _moved(
        log: str, sample: Sample, before: Sample | None, elapsed: float
    ) -> dict[str, Any]:
        now, then = _log(sample, log), _log(before, log)
        if now is None or then is None or now.log != then.log or elapsed <= 0:
            return {"records_per_second": None, "cuts_per_second": None}
        return {
            "records_per_second": _rate(
                now.high_watermark - then.high_watermark, elapsed
            ),
            "cuts_per_second": _rate(now.version - then.version, elapsed),
        }

    def _braid(self, row: dict[str, Any], old: dict[int, int]) -> list[int]:
        braid = self._braids.setdefault(row["stream"], deque(maxlen=BRAID_SAMPLES))
        if row["stream"] in old:
            braid.append(max(0, row["committed"] - old[row["stream"]]))
        return list(braid)


def _of_one_cluster(sample: Sample) -> Sample:
    """Leave out nodes of another cluster: they have the same numbers."""
    if sample.metadata is None:
        return sample
    name = sample.metadata.cluster
    said = {n: s for n, s in sample.statuses.items() if s.get("cluster", name) == name}
    return replace(sample, statuses=said)


def _committed(sample: Sample | None) -> dict[int, int]:
    metadata = sample.metadata if sample else None
    rows = health.stream_rows(metadata) if metadata else []
    return {row["stream"]: row["committed"] for row in rows}


def _log(sample: Sample | None, name: str) -> Any:
    metadata = sample.metadata if sample else None
    logs = metadata.logs if metadata else ()
    return next((log for log in logs if log.name == name), None)


def _rate(count: float, elapsed: float) -> float:
    return round(max(0.0, count) / elapsed, 1)


def _lags(row: dict[str, Any], statuses: dict[int, Any]) -> dict[str, int]:
    """Return how far each replica is behind the one that is furthest."""
    ends = {
        node: replica["end"]
        for node in (*row["replicas"], *row["learners"])
        for replica in statuses.get(node, {}).get("replicas", ())
        if replica["stream"] == row["stream"]
    }
    furthest = max([row["committed"], *ends.values()])
    return {str(node): furthest - end for node, end in ends.items()}


def _said(
    node: int, sample: Sample, before: Sample | None, elapsed: float
) -> dict[str, Any]:
    """Return what a node says of itself."""
    now = sample.statuses.get(node)
    if now is None:
        return {
            "connections": None,
            "appends_per_second": None,
            "wal_bytes": None,
            "why": None,
        }
    then = (before.statuses if before else {}).get(node)
    rate = None
    if then is not None and then["incarnation"] == now["incarnation"] and elapsed > 0:
        count = now["counters"]["appends"] - then["counters"]["appends"]
        rate = _rate(count, elapsed)
    return {
        "connections": now["connections"],
        "appends_per_second": rate,
        "wal_bytes": now["storage"]["segments"] * now["storage"]["segment_bytes"],
        "why": now["why"],
    }


def _hosted(
    host: dict[str, Any], before: Sample | None, elapsed: float
) -> dict[str, Any]:
    """Return a host of an application, and how many calls it answers."""
    then = [old for old in (before.hosts if before else ()) if _same(old, host)]
    # A host that started again begins to count again.
    rate = None
    if then and elapsed > 0 and host["calls"] >= then[0]["calls"]:
        rate = _rate(host["calls"] - then[0]["calls"], elapsed)
    return host | {"calls_per_second": rate}


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(one["host"] == other["host"])
