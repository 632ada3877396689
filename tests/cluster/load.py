"""A client process that appends all the time and writes down what was acknowledged.

    python -m cluster.load --seeds ADDRESSES --log NAME --name c1 --acks FILE

A line of the file is a record that was submitted (`value`), acknowledged
(`value position`), or failed (`value ?`, outcome, error). SIGTERM ends it; so does the
end of its parent. With `--history FILE` tasks read as well, and a line of that file is
a call that returned, with its times, as `cluster.history` judges them: in seconds of
the monotonic clock, which all processes of a machine share.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final, TextIO

import braidlog
from braidlog.client.log import AsyncClusterLog
from braidlog.errors import ClosedError, LogError, UnavailableError
from cluster.history import Append, Look

__all__ = ["Load", "Promises", "running"]

_STOP_S: Final = 60.0
_LOOKED_AT: Final = 40


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
        self,
        seeds: str,
        log: str,
        directory: Path,
        *,
        clients: int,
        tasks: int = 4,
        history: bool = False,
    ) -> None:
        self.files: list[Path] = []
        self.histories: list[Path] = []
        self._logs: list[Path] = []
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
            if history:
                self.histories.append(directory / f"{name}.history")
                self.histories[-1].touch()
                command += ["--history", str(self.histories[-1])]
            self._logs.append(directory / f"{name}.log")
            with self._logs[-1].open("ab") as output:
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
        for process, log in zip(self._processes, self._logs, strict=True):
            try:
                # One that had not begun yet has nothing to end.
                code = process.wait(_STOP_S)
                said = f"a client ended with {code}: {log.read_text()[-2000:]}"
                assert code in (0, -signal.SIGTERM), said
            finally:
                process.kill()
        return self.promises()

    def promises(self) -> Promises:
        """Return what the clients were told so far."""
        found = Promises()
        for file in self.files:
            found.read(file)
        return found

    def history(self) -> tuple[list[Append], list[Look]]:
        """Return the calls that returned, and appends that did not."""
        told = [
            json.loads(line)
            for file in self.histories
            for line in file.read_text().splitlines()
        ]
        appends = [Append(**each) for each in told if "value" in each]
        looks = [
            Look(**each | {"values": tuple(each["values"])})
            for each in told
            if "values" in each
        ]
        # An append that a closed client left has begun at some time before now.
        open_ended = self.promises().submitted - {each.value for each in appends}
        appends += [Append(value, -math.inf, math.inf, None) for value in open_ended]
        return appends, looks

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


class _Client:
    """What the tasks of a client share."""

    def __init__(
        self, log: AsyncClusterLog, acks: TextIO, history: TextIO | None
    ) -> None:
        self.log = log
        self.stopping = asyncio.Event()
        self._acks, self._history = acks, history

    async def append(self, name: str, pause: float) -> None:
        for number in itertools.count(1):
            if self.stopping.is_set() or os.getppid() == 1:
                return
            value = f"{name}-{number}"
            self._acks.write(f"{value}\n")
            begun = time.monotonic()
            position, refused = None, False
            try:
                position = await self.log.append(value.encode())
            except ClosedError:
                return
            except LogError as error:
                refused = error.outcome == "not_stored"
                self._acks.write(f"{value} ? {error.outcome} {error}\n")
            else:
                self._acks.write(f"{value} {position}\n")
            self._note(Append(value, begun, time.monotonic(), position, refused))
            await asyncio.sleep(pause)

    async def look(self, pause: float) -> None:
        """Read the last records again and again: as many as one wants to write down."""
        while not self.stopping.is_set() and os.getppid() != 1:
            begun = time.monotonic()
            first = max(1, self.log.end - _LOOKED_AT)
            try:
                values = [each.value.decode() async for each in self.log.read(first)]
            except ClosedError:
                return
            except LogError:
                await asyncio.sleep(pause)
                continue
            end = first + len(values)
            self._note(Look(begun, time.monotonic(), end, first, tuple(values)))
            await asyncio.sleep(pause)

    def _note(self, call: Append | Look) -> None:
        if self._history is not None:
            self._history.write(json.dumps(asdict(call)) + "\n")


async def _log(options: argparse.Namespace, stack: AsyncExitStack) -> AsyncClusterLog:
    """Return the log, once a node is there to ask: all may be down as this begins."""
    while True:
        try:
            client = braidlog.connect_async(options.seeds)
            return await (await stack.enter_async_context(client)).log(options.log)
        except UnavailableError:
            if os.getppid() == 1:
                raise
            await asyncio.sleep(0.1)


async def _main(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        # Whoever reads the files sees whole lines: they are written line by line.
        acks = stack.enter_context(options.acks.open("a", buffering=1))
        history = None
        if options.history is not None:
            history = stack.enter_context(options.history.open("a", buffering=1))
        async with AsyncExitStack() as open_:
            log = await _log(options, open_)
            mine = _Client(log, acks, history)
            loop = asyncio.get_running_loop()
            loop.add_signal_handler(signal.SIGTERM, mine.stopping.set)
            async with asyncio.TaskGroup() as group:
                for task in range(options.tasks):
                    name = f"{options.name}-{task}"
                    group.create_task(mine.append(name, options.pause))
                if history is not None:
                    group.create_task(mine.look(10 * options.pause))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", required=True)
    parser.add_argument("--log", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--acks", required=True, type=Path)
    parser.add_argument("--tasks", type=int, default=4)
    parser.add_argument("--history", type=Path)
    parser.add_argument("--pause", type=float, default=0.002)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(_main(_options()))
