"""A seeded nemesis: what breaks, when, for how long, until it all ends.

*Theory of operation.* A storm names kinds of faults with weights. The nemesis draws one
after a random pause, applies it, and sets when it ends; faults overlap. After the
storm's time it puts everything right: links, processes, clocks, disks. From then on
nothing breaks any more, and whatever does not come to rest by itself is a bug.

*Invariants.* Never more than `down_max` nodes are dead or paused at a time, but for a
blackout or an outage. Each fault that began is over when `run` returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType

from sim.disk import FaultyDisk
from sim.frames import FrameFaults
from sim.world import Node, World

__all__ = ["FAULTS", "STORMS", "Nemesis", "Storm"]


@dataclass(frozen=True, slots=True)
class Storm:
    """What breaks how often."""

    name: str
    # Weight of each kind of fault; see `FAULTS`.
    weights: Mapping[str, int]
    seconds: float = 30.0
    # Mean seconds between two faults, and bounds of how long one lasts.
    every_s: float = 2.0
    lasts_s: tuple[float, float] = (0.05, 6.0)
    # Nodes that are dead or paused at a time; None: fewer than half.
    down_max: int | None = None
    # What happens to frames of the ports that speak them.
    frames: FrameFaults = field(default_factory=FrameFaults)
    # Numbers of the messages that a deaf node does not hear.
    unheard: frozenset[int] = frozenset()
    # Of the nodes' logs: a full disk is felt where a segment ends.
    segment_bytes: int = 1 << 20
    # What a client may have outstanding; with little its appends wait for one another.
    outstanding_bytes: int = 64 << 20
    # Hosts that take all they get of the nodes, which have small limits then.
    strangers: int = 0
    # What those who run a cluster do to it, by name; everything, if it is empty.
    actions: tuple[str, ...] = ()


class Nemesis:
    """Breaks the nodes it is given, and puts them right; see the module."""

    def __init__(
        self,
        world: World,
        nodes: Sequence[str],
        storm: Storm,
        others: Sequence[str] = (),
        groups: Callable[[], Sequence[Sequence[str]]] = tuple,
        rot: Callable[[Random], bool] = lambda _: False,
    ) -> None:
        """Begin with nothing broken. Only links break of the `others`, the clients.

        `groups` says, when it is asked, which nodes an outage takes down together;
        `rot` damages something on one disk, if there is something that may be.
        """
        self.world = world
        self._nodes = list(nodes)
        self.others = list(others)
        self.groups = groups
        self.rot = rot
        self.storm = storm
        self.random: Random = world.random("nemesis")
        half = (len(self._nodes) - 1) // 2
        self.down_max = storm.down_max if storm.down_max is not None else half
        self.applied: dict[str, int] = {}
        # What outages took down: groups may have nodes that came later.
        self.unplugged: dict[str, None] = {}
        self._over = False

    async def run(self) -> None:
        """Let the storm pass, then put everything right."""
        end = self.world.now + self.storm.seconds
        self.world.network.frame_faults = self.storm.frames
        kinds = [kind for kind, weight in self.storm.weights.items() if weight]
        weights = [self.storm.weights[kind] for kind in kinds]
        while kinds:
            pause = self.random.expovariate(1 / self.storm.every_s)
            await asyncio.sleep(min(pause, max(0.0, end - self.world.now)))
            if self.world.now >= end:
                break
            self._apply(self.random.choices(kinds, weights)[0])
        if not kinds:
            await asyncio.sleep(self.storm.seconds)
        self.quiet()

    def _apply(self, kind: str) -> None:
        undo = FAULTS[kind](self)
        if undo is None:
            return
        self.applied[kind] = self.applied.get(kind, 0) + 1
        low, high = self.storm.lasts_s
        seconds = low + (high - low) * self.random.random() ** 2
        asyncio.get_running_loop().call_later(seconds, self._undo, undo)

    def _undo(self, undo: Callable[[], None]) -> None:
        if not self._over:
            undo()

    def quiet(self) -> None:
        """Put everything right, for good."""
        self._over = True
        world = self.world
        world.note("world", "quiet: every fault ends")
        world.network.frame_faults = FrameFaults()
        world.network.deaf.clear()
        for host in world.network.hosts.values():
            host.refusing = False
        for name in dict.fromkeys([*self.nodes, *self.unplugged]):
            node = world.nodes[name]
            _mend_disk(node)
            if node.rate != 1.0:
                world.drift(name, 1.0)
            _wake(world, node)
        world.network.heal()
        world.calm.set()

    # What faults need.

    @property
    def nodes(self) -> list[str]:
        """Return the nodes that are not gone for good."""
        return [name for name in self._nodes if not self.world.nodes[name].retired]

    def living(self) -> list[str]:
        """Return the nodes that run."""
        nodes = [self.world.nodes[name] for name in self.nodes]
        return [node.name for node in nodes if node.alive and not node.paused]

    def victim(self) -> Node | None:
        """Draw a node to take down, if one more may be down."""
        living = self.living()
        if not living or len(self.nodes) - len(living) >= self.down_max:
            return None
        return self.world.nodes[self.random.choice(living)]

    def pair(self) -> tuple[str, str]:
        """Draw two hosts, at least one of them a node."""
        one = self.random.choice(self.nodes)
        rest = [name for name in [*self.nodes, *self.others] if name != one]
        return one, self.random.choice(rest)


def _wake(world: World, node: Node) -> None:
    if node.retired:
        return
    if node.paused:
        world.resume(node.name)
    elif not node.alive:
        world.restart(node.name)


def _mend_disk(node: Node) -> None:
    if isinstance(node.disk, FaultyDisk):
        node.disk.slow(0.0)
        node.disk.fail_syncs(False)
        node.disk.fill(False)


_Undo = Callable[[], None] | None


def _kill(nemesis: Nemesis, *, power: bool) -> _Undo:
    node = nemesis.victim()
    if node is None:
        return None
    nemesis.world.crash(node.name, power=power)
    return lambda: _wake(nemesis.world, node)


def _crash(nemesis: Nemesis) -> _Undo:
    return _kill(nemesis, power=True)


def _power(nemesis: Nemesis) -> _Undo:
    return _kill(nemesis, power=False)


def _pause(nemesis: Nemesis) -> _Undo:
    node = nemesis.victim()
    if node is None:
        return None
    nemesis.world.pause(node.name)
    return lambda: _wake(nemesis.world, node)


def _blackout(nemesis: Nemesis) -> _Undo:
    """Take the power from all nodes at once, whatever `down_max` is."""
    return _unplug(nemesis, nemesis.nodes)


def _outage(nemesis: Nemesis) -> _Undo:
    """Take the power from all that hold the same at once, whatever `down_max` is."""
    groups = nemesis.groups()
    return _unplug(nemesis, nemesis.random.choice(groups)) if groups else None


def _unplug(nemesis: Nemesis, names: Sequence[str]) -> _Undo:
    nodes = [nemesis.world.nodes[name] for name in names]
    nemesis.unplugged.update(dict.fromkeys(names))
    for node in nodes:
        if node.alive:
            nemesis.world.crash(node.name, power=False)

    def power_up() -> None:
        for node in nodes:
            _wake(nemesis.world, node)

    return power_up


def _partition(nemesis: Nemesis) -> _Undo:
    hosts = [*nemesis.nodes, *nemesis.others]
    nemesis.random.shuffle(hosts)
    at = nemesis.random.randint(1, max(1, len(hosts) - 1))
    network = nemesis.world.network
    network.partition(hosts[:at], hosts[at:])
    return network.heal


def _one_way(nemesis: Nemesis) -> _Undo:
    one, other = nemesis.pair()
    if nemesis.random.random() < 0.5:
        one, other = other, one
    network = nemesis.world.network
    network.cut(one, other)
    return lambda: network.heal(one, other)


def _sever(nemesis: Nemesis) -> _Undo:
    """Cut two hosts off from each other; both still reach all the rest."""
    pair = nemesis.pair()
    network = nemesis.world.network
    network.partition(*([name] for name in pair))

    def heal() -> None:
        network.heal(*pair)
        network.heal(*reversed(pair))

    return heal


def _isolate(nemesis: Nemesis) -> _Undo:
    """Cut one node off in one direction only: it hears all, or all hear it."""
    one = nemesis.random.choice(nemesis.nodes)
    rest = [name for name in [*nemesis.nodes, *nemesis.others] if name != one]
    outgoing = nemesis.random.random() < 0.5
    links = [(one, name) if outgoing else (name, one) for name in rest]
    network = nemesis.world.network
    for link in links:
        network.cut(*link)

    def heal() -> None:
        for link in links:
            network.heal(*link)

    return heal


def _hear(world: World, name: str) -> None:
    world.network.deaf.pop(name, None)


def _deaf(nemesis: Nemesis) -> _Undo:
    """Lose what one node is told by some messages, and let all others through."""
    name = nemesis.random.choice(nemesis.nodes)
    unheard = nemesis.storm.unheard
    if not unheard:
        return None
    deaf = nemesis.world.network.deaf
    deaf[name] = FrameFaults(loss=1.0, kinds=unheard)
    return lambda: _hear(nemesis.world, name)


def _reset(nemesis: Nemesis) -> _Undo:
    nemesis.world.network.reset(*nemesis.pair())
    return _nothing


def _half_open(nemesis: Nemesis) -> _Undo:
    nemesis.world.network.forget_side(*nemesis.pair())
    return _nothing


def _refuse(nemesis: Nemesis) -> _Undo:
    host = nemesis.world.network.host(nemesis.random.choice(nemesis.nodes))
    host.refusing = True

    def accept() -> None:
        host.refusing = False

    return accept


def _drift(nemesis: Nemesis) -> _Undo:
    name = nemesis.random.choice(nemesis.nodes)
    nemesis.world.drift(name, 1.0 + nemesis.random.uniform(-0.05, 0.05))
    return _nothing


def _disk(nemesis: Nemesis, worsen: Callable[[FaultyDisk], None]) -> _Undo:
    node = nemesis.world.nodes[nemesis.random.choice(nemesis.nodes)]
    if not isinstance(node.disk, FaultyDisk):
        return None
    worsen(node.disk)
    return lambda: _mend_disk(node)


def _slow_disk(nemesis: Nemesis) -> _Undo:
    seconds = nemesis.random.uniform(0.01, 1.0)
    return _disk(nemesis, lambda disk: disk.slow(seconds))


def _failing_disk(nemesis: Nemesis) -> _Undo:
    return _disk(nemesis, lambda disk: disk.fail_syncs(True))


def _full_disk(nemesis: Nemesis) -> _Undo:
    return _disk(nemesis, lambda disk: disk.fill(True))


def _rot(nemesis: Nemesis) -> _Undo:
    """Damage what one disk holds; nothing but a repair ends that."""
    return _nothing if nemesis.rot(nemesis.random) else None


def _nothing() -> None:
    """End a fault that is over at once."""


# Each applies one fault and returns what ends it, or None if it cannot be applied now.
FAULTS: Mapping[str, Callable[[Nemesis], _Undo]] = MappingProxyType(
    {
        "blackout": _blackout,
        "crash": _crash,
        "deaf": _deaf,
        "drift": _drift,
        "failing disk": _failing_disk,
        "full disk": _full_disk,
        "half-open": _half_open,
        "isolate": _isolate,
        "one-way": _one_way,
        "outage": _outage,
        "partition": _partition,
        "pause": _pause,
        "power": _power,
        "refuse": _refuse,
        "reset": _reset,
        "rot": _rot,
        "sever": _sever,
        "slow disk": _slow_disk,
    }
)

_LINKS = {"partition": 3, "one-way": 3, "isolate": 2, "sever": 2}
_CONNECTIONS = {"reset": 4, "half-open": 2, "refuse": 1}
_CRASHES = {"crash": 4, "power": 4, "blackout": 1, "outage": 1}
_DISKS = {"slow disk": 3, "failing disk": 1, "full disk": 1, "power": 2}
_LOSSY = FrameFaults(loss=0.02, repeat=0.02, delay=0.05)
# What rots asks for small files and caches, so it has a storm of its own.
_EVERY = dict.fromkeys([kind for kind in FAULTS if kind != "rot"], 2)

_ALL = (
    Storm("calm", {}, seconds=10.0),
    Storm("partitions", _LINKS),
    Storm("connections", _CONNECTIONS, every_s=0.5),
    Storm("frames", _CONNECTIONS, frames=_LOSSY),
    Storm("crashes", _CRASHES),
    Storm("pauses", {"pause": 3, "drift": 1}),
    Storm("disks", _DISKS),
    Storm("clocks", {"drift": 3, "pause": 1, "one-way": 1}),
    Storm("all", _EVERY | {"blackout": 1, "outage": 1}, frames=_LOSSY),
)
STORMS: Mapping[str, Storm] = MappingProxyType({storm.name: storm for storm in _ALL})
