"""Pipelines that are killed by SIGKILL at random moments, and run again until done.

    python -m tests.process.killed_pipeline --kills 50

What comes out is compared with a run that nobody killed: of `compact` the records, of
`repartition` the log, in which a record that was stored twice would show.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

import braidlog
from braidlog.pipelines import Destination, Origin, compact, repartition

RECORDS = 6000
BYTES_PER_TASK = 30_000
RUNS_MAX = 200


def fill(path: Path) -> None:
    with braidlog.open(path, segment_bytes=64 << 10) as node:
        log = node.create_log("orders")
        for n in range(RECORDS):
            log.submit(b"%d" % n * 9, key=b"k%d" % (n % 999))


def work(name: str, data: Path, output: Path) -> None:
    """Run one pipeline; this is what is killed."""
    origin = Origin("orders", path=str(data))
    if name == "compact":
        compact(origin, output, workers=1, bytes_per_task=BYTES_PER_TASK)
    else:
        into = Destination("copy", path=str(output) + "-log")
        repartition(origin, into, output, workers=1, bytes_per_task=BYTES_PER_TASK)


def found(name: str, output: Path) -> list[Any]:
    if name == "compact":
        table = pq.read_table(output / "data")
        rows = zip(table["key"].to_pylist(), table["position"].to_pylist(), strict=True)
        return sorted(rows)
    with braidlog.open(str(output) + "-log", read_only=True) as node:
        return [record.value for record in node.log("copy").read()]


def killed(name: str, data: Path, output: Path, kills: int, seed: int) -> int:
    """Run until done, killed so often in between; return how often it was running."""
    draw = random.Random(seed)
    command = [sys.executable, __file__, "--work", name, str(data), str(output)]
    hit = 0
    for number in range(RUNS_MAX):
        process = subprocess.Popen(command)
        if number < kills:
            deadline = time.monotonic() + 30
            notes = output / ".job"
            # Python itself takes a while to start: the clock runs from the first note.
            while process.poll() is None and time.monotonic() < deadline:
                if any(notes.glob("*/*.tasks")):
                    break
                time.sleep(0.005)
            time.sleep(draw.random() * 0.4)
            hit += process.poll() is None
            process.kill()
        if process.wait() == 0:
            return hit
    raise SystemExit(f"{name} was not done after {RUNS_MAX} runs")


def check(folder: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill each pipeline; return how many of the kills met it at work.

    Raises:
        AssertionError: what came out is not what an undisturbed run gives.
    """
    fill(folder / "data")
    hits = {}
    for name in ("compact", "repartition"):
        work(name, folder / "data", folder / f"{name}-whole")
        output = folder / f"{name}-killed"
        hits[name] = killed(name, folder / "data", output, kills, seed)
        assert found(name, output) == found(name, folder / f"{name}-whole"), name
        left = sorted(path.name for path in output.iterdir())
        assert left == ["data", "manifest.json", "report.json"], left
    return hits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", nargs=3, metavar=("NAME", "DATA", "OUTPUT"))
    given = parser.parse_args()
    if given.work:
        name, data, output = given.work
        work(name, Path(data), Path(output))
        return
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(check(Path(folder), given.kills, given.seed)))  # noqa: T201


if __name__ == "__main__":
    main()
