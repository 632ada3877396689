"""Measure ours beside the floor and the peers: ``python -m benchmarks``."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks import machine, plot, report, session
from benchmarks.plan import GIB, Plan, quick
from benchmarks.questions import QUESTIONS
from benchmarks.rows import Row


def main() -> int:
    """Run the questions asked for; return the exit status."""
    arguments = _arguments()
    console = report.console()
    with session.scratch(arguments.directory) as directory:
        plan = _plan(arguments, directory)
        facts = machine.describe(directory, plan.parameters())
        report.header(console, facts)
        rows, failed = session.measure(console, QUESTIONS, plan, arguments.only)
    session.write(console, arguments, "embedded", (facts, rows, failed))
    for path in plot.write(arguments.output, "embedded", facts, rows):
        console.print(f"wrote {path}", style="dim", highlight=False)
    missed = [row for row in rows if row.missed]
    _verdict(console, rows, missed, failed)
    return session.status(rows, failed, check=arguments.check)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = [question.NAME for question in QUESTIONS]
    session.add_options(parser, names)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="small: shapes, not figures")
    size.add_argument(
        "--full", action="store_true", help="open after 10 GiB (needs 20 GiB of disk)"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=session.RESULTS,
        help="file system to measure on",
    )
    return session.parse(parser)


def _plan(arguments: argparse.Namespace, directory: Path) -> Plan:
    if arguments.quick:
        return quick(directory, arguments.seed, arguments.rounds or 3)
    plan = Plan(directory, seed=arguments.seed, rounds=arguments.rounds or 5)
    return replace(plan, reopen_large=10 * GIB) if arguments.full else plan


def _verdict(
    console: Console, rows: Sequence[Row], missed: Sequence[Row], failed: Sequence[str]
) -> None:
    judged = [row for row in rows if row.met is not None or row.ahead is not None]
    console.print(f"{len(judged) - len(missed)} of {len(judged)} judged rows hold")
    session.name_misses(console, missed, failed)


if __name__ == "__main__":
    sys.exit(main())
