"""A network namespace for each node, on a bridge of this machine; needs root.

A node is cut off from another one as by a network that swallows what it gets: its table
of neighbours sends the packets to nobody. That works one way at a time.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

__all__ = ["Network", "why_not"]

_NOBODY: Final = "02:00:00:00:00:ff"


def why_not() -> str:
    """Return why there can be no namespaces here; empty if there can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "tc", "nsenter"):
        if shutil.which(tool) is None:
            return f"the command {tool} is not installed"
    try:
        with Network((1,)):
            return ""
    except subprocess.CalledProcessError as error:
        return f"{' '.join(error.cmd)}: {error.stderr.decode().strip()}"


class Network:
    """Nodes and this machine on one bridge; everything is removed at the end."""

    def __init__(self, nodes: Iterable[int]) -> None:
        # Names of interfaces have 15 characters at most; the process makes them unique.
        self._name = f"b{os.getpid()}"
        self._prefix = f"10.{os.getpid() >> 8 & 255}.{os.getpid() & 255}"
        self.nodes = tuple(nodes)

    def __enter__(self) -> Self:
        try:
            _ip("link", "add", self._name, "type", "bridge")
            _ip("addr", "add", f"{self._prefix}.254/24", "dev", self._name)
            _ip("link", "set", self._name, "up")
            for node in self.nodes:
                self._join(node)
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
        self.close()

    def _join(self, node: int) -> None:
        space, outside = self._space(node), f"{self._name}-{node}"
        _ip("netns", "add", space)
        pair = ["peer", "name", "eth0", "netns", space]
        _ip("link", "add", outside, "type", "veth", *pair)
        _ip("link", "set", outside, "master", self._name, "up")
        _ip("-n", space, "addr", "add", f"{self.host(node)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")
        _ip("-n", space, "link", "set", "lo", "up")

    def _space(self, node: int) -> str:
        return f"{self._name}-{node}"

    def host(self, node: int) -> str:
        """Return the address of a node."""
        return f"{self._prefix}.{node}"

    def launcher(self, node: int) -> list[str]:
        """Return what the command of a node begins with."""
        return ["nsenter", f"--net=/run/netns/{self._space(node)}", "--"]

    def cut(self, source: int, target: int) -> None:
        """Let nothing through from one node to another."""
        host = [self.host(target), "lladdr", _NOBODY, "nud", "permanent"]
        _ip("-n", self._space(source), "neigh", "replace", *host, "dev", "eth0")

    def isolate(self, node: int) -> None:
        """Let nothing through to a node and from it, clients included."""
        _ip("link", "set", f"{self._name}-{node}", "down")

    def thin(self, node: int) -> None:
        """Make a node's line slow and its queue short, so that it drops packets."""
        line = ["tbf", "rate", "4mbit", "burst", "4kb", "limit", "6kb"]
        space = ["-n", self._space(node)]
        _run("tc", *space, "qdisc", "replace", "dev", "eth0", "root", *line)

    def heal(self) -> None:
        """Let everything through."""
        for node in self.nodes:
            # There is none on a line that is not thin.
            space = ["-n", self._space(node)]
            _run("tc", *space, "qdisc", "del", "dev", "eth0", "root", check=False)
            _ip("link", "set", f"{self._name}-{node}", "up")
            flush = ["neigh", "flush", "nud", "permanent", "dev", "eth0"]
            _ip("-n", self._space(node), *flush)

    def close(self) -> None:
        """Remove everything."""
        for node in self.nodes:
            _ip("netns", "del", self._space(node), check=False)
        _ip("link", "del", self._name, check=False)


def _ip(*words: str, check: bool = True) -> None:
    _run("ip", *words, check=check)


def _run(*command: str, check: bool = True) -> None:
    subprocess.run(command, check=check, capture_output=True)
