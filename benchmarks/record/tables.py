"""The tables of documents that are made of the record.

In a document a table stands between two comments, the first of which names the record:

    <!-- record: embedded -->
    ...
    <!-- record: end -->

A name with ``, short`` gets a few rows only. Where there is no record yet, what stands
there stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.record.results import FOLDER, Record, load
from benchmarks.report import number
from benchmarks.rows import Better, Row

__all__ = ["DOCUMENTS", "SHORT", "made", "names_in", "renewed", "write"]

_ROOT: Final = Path(__file__).parents[2]
DOCUMENTS: Final = (_ROOT / "README.md", _ROOT / "docs" / "status.md")

SHORT: Final = (
    ("one caller, 128 B, durable per append", "p50_us"),
    ("64 tasks, alike, 128 B", "per_second"),
    ("1024 B records in 1 MiB durable batches, Arrow", "mb_per_second"),
    ("scan to Arrow, 1024 B records", "mb_per_second"),
    ("lookup by position, 1,000,000 records submitted one by one", "mean_us"),
)
"""Workload and metric of the rows of a short table; the first of several counts."""

_TABLE: Final = re.compile(
    r"(?<=^<!-- record: )(?!end\b)(\w+)(, short)?( -->\n)"
    r"(.*?)(?=^<!-- record: end -->$)",
    re.MULTILINE | re.DOTALL,
)
_METRICS: Final = {
    "p50": "median",
    "p99": "99 %",
    "mean": "mean",
    "per_cpu_second": "per second of processor time",
    "worker": "memory of a worker",
    "nodes": "all nodes",
    "busiest": "the busiest node",
    "client": "client",
}
_FACTS: Final = (
    *("date", "revision", "cpu", "memory", "load", "kernel", "file system", "python"),
    *("packages", "parameters"),
)


def names_in(text: str) -> list[str]:
    """Return the records that a document has tables of."""
    return [found[1] for found in _TABLE.finditer(text)]


def renewed(text: str, folder: Path = FOLDER) -> str:
    """Return a document with its tables as the record has them."""

    def table(found: re.Match[str]) -> str:
        record = load(found[1], folder)
        if record is None:
            return found[0]
        return f"{found[1]}{found[2] or ''}{found[3]}{made(record, short=found[2])}"

    return _TABLE.sub(table, text)


def write(documents: Iterable[Path] = DOCUMENTS, folder: Path = FOLDER) -> list[Path]:
    """Bring documents up to date; return those that changed."""
    changed = []
    for path in documents:
        text = path.read_text()
        new = renewed(text, folder)
        if new != text:
            path.write_text(new)
            changed.append(path)
    return changed


def made(record: Record, *, short: object = False) -> str:
    """Return the table of a record; a long one with what the figures depend on.

    Raises:
        LookupError: a short table names a row that the record lacks.
    """
    rows = [_row(record.rows, *each) for each in SHORT] if short else record.rows
    lines = [
        "| workload | ours | x floor | best peer | x best peer | target |",
        "|---|---|---|---|---|---|",
        *(f"| {' | '.join(_cells(row))} |" for row in rows),
    ]
    if not short:
        facts = [f"{name} {record.facts[name]}" for name in _FACTS]
        lines += ["", "; ".join(facts) + "."]
    return "\n".join(lines) + "\n"


def _row(rows: Sequence[Row], workload: str, metric: str) -> Row:
    for row in rows:
        if (row.workload, row.metric) == (workload, metric):
            return row
    msg = f"the record has no row {workload!r} with {metric}"
    raise LookupError(msg)


def _cells(row: Row) -> list[str]:
    floor, peer, by = "", "", ""
    if row.ratio_to_floor is not None:
        floor = f"{number(row.ratio_to_floor)} ({row.floor_name})"
    if row.best_peer is not None and row.ratio_to_peer:
        peer = f"{row.best_peer_name}, {_figure(row, row.best_peer)}"
        # More than 1 is better, whichever way the metric improves.
        lower = row.better is Better.LOWER
        by = number(1 / row.ratio_to_peer if lower else row.ratio_to_peer)
    return [_workload(row), _figure(row, row.ours), floor, peer, by, _verdict(row)]


def _workload(row: Row) -> str:
    metric = row.metric.removesuffix(f"_{row.unit}")
    said = _METRICS.get(metric, _METRICS.get(metric.split("_")[0], ""))
    return f"{row.workload} ({said})" if said else row.workload


def _figure(row: Row, value: float | None) -> str:
    if value is None:
        return "-"
    unit = "µs" if row.unit == "us" else row.unit
    return f"{number(value)}{'' if unit.startswith('/') else ' '}{unit}"


def _verdict(row: Row) -> str:
    words = [row.target] if row.target else []
    if row.met is not None:
        words.append("met" if row.met else "missed")
    elif row.target:
        words.append("not measured")
    if row.ahead is False:
        words.append("behind the peer")
    if "UNSTEADY" in row.note:
        words.append("unsteady")
    return ", ".join(words)
