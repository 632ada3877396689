"""One run: where its data goes, which questions are asked, what is said at the end."""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import contest, report
from benchmarks.rows import Row


@contextmanager
def scratch(parent: Path) -> Iterator[Path]:
    """Give a directory for the data of a run, which is removed after it."""
    parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="data-", dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


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
