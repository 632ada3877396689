"""Is the memory of a worker the same if one stream holds nearly all of a log?

A cluster of one node on this machine serves both logs: what is measured are those who
read, not the node.
"""

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count as counting
from pathlib import Path

import braidlog
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better, Target
from benchmarks.spark import engine, logs
from benchmarks.spark.plan import WORKERS, Plan
from benchmarks.spark.usage import peaks, timed
from benchmarks.timing import Figures
from braidlog import Producer
from braidlog.pipelines import Origin, compact
from braidlog.testing.cluster import LocalCluster

NAME = "memory"

_TARGET = Target(1.25)
_WAYS = ("scan in Spark", f"compact, {WORKERS} processes")


def contestants(plan: Plan) -> list[Contestant]:
    """Return both logs, each read in both ways."""
    shared = _Shared()
    return [
        Contestant(f"{log} {way}", kind, partial(_start, plan, shared, log, way))
        for way in _WAYS
        for log, kind in (("even", Kind.FLOOR), ("skewed", Kind.OURS))
    ]


class _Shared:
    """The cluster, which all contestants read; started by the first."""

    def __init__(self) -> None:
        self._cluster: LocalCluster | None = None

    def cluster(self, plan: Plan, stack: ExitStack) -> LocalCluster:
        if self._cluster is None:
            home = plan.directory / NAME / "cluster"
            cluster = stack.enter_context(LocalCluster(1, directory=home))
            _fill(plan, cluster.seeds)
            self._cluster = cluster
        return self._cluster


def _fill(plan: Plan, seeds: str) -> None:
    tenth = plan.skewed_records // 10
    small = tenth // (plan.streams - 1)
    counts = {
        "even": [plan.skewed_records // plan.streams] * plan.streams,
        "skewed": [9 * tenth, *[small] * (plan.streams - 1)],
    }
    with braidlog.connect(seeds) as client:
        for name, parts in counts.items():
            client.create_log(name, streams=plan.streams)
            ingest = client.ingest(name)
            appends = {
                stream: (
                    logs.batches(
                        plan.seed + stream,
                        count,
                        plan.record_bytes,
                        logs.keys_of(plan, plan.skewed_records),
                    ),
                    Producer(1),
                    1,
                )
                for stream, count in zip(ingest.streams, parts, strict=True)
            }
            for failure in ingest.append_all(appends).values():
                if failure is not None:
                    raise failure


def _start(
    plan: Plan, shared: _Shared, log: str, way: str, stack: ExitStack
) -> Measure:
    cluster = shared.cluster(plan, stack)
    read = {_WAYS[0]: _scan, _WAYS[1]: _compact}[way]
    work = read(plan, cluster.seeds, log)
    nodes = [cluster.pid(node) for node in cluster.nodes]

    def once() -> int:
        work()
        return plan.skewed_records

    def measure() -> Figures:
        with peaks(spark=way == _WAYS[0], ignored=nodes) as seen:
            figures = timed(once)
        return {**figures, **seen.figures()}

    return measure


def _scan(plan: Plan, seeds: str, log: str) -> Callable[[], None]:
    reader = engine.session(plan).read.format("braidlog")
    rows = reader.options(cluster=seeds, log=log).load()
    return lambda: rows.write.format("noop").mode("overwrite").save()


def _compact(plan: Plan, seeds: str, log: str) -> Callable[[], None]:
    turn = counting()

    def work() -> None:
        output: Path = plan.directory / NAME / f"{log}-{next(turn)}"
        compact(Origin(log, cluster=seeds), output, workers=WORKERS)
        shutil.rmtree(output)

    return work


def comparisons(plan: Plan) -> Sequence[Comparison]:
    """Return the peak of the largest worker, and the time."""
    made = []
    for way in _WAYS:
        row = partial(
            Comparison,
            f"{way}, 90 % of {plan.skewed_records:,} records in one stream",
            better=Better.LOWER,
            ours=f"skewed {way}",
            floor=f"even {way}",
            note=f"floor: {plan.streams} streams of the same length; a node here too",
        )
        made += [row("worker_mib", "MiB", target=_TARGET), row("seconds", "s")]
    return made
