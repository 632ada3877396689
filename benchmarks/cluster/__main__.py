"""Measure three nodes beside the floor and peers: ``python -m benchmarks.cluster``."""

import argparse
import sys
from pathlib import Path

from benchmarks import machine, report, session
from benchmarks.cluster import stages
from benchmarks.cluster.plan import Plan, quick
from benchmarks.cluster.questions import QUESTIONS


def main() -> int:
    """Run the questions asked for; return the exit status."""
    arguments = _arguments()
    console = report.console()
    with session.scratch(arguments.directory) as directory:
        plan = _plan(arguments, directory)
        facts = machine.describe(directory, plan.parameters())
        report.header(console, facts)
        rows, failed = session.measure(console, QUESTIONS, plan, arguments.only)
        if not arguments.only or "stages" in arguments.only:
            stages.show(console, plan)
    session.write(console, arguments, arguments.name, (facts, rows, failed))
    missed = [row for row in rows if row.missed]
    session.name_misses(console, missed, failed)
    return session.status(rows, failed, check=arguments.check)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster", description=__doc__
    )
    names = [*(question.NAME for question in QUESTIONS), "stages"]
    session.add_options(parser, names)
    parser.add_argument("--quick", action="store_true", help="shapes, not figures")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path("/dev/shm"),  # noqa: S108, RUF100
        help="file system to measure on; memory by default, where syncs are free",
    )
    parser.add_argument(
        "--peers", type=Path, help="folder with etcd and nats-server (else PATH)"
    )
    parser.add_argument(
        "--priority",
        type=int,
        default=0,
        metavar="NICE",
        help="of all measured processes alike, on a machine that is shared (-20 to 19)",
    )
    parser.add_argument("--name", default="cluster", help="of the file of results")
    return session.parse(parser)


def _plan(arguments: argparse.Namespace, directory: Path) -> Plan:
    plan = Plan(
        directory,
        arguments.peers,
        rounds=arguments.rounds or (2 if arguments.quick else 5),
        seed=arguments.seed,
        priority=arguments.priority,
    )
    return quick(plan) if arguments.quick else plan


if __name__ == "__main__":
    sys.exit(main())
