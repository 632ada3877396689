"""A cluster of real processes on this machine, for tests and for `braidlog up`.

Every node is a `braidlog serve` of its own, with a directory, a settings file and a log
file under one directory. A process is only ever ended by the number it was started
with.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from braidlog.errors import TimeoutError_, UnavailableError

__all__ = ["LocalCluster"]

_POLL_S: Final = 0.02
_STOP_S: Final = 20.0

Settings = Mapping[str, Mapping[str, Any]]


class LocalCluster:
    """Nodes 1 to `nodes` on loopback; stopped on exit.

    With a `directory` the nodes keep their data there, and find it again; else it is a
    temporary one. `settings` are sections of the settings file that all nodes get.
    `program` is the module that is run, with the arguments of `braidlog`.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        directory: Path | None = None,
        voters: int | None = None,
        settings: Settings | None = None,
        program: str = "braidlog",
    ) -> None:
        """Choose ports and write the settings; nothing is started yet."""
        self._stack = ExitStack()
        if directory is None:
            directory = Path(
                self._stack.enter_context(tempfile.TemporaryDirectory(prefix="braid-"))
            )
        self.directory = directory
        self._settings = settings or {}
        self._program = program
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports: dict[int, tuple[int, int]] = {}
        ports = _kept_ports(directory) or _free_ports(2 * nodes)
        for node in range(1, nodes + 1):
            self._ports[node] = (ports[2 * node - 2], ports[2 * node - 1])
        self._voters = range(1, (voters or nodes) + 1)
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "ports.json").write_text(json.dumps(ports))
        for node in self._ports:
            self._write_settings(node)

    def __enter__(self) -> Self:
        """Start all nodes and wait until they serve."""
        try:
            for node in self.nodes:
                self.start(node)
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop what runs."""
        self.close()

    @property
    def nodes(self) -> list[int]:
        """Return the numbers of the nodes."""
        return list(self._ports)

    @property
    def seeds(self) -> str:
        """Return what `braidlog.connect` takes."""
        return ",".join(self.address(node) for node in self.nodes)

    def address(self, node: int) -> str:
        """Return host:port of a node."""
        return f"127.0.0.1:{self._ports[node][0]}"

    def http(self, node: int) -> str:
        """Return the base URL of metrics, health and readiness of a node."""
        return f"http://127.0.0.1:{self._ports[node][1]}"

    def data(self, node: int) -> Path:
        """Return the directory of a node's log."""
        return self.directory / f"node-{node}" / "data"

    def output(self, node: int) -> Path:
        """Return the file with what a node logs."""
        return self.directory / f"node-{node}" / "node.log"

    def settings_file(self, node: int) -> Path:
        """Return the settings file of a node."""
        return self.directory / f"node-{node}" / "node.toml"

    def pid(self, node: int) -> int:
        """Return the process of a node that was started."""
        return self._processes[node].pid

    def start(self, node: int) -> None:
        """Start a node that does not run."""
        if self.is_running(node):
            msg = f"node {node} runs already"
            raise UnavailableError(msg)
        command = [sys.executable, "-m", self._program, "serve", "--config"]
        with self.output(node).open("ab") as output:
            self._processes[node] = subprocess.Popen(
                [*command, str(self.settings_file(node))],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C of a terminal goes to the parent, which stops the nodes.
                start_new_session=True,
            )

    def is_running(self, node: int) -> bool:
        """Tell whether the process of a node lives."""
        process = self._processes.get(node)
        return process is not None and process.poll() is None

    def send(self, node: int, number: int) -> None:
        """Send a signal to a node that runs."""
        self._processes[node].send_signal(number)

    def kill(self, node: int) -> None:
        """End a node with SIGKILL, as a crash would."""
        process = self._processes[node]
        process.kill()
        process.wait()

    def stop(self, node: int) -> int:
        """Ask a node to stop, wait for it, and return its exit code."""
        process = self._processes[node]
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            return process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self.kill(node)
            raise

    def restart(self, node: int) -> None:
        """Start a node again, after `kill` or `stop`."""
        self.start(node)

    def wait_ready(self, *nodes: int, timeout: float = 30.0) -> None:
        """Wait until these nodes, or all, say that they serve.

        Raises:
            UnavailableError: one of them ended; the message has its last words.
            TimeoutError_: one of them is not ready in time.
        """
        deadline = time.monotonic() + timeout
        for node in nodes or self.nodes:
            while not self.is_ready(node):
                if not self.is_running(node):
                    msg = f"node {node} ended: {self._last_words(node)}"
                    raise UnavailableError(msg)
                if time.monotonic() > deadline:
                    msg = f"node {node} is not ready: {self._last_words(node)}"
                    raise TimeoutError_(msg)
                time.sleep(_POLL_S)

    def is_ready(self, node: int) -> bool:
        """Tell whether a node says that it serves."""
        url = f"{self.http(node)}/ready"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310, RUF100
                return bool(answer.status == 200)  # noqa: PLR2004, RUF100
        except (urllib.error.URLError, OSError):
            return False

    def close(self) -> None:
        """Stop every node, by SIGKILL if it does not want to."""
        for node in self.nodes:
            if self.is_running(node):
                self.send(node, signal.SIGCONT)
                self.send(node, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._stack.close()

    def _last_words(self, node: int) -> str:
        text = self.output(node).read_text(errors="replace")
        return text[-2000:].strip() or "it said nothing"

    def _write_settings(self, node: int) -> None:
        file = self.settings_file(node)
        file.parent.mkdir(parents=True, exist_ok=True)
        port, http = self._ports[node]
        sections: dict[str, dict[str, Any]] = {
            "node": {
                "id": node,
                "data": str(self.data(node)),
                "listen": f"127.0.0.1:{port}",
                "http": f"127.0.0.1:{http}",
            },
            "cluster": {
                "voters": {str(each): self.address(each) for each in self._voters}
            },
        }
        for name, values in self._settings.items():
            sections.setdefault(name, {}).update(values)
        file.write_text("".join(_section(*each) for each in sections.items()))


def _section(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{k} = {_toml(v)}" for k, v in value.items())
        return f"{{ {pairs} }}"
    return json.dumps(value)  # the same for numbers, truth and plain texts


def _kept_ports(directory: Path) -> list[int]:
    file = directory / "ports.json"
    return list(json.loads(file.read_text())) if file.exists() else []


def _free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago; all are held until all are known."""
    with ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in held:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in held]
