"""What is done to the nodes of a cluster: killed, frozen, cut off, out of space.

Each fault returns what mends it. Partitions need network namespaces and full disks need
mounts, so root; what is not possible here is left out, and `skipped` says why. Others
on the same network, such as hosts of an application, have numbers `beside` the nodes.

With `volatile` the disks forget what was not synced: instead of full they become slow,
and nodes lose their power, mostly one and now and then all of them at the same moment.
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from braidlog.testing.cluster import LocalCluster
from cluster import clocks, disks, network
from cluster import volatile as volatile_disks
from cluster.volatile import VolatileDisk

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
        volatile: bool = False,
        package: Path | None = None,
        program: str = "braidlog",
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
        self._launchers: dict[int, list[str]] = {}
        self._clocks: dict[int, clocks.Clock] = {}
        if why := clocks.why_not():
            self.skipped["clock"] = why
        else:
            files = {node: directory / f"clock-{node}" / "shift" for node in numbers}
            self._clocks = {node: clocks.Clock(file) for node, file in files.items()}
        for node in numbers:
            self.package(node, package)
        self.cluster = LocalCluster(
            nodes,
            directory=directory,
            settings=settings,
            hosts={node: net.host(node) for node in numbers} if net else None,
            launchers=self._launchers,
            program=program,
        )
        self._disks: dict[int, disks.Disk] = {}
        self._volatile: dict[int, VolatileDisk] = {}
        paths = {node: self.cluster.data(node) for node in numbers}
        if why := volatile_disks.why_not() if volatile else disks.why_not():
            self.skipped["power and slow disk" if volatile else "full disk"] = why
        elif volatile:
            for node, path in paths.items():
                self._volatile[node] = stack.enter_context(VolatileDisk(path))
        else:
            for node, path in paths.items():
                self._disks[node] = disks.Disk(path, DISK_BYTES, stack)
        stack.enter_context(self.cluster)

    def package(self, node: int, package: Path | None) -> None:
        """Let a node be of the package at a path, or of this one, when it starts."""
        command = self.network.launcher(node) if self.network is not None else []
        if (clock := self._clocks.get(node)) is not None:
            command += clock.launcher()
        if package is not None:
            command += ["env", f"PYTHONPATH={package}"]
        # In place: the cluster looks when it starts the node.
        self._launchers.setdefault(node, [])[:] = command

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

    def _power(self) -> Mend:
        """Kill nodes, now and then all, and let their disks forget."""
        nodes = self._some(len(self.cluster.nodes))
        for node in nodes:
            self.cluster.kill(node)
        for node in nodes:
            self._volatile[node].cut(self.random.getrandbits(32))
        self.ended -= len(nodes)
        return lambda: None

    def _slow(self) -> Mend:
        nodes = self._some(2)
        for node in nodes:
            self._volatile[node].slow(self.random.choice([0.02, 0.2, 1.0]))

        def mend() -> None:
            for node in nodes:
                self._volatile[node].slow(0.0)

        return mend

    def _thin(self) -> Mend:
        assert self.network is not None
        for node in self._some(len(self.cluster.nodes)):
            self.network.thin(node)
        return self.network.heal

    def _jump(self) -> Mend:
        """Set clocks ahead or back, by seconds or by days; they stay so."""
        for node in self._some(len(self.cluster.nodes)):
            shift = self.random.choice([1.0, 60.0, 86_400.0]) * self.random.uniform(
                -1, 1
            )
            self._clocks[node].set(shift)
        return lambda: None

    def _some(self, most: int) -> list[int]:
        """Return nodes that run; mostly a single one."""
        count = self.random.choice([1, 1, 1, self.random.randint(1, most)])
        return self.random.sample(self.cluster.nodes, count)

    def _possible(self) -> dict[str, Callable[[], Mend]]:
        found = {"kill": self._kill, "freeze": self._freeze}
        if self.network is not None:
            found |= {"isolate": self._isolate, "cut": self._cut, "thin": self._thin}
        if self._disks:
            found["full disk"] = self._fill
        if self._volatile:
            found |= {"power": self._power, "slow disk": self._slow}
        if self._clocks:
            found["clock"] = self._jump
        return found
