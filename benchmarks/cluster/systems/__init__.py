"""The systems that are compared, each started by a function of its own."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeAlias

from benchmarks.cluster import processes
from benchmarks.cluster.load import Loop, System
from benchmarks.cluster.plan import Plan
from benchmarks.cluster.systems import braidlog, chain, etcd, nats

Start: TypeAlias = Callable[[Plan, str, ExitStack], System]
"""Start processes in the plan's directory, under a name, until the stack closes."""

FLOOR, OURS = "chain", "braidlog"
PEERS = ("etcd", "nats")

STARTS: dict[str, Start] = {
    FLOOR: chain.start,
    OURS: braidlog.start,
    "etcd": etcd.start,
    "nats": nats.start,
}


def opened(
    name: str, plan: Plan, question: str, stack: ExitStack
) -> tuple[Loop, System, frozenset[int]]:
    """Start a system and connect to it; return its processes, too."""
    before = processes.children()
    system = STARTS[name](plan, question, stack)
    nodes = processes.children() - before
    loop = Loop(stack)
    loop.run(system.open())
    stack.callback(lambda: loop.run(system.close()))
    if plan.priority:
        processes.prioritize(plan.priority)
    return loop, system, nodes
