"""Measure Spark over logs beside Parquet and peers: ``python -m benchmarks.spark``."""

import argparse
import sys
from pathlib import Path

from benchmarks import machine, report, session
from benchmarks.spark import engine
from benchmarks.spark.plan import Plan, quick
from benchmarks.spark.questions import QUESTIONS


def main() -> int:
    """Run the questions asked for; return the exit status."""
    arguments = _arguments()
    console = report.console()
    with session.scratch(arguments.directory) as directory:
        plan = _plan(arguments, directory)
        facts = machine.describe(directory, plan.parameters())
        facts["versions"] = engine.versions()
        report.header(console, facts)
        try:
            rows, failed = session.measure(console, QUESTIONS, plan, arguments.only)
        finally:
            engine.stop()
    session.write(console, arguments, "spark", (facts, rows, failed))
    missed = [row for row in rows if row.missed]
    session.name_misses(console, missed, failed)
    return session.status(rows, failed, check=arguments.check)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.spark", description=__doc__
    )
    names = [question.NAME for question in QUESTIONS]
    session.add_options(parser, names)
    parser.add_argument("--quick", action="store_true", help="shapes, not figures")
    parser.add_argument(
        "--directory",
        type=Path,
        default=session.RESULTS,
        help="file system to measure on; needs 10 GB",
    )
    return session.parse(parser)


def _plan(arguments: argparse.Namespace, directory: Path) -> Plan:
    plan = Plan(
        directory,
        rounds=arguments.rounds or (1 if arguments.quick else 3),
        seed=arguments.seed,
    )
    return quick(plan) if arguments.quick else plan


if __name__ == "__main__":
    sys.exit(main())
