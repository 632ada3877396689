"""Servers of `examples/kv_store` in processes, and what clients are told by them."""

from __future__ import annotations

import json
import math
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from sim.checkers import ANYTHING, Operation, check_register

from cluster.hosts import free_ports

SERVER = Path(__file__).parents[2] / "examples" / "kv_store" / "server.py"
# A server that answers from its memory, as if nobody could have taken over.
HASTY = """
import asyncio, runpy, sys
def confirm(self, writer):
    return asyncio.sleep(0)
path = sys.argv.pop(1)
kv = runpy.run_path(path)
kv["Server"].confirm = confirm
asyncio.run(kv["main"]())
"""
PATIENCE_S = 4.0
"""How long a client waits for an answer: longer than a server is paused."""


class Servers:
    """Processes that this test started; server 0 is "s0"."""

    def __init__(
        self, seeds: str, directory: Path, count: int, ttl: float, *, hasty: bool
    ) -> None:
        self.ports = free_ports(count)
        self._command = ["-c", HASTY] if hasty else []
        self._command += [str(SERVER), "--cluster", seeds, "--ttl", str(ttl)]
        self._directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        for server in range(count):
            self.start(server)

    def __enter__(self) -> Servers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()

    def start(self, server: int) -> None:
        command = [sys.executable, *self._command]
        command += ["--name", f"s{server}", "--listen", str(self.ports[server])]
        with (self._directory / f"s{server}.log").open("ab") as output:
            self._processes[server] = subprocess.Popen(
                command, stdout=output, stderr=output
            )

    def kill(self, server: int) -> None:
        self._processes[server].kill()
        self._processes[server].wait()

    def pause(self, server: int) -> None:
        self._processes[server].send_signal(signal.SIGSTOP)

    def wake(self, server: int) -> None:
        self._processes[server].send_signal(signal.SIGCONT)

    def check_running(self) -> None:
        for server, process in self._processes.items():
            assert process.poll() is None, self.words(server)

    def words(self, server: int) -> str:
        return (self._directory / f"s{server}.log").read_text()[-4000:]

    def active(self, *, but: int = -1, within: float = 30.0) -> int:
        """Wait until a server answers a read, and return it."""
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            self.check_running()
            for server, port in enumerate(self.ports):
                line = Line(port, 1.0)
                answer = {} if server == but else line.ask(op="get", key="-")
                line.close()
                if "value" in answer:
                    return server
            time.sleep(0.03)
        words = "\n".join(self.words(each) for each in range(len(self.ports)))
        raise AssertionError(f"no server is active:\n{words}")


class Line:
    """A connection to a server; one that failed is made anew for the next request."""

    def __init__(self, port: int, patience: float = PATIENCE_S) -> None:
        self._port, self._patience = port, patience
        self._socket: socket.socket | None = None

    def ask(self, **request: Any) -> dict[str, Any]:
        """Return the answer; without one, an error with its outcome."""
        connected = False
        try:
            self._connect()
            connected = True
            self.send(**request)
            return self.receive()
        except OSError as error:
            self.close()
            outcome = "unknown" if connected else "not_stored"
            return {"error": str(error), "outcome": outcome}

    def send(self, **request: Any) -> None:
        self._connect().sendall(json.dumps(request).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        with self._connect().makefile("rb") as answers:
            line = answers.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError("no answer")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _connect(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(
                ("127.0.0.1", self._port), self._patience
            )
        return self._socket

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


@dataclass
class Clients:
    """Threads that read and change some keys of any server, and note the answers."""

    ports: list[int]
    seed: int
    count: int = 5
    keys: int = 3
    operations: dict[str, list[Operation]] = field(
        default_factory=lambda: defaultdict(list)
    )
    answered: int = 0
    unknown: int = 0

    def __enter__(self) -> Clients:
        self._ending = threading.Event()
        self._preferred = 0
        self._threads = [
            threading.Thread(target=self._run, args=(n,)) for n in range(self.count)
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, count: int) -> None:
        """Wait until so many more requests were answered."""
        until, deadline = self.answered + count, time.monotonic() + 30
        while self.answered < until:
            assert time.monotonic() < deadline, "clients get no answers"
            time.sleep(0.01)

    def _run(self, number: int) -> None:
        randoms = random.Random(self.seed * 100 + number)
        lines = [Line(port) for port in self.ports]
        last: dict[str, str | None] = {}
        count = 0
        while not self._ending.is_set():
            # Some ask anybody: who is not active must not answer, even if it was.
            away = randoms.random() < 0.25
            server = randoms.randrange(len(lines)) if away else self._preferred
            key, count = f"k{randoms.randrange(self.keys)}", count + 1
            done = self._operate(lines[server], randoms, key, f"{number}.{count}", last)
            if done:
                self._preferred = server
            elif not away:
                self._preferred = randoms.randrange(len(lines))
            time.sleep(0.002 if done else 0.02)
        for line in lines:
            line.close()

    def _operate(
        self,
        line: Line,
        randoms: random.Random,
        key: str,
        value: str,
        last: dict[str, str | None],
    ) -> bool:
        kind = randoms.choices(["get", "put", "swap", "delete"], [50, 20, 28, 2])[0]
        request: dict[str, Any] = {"op": kind, "key": key}
        if kind in ("put", "swap"):
            request["value"] = value
        if kind == "swap":
            request["expected"] = last.get(key)
        written = request.get("value")
        begin = time.monotonic()
        answer = line.ask(**request)
        noted = Operation(value, True, written, begin, time.monotonic())
        if "outcome" in answer:
            if answer["outcome"] != "unknown" or kind == "get":
                return False
            self.unknown += 1
            noted = replace(noted, end=math.inf)
            if kind == "swap":
                noted = replace(noted, found=request["expected"])
        elif kind == "swap" and answer["swapped"]:
            noted = replace(noted, found=answer["value"])
            last[key] = written
        elif kind in ("get", "swap"):
            last[key] = answer["value"]
            noted = replace(noted, write=False, value=answer["value"])
        self.operations[key].append(noted)
        self.answered += noted.end < math.inf
        return noted.end < math.inf

    def check(self) -> None:
        """Find an order of the operations of each key that explains all answers."""
        for operations in self.operations.values():
            check_register(list(_seen(operations)))


def _seen(operations: list[Operation]) -> Iterator[Operation]:
    """Leave out writes of unknown outcome that nobody saw: they explain nothing.

    One that was seen had happened by then. Values are unique, but for deletes.
    """
    seen: dict[Any, float] = {}
    for each in operations:
        value = each.found if each.write else each.value
        if value is not ANYTHING and each.end < math.inf:
            seen[value] = min(seen.get(value, math.inf), each.end)
    for each in operations:
        if each.end < math.inf or each.value is None:
            yield each
        elif each.value in seen:
            yield replace(each, end=seen[each.value])
