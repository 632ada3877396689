"""Processes of hosts of an application, and of callers that keep an account of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from braidlog.testing.ports import Reservation

if TYPE_CHECKING:
    from cluster.network import Network

APP = "cluster.banks:app"
TESTS = str(Path(__file__).parents[1])
_WAIT_S = 60.0


def environment() -> dict[str, str]:
    """Return what lets a process find the bank."""
    path = [TESTS, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


_PORTS = Reservation()


def free_ports(count: int) -> list[int]:
    """Return ports that nobody else gets while this process lives."""
    return _PORTS.choose(count)


class Hosts:
    """Hosts of the bank, as `braidlog app run` runs them."""

    def __init__(
        self,
        seeds: str,
        directory: Path,
        count: int = 2,
        *,
        network: Network | None = None,
        options: Sequence[str] = (),
    ) -> None:
        """Name the hosts; on a network each has a namespace, see `number`."""
        self.directory = directory
        self._seeds = seeds
        self._network = network
        self._options = [*options, *(["--insecure"] if network else [])]
        ports = free_ports(2 * count)
        self._ports = dict(enumerate(zip(ports[:count], ports[count:], strict=True)))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def numbers(self) -> list[int]:
        return list(self._ports)

    @staticmethod
    def number(host: int) -> int:
        """Return the number of a host on a network, where nodes have theirs."""
        return 101 + host

    def _place(self, host: int) -> str:
        net = self._network
        return net.host(self.number(host)) if net else "127.0.0.1"

    def address(self, host: int) -> str:
        return f"{self._place(host)}:{self._ports[host][0]}"

    def _http(self, host: int) -> str:
        return f"{self._place(host)}:{self._ports[host][1]}"

    @property
    def addresses(self) -> str:
        return ",".join(map(self.address, self._ports))

    def state(self, host: int) -> Path:
        return self.directory / f"host-{host}"

    def start(self, host: int, *options: str) -> None:
        net = self._network
        command = net.launcher(self.number(host)) if net else []
        command += [sys.executable, "-m", "braidlog", "app", "run", APP]
        command += ["--cluster", self._seeds, "--state", str(self.state(host))]
        command += ["--listen", self.address(host)]
        command += ["--http", self._http(host), *self._options, *options]
        with (self.directory / f"host-{host}.log").open("ab") as output:
            self._processes[host] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment(),
            )

    def status(self, host: int) -> dict[str, Any]:
        url = f"http://{self._http(host)}/status"
        with urllib.request.urlopen(url, timeout=5) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def wait_ready(self, host: int) -> dict[str, Any]:
        """Wait until a host serves."""
        deadline = time.monotonic() + _WAIT_S
        while not self.is_ready(host):
            code = self._processes[host].poll()
            assert code is None, f"host {host} ended: {self.words(host)}"
            assert time.monotonic() < deadline, f"not ready: {self.words(host)}"
            time.sleep(0.05)
        return self.status(host)

    def is_ready(self, host: int) -> bool:
        try:
            return bool(self.status(host)["ready"])
        except OSError:  # That of `urllib` is one too.
            return False

    def words(self, host: int) -> str:
        """Return what a host logged last."""
        return (self.directory / f"host-{host}.log").read_text()[-2000:]

    def is_running(self, host: int) -> bool:
        return self._processes[host].poll() is None

    def signal(self, host: int, number: int) -> None:
        self._processes[host].send_signal(number)

    def kill(self, host: int) -> None:
        self.signal(host, signal.SIGKILL)
        self._processes[host].wait()

    def stop(self, host: int) -> int:
        self._processes[host].terminate()
        return self._processes[host].wait(_WAIT_S)

    def close(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait()


@dataclass
class Account:
    """What callers were told: the answer of each call, and calls with none."""

    answers: dict[str, int] = field(default_factory=dict)
    begun: set[str] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)


class Callers:
    """Processes that transfer money all the time; see `cluster.caller`."""

    def __init__(
        self, hosts: str, directory: Path, *, processes: int = 2, tasks: int = 4
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.files = [directory / f"caller-{n}.acks" for n in range(processes)]
        self._processes = []
        for number, file in enumerate(self.files):
            file.touch()
            command = [sys.executable, "-m", "cluster.caller", "--hosts", hosts]
            command += ["--acks", str(file), "--seed", str(number)]
            command += ["--tasks", str(tasks)]
            with file.with_suffix(".log").open("ab") as output:
                self._processes.append(
                    subprocess.Popen(
                        command, stdout=output, stderr=output, env=environment()
                    )
                )

    def account(self) -> Account:
        """Return what they were told so far."""
        found = Account()
        for file in self.files:
            for line in file.read_text().split("\n")[:-1]:
                kind, call, *rest = line.split(" ", 2)
                if kind == "begun":
                    found.begun.add(call)
                elif kind == "answer":
                    found.answers[call] = int(rest[0])
                else:
                    found.failures.append(line)
        return found

    def wait_for(self, more: int) -> None:
        """Wait until so many more calls are answered."""
        deadline = time.monotonic() + _WAIT_S
        wanted = len(self.account().answers) + more
        while len(self.account().answers) < wanted:
            for process, file in zip(self._processes, self.files, strict=True):
                words = file.with_suffix(".log").read_text()[-2000:]
                assert process.poll() is None, f"a caller ended: {words}"
            assert time.monotonic() < deadline, "no progress"
            time.sleep(0.05)

    def stop(self) -> Account:
        """Let them end what they began; return what they were told."""
        for process in self._processes:
            process.terminate()
        for process, file in zip(self._processes, self.files, strict=True):
            code = process.wait(_WAIT_S)
            assert code == 0, file.with_suffix(".log").read_text()[-2000:]
        return self.account()

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait()


@contextlib.contextmanager
def closing(things: Sequence[Any]) -> Iterator[None]:
    """Close all of them at the end, in the opposite order."""
    with ExitStack() as stack:
        for each in things:
            stack.callback(each.close)
        yield
