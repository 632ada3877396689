"""`python -m sim`: run seeds, and say which fail and how to run them again.

A seed fixes everything but the order of sets of strings, which Python draws anew for
each process; so the command runs itself again with that fixed too.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TextIO

from sim import faults
from sim.applications import storms as applications
from sim.applications.scenario import ApplicationScenario
from sim.cluster import storms as cluster
from sim.cluster.scenario import ClusterScenario
from sim.cluster.shards import ShardScenario
from sim.faults import Storm
from sim.register import RegisterScenario
from sim.scenario import Outcome, ScenarioFactory, repeat_command, run_seed
from sim.slow import plans
from sim.slow.scenario import SlowScenario
from sim.tables.balance import BalanceScenario
from sim.tables.native import NativeTableScenario
from sim.tables.scenario import TableScenario

__all__ = ["SCENARIOS", "main"]

SCENARIOS: Mapping[str, ScenarioFactory] = {
    "cluster": ClusterScenario,
    "shards": ShardScenario,
    "applications": ApplicationScenario,
    "tables": TableScenario,
    "native-tables": NativeTableScenario,
    "moving-tables": BalanceScenario,
    "slow-nodes": SlowScenario,
    "register": RegisterScenario,
}

_HASH_SEED = "0"
_STORMS: Mapping[str, Mapping[str, Storm]] = {
    "cluster": cluster.STORMS,
    "shards": cluster.SHARD_STORMS,
    "applications": applications.STORMS,
    "tables": cluster.STORMS,
    "native-tables": cluster.STORMS,
    "moving-tables": cluster.STORMS,
    "slow-nodes": plans.STORMS,
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m sim", description=__doc__)
    add = parser.add_argument
    add("--seed", type=int, default=1, help="the first seed (default: 1)")
    add("--count", type=int, default=1, help="how many seeds (default: 1)")
    add("--scenario", choices=sorted(SCENARIOS), default=next(iter(SCENARIOS)))
    add(
        "--storm",
        choices=[
            *dict.fromkeys(name for storms in _STORMS.values() for name in storms),
            "each",
        ],
        default="each",
        help="default: by seed",
    )
    add("--seconds", type=float, help="virtual seconds of the storm")
    add("--jobs", type=int, default=1, help="processes (default: 1)")
    add("--twice", action="store_true", help="run each seed twice, compare the traces")
    add("--trace", type=Path, help="write what happens to this file (one seed)")
    add("--keep-going", action="store_true", help="do not stop at the first failure")
    return parser


def storms_of(scenario: str) -> Mapping[str, Storm]:
    """Return the storms of a scenario."""
    return _STORMS.get(scenario, faults.STORMS)


def storm_name(scenario: str, storm: str, seed: int) -> str:
    """Return the storm of a seed: the one named, or one after the other."""
    names = list(storms_of(scenario))
    return names[seed % len(names)] if storm == "each" else storm


def storm_of(scenario: str, storm: str) -> Storm:
    """Return a storm as it is for a scenario."""
    return storms_of(scenario)[storm]


def _run(
    scenario: str,
    seed: int,
    storm: str,
    seconds: float | None,
    out: TextIO | None = None,
) -> Outcome:
    chosen = storm_of(scenario, storm)
    if seconds is not None:
        chosen = replace(chosen, seconds=seconds)
    return run_seed(scenario, SCENARIOS[scenario], seed, chosen, out=out)


def run_job(job: tuple[str, int, str, float | None, bool]) -> Outcome:
    """Run one seed, in this process or another; twice if asked for."""
    scenario, seed, storm, seconds, twice = job
    outcome = _run(scenario, seed, storm, seconds)
    if twice:
        again = _run(scenario, seed, storm, seconds)
        if again.digest != outcome.digest:
            text = f"two runs differ: {outcome.digest} and {again.digest}"
            return replace(outcome, error=text, tail=again.tail)
    return outcome


def _outcomes(options: argparse.Namespace) -> Iterator[Outcome]:
    jobs = [
        (
            options.scenario,
            seed,
            storm_name(options.scenario, options.storm, seed),
            options.seconds,
            options.twice,
        )
        for seed in range(options.seed, options.seed + options.count)
    ]
    _spare_collector()
    if options.jobs == 1:
        yield from map(run_job, jobs)
        return
    with ProcessPoolExecutor(options.jobs) as pool:
        yield from pool.map(run_job, jobs)


def _traced(options: argparse.Namespace) -> Outcome:
    storm = storm_name(options.scenario, options.storm, options.seed)
    with options.trace.open("w") as out:
        return _run(options.scenario, options.seed, storm, options.seconds, out)


def report(outcome: Outcome, seconds: float | None, out: TextIO) -> None:
    """Print how a seed ended; if it failed, also the last lines and the command."""
    faults = ", ".join(f"{count} {name}" for name, count in outcome.faults.items())
    state = "ok    " if outcome.passed else "FAILED"
    what = f"seed {outcome.seed} {outcome.scenario}/{outcome.storm}"
    time = f"{outcome.virtual_s:.1f} s"
    print(f"{state} {what} {outcome.digest} {time} {faults}".rstrip(), file=out)
    if not outcome.passed:
        for line in outcome.tail:
            print(f"    {line}", file=out)
        print(outcome.error, file=out)
        command = repeat_command(outcome.scenario, outcome.seed, outcome.storm)
        length = f" --seconds {seconds:g}" if seconds is not None else ""
        print(f"again: {command}{length}", file=out)


def _spare_collector() -> None:
    """Keep what is loaded for good out of each run's collections of garbage."""
    gc.collect()
    gc.freeze()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds; return 1 if one failed."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.count < 1 or options.jobs < 1:
        parser.error("--count and --jobs are at least 1")
    if options.trace is not None and options.count != 1:
        parser.error("--trace takes one seed")
    if options.storm not in [*storms_of(options.scenario), "each"]:
        parser.error(f"the scenario {options.scenario} has no storm {options.storm}")
    failed = done = 0
    with ExitStack() as stack:
        if options.trace is not None:
            outcomes = iter([_traced(options)])
        else:
            outcomes = _outcomes(options)
            stack.callback(outcomes.close)  # type: ignore[attr-defined]
        for outcome in outcomes:
            done += 1
            failed += not outcome.passed
            report(outcome, options.seconds, sys.stdout)
            if failed and not options.keep_going:
                break
    print(f"{done} seeds, {failed} failed")
    return 1 if failed else 0


def _fix_hashes() -> None:
    if os.environ.get("PYTHONHASHSEED") != _HASH_SEED:
        environment = {**os.environ, "PYTHONHASHSEED": _HASH_SEED}
        command = [sys.executable, "-m", "sim", *sys.argv[1:]]
        os.execve(sys.executable, command, environment)


if __name__ == "__main__":
    _fix_hashes()
    raise SystemExit(main())
