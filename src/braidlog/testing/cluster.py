"""A cluster of real processes on this machine, for tests and for `braidlog up`.

Every node is a process of `braidlog serve`, with a data directory, a settings file and
a log file below one directory. Only processes that this module started are ended.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, Self

from braidlog.closable import Closable
from braidlog.errors import DeadlineError, LockedError, UnavailableError
from braidlog.paths import local_path
from braidlog.testing.interrupts import uninterrupted
from braidlog.testing.ports import Reservation, keep_ports, write_whole

_POLL_S: Final = 0.02
_STOP_S: Final = 20.0
_WORDS_MAX: Final = 2000

Settings = Mapping[str, Mapping[str, Any]]


_OWN: Final = ("BRAIDLOG_NODE_", "BRAIDLOG_CLUSTER_")


def _inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out what would be the same for all nodes, and must not be."""
    return {
        name: value
        for name, value in environment.items()
        if name != "BRAIDLOG_DATA" and not name.startswith(_OWN)
    }


class LocalCluster(Closable):
    """Nodes 1 to `nodes` on loopback; stopped on exit.

    If this process is killed and cannot stop them, they stop by themselves.

    With a `directory` the nodes keep their data there, also for the next start;
    otherwise it is in a temporary directory. `settings` are sections of the settings
    file that all nodes get. `program` is the module to run, with the arguments of
    `braidlog`.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        directory: str | os.PathLike[str] | None = None,
        voters: int | None = None,
        settings: Settings | None = None,
        hosts: Mapping[int, str] | None = None,
        launchers: Mapping[int, Sequence[str]] | None = None,
        ports: Sequence[int] = (),
        program: str = "braidlog",
    ) -> None:
        """Choose ports and write the settings; nothing is started yet.

        Nodes listen on loopback, or on an address of `hosts`. The command of a node
        begins with its `launchers`, as one that puts it into a network of its own; it
        must become the node by `exec`, so that signals reach it. Two `ports` of each
        node, for clients and for its status, are free ones if they are not named.

        Raises:
            InvalidArgumentError: the directory has a cluster with another number of
                nodes, or at other ports.
            UnavailableError: one of the `ports` is taken.
        """
        self._stack = ExitStack()
        if directory is None:
            temporary = tempfile.TemporaryDirectory(prefix="braid-")
            directory = self._stack.enter_context(temporary)
        self.directory = local_path(directory, "the directory of a cluster")
        self._settings = settings or {}
        self._hosts = dict(hosts or {})
        self._launchers = dict(launchers or {})
        self._program = program
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._ports: dict[int, tuple[int, int]] = {}
        self._lock: int | None = None
        self._reservation = Reservation()
        self._lifeline: tuple[int, int] | None = None
        kept = keep_ports(self.directory, nodes, self._reservation, ports)
        for node in range(1, nodes + 1):
            self._ports[node] = (kept[2 * node - 2], kept[2 * node - 1])
        self._voters = range(1, (voters or nodes) + 1)
        for node in self._ports:
            self._write_settings(node)

    def __enter__(self) -> Self:
        """Start all nodes and wait until they serve.

        Raises:
            LockedError: nodes of this directory run already.
            UnavailableError: a port is taken, or a node ended.
        """
        try:
            self._take()
            self._hold_ports()
            for node in self.nodes:
                self.start(node)
            self.wait_ready()
        except BaseException:
            self.close()
            raise
        return self

    @property
    def nodes(self) -> list[int]:
        """Return the numbers of the nodes."""
        return list(self._ports)

    @property
    def seeds(self) -> str:
        """Return the addresses of all nodes, for `braidlog.connect`."""
        return ",".join(self.address(node) for node in self.nodes)

    def address(self, node: int) -> str:
        """Return host:port of a node."""
        return f"{self._host(node)}:{self._ports[node][0]}"

    def http(self, node: int) -> str:
        """Return the base URL of metrics, health and readiness of a node."""
        return f"http://{self._host(node)}:{self._ports[node][1]}"

    def _host(self, node: int) -> str:
        return self._hosts.get(node, "127.0.0.1")

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
            raise UnavailableError(f"node {node} is running already")
        command = [*self._launchers.get(node, ()), sys.executable]
        command += ["-m", self._program, "serve"]
        command += ["--config", str(self.settings_file(node))]
        if self._lifeline is None:
            self._lifeline = os.pipe()
        command += ["--lifeline", str(self._lifeline[0])]
        # The lock is held for as long as one of the nodes lives.
        passed = [self._lifeline[0], *([] if self._lock is None else [self._lock])]
        with self.output(node).open("ab") as output, uninterrupted():
            self._processes[node] = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=_inherited(os.environ),
                # Ctrl-C of a terminal goes to the parent, which stops the nodes.
                start_new_session=True,
                pass_fds=passed,
            )

    def is_running(self, node: int) -> bool:
        """Return whether the process of a node runs."""
        process = self._processes.get(node)
        return process is not None and process.poll() is None

    def exit_code(self, node: int) -> int | None:
        """Return how a node ended, minus the number of a signal; None if it runs."""
        return self._processes[node].poll()

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
        """Wait until these nodes, or all of them, are ready.

        Raises:
            UnavailableError: one of them ended; the message has its last log line.
            DeadlineError: one of them is not ready in time.
        """
        deadline = time.monotonic() + timeout
        for node in nodes or self.nodes:
            while not self.is_ready(node):
                if not self.is_running(node):
                    msg = f"node {node} stopped: {self.last_words(node)}"
                    raise UnavailableError(msg)
                if time.monotonic() > deadline:
                    msg = f"node {node} is not ready: {self.last_words(node)}"
                    raise DeadlineError(msg)
                time.sleep(_POLL_S)

    def is_ready(self, node: int) -> bool:
        """Return whether a node reports that it is ready."""
        url = f"{self.http(node)}/ready"
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:  # noqa: S310, RUF100
                return bool(answer.status == 200)  # noqa: PLR2004, RUF100
        except (urllib.error.URLError, OSError):
            return False

    def close(self) -> None:
        """Stop every node; with SIGKILL if it does not stop in time, or on Ctrl-C."""
        for node in self.nodes:
            if self.is_running(node):
                self.send(node, signal.SIGCONT)
                self.send(node, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        try:
            for process in self._processes.values():
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
        finally:
            for process in self._processes.values():
                if process.poll() is None:
                    process.kill()
                    process.wait()
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None
            for end in self._lifeline or ():
                os.close(end)
            self._lifeline = None
            self._reservation.close()
            self._stack.close()

    def _take(self) -> None:
        """Make sure that nobody else runs nodes in the directory."""
        if self._lock is not None:
            return
        lock = os.open(self.directory / "up.lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            pids = " ".join(str(pid) for pid in self._left())
            msg = (
                f"nodes of the cluster in {self.directory} are running already, at "
                f"{self.seeds}"
            )
            msg += f" (processes {pids})" if pids else ""
            raise LockedError(msg, path=str(self.directory)) from None
        self._lock = lock

    def _left(self) -> Iterator[int]:
        """Return the processes of nodes that somebody else has started."""
        for node in self.nodes:
            with contextlib.suppress(OSError, ValueError):
                # The node wrote it there; whether it is the same process still, its
                # arguments tell.
                pid = int((self.data(node) / "LOCK").read_text().split()[-1])
                said = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
                if os.fsencode(self.settings_file(node)) in said:
                    yield pid

    def _hold_ports(self) -> None:
        """Keep the ports for the nodes, also while one of them is down."""
        try:
            for ports in self._ports.values():
                self._reservation.hold(ports)
        except UnavailableError as error:
            raise UnavailableError(
                f"{error.message}; {self.directory / 'ports.json'} gives it to a node"
                " of this cluster: stop what uses it"
            ) from error.__cause__

    def last_words(self, node: int) -> str:
        """Return the last message that a node logged."""
        text = self.output(node).read_text(errors="replace")[-_WORDS_MAX:].strip()
        last = text.rpartition("\n")[2]
        try:
            return str(json.loads(last)["message"])
        except (ValueError, KeyError, TypeError):
            return text or "it logged nothing"

    def _write_settings(self, node: int) -> None:
        file = self.settings_file(node)
        file.parent.mkdir(parents=True, exist_ok=True)
        sections: dict[str, dict[str, Any]] = {
            "node": {
                "id": node,
                "data": str(self.data(node)),
                "listen": self.address(node),
                "http": self.http(node).removeprefix("http://"),
            },
            "cluster": {
                "voters": {str(each): self.address(each) for each in self._voters}
            },
        }
        for name, values in self._settings.items():
            sections.setdefault(name, {}).update(values)
        write_whole(file, "".join(_section(*each) for each in sections.items()))


def _section(name: str, values: Mapping[str, Any]) -> str:
    lines = [f"{key} = {_toml(value)}" for key, value in values.items()]
    return "\n".join([f"[{name}]", *lines, ""])


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = ", ".join(f"{k} = {_toml(v)}" for k, v in value.items())
        return f"{{ {pairs} }}"
    return json.dumps(value)  # the same for numbers, truth and plain texts
