"""Kill a primary and measure for how long each stream stands still.

    PYTHONPATH=tests python -m tests.cluster.failover [--repeat 5] [--nodes 3]
        [--streams 4]

Each stream gets one append after the other, and a record of when each was acknowledged.
A record is acknowledged by all replicas of its stream: a stream with a replica on the
killed node waits until it is dropped, a stream without one must not notice. With three
nodes every stream has one; `--nodes 5 --streams 10` shows both. Of streams without one
the appends of the seconds before the kill are put beside those of the same time behind
it, and for the noise the two halves of the time before. JSON on stdout; `--plot FILE`
draws the last repetition.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import braidlog
from braidlog.client.log import AsyncClusterLog
from braidlog.testing.cluster import LocalCluster
from braidlog.wire.messages import StreamInfo

LOG: Final = "failover"
STREAMS: Final = 4
BEFORE_S: Final = 2.0
AFTER_S: Final = 4.0
PAUSE_S: Final = 0.002
_KEYS_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class Timeline:
    """Acknowledgements of one stream: when, in seconds after the kill, and how long
    each took."""

    stream: int
    role: str
    """What the killed node was to it: primary, backup, nothing."""
    at: list[float]
    took_ms: list[float]

    @property
    def gap_ms(self) -> float:
        """Return the longest time without an acknowledgement around the kill."""
        pairs = itertools.pairwise(self.at)
        return max((b - a for a, b in pairs if b > 0), default=AFTER_S) * 1e3

    def took(self, begin: float, end: float) -> list[float]:
        """Return how long the appends took that ended then."""
        pairs = zip(self.at, self.took_ms, strict=True)
        return [took for at, took in pairs if begin <= at < end]

    @property
    def usual_ms(self) -> float:
        """Return the longest such time before the kill."""
        before = [at for at in self.at if at < 0]
        pairs = itertools.pairwise(before)
        return max((b - a for a, b in pairs), default=0.0) * 1e3


@dataclass(slots=True)
class Feeder:
    """Appends to one stream and notes the times."""

    stream: int
    key: bytes
    times: list[tuple[float, float]]

    async def run(self, log: AsyncClusterLog, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            begun = time.monotonic()
            await log.append(b"x" * 128, key=self.key)
            self.times.append((begun, time.monotonic()))
            await asyncio.sleep(PAUSE_S)


def feeders(log: AsyncClusterLog, streams: tuple[StreamInfo, ...]) -> list[Feeder]:
    """Return one for each stream, with a key that goes there."""
    found: dict[int, Feeder] = {}
    routes = log._cluster.routes
    for number in range(_KEYS_MAX):
        key = b"key-%d" % number
        stream = routes.stream_of(bytes.fromhex(log.id), key)
        found.setdefault(stream, Feeder(stream, key, []))
        if len(found) == len(streams):
            break
    return list(found.values())


async def measure(
    cluster: LocalCluster, count: int, *, leader_too: bool
) -> list[Timeline]:
    """Kill the primary of a stream; one that leads the repository only if wanted."""
    async with braidlog.connect_async(cluster.seeds) as client:
        log = await client.create_log(LOG, streams=count, replication=3)
        streams = await client.streams(LOG)
        await log.append(b"first")
        leader = client._cluster.routes.metadata.leader
        killed = _victim(streams, leader, leader_too=leader_too)
        stopping = asyncio.Event()
        fed = feeders(log, streams)
        async with asyncio.TaskGroup() as group:
            for each in fed:
                group.create_task(each.run(log, stopping))
            await asyncio.sleep(BEFORE_S)
            at = time.monotonic()
            cluster.kill(killed)
            await asyncio.sleep(AFTER_S)
            stopping.set()
        roles = {info.stream: _role(info, killed) for info in streams}
        return [_timeline(each, roles[each.stream], at) for each in fed]


def _victim(streams: tuple[StreamInfo, ...], leader: int, *, leader_too: bool) -> int:
    primaries = [info.replicas[0] for info in streams]
    fitting = [node for node in primaries if (node == leader) == leader_too]
    return (fitting or primaries)[0]


def _role(info: StreamInfo, node: int) -> str:
    if node not in info.replicas:
        return "nothing"
    return "primary" if info.replicas[0] == node else "backup"


def _timeline(feeder: Feeder, role: str, killed: float) -> Timeline:
    at = [end - killed for _, end in feeder.times]
    took = [(end - begin) * 1e3 for begin, end in feeder.times]
    return Timeline(feeder.stream, role, at, took)


def plot(timelines: list[Timeline], file: Path, title: str) -> None:
    """Draw when appends were acknowledged, and how long they took."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        len(timelines), 1, sharex=True, sharey=True, figsize=(9, 7)
    )
    for axis, line in zip(axes, timelines, strict=True):
        axis.semilogy(line.at, line.took_ms, ".", markersize=2, color="#2a6f97")
        axis.axvline(0, color="#c1121f", linewidth=1)
        text = f"stream {line.stream} ({line.role}): {line.gap_ms:.0f} ms"
        axis.set_title(text, loc="left", fontsize=9)
        axis.set_ylabel("ms")
    axes[-1].set_xlabel("seconds after the kill")
    figure.suptitle(title)
    figure.tight_layout()
    figure.savefig(file, dpi=120)


def summary(runs: list[list[Timeline]]) -> dict[str, dict[str, float]]:
    """Return the gaps by role, over all repetitions."""
    found: dict[str, list[float]] = {}
    for line in (line for run in runs for line in run):
        found.setdefault(line.role, []).append(line.gap_ms)
        found.setdefault("before the kill", []).append(line.usual_ms)
    return {
        role: {
            "count": len(gaps),
            "median_ms": round(statistics.median(gaps), 1),
            "max_ms": round(max(gaps), 1),
        }
        for role, gaps in found.items()
    }


def untouched(runs: list[list[Timeline]]) -> dict[str, dict[str, float]]:
    """Return how long appends to streams without a replica on the killed node took."""
    lines = [line for run in runs for line in run if line.role == "nothing"]
    half = BEFORE_S / 2
    spans = {
        "first_half_before": (-BEFORE_S, -half),
        "second_half_before": (-half, 0.0),
        "half_behind": (0.0, half),
        "next_half": (half, BEFORE_S),
    }
    found = {}
    for name, span in spans.items():
        took = sorted(itertools.chain.from_iterable(each.took(*span) for each in lines))
        if took:
            found[name] = {
                "count": len(took),
                "p50_ms": round(statistics.median(took), 2),
                "p99_ms": round(took[len(took) * 99 // 100], 2),
                "max_ms": round(took[-1], 2),
            }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--leader", action="store_true", help="kill the leader")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--timelines", action="store_true", help="put them out too")
    options = parser.parse_args()
    runs = []
    for _ in range(options.repeat):
        with (
            tempfile.TemporaryDirectory(prefix="braid-", dir=options.data) as data,
            LocalCluster(options.nodes, directory=Path(data), voters=3) as cluster,
        ):
            leader = options.leader
            run = asyncio.run(measure(cluster, options.streams, leader_too=leader))
            runs.append(run)
    what = "primary and leader" if options.leader else "primary"
    if options.plot is not None:
        plot(runs[-1], options.plot, f"{what} killed, {options.nodes} nodes")
    result = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "nodes": options.nodes,
        "killed": what,
        "repetitions": options.repeat,
        "gaps": summary(runs),
        "untouched": untouched(runs),
    }
    if options.timelines:
        result["timelines"] = [[asdict(line) for line in run] for run in runs]
    sys.stdout.write(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
