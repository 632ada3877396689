"""Measure three nodes beside the floor and peers: ``python -m benchmarks.cluster``."""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from benchmarks import contest, machine, report
from benchmarks.cluster import stages
from benchmarks.cluster.plan import Plan, quick
from benchmarks.cluster.questions import QUESTIONS
from benchmarks.rows import Row

_RESULTS = Path(__file__).parents[1] / "results"


def main() -> int:
    """Run the questions asked for; return the exit status."""
    arguments = _arguments()
    console = report.console()
    with _directory(arguments.directory) as directory:
        plan = _plan(arguments, directory)
        facts = machine.describe(directory, plan.parameters())
        report.header(console, facts)
        rows, failed = _measure(console, plan, arguments.only)
        if not arguments.only or "stages" in arguments.only:
            stages.show(console, plan)
    arguments.output.mkdir(parents=True, exist_ok=True)
    lines = arguments.output / f"{arguments.name}.jsonl"
    report.json_lines(lines, facts, rows)
    console.print(f"wrote {lines}", style="dim", highlight=False)
    missed = [row for row in rows if row.missed]
    for row in missed:
        console.print(f"MISSED {row.workload} ({row.metric})", style="bold red")
    for name in failed:
        console.print(f"FAILED {name}", style="bold red")
    unmeasured = any(row.unmeasured for row in rows)
    return 1 if arguments.check and (missed or failed or unmeasured) else 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster", description=__doc__
    )
    names = [*(question.NAME for question in QUESTIONS), "stages"]
    parser.add_argument(
        "--only", action="append", choices=names, help="one question (repeatable)"
    )
    parser.add_argument("--quick", action="store_true", help="shapes, not figures")
    parser.add_argument("--rounds", type=int, help="rounds of every measurement")
    parser.add_argument("--seed", type=int, default=1, help="of all random data")
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
    parser.add_argument("--output", type=Path, default=_RESULTS, help="for results")
    parser.add_argument("--name", default="cluster", help="of the file of results")
    parser.add_argument(
        "--check",
        action="store_true",
        help="exit with 1 when a target is missed or not measured",
    )
    return parser.parse_args()


@contextmanager
def _directory(parent: Path) -> Iterator[Path]:
    parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix="bench-cluster-", dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _plan(arguments: argparse.Namespace, directory: Path) -> Plan:
    plan = Plan(
        directory,
        arguments.peers,
        rounds=arguments.rounds or (2 if arguments.quick else 5),
        seed=arguments.seed,
        priority=arguments.priority,
    )
    return quick(plan) if arguments.quick else plan


def _measure(
    console: Console, plan: Plan, only: Sequence[str] | None
) -> tuple[list[Row], list[str]]:
    rows: list[Row] = []
    failed: list[str] = []
    for question in QUESTIONS:
        if only and question.NAME not in only:
            continue
        with console.status(question.NAME) as status:
            made, samples = contest.run(question, plan, status.update)
        shutil.rmtree(plan.directory / question.NAME, ignore_errors=True)
        report.table(console, question.NAME, made)
        rows += made
        failed += [f"{question.NAME}/{name}" for name in sorted(samples.failed)]
    return rows, failed


if __name__ == "__main__":
    sys.exit(main())
