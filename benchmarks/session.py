"""One run: where its data goes, which questions are asked, what is said at the end."""

import argparse
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import contest, report
from benchmarks.rows import Row

RESULTS = Path(__file__).parent / "results"


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Give a directory for the data of a run, which is removed after it."""
    parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="data-", dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def add_options(parser: argparse.ArgumentParser, questions: Sequence[str]) -> None:
    """Add the options that every command of benchmarks has."""
    parser.add_argument(
        "--only", action="append", choices=questions, help="one question (repeatable)"
    )
    parser.add_argument("--rounds", type=int, help="rounds of every measurement")
    parser.add_argument("--seed", type=int, default=1, help="of all random data")
    parser.add_argument("--output", type=Path, default=RESULTS, help="for results")
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 when a target is missed or not measured",
    )


def status(rows: Sequence[Row], failed: Sequence[str], *, check: bool) -> int:
    """Return the exit status: 1 if ``check`` and a target was not seen to be met."""
    short = any(row.missed or row.unmeasured for row in rows)
    return 1 if check and (short or failed) else 0


def measure(
    console: Console, questions: Sequence[Any], plan: Any, only: Sequence[str] | None
) -> tuple[list[Row], list[str]]:
    """Run the questions asked for; return their rows, and who failed."""
    rows: list[Row] = []
    failed: list[str] = []
    for question in questions:
        if only and question.NAME not in only:
            continue
        with console.status(question.NAME) as status:
            made, samples = contest.run(question, plan, status.update)
        shutil.rmtree(plan.directory / question.NAME, ignore_errors=True)
        report.table(console, question.NAME, made)
        rows += made
        failed += [f"{question.NAME}/{name}" for name in sorted(samples.failed)]
    return rows, failed


def name_misses(console: Console, missed: Sequence[Row], failed: Sequence[str]) -> None:
    """Print the rows that miss their target, and what could not be measured."""
    for row in missed:
        console.print(f"MISSED {row.workload} ({row.metric})", style="bold red")
    for name in failed:
        console.print(f"FAILED {name}", style="bold red")
