"""Measure tables beside RocksDB, LMDB and SQLite: ``python -m benchmarks.tables``."""

import argparse
import sys
from pathlib import Path

from benchmarks import machine, plot, report, session
from benchmarks.tables.plan import Plan, quick
from benchmarks.tables.questions import QUESTIONS


def main() -> int:
    """Run the questions asked for; return the exit status."""
    arguments = _arguments()
    console = report.console()
    with session.scratch(arguments.directory) as directory:
        plan = _plan(arguments, directory)
        facts = machine.describe(directory, plan.parameters())
        report.header(console, facts)
        rows, failed = session.measure(console, QUESTIONS, plan, arguments.only)
    session.write(console, arguments, "tables", (facts, rows, failed))
    for path in plot.write(arguments.output, "tables", facts, rows):
        console.print(f"wrote {path}", style="dim", highlight=False)
    missed = [row for row in rows if row.missed]
    session.name_misses(console, missed, failed)
    return session.status(rows, failed, check=arguments.check)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.tables", description=__doc__
    )
    names = [question.NAME for question in QUESTIONS]
    session.add_options(parser, names)
    parser.add_argument("--quick", action="store_true", help="shapes, not figures")
    parser.add_argument(
        "--directory",
        type=Path,
        default=session.RESULTS,
        help="file system to measure on (needs 40 GB)",
    )
    return session.parse(parser)


def _plan(arguments: argparse.Namespace, directory: Path) -> Plan:
    plan = Plan(
        directory,
        rounds=arguments.rounds or (2 if arguments.quick else 3),
        seed=arguments.seed,
    )
    return quick(plan) if arguments.quick else plan


if __name__ == "__main__":
    sys.exit(main())
