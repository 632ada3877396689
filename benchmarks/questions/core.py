"""What does the core's append cost without Python, beside the log store of TiKV?

Both are called from Rust, by a program of its own (`benchmarks/native`): 64 threads
that append one record at a time, and one caller with batches of 1 MiB in a log that
grows. Raft-engine keeps a log for each Raft group; there each thread has a group.
"""

import json
import subprocess
from contextlib import ExitStack
from functools import cache, partial
from itertools import count
from pathlib import Path

from benchmarks.contest import Comparison, Contestant, Kind, Measure, Unavailable
from benchmarks.plan import MIB, Plan
from benchmarks.rows import Better, Target
from benchmarks.timing import Figures

NAME = "core"
_OURS, _PEER = "braidlog", "raft-engine"
_REPOSITORY = Path(__file__).parents[2]
_BUILD = (
    *("cargo", "build", "--release", "--quiet", "--locked"),
    *(
        "--manifest-path",
        "benchmarks/native/Cargo.toml",
        "--target-dir",
        "target/peers",
    ),
    *("--message-format", "json-render-diagnostics"),
)


def contestants(plan: Plan) -> list[Contestant]:
    """Return ours and the peer, each in both ways."""
    kinds = {_OURS: Kind.OURS, _PEER: Kind.PEER}
    return [
        Contestant(f"{store} {way}", kind, partial(_start, plan, store, task))
        for store, kind in kinds.items()
        for way, task in _tasks(plan).items()
    ]


def _tasks(plan: Plan) -> dict[str, str]:
    records = MIB // plan.bulk_record_bytes
    calls = f"{plan.callers}:{plan.record_bytes}:{plan.rounds_per_caller}"
    return {
        "threads": f"threads:{calls}",
        "batches": f"batches:{records}:{plan.bulk_record_bytes}:{plan.bulk_batches}",
    }


@cache
def _program() -> Path:
    try:
        done = subprocess.run(
            _BUILD, cwd=_REPOSITORY, stdout=subprocess.PIPE, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise Unavailable(f"benchmarks/native was not built: {error}") from error
    built = [json.loads(line).get("executable") for line in done.stdout.splitlines()]
    return Path(next(path for path in reversed(built) if path))


def _start(plan: Plan, store: str, task: str, _: ExitStack) -> Measure:
    program, turn = _program(), count()
    parent = plan.directory / NAME / f"{store}-{task.partition(':')[0]}"
    parent.mkdir(parents=True, exist_ok=True)

    def measure() -> Figures:
        # A directory for each round: neither store is asked to trim.
        directory = parent / str(next(turn))
        command: list[str | Path] = [program, store, directory, task]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        answer = json.loads(done.stdout)
        return {name: answer[name] for name in answer if name != "task"}

    return measure


def comparisons(plan: Plan) -> list[Comparison]:
    """Return rates and delays; the peer is the floor that the goals are about."""
    threads = f"{plan.callers} threads without Python, {plan.record_bytes} B"
    batches = f"{plan.bulk_record_bytes} B records in 1 MiB batches without Python"
    higher, lower = Better.HIGHER, Better.LOWER
    rows = [
        ("threads", threads, "per_second", "/s", higher, Target(1.2)),
        ("threads", threads, "p99_us", "us", lower, None),
        ("threads", threads, "cpu_us", "us", lower, None),
        ("batches", batches, "mb_per_second", "MB/s", higher, None),
        ("batches", batches, "p99_us", "us", lower, Target(1)),
    ]
    return [
        Comparison(
            what,
            metric,
            unit,
            better,
            ours=f"{_OURS} {way}",
            target=target,
            floor=f"{_PEER} {way}",
            peers=[f"{_PEER} {way}"],
            note="floor: raft-engine, the log store of TiKV",
        )
        for way, what, metric, unit, better, target in rows
    ]
