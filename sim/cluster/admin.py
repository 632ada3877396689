"""Whoever runs the cluster: creates logs, trims, seals, drains, moves, restarts."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random

from braidlog.client.client import AsyncClient
from braidlog.errors import InvalidArgumentError, LogError
from braidlog.wire.messages import StreamStatus
from sim.cluster.clients import Shared
from sim.cluster.members import Members
from sim.cluster.shape import Shape
from sim.cluster.side import SideLogs
from sim.world import World

__all__ = ["Admin"]

_PAUSE_S = 0.8
_PATIENCE_S = 0.2
_STREAMS_MAX = 5


class Admin:
    """Does something to the cluster now and then, and takes it back at the end."""

    def __init__(
        self,
        client: AsyncClient,
        shared: Shared,
        random: Random,
        nodes: Sequence[str],
        add: Callable[[int], None],
        actions: Sequence[str] = (),
    ) -> None:
        """Act through a client on a cluster of these nodes; `add` starts one more.

        Of all actions only those of the given names are taken, if there are any.
        """
        self._only = actions
        self._client = client
        self._side = SideLogs(client, random, shared.log)
        self._members = Members(shared.world, client, random, len(nodes), add)
        self._shared = shared
        self._random = random
        self._nodes = list(nodes)

    @property
    def _world(self) -> World:
        return self._shared.world

    async def create(self, shape: Shape) -> None:
        """Create the log, whatever fails on the way."""
        while True:
            try:
                # Nodes register in their own time.
                nodes = await self._client.nodes()
                wanted = len(shape.nodes) if shape.apart else shape.replication
                if sum(node.alive for node in nodes) >= wanted:
                    await self._create(shape)
                    return
            except LogError as error:
                self._shared.failed("admin", error)
            await asyncio.sleep(_PATIENCE_S)

    async def _create(self, shape: Shape) -> None:
        if shape.apart:
            for node in shape.voters:
                await self._client.drain_node(node)
        await self._client.create_log(
            self._shared.log,
            exist_ok=True,
            streams=shape.streams,
            replication=shape.replication,
            min_replicas=shape.min_replicas,
            kind=shape.kind,
        )

    async def run(self) -> None:
        """Act until the storm is over, then put everything right."""
        named = self._named()
        # Where it is not asked for, the keys of all clients stay where they are.
        all_ = {
            **named,
            "streams": self._change_streams,
            "lose": self._members.lose,
        }
        actions = [all_[name] for name in self._only or named]
        while not self._world.calm.is_set():
            await asyncio.sleep(self._random.expovariate(1 / _PAUSE_S))
            action = self._random.choice(actions)
            try:
                await action()
            except InvalidArgumentError as error:
                # What the action saw has changed before it was carried out.
                self._world.note("admin", f"{action.__name__}: {error.message}")
            except LogError as error:
                self._shared.failed(f"admin {action.__name__}", error)
        await self._settle()

    def _named(self) -> Mapping[str, Callable[[], Awaitable[None]]]:
        return {
            "trim": self._trim,
            "seal": self._seal,
            "drain": self._drain,
            "move": self._move,
            "restart": self._restart,
            "side log": self._side.act,
            "grow": self._members.grow,
            "vote": self._members.vote,
            "shrink": self._members.shrink,
        }

    async def _trim(self) -> None:
        log = await self._client.log(self._shared.log)
        there = await log.refresh()
        before = self._random.randint(there.start, max(there.start, there.stop - 20))
        self._shared.checker.trim_asked(before - 1)
        first = await log.trim(before)
        self._world.note("admin", f"trimmed: the log begins at {first}")
        self._shared.checker.trimmed(first - 1)

    async def _stream(self) -> int:
        streams = await self._client.streams(self._shared.log)
        return self._random.choice([each.stream for each in streams])

    async def _seal(self) -> None:
        stream = await self._stream()
        epoch = await self._client.seal(stream)
        self._world.note("admin", f"stream {stream} is sealed in epoch {epoch}")
        await asyncio.sleep(self._random.uniform(0, 1))
        await self._client.unseal(stream)

    async def _change_streams(self) -> None:
        log = await self._client.log(self._shared.log)
        count = self._random.randint(1, _STREAMS_MAX)
        self._shared.changes += 1
        streams = await log.set_streams(count)
        self._world.note("admin", f"keys are spread over streams {streams}")

    async def _drain(self) -> None:
        nodes = await self._client.nodes()
        node = self._random.choice([each.node for each in nodes])
        await self._client.drain_node(node)
        self._world.note("admin", f"node {node} drains")
        await asyncio.sleep(self._random.uniform(0, 2))
        await self._client.drain_node(node, draining=False)

    async def _move(self) -> None:
        nodes = [each.node for each in await self._client.nodes()]
        streams = await self._client.streams(self._shared.log)
        stream = self._random.choice(streams)
        others = [node for node in nodes if node not in stream.replicas]
        if others:
            source = self._random.choice(stream.replicas)
            target = self._random.choice(others)
            await self._client.move_replica(stream.stream, source, target)

    async def _restart(self) -> None:
        """End nodes gracefully one after the other; they are started again."""
        for name in self._random.sample(self._nodes, self._random.randint(1, 2)):
            node = self._world.nodes[name]
            process = node.process
            if process and node.alive and signal.SIGTERM in process.signals:
                self._world.signal(name, signal.SIGTERM)
                await asyncio.sleep(self._random.uniform(0.5, 3))

    async def _settle(self) -> None:
        """Take back what would keep the cluster from coming to rest."""
        while True:
            try:
                await self._side.clear()
                for node in await self._client.nodes():
                    if node.draining:
                        await self._client.drain_node(node.node, draining=False)
                info = (await self._client.metadata()).logs
                known = next(log for log in info if log.name == self._shared.log)
                removed = dict(known.spread.removed) if known.spread else {}
                for stream in known.streams:
                    sealed = stream.status is StreamStatus.SEALED
                    if sealed and stream.stream not in removed:
                        await self._client.unseal(stream.stream)
            except LogError as error:
                self._shared.failed("admin", error)
                await asyncio.sleep(_PATIENCE_S)
            else:
                return
