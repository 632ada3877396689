"""How many bytes does the number index take?

The statistics count the index files of sealed segments, but the samples of all. Samples
come by bytes, so the samples of sealed segments are taken to be as large a share as
their bytes. A log whose segments are all still open has nothing to measure.
"""

from contextlib import ExitStack
from functools import partial

from benchmarks import data, embedded, stores
from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.embedded import Embedded
from benchmarks.plan import Plan
from benchmarks.rows import Against, Better, Target
from benchmarks.timing import Figures

NAME = "index-size"
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
        data.fill(store.append_group, plan.seed, plan.index_records, size, _GROUP)
    else:
        value = data.value(plan.seed, size)
        embedded.submit_many_waits(store.log, value, plan.index_records, plan.window)
    return lambda: _figures(store)


def _figures(store: Embedded) -> Figures:
    """Compare the index files with the bytes of the segments they belong to."""
    stats = store.node.stats()
    *sealed, _ = [segment.bytes for segment in store.log.segments()]
    if not sealed or not stats.index_bytes:
        raise AssertionError("no sealed segment, so no index file to measure")
    share = sum(sealed) / store.log.stats().bytes
    return {
        "bytes_a_sample": stats.index_bytes / (stats.samples * share),
        "percent": 100 * stats.index_bytes / sum(sealed),
    }


def comparisons(plan: Plan) -> list[Comparison]:
    """Return bytes a sample, and the share of the data."""
    row = partial(Comparison, better=Better.LOWER)
    return [
        each
        for how in ("submitted", "bulk")
        for each in (
            row(
                f"index, {plan.index_records:,} records {how}",
                "bytes_a_sample",
                "B",
                ours=how,
                target=Target(8, Against.VALUE),
            ),
            row(
                f"index, {plan.index_records:,} records {how}",
                "percent",
                "%",
                ours=how,
                target=Target(0.2, Against.VALUE),
                note="whole index files, of the log bytes in their segments",
            ),
        )
    ]
