"""One run: where its data goes, which questions are asked, what is said at the end."""

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import contest, machine, report
from benchmarks.record import results, tables
from benchmarks.rows import Row
from braidlog.errors import InvalidArgumentError
from braidlog.paths import local_path

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
        "--record",
        action="store_true",
        help="replace the results of record, and the tables that are made of them",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 when a target is missed or not measured",
    )


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Return the arguments; refuse before the run what it could not do.

    That is a record of less than everything, and a path that is a URI.
    """
    arguments = parser.parse_args()
    if arguments.rounds is not None and arguments.rounds < 1:
        parser.error(f"--rounds is {arguments.rounds}, it must be at least 1")
    for name in ("directory", "output", "peers"):
        path = getattr(arguments, name, None)
        try:
            if path is not None:
                setattr(arguments, name, local_path(path, f"--{name}"))
        except InvalidArgumentError as error:
            parser.error(str(error))
    if arguments.record:
        if arguments.quick or arguments.only:
            parser.error("--record needs a whole run: leave out --quick and --only")
        if getattr(arguments, "name", results.NAMES[0]) not in results.NAMES:
            parser.error("--record has its own names: leave out --name")
        if machine.revision().endswith("-dirty"):
            parser.error("--record names a revision: commit first")
    return arguments


def write(
    console: Console,
    arguments: argparse.Namespace,
    name: str,
    measured: tuple[Mapping[str, str], Sequence[Row], Sequence[str]],
) -> None:
    """Write the results, and the record if that was asked for and nothing failed."""
    facts, rows, failed = measured
    arguments.output.mkdir(parents=True, exist_ok=True)
    written = [arguments.output / f"{name}.jsonl"]
    report.json_lines(written[0], facts, rows)
    if arguments.record and not failed:
        written += [results.save(name, facts, rows), *tables.write()]
    for path in written:
        console.print(f"wrote {path}", style="dim", highlight=False)
    if arguments.record and failed:
        text = "not recorded, because something could not be measured"
        console.print(text, style="bold red")


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
        begun = time.monotonic()
        with console.status(question.NAME) as status:
            made, samples = contest.run(question, plan, status.update)
        shutil.rmtree(plan.directory / question.NAME, ignore_errors=True)
        report.table(console, question.NAME, made)
        console.print(f"  {time.monotonic() - begun:.0f} s", style="dim")
        rows += made
        failed += [f"{question.NAME}/{name}" for name in sorted(samples.failed)]
    return rows, failed


def name_misses(console: Console, missed: Sequence[Row], failed: Sequence[str]) -> None:
    """Print the rows that miss their target, and what could not be measured."""
    for row in missed:
        console.print(f"MISSED {row.workload} ({row.metric})", style="bold red")
    for name in failed:
        console.print(f"FAILED {name}", style="bold red")
