"""Clocks and percentiles of the measuring loops."""

import itertools
import time
from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import TypeAlias

Figures: TypeAlias = dict[str, float]
"""Metric name to value, from one round of one contestant."""


def percentile(values: Sequence[float], percent: int) -> float:
    """Return the nearest-rank percentile."""
    ranked = sorted(values)
    rank = max(1, -(-len(ranked) * percent // 100))
    return ranked[rank - 1]


def latencies(call: Callable[[int], object], count: int, warm: int) -> Figures:
    """Time `count` calls one by one, after `warm` that do not count."""
    for turn in range(warm):
        call(turn)
    marks = [time.perf_counter_ns()]
    for turn in range(count):
        call(turn)
        marks.append(time.perf_counter_ns())
    each = [(after - before) / 1e3 for before, after in itertools.pairwise(marks)]
    return summary(each, (marks[-1] - marks[0]) / 1e9)


def summary(each_us: Sequence[float], seconds: float) -> Figures:
    """Return mean, p50, p99 and rate of single calls that took `seconds` together."""
    return {
        "mean_us": fmean(each_us),
        "p50_us": median(each_us),
        "p99_us": percentile(each_us, 99),
        "per_second": len(each_us) / seconds,
    }


def rate(call: Callable[[], int], record_bytes: int) -> Figures:
    """Time one call that handles the number of records it returns."""
    begin = time.perf_counter()
    records = call()
    seconds = time.perf_counter() - begin
    return {
        "per_second": records / seconds,
        "mb_per_second": records * record_bytes / 1e6 / seconds,
    }
