"""What is done to the hosts of an application beside the nodes of its log."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from cluster import disks
from cluster.chaos import Chaos, Mend
from cluster.hosts import Hosts

__all__ = ["HostChaos"]

DISK_BYTES: Final = 256 << 20


class HostChaos:
    """Hosts, and what is done to one of them; whoever ended is started by others."""

    def __init__(
        self, hosts: Hosts, chaos: Chaos, stack: ExitStack, disk_bytes: int = DISK_BYTES
    ) -> None:
        self._hosts = hosts
        self._chaos = chaos
        self._disks: dict[int, disks.Disk] = {}
        if not disks.why_not():
            for host in hosts.numbers:
                path = hosts.state(host)
                self._disks[host] = disks.Disk(path, disk_bytes, stack)

    def strike(self, host: int) -> tuple[str, Mend]:
        """Do something to a host; return what, and what mends it."""
        name, fault = self._chaos.random.choice(list(self._possible().items()))
        return name, fault(host)

    def _kill(self, host: int) -> Mend:
        self._hosts.kill(host)
        return lambda: None

    def _freeze(self, host: int) -> Mend:
        self._hosts.signal(host, signal.SIGSTOP)
        return lambda: self._hosts.signal(host, signal.SIGCONT)

    def _isolate(self, host: int) -> Mend:
        assert self._chaos.network is not None
        self._chaos.network.isolate(self._hosts.number(host))
        return self._chaos.network.heal

    def _strand(self, host: int) -> Mend:
        """Cut it off from the nodes; those who call it still reach it."""
        network, number = self._chaos.network, self._hosts.number(host)
        assert network is not None
        for node in self._chaos.cluster.nodes:
            network.cut(number, node)
            if self._chaos.random.random() < 0.5:
                network.cut(node, number)
        return network.heal

    def _fill(self, host: int) -> Mend:
        self._disks[host].fill()
        return self._disks[host].free

    def _possible(self) -> dict[str, Callable[[int], Mend]]:
        found: dict[str, Callable[[int], Mend]] = {
            "kill": self._kill,
            "freeze": self._freeze,
        }
        if self._chaos.network is not None:
            found |= {"isolate": self._isolate, "strand": self._strand}
        if self._disks:
            found["full disk"] = self._fill
        return found
