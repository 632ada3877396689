"""How long does an open after a kill take, with a small and with a large table?

Each round a child process writes some more and is killed. The open ends when a key has
been read.
"""

import os
import signal
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from time import perf_counter

from benchmarks.contest import Comparison, Contestant, Kind, Measure
from benchmarks.rows import Better, Target
from benchmarks.tables import data
from benchmarks.tables.plan import MIB, Plan
from benchmarks.tables.stores import Ours
from benchmarks.timing import Figures

NAME = "reopen"
_TAIL_BYTES = 24 * MIB
_GROUP = 10_000
_REPOSITORY = Path(__file__).parents[3]


def contestants(plan: Plan) -> list[Contestant]:
    """Return ours at both sizes."""
    return [
        Contestant("small", Kind.FLOOR, partial(_start, plan, plan.reopen_small)),
        Contestant("large", Kind.OURS, partial(_start, plan, plan.reopen_large)),
    ]


def _start(plan: Plan, size: int, _: ExitStack) -> Measure:
    directory = plan.directory / NAME / f"{size}"
    directory.mkdir(parents=True)
    _write(directory, size, seed=0)
    turn = iter(range(1, 1_000))

    def measure() -> Figures:
        _write(directory, _TAIL_BYTES, seed=next(turn))
        begin = perf_counter()
        ours = Ours(directory)
        key = data.key_list(data.order(0, 1))[0]
        if ours.get(key) is None:
            raise AssertionError("opened without a key")
        seconds = perf_counter() - begin
        ours.close()
        return {"killed_ms": seconds * 1e3}

    return measure


def _write(directory: Path, size: int, seed: int) -> None:
    command = [sys.executable, "-m", __name__, str(directory), str(size), str(seed)]
    done = subprocess.run(
        command, cwd=_REPOSITORY, capture_output=True, text=True, check=False
    )
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(f"writer ended with {done.returncode}: {done.stderr[-500:]}")


def comparisons(plan: Plan) -> list[Comparison]:
    """Return large against small."""
    small, large = (
        f"{size // MIB:,} MiB" for size in (plan.reopen_small, plan.reopen_large)
    )
    return [
        Comparison(
            f"open after a kill: {large} against {small}",
            "killed_ms",
            "ms",
            Better.LOWER,
            ours="large",
            floor="small",
            target=Target(2),
            note=f"floor: ours with {small}",
        )
    ]


def main() -> None:
    """Write as the arguments say, then be killed."""
    directory, size, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    count = size // (data.KEY_BYTES + data.VALUE_BYTES)
    numbers = data.order(seed, count)
    ours = Ours(directory)
    for batch in data.batches(seed, numbers, _GROUP):
        ours.write(batch)
    ours.get(b"")  # applies what is written
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
