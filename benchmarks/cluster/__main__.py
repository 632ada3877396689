"""Measure three nodes beside the floor and peers: ``python -m benchmarks.cluster``."""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

from benchmarks import machine, plot, report, session
from benchmarks.cluster import stages
from benchmarks.cluster.fleet import Fleet, Run
from benchmarks.cluster.plan import Plan, quick
from benchmarks.cluster.questions import QUESTIONS


def main() -> int:
    """Run the questions asked for; return the exit status."""
    arguments = _arguments()
    console = report.console()
    with session.scratch(arguments.directory) as directory, ExitStack() as stack:
        plan = _plan(arguments, directory)
        facts = machine.describe(directory, plan.parameters())
        report.header(console, facts)
        run = Run(plan, Fleet(plan, stack, directory / "nodes"))
        rows, failed = session.measure(console, QUESTIONS, run, arguments.only)
        session.write(console, arguments, arguments.name, (facts, rows, failed))
        if not arguments.only or "stages" in arguments.only:
            stages.show(console, plan)
    for path in plot.write(arguments.output, arguments.name, facts, rows):
        console.print(f"wrote {path}", style="dim", highlight=False)
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
        "--peers", type=Path, help="folder that `make peers` filled (else PATH)"
    )
    parser.add_argument(
        "--priority",
        type=int,
        default=0,
        metavar="NICE",
        help="of all measured processes alike, on a machine that is shared (-20 to 19)",
    )
    parser.add_argument(
        "--name",
        choices=("cluster", "cluster_disk"),
        default="cluster",
        help="of the files of results, and of the record",
    )
    return session.parse(parser)


def _plan(arguments: argparse.Namespace, directory: Path) -> Plan:
    plan = Plan(
        directory,
        arguments.peers and arguments.peers.resolve(),
        rounds=arguments.rounds or (2 if arguments.quick else 5),
        seed=arguments.seed,
        priority=arguments.priority,
    )
    return quick(plan) if arguments.quick else plan


if __name__ == "__main__":
    sys.exit(main())
