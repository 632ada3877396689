"""The clusters of a run: each is started once, and stays until the run ends."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster import load, processes
from benchmarks.cluster.load import Bound, Client, Loop
from benchmarks.cluster.plan import Plan
from benchmarks.cluster.systems import SYSTEMS
from benchmarks.cluster.systems.system import Nodes, System
from benchmarks.contest import Unavailable

_WARM_BYTES = 128
_WARM_TASKS = 64


class Fleet:
    """Clusters by name, started when they are first asked for."""

    def __init__(
        self, plan: Plan, stack: ExitStack, folder: Path, *, warm: bool = True
    ) -> None:
        """Start nothing; what is started in `folder` ends when the stack closes."""
        self._folder = folder
        self._warm = warm
        self._plan = plan
        self._stack = stack
        self.loop = Loop(stack)
        self._running: dict[str, Nodes] = {}
        self._missing: dict[str, Unavailable] = {}

    def nodes(self, name: str) -> Nodes:
        """Return the processes of a system.

        Raises:
            Unavailable: its program is not there.
        """
        system = SYSTEMS[name]
        if system.nodes in self._missing:
            raise self._missing[system.nodes]
        if system.nodes not in self._running:
            folder = self._folder / system.nodes
            try:
                made = system.start(self._plan, folder, self._stack)
            except Unavailable as reason:
                self._missing[system.nodes] = reason
                raise
            self._running[system.nodes] = made
            if self._warm and system.warm_s:
                self.loop.run(_warm(system, made))
            if self._plan.priority:
                processes.prioritize(self._plan.priority)
        return self._running[system.nodes]

    def open(self, name: str, log: str, streams: int, stack: ExitStack) -> Client:
        """Make a log of a system and return a client of it, until the stack closes."""
        client = SYSTEMS[name].client(self.nodes(name).address)
        stack.callback(lambda: self.loop.run(client.close()))
        self.loop.run(client.open(log, streams, make=True))
        return client


async def _warm(system: System, nodes: Nodes) -> None:
    client = system.client(nodes.address)
    try:
        await client.open("warm", 1, make=True)
        half = Bound(1 << 30, system.warm_s / 2)
        await load.callers(client, bytes(_WARM_BYTES), half, 1)
        await load.callers(client, bytes(_WARM_BYTES), half, _WARM_TASKS)
    finally:
        await client.close()


@dataclass(frozen=True, slots=True)
class Run:
    """A plan and the clusters that it is carried out with."""

    plan: Plan
    fleet: Fleet

    @property
    def rounds(self) -> int:
        """Return how many rounds count."""
        return self.plan.rounds

    @property
    def directory(self) -> Path:
        """Return where data goes."""
        return self.plan.directory
