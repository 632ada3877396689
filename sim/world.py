"""A world of nodes that start, crash, pause and drift, and of their disks.

*Theory of operation.* A node is a name, a factory of its main coroutine, and a disk.
Each start is a new `Process` in a context of its own; a crash ends that process between
two callbacks, as SIGKILL does: no `finally` runs and nothing is sent, except what the
kernel sends. The coroutines of the dead are kept until the world closes, so that not
even their clean-up happens within the run.

*Invariants.* A node has at most one living process. Everything drawn comes from
generators that `random` makes of the seed and a name, so that a new draw in one place
does not change those of another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from dataclasses import dataclass
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar

from sim.disk import Disk
from sim.errors import MisuseError
from sim.loop import VirtualLoop
from sim.network import LinkSettings, Network
from sim.process import CURRENT, Clock, Process
from sim.trace import Trace

__all__ = ["Life", "Node", "World"]

T = TypeVar("T")

# Seconds since 1970 at the true time 0.
_WALL_ORIGIN_S = 1_700_000_000


@dataclass(frozen=True, slots=True)
class Life:
    """What a node's factory gets at each start."""

    name: str
    # 1 at the first start.
    number: int
    world: World
    # The same object at each start; None if the node has none.
    disk: Any
    random: Random
    process: Process

    def wall_s(self) -> float:
        """Return the time of day as the node's clock has it."""
        return _WALL_ORIGIN_S + self.process.clock.local(self.world.loop.true_time)


Factory = Callable[[Life], Coroutine[Any, Any, object]]


@dataclass(slots=True)
class Node:
    """A name with what survives its processes."""

    name: str
    factory: Factory
    disk: Disk | None
    # Exceptions that may end its main coroutine; others fail the run.
    tolerated: tuple[type[BaseException], ...] = ()
    process: Process | None = None
    lives: int = 0
    # Taken away for good: nobody starts it again.
    retired: bool = False
    rate: float = 1.0

    @property
    def alive(self) -> bool:
        """Return whether a process of the node exists, paused or not."""
        return self.process is not None and self.process.alive

    @property
    def paused(self) -> bool:
        """Return whether the process exists and is stopped."""
        return self.process is not None and self.process.alive and self.process.paused


class World:
    """Loop, network and nodes of one seed; see the module."""

    def __init__(
        self,
        seed: int,
        *,
        links: LinkSettings | None = None,
        trace: Trace | None = None,
    ) -> None:
        """Begin at time 0 with no nodes."""
        self.seed = seed
        self.trace = trace or Trace()
        self.loop = VirtualLoop(self.trace)
        self.network = Network(self.loop, self.random("network"), links)
        self.nodes: dict[str, Node] = {}
        # Set when the faults are over for good, for workloads that go on till then.
        self.calm = asyncio.Event()
        self._processes = 0
        self._clocks = self.random("clocks")

    def random(self, name: str) -> Random:
        """Return a generator of the seed for one purpose."""
        return Random(f"{self.seed}/{name}")

    def note(self, node: str, what: str) -> None:
        """Put an event into the trace."""
        self.trace.event(self.loop.true_time, node, what)

    @property
    def now(self) -> float:
        """Return the true time."""
        return self.loop.true_time

    # Lives of nodes.

    def start(
        self,
        name: str,
        factory: Factory,
        *,
        disk: Disk | None = None,
        tolerated: tuple[type[BaseException], ...] = (),
        rate: float = 1.0,
    ) -> Node:
        """Add a node and start it.

        The run fails when its main coroutine ends with an exception that is not
        tolerated; when it returns, the process is over.
        """
        if name in self.nodes:
            raise MisuseError(f"there is a node {name} already")
        node = Node(name, factory, disk, tolerated, rate=rate)
        self.nodes[name] = node
        self.restart(name)
        return node

    def restart(self, name: str) -> None:
        """Start a node that is not alive."""
        node = self.nodes[name]
        if node.alive:
            raise MisuseError(f"{name} is alive")
        node.lives += 1
        process = self._process(node)
        node.process = process
        self.network.host(name)
        self.network.power_up(name)
        self.note(name, f"starts, life {node.lives}")
        random = self.random(f"{name}/{node.lives}")
        life = Life(name, node.lives, self, node.disk, random, process)
        context = Context()
        context.run(CURRENT.set, process)
        main = context.run(node.factory, life)
        task = self.loop.create_task(main, name=f"{name} main", context=context)

        def ended(task: asyncio.Task[object]) -> None:
            self._ended(node, process, task)

        task.add_done_callback(ended, context=Context())

    def _process(self, node: Node) -> Process:
        # What a monotonic clock shows at boot means nothing, and differs.
        clock = Clock(self._clocks.uniform(0.0, 1e5), 1.0)
        clock.drift(self.loop.true_time, node.rate)
        self._processes += 1
        return Process(node.name, self._processes, clock)

    def _ended(self, node: Node, process: Process, task: asyncio.Task[object]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, node.tolerated):
            self.loop.fail(f"{node.name} ended", error)
        if process.alive:
            self.note(node.name, f"exits: {type(error).__name__ if error else 'done'}")
            self._bury(node, process, power=True)

    def crash(self, name: str, *, power: bool = True) -> None:
        """Kill a node at once; with `power=False`, its machine too.

        With power, the kernel resets its connections and keeps what was written.
        """
        node = self.nodes[name]
        if not node.alive or node.process is None:
            raise MisuseError(f"{name} is not alive")
        self.note(name, "is killed" if power else "loses power")
        self._bury(node, node.process, power=power)

    def _bury(self, node: Node, process: Process, *, power: bool) -> None:
        process.alive = False
        process.held.clear()
        self.network.process_died(process, power=power)
        if node.disk is not None:
            node.disk.on_crash(power=power)

    def retire(self, name: str) -> None:
        """Kill a node that is not to be started again."""
        node = self.nodes[name]
        node.retired = True
        if node.alive:
            self.crash(name)

    def pause(self, name: str) -> None:
        """Stop a node as SIGSTOP does: its kernel goes on, its code does not."""
        process = self._living(name)
        process.paused = True
        self.note(name, "is paused")

    def resume(self, name: str) -> None:
        """Let a paused node go on."""
        process = self._living(name)
        self.note(name, "goes on")
        self.loop.resume(process)

    def drift(self, name: str, rate: float) -> None:
        """Let a node's clock run `rate` times as fast, also after restarts."""
        node = self.nodes[name]
        node.rate = rate
        self.note(name, f"has a clock of rate {rate:.4f}")
        if node.process is not None and node.process.alive:
            self.loop.drift(node.process, rate)

    def signal(self, name: str, number: int) -> None:
        """Send a signal that the node has a handler for.

        Raises:
            MisuseError: it has none.
        """
        handler = self._living(name).signals.get(number)
        if handler is None:
            raise MisuseError(f"{name} does not handle signal {number}")
        self.note(name, f"gets signal {number}")
        handler()

    def _living(self, name: str) -> Process:
        process = self.nodes[name].process
        if process is None or not process.alive:
            raise MisuseError(f"{name} is not alive")
        return process

    # The run.

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        """Run the world until the coroutine, which is no node's, is done."""
        return self.loop.run_until_complete(main)

    def close(self) -> None:
        """End everything; nothing that still happens counts."""
        self.loop.close()

    def __enter__(self) -> Self:
        """Return the world."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close."""
        self.close()
