"""Which sync method should the store use? ``python -m benchmarks.sync_methods``.

Decision rule, over medians of rounds in which the methods take turns:

1. A method that the file system refuses is out.
2. The method with the lowest median latency at 4 KiB is the candidate: one block is
   what a single caller waits for.
3. It is chosen if at no size it is more than 5 % slower than the best; otherwise the
   method with the smallest worst case over the sizes is.

The store opens with the chosen method and falls back to fdatasync, which every file
system has, where the method is refused. The decision:
``docs/design/0002-sync-method.md``.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks import floor, machine, report

_SLACK = 1.05
_DECISIVE_BYTES = 4 << 10

Medians = dict[tuple[int, str], float]


def main() -> int:
    """Measure, print the table and the decision."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sync_methods", description=__doc__
    )
    results = Path(__file__).parent / "results"
    parser.add_argument("--directory", type=Path, default=results)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--count", type=int, default=500, help="writes in a round")
    arguments = parser.parse_args()
    console = report.console()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="data-", dir=arguments.directory))
    try:
        parameters = f"rounds={arguments.rounds} count={arguments.count}"
        report.header(console, machine.describe(folder, parameters))
        rounds = _rounds(folder, arguments.rounds, arguments.count)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _print(console, rounds)
    medians = p50s(rounds)
    console.print(f"refused: {', '.join(sorted(refused(rounds))) or 'none'}")
    console.print(f"decision: {decide(medians)}, with fdatasync where it is refused")
    return 0


def _rounds(folder: Path, rounds: int, count: int) -> list[list[floor.Sync]]:
    """Measure all sizes by all methods; the first round does not count."""
    turns = len(floor.METHODS)
    measured = []
    for turn in range(rounds + 1):
        shift = turn % turns
        methods = floor.METHODS[shift:] + floor.METHODS[:shift]
        measured.append(floor.syncs(folder, floor.SIZES, count, methods))
    return measured[1:]


def refused(rounds: list[list[floor.Sync]]) -> set[str]:
    """Return the methods that the file system does not take."""
    return {each.method for one in rounds for each in one if each.refused}


def p50s(rounds: list[list[floor.Sync]]) -> Medians:
    """Return the median over the rounds of each size and method that is taken."""
    out = refused(rounds)
    found: dict[tuple[int, str], list[float]] = {}
    for each in (each for one in rounds for each in one if each.method not in out):
        found.setdefault((each.bytes, each.method), []).append(each.p50_us)
    return {key: median(values) for key, values in found.items()}


def decide(medians: Mapping[tuple[int, str], float]) -> str:
    """Apply the rule to median latencies by size and method."""
    sizes = {size for size, _ in medians}
    methods = {method for _, method in medians}
    best = {size: min(medians[size, method] for method in methods) for size in sizes}

    def worst(method: str) -> float:
        return max(medians[size, method] / best[size] for size in sizes)

    candidate = min(methods, key=lambda method: medians[_DECISIVE_BYTES, method])
    return candidate if worst(candidate) <= _SLACK else min(methods, key=worst)


def _print(console: Console, rounds: list[list[floor.Sync]]) -> None:
    table = Table(title="one synchronous write into a zero-filled file")
    for name in ("bytes", "method", "p50 us", "min..max", "p99 us", "a second"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for size in floor.SIZES:
        for method in floor.METHODS:
            table.add_row(f"{size:,}", method, *_cells(rounds, size, method))
        table.add_section()
    console.print(table)


def _cells(rounds: list[list[floor.Sync]], size: int, method: str) -> list[str]:
    mine = [
        each
        for one in rounds
        for each in one
        if (each.bytes, each.method) == (size, method)
    ]
    if reason := next((each.refused for each in mine if each.refused), ""):
        return [reason, "", "", ""]
    p50 = [each.p50_us for each in mine]
    return [
        f"{median(p50):,.0f}",
        f"{min(p50):,.0f}..{max(p50):,.0f}",
        f"{median(each.p99_us for each in mine):,.0f}",
        f"{median(each.per_second for each in mine):,.0f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
