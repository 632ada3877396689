"""The scenario: nodes, clients, who runs them, and the judgement at the end."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from braidlog.errors import LogError
from braidlog.node.config import NodeConfig, TimingSettings
from sim.checkers import check_register
from sim.cluster.admin import Admin
from sim.cluster.clients import VISITOR, Shared, opened, run_client, run_visitor
from sim.cluster.disk import ClusterDisk
from sim.cluster.node import PORT, StoppedError, address, config_of, name_of, run_node
from sim.cluster.rest import damage, read_log, unrest
from sim.cluster.rot import Rot
from sim.cluster.shape import Shape, draw_shape
from sim.cluster.strangers import LINKS, Bounds, run_strangers
from sim.cluster.watch import Watch
from sim.errors import ViolationError
from sim.faults import Storm
from sim.process import CURRENT
from sim.world import Life, World

if TYPE_CHECKING:
    from braidlog.client.client import AsyncClient
    from braidlog.node.tables.tables import TableWork
    from braidlog.wire.messages import LogInfo

__all__ = ["ClusterScenario"]

_ADMIN = "admin"
_LOG = "log"
_LOOK_S = 0.05
_REST_S = 60.0
_PATIENCE_S = 0.1
_QUIET_LOOKS = 3
# Between passes over what is on the disks, where records rot: what is not found in the
# storm is found when it is over.
_SCRUB_MS = 12_000
# Seconds between two looks for nodes that ended.
_REVIVE_S = (0.1, 2.0)
# The longest that a client may go without a record of its own in, under strangers.
_PROGRESS_S = 3.0

_Main = Callable[[Life], Awaitable[object]]


class _TraceHandler(logging.Handler):
    """Puts what nodes and clients log into the trace."""

    def __init__(self, world: World, hidden: str) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self._hidden = hidden

    def emit(self, record: logging.LogRecord) -> None:
        who = CURRENT.get(self._world.loop.world).name
        text = f"{record.levelname.lower()}: {record.getMessage()}"
        if record.exc_info:
            text += f" {record.exc_info[1]!r}"
        if self._hidden:
            text = text.replace(self._hidden, "")
        self._world.note(who, text)


def _watched(
    world: World, name: str, work: Coroutine[Any, Any, None]
) -> asyncio.Task[None]:
    """Run something beside the load; what it raises fails the run."""

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            world.loop.fail(f"{name} ended", error)

    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(ended)
    return task


class ClusterScenario:
    """One cluster with one log under load; see the module."""

    shared: Shared
    watch: Watch
    _shape: Shape
    # A directory of this run, which the trace must not name.
    hidden = ""
    # Of the stores of nodes, beside those of their settings.
    limits: Mapping[str, int] = MappingProxyType({})

    def __init__(
        self, *, apart: bool | None = None, actions: Sequence[str] = ()
    ) -> None:
        """Begin with nothing.

        `apart` says where the log lies, None: by seed. `actions` are names of what
        those who run the cluster do to it; everything, if it is empty.
        """
        self._apart = apart
        self._actions = actions
        # Nodes that ended by themselves, and when.
        self._ended: dict[str, float] = {}

    def build(self, world: World, storm: Storm) -> None:
        """Start the nodes."""
        self._actions = self._actions or storm.actions
        self._segment_bytes = storm.segment_bytes
        self._scrub_ms = TimingSettings().scrub_ms
        shape = self._shape = self._draw(world.random("cluster"))
        world.note("world", f"{shape}")
        self._clients = [f"c{number + 1}" for number in range(shape.clients)]
        seeds = [address(each) for each in shape.nodes]
        self.shared = Shared(world, seeds, _LOG, storm.outstanding_bytes)
        self.watch = Watch(world)
        self._rot = Rot(self.watch)
        self._bounds = Bounds(world) if storm.strangers else None
        self._strangers = [f"s{number + 1}" for number in range(storm.strangers)]
        # Where nothing breaks, strangers are no reason not to get on.
        self._steady = bool(storm.strangers) and not storm.weights
        if storm.weights.get("rot"):
            # What a node still has in memory is not read, and is not damaged.
            self.limits = {**self.limits, "recent_bytes_max": 0}
            self._scrub_ms = _SCRUB_MS
        self._log_into(world)
        world.network.framed_ports[PORT] = None
        if storm.strangers:
            world.network.settings = LINKS
        for number in shape.nodes:
            self._start(world, number)

    def _draw(self, random: Random) -> Shape:
        return draw_shape(random, apart=self._apart)

    def _log_into(self, world: World) -> None:
        logger = logging.getLogger("braidlog")
        logger.handlers = [_TraceHandler(world, self.hidden)]
        logger.propagate = False
        logger.setLevel(logging.INFO)

    def _start(self, world: World, number: int) -> None:
        name = name_of(number)

        async def node(life: Life) -> None:
            try:
                config = self._config(number)
                await run_node(
                    life,
                    config,
                    self.watch.up,
                    self.limits,
                    strangers=self._bounds is not None,
                    tables=self._tables_of(name, disk),
                )
            finally:
                # Not after a crash: then nothing runs any more.
                self._ended[name] = world.now

        disk = ClusterDisk(world.random(f"disk {name}"))
        world.start(name, node, disk=disk, tolerated=(StoppedError,))

    def _tables_of(self, name: str, disk: ClusterDisk) -> TableWork | None:
        """Return with what a node keeps tables, None if it keeps none."""
        return None

    def _config(self, number: int) -> NodeConfig:
        voters, size = self._shape.voters, self._segment_bytes
        return config_of(
            number,
            voters,
            size,
            self._scrub_ms,
            strangers=self._bounds is not None,
        )

    def targets(self) -> Sequence[str]:
        """Return the nodes."""
        return [name_of(each) for each in self._shape.nodes]

    def groups(self) -> Sequence[Sequence[str]]:
        """Return the replicas of each stream."""
        return self.watch.groups()

    def others(self) -> Sequence[str]:
        """Return the clients."""
        return [*self._clients, _ADMIN]

    def rot(self, random: Random) -> bool:
        """Damage a record of one replica."""
        return self._rot.strike(random)

    async def begun(self) -> None:
        """Let faults begin at once."""

    async def workload(self, world: World) -> None:
        """Load the cluster until the storm is over and everything is at rest."""
        loop = asyncio.get_running_loop()
        self.shared.end = loop.create_future()
        beside = [
            _watched(world, "the watch", self._look(world)),
            _watched(world, "the service manager", self._revive(world)),
        ]
        created = asyncio.Event()
        ended = [self._run(world, _ADMIN, lambda life: self._admin(life, created))]
        await created.wait()
        self.shared.appending = len(self._clients)
        ended += self._begin_clients(world)
        for name in self._strangers:
            world.network.unframed_hosts[name] = None
            self._run(world, name, self._be_strangers)
        if self._steady:
            names = [*self._clients, VISITOR]
            self.shared.acked_at |= dict.fromkeys(names, world.now)
            visitor = self._run(
                world, VISITOR, lambda life: run_visitor(life, self.shared)
            )
            ended.append(visitor)
        for event in ended:
            await event.wait()
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)

    def _begin_clients(self, world: World) -> list[asyncio.Event]:
        """Start those who load the log; each sets an event when it is done."""
        return [
            self._run(world, name, lambda life: run_client(life, self.shared))
            for name in self._clients
        ]

    def _run(self, world: World, name: str, main: _Main) -> asyncio.Event:
        done = asyncio.Event()

        async def client(life: Life) -> None:
            await main(life)
            done.set()

        world.start(name, client)
        return done

    async def _be_strangers(self, life: Life) -> None:
        await run_strangers(life, self.shared.seeds)

    async def _look(self, world: World) -> None:
        while True:
            self.watch.look()
            if self._bounds is not None:
                for live in self.watch.living():
                    self._bounds.look(live)
            if self._steady and not world.calm.is_set():
                self._check_progress(world.now)
            await asyncio.sleep(_LOOK_S)

    def _check_progress(self, now: float) -> None:
        for name, acked_at in self.shared.acked_at.items():
            if now - acked_at > _PROGRESS_S:
                raise ViolationError(f"{name} has stored nothing for {_PROGRESS_S} s")

    async def _revive(self, world: World) -> None:
        """Start nodes again that ended by themselves, as a service manager does."""
        random = world.random("revive")
        while True:
            await asyncio.sleep(random.uniform(*_REVIVE_S))
            for name in list(self._ended):
                del self._ended[name]
                node = world.nodes[name]
                if not node.alive and not node.retired:
                    world.restart(name)

    async def _admin(self, life: Life, created: asyncio.Event) -> None:
        self._admin_life = life
        async with opened(life, self.shared) as client:
            admin = Admin(
                client,
                self.shared,
                life.random,
                self.targets(),
                lambda number: self._start(life.world, number),
                self._actions,
            )
            await admin.create(self._shape)
            created.set()
            await admin.run()
            # What takes longer than this without a fault never ends.
            loop = life.world.loop
            loop.time_max = min(loop.time_max, life.world.now + 2 * _REST_S)
            await self._rest(life.world, client)
            self._judge((await client._cluster.linearize()).named(_LOG))

    async def _rest(self, world: World, client: AsyncClient) -> None:
        """Wait until the clients have appended all and nothing moves any more."""
        since, quiet, restless = world.now, 0, ""
        while quiet < _QUIET_LOOKS:
            await asyncio.sleep(_PATIENCE_S)
            try:
                restless = await unrest(client, self.watch, _LOG)
                restless = restless or damage(self.watch) or self._left()
            except LogError as error:
                restless = f"{type(error).__name__}: {error.message}"
            if self.shared.appending:
                restless = f"{self.shared.appending} clients append; {restless}"
            quiet = 0 if restless else quiet + 1
            if world.now - since > _REST_S:
                raise ViolationError(f"no rest after {_REST_S} s: {restless}")

    def _left(self) -> str:
        """Return what is left of strangers."""
        if self._bounds is None:
            return ""
        found = (
            self._bounds.left(live, self._strangers) for live in self.watch.living()
        )
        return next((what for what in found if what), "")

    def _judge(self, info: LogInfo) -> None:
        """Compare the log with what everybody was told."""
        shared = self.shared
        log = list(read_log(self.watch, info))
        shared.check_keys(log)
        shared.checker.finish(log, info.trim, info.high_watermark)
        assert shared.end is not None
        shared.end.set_result(info.high_watermark + 1)

    def check(self, world: World) -> None:
        """Judge what can only be judged as a whole."""
        for checker in self.watch.cuts.values():
            checker.finish()
        for history in self.shared.cursors.values():
            check_register(history)
        world.note("world", f"{self.shared.checker.counts()} {self.shared.errors}")
