"""A client process that appends all the time and writes down what was acknowledged.

    python -m cluster.load --seeds ADDRESSES --log NAME --name c1 --acks FILE

A line of the file is a record that was submitted (`value`), acknowledged
(`value position`), or failed (`value ?`, outcome, error). SIGTERM ends it; so does the
end of its parent.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TextIO

import braidlog
from braidlog.client.log import ClusterLog
from braidlog.errors import ClosedError, LogError

__all__ = ["Load", "Promises", "running"]

_STOP_S: Final = 60.0


class Promises:
    """What clients were told: positions of values, and values that may be stored."""

    def __init__(self) -> None:
        self.acknowledged: dict[str, int] = {}
        self.submitted: set[str] = set()
        self.failures: list[str] = []

    def read(self, file: Path) -> None:
        """Add what one client wrote down."""
        for line in file.read_text().splitlines():
            value, _, told = line.partition(" ")
            self.submitted.add(value)
            if told.isdecimal():
                self.acknowledged[value] = int(told)
            elif told:
                self.failures.append(line)


class Load:
    """Client processes that append to one log."""

    def __init__(
        self, seeds: str, log: str, directory: Path, *, clients: int, tasks: int = 4
    ) -> None:
        self.files: list[Path] = []
        self._processes: list[subprocess.Popen[bytes]] = []
        directory.mkdir(parents=True, exist_ok=True)
        tests = str(Path(__file__).parents[1])
        found = os.environ.get("PYTHONPATH")
        path = os.pathsep.join(each for each in (tests, found) if each)
        environment = os.environ | {"PYTHONPATH": path}
        for number in range(clients):
            name = f"c{time.time_ns():x}-{number}"
            file = directory / f"{name}.acks"
            file.touch()
            self.files.append(file)
            command = [sys.executable, "-m", "cluster.load", "--seeds", seeds]
            command += ["--log", log, "--name", name, "--acks", str(file)]
            command += ["--tasks", str(tasks)]
            with (directory / f"{name}.log").open("ab") as output:
                self._processes.append(
                    subprocess.Popen(
                        command, stdout=output, stderr=output, env=environment
                    )
                )

    def acknowledged(self) -> int:
        """Return how many records were acknowledged so far."""
        return len(self.promises().acknowledged)

    def wait_for(self, more: int, timeout: float = 30.0) -> None:
        """Wait until so many more records are acknowledged."""
        deadline = time.monotonic() + timeout
        wanted = self.acknowledged() + more
        while self.acknowledged() < wanted:
            if time.monotonic() > deadline:
                missing = wanted - self.acknowledged()
                raise AssertionError(f"{missing} of {more} records are missing")
            time.sleep(0.02)

    def stop(self) -> Promises:
        """Let the clients end what they began; return what they were told."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                # One that had not begun yet has nothing to end.
                code = process.wait(_STOP_S)
                assert code in (0, -signal.SIGTERM), f"a client ended with {code}"
            finally:
                process.kill()
        return self.promises()

    def promises(self) -> Promises:
        """Return what the clients were told so far."""
        found = Promises()
        for file in self.files:
            found.read(file)
        return found

    def close(self) -> None:
        """End the clients, whatever they do."""
        for process in self._processes:
            process.kill()
            process.wait()


@contextmanager
def running(
    seeds: str, log: str, directory: Path, *, clients: int = 2, tasks: int = 4
) -> Iterator[Load]:
    """Run clients as long as the block."""
    load = Load(seeds, log, directory, clients=clients, tasks=tasks)
    try:
        yield load
    finally:
        load.close()


async def _append(
    log: ClusterLog, name: str, acks: TextIO, stopping: asyncio.Event, pause: float
) -> None:
    for number in itertools.count(1):
        if stopping.is_set() or os.getppid() == 1:
            return
        value = f"{name}-{number}"
        acks.write(f"{value}\n")
        try:
            position = await log.append(value.encode())
        except ClosedError:
            return
        except LogError as error:
            acks.write(f"{value} ? {error.outcome} {error}\n")
        else:
            acks.write(f"{value} {position}\n")
        await asyncio.sleep(pause)


async def _main(options: argparse.Namespace) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stopping.set)
    # Whoever reads the file sees whole lines: they are written line by line.
    with options.acks.open("a", buffering=1) as acks:
        async with braidlog.connect(options.seeds) as client:
            log = await client.log(options.log)
            async with asyncio.TaskGroup() as group:
                for task in range(options.tasks):
                    name = f"{options.name}-{task}"
                    group.create_task(_append(log, name, acks, stopping, options.pause))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--acks", required=True, type=Path)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--pause", type=float, default=0.002)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(_main(_options()))
