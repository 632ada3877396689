"""What is done to the nodes of a cluster: killed, frozen, cut off, out of space.

Each fault returns what mends it. Partitions need network namespaces and full disks need
mounts, so root; what is not possible here is left out, and `skipped` says why. Others
on the same network, such as hosts of an application, have numbers `beside` the nodes.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from braidlog.testing.cluster import LocalCluster
from cluster import disks, network

__all__ = ["Chaos", "Mend"]

DISK_BYTES: Final = 512 << 20
Mend = Callable[[], None]


class Chaos:
    """One cluster and what is done to it."""

    def __init__(
        self,
        nodes: int,
        seed: int,
        directory: Path,
        stack: ExitStack,
        settings: dict[str, dict[str, Any]],
        *,
        beside: Iterable[int] = (),
    ) -> None:
        self.random = random.Random(seed)
        self.skipped: dict[str, str] = {}
        self.faults: dict[str, int] = {}
        self.ended = 0
        """Nodes that ended by themselves, as those without space do."""
        self.network: network.Network | None = None
        numbers = range(1, nodes + 1)
        if why := network.why_not():
            self.skipped["partition"] = why
        else:
            self.network = stack.enter_context(network.Network((*numbers, *beside)))
        net = self.network
        self.cluster = LocalCluster(
            nodes,
            directory=directory,
            settings=settings,
            hosts={node: net.host(node) for node in numbers} if net else None,
            launchers={node: net.launcher(node) for node in numbers} if net else None,
        )
        self._disks: dict[int, disks.Disk] = {}
        if why := disks.why_not():
            self.skipped["full disk"] = why
        else:
            for node in numbers:
                path = self.cluster.data(node)
                self._disks[node] = disks.Disk(path, DISK_BYTES, stack)
        stack.enter_context(self.cluster)

    def strike(self) -> tuple[str, Mend]:
        """Do something; return what, and what mends it."""
        name, fault = self.random.choice(list(self._possible().items()))
        self.faults[name] = self.faults.get(name, 0) + 1
        return name, fault()

    def start_all(self) -> None:
        """Start whoever does not run."""
        for node in self.cluster.nodes:
            if not self.cluster.is_running(node):
                self.ended += 1
                self.cluster.restart(node)
        self.cluster.wait_ready()

    def _kill(self) -> Mend:
        nodes = self._some(len(self.cluster.nodes))
        for node in nodes:
            self.cluster.kill(node)
        self.ended -= len(nodes)
        return lambda: None  # Whoever does not run is started after each round.

    def _freeze(self) -> Mend:
        nodes = self._some(len(self.cluster.nodes) // 2 + 1)
        for node in nodes:
            self.cluster.send(node, signal.SIGSTOP)

        def mend() -> None:
            for node in nodes:
                self.cluster.send(node, signal.SIGCONT)

        return mend

    def _isolate(self) -> Mend:
        assert self.network is not None
        for node in self._some(len(self.cluster.nodes) // 2 + 1):
            self.network.isolate(node)
        return self.network.heal

    def _cut(self) -> Mend:
        """Cut some of the ways between nodes, each direction by itself."""
        assert self.network is not None
        for _ in range(self.random.randint(1, len(self.cluster.nodes))):
            self.network.cut(*self.random.sample(self.cluster.nodes, 2))
        return self.network.heal

    def _fill(self) -> Mend:
        nodes = self._some(2)
        for node in nodes:
            self._disks[node].fill()

        def mend() -> None:
            for node in nodes:
                self._disks[node].free()

        return mend

    def _some(self, most: int) -> list[int]:
        """Return nodes that run; mostly a single one."""
        count = self.random.choice([1, 1, 1, self.random.randint(1, most)])
        return self.random.sample(self.cluster.nodes, count)

    def _possible(self) -> dict[str, Callable[[], Mend]]:
        found = {"kill": self._kill, "freeze": self._freeze}
        if self.network is not None:
            found |= {"isolate": self._isolate, "cut": self._cut}
        if self._disks:
            found["full disk"] = self._fill
        return found
