"""How many bytes does the number index take?

Counted in the index files of the sealed segments, heads included (docs/formats.md).
"""

from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path

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
    files = list(Path(store.node.path).glob("wal/*.idx"))
    sealed = {int(file.stem) for file in files}
    inspect = import_module("braidlog.store.inspect")
    rows = [row for row in inspect.index(store.node.path) if row.segment in sealed]
    if not rows:
        raise AssertionError("no sealed segment, so no index file to measure")
    size = sum(file.stat().st_size for file in files)
    return {
        "bytes_a_sample": size / sum(row.samples for row in rows),
        "percent": 100 * size / sum(row.bytes for row in rows),
    }


def comparisons(plan: Plan) -> list[Comparison]:
    """Return bytes a sample and the share of the data."""
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
