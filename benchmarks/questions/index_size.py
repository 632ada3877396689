"""How many bytes does the number index take?"""

from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from benchmarks import data, embedded, stores
from benchmarks.contest import Comparison, Contestant, Kind, Measure, Unavailable
from benchmarks.embedded import Embedded
from benchmarks.plan import Plan
from benchmarks.rows import Against, Better, Target
from benchmarks.timing import Figures

NAME = "index-size"
_KEYS = ("index_bytes", "samples", "wal_bytes")
_GROUP = 1000


def contestants(plan: Plan) -> list[Contestant]:
    """Return ours written two ways."""
    return [
        Contestant("submitted", Kind.OURS, partial(_start, plan, "submitted")),
        Contestant("bulk", Kind.OURS, partial(_start, plan, "bulk")),
    ]


def _start(plan: Plan, how: str, stack: ExitStack) -> Measure:
    store = stores.opened(Embedded, plan.directory / NAME / how, stack)
    size = plan.record_bytes
    if how == "bulk":
        data.fill(store.append_group, plan.seed, plan.records, size, _GROUP)
    else:
        value = data.value(plan.seed, size)
        embedded.submit_many_waits(store.log, value, plan.records, plan.window)
    return lambda: _figures(store.node.stats())


def _figures(stats: Any) -> Figures:
    """Read what the index takes from statistics, a mapping or an object."""
    index, samples, wal = (_field(stats, key) for key in _KEYS)
    return {"bytes_a_sample": index / samples, "percent": 100 * index / wal}


def _field(stats: Any, key: str) -> float:
    found = stats.get(key) if isinstance(stats, Mapping) else getattr(stats, key, None)
    if found is None:
        raise Unavailable(f"node.stats() has no {key}")
    return float(found)


def comparisons(plan: Plan) -> list[Comparison]:
    """Return bytes a sample, and the share of the data."""
    row = partial(Comparison, better=Better.LOWER)
    return [
        each
        for how in ("submitted", "bulk")
        for each in (
            row(
                f"index, {plan.records:,} records {how}",
                "bytes_a_sample",
                "B",
                ours=how,
                target=Target(8, Against.VALUE),
            ),
            row(
                f"index, {plan.records:,} records {how}",
                "percent",
                "%",
                ours=how,
                target=Target(0.2, Against.VALUE),
                note="of the bytes in the log",
            ),
        )
    ]
