"""What do several client processes get together, each with many callers?"""

import json
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from benchmarks.cluster import rows
from benchmarks.cluster.fleet import Run
from benchmarks.cluster.load import APPENDS
from benchmarks.cluster.systems import BESIDE, FLOOR, OURS, PEERS
from benchmarks.contest import Comparison, Contestant, Measure
from benchmarks.rows import Better
from benchmarks.timing import Figures, percentile

_STOP_S = 10


@dataclass(frozen=True, slots=True)
class Clients:
    """So many processes with so many callers."""

    processes: int
    tasks: int
    NAME: str = "clients"

    def contestants(self, run: Run) -> list[Contestant]:
        """Return all."""
        kinds = rows.kinds((FLOOR, OURS, *PEERS, *BESIDE))
        return [
            Contestant(name, kind, partial(self._start, name, run))
            for name, kind in kinds.items()
        ]

    def comparisons(self, _: Run) -> list[Comparison]:
        """Return the rate, and the time of an append."""
        what = f"128 B, {self.processes} x {self.tasks} outstanding"
        return [
            rows.row(what, "per_second", "/s", Better.HIGHER),
            rows.row(what, "p99_us", "us", Better.LOWER),
            *rows.processor_rows(what),
        ]

    def _start(self, name: str, run: Run, stack: ExitStack) -> Measure:
        run.fleet.open(name, self.NAME, 1, stack)
        nodes = run.fleet.nodes(name)
        asked = {
            "system": name,
            "address": nodes.address,
            "log": self.NAME,
            "seed": run.plan.seed,
            "calls": run.plan.appends // self.processes,
            "seconds": run.plan.seconds,
            "tasks": self.tasks,
        }
        workers = [_Worker(asked, stack) for _ in range(self.processes)]
        for worker in workers:
            worker.hear()

        def measure() -> Figures:
            for worker in workers:
                worker.go()
            return merged([worker.hear() for worker in workers])

        return lambda: rows.spent(nodes.pids, measure)


def merged(found: list[Any]) -> Figures:
    """Return the figures of processes that worked at the same time."""
    begin = min(each["begin"] for each in found)
    end = max(each["end"] for each in found)
    took = [us for each in found for us in each["took_us"]]
    return {
        "per_second": sum(each["done"] for each in found) / (end - begin),
        "p99_us": percentile(took, 99),
        "client_us": sum(each["spent_us"] for each in found) / len(took),
        APPENDS: len(took),
    }


class _Worker:
    """One client process; it ends when the stack closes."""

    def __init__(self, asked: Any, stack: ExitStack) -> None:
        command = [sys.executable, "-m", "benchmarks.cluster.worker", json.dumps(asked)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        stack.callback(self._end)

    def go(self) -> None:
        """Begin a round."""
        self._pipe(self._process.stdin).write("go\n")
        self._pipe(self._process.stdin).flush()

    def hear(self) -> Any:
        """Return what it says next."""
        line = self._pipe(self._process.stdout).readline()
        if not line:
            raise RuntimeError("a client process ended")
        return json.loads(line)

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe

    def _end(self) -> None:
        self._pipe(self._process.stdin).close()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._pipe(self._process.stdout).close()
