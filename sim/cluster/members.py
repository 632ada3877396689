"""Nodes that come and go for good, and who votes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from braidlog.client.client import AsyncClient
from braidlog.errors import LogError
from braidlog.wire.members import nodes_of
from sim.cluster.disk import ClusterDisk
from sim.cluster.node import name_of
from sim.world import World

__all__ = ["Members"]

_NODES_MAX = 6
_VOTERS_MIN = 3
_PATIENCE_S = 0.2
_LOOKS = 15


class Members:
    """Adds nodes and voters, and takes away what is too many of them."""

    def __init__(
        self,
        world: World,
        client: AsyncClient,
        random: Random,
        nodes: int,
        add: Callable[[int], None],
    ) -> None:
        """Act on a cluster of the nodes from 1 on; `add` starts another one."""
        self._world = world
        self._client = client
        self._random = random
        self._last = nodes
        self._add = add

    async def grow(self) -> None:
        """Start a new node, which registers by itself."""
        if self._last < _NODES_MAX:
            self._last += 1
            self._add(self._last)
        await asyncio.sleep(0)

    async def vote(self) -> None:
        """Make one more node vote, or one fewer."""
        nodes = await self._client.nodes()
        voters = [each.node for each in nodes if each.voter]
        others = [each.node for each in nodes if not each.voter]
        if others and len(voters) <= _VOTERS_MIN:
            await self._client.set_voter(self._random.choice(others))
        elif len(voters) > _VOTERS_MIN:
            await self._client.set_voter(self._random.choice(voters), voter=False)

    async def shrink(self) -> None:
        """Empty a node that does not vote, end it for good and remove it."""
        nodes = await self._client.nodes()
        able = [each.node for each in nodes if not each.voter]
        if not able or len(nodes) <= _VOTERS_MIN + 1:
            return
        node = max(able)
        await self._client.drain_node(node)
        for _ in range(_LOOKS):
            await asyncio.sleep(_PATIENCE_S)
            if not await self._has_streams(node):
                break
        else:
            await self._client.drain_node(node, draining=False)
            return
        # Refused if it was given something meanwhile; then it stays.
        await self._client.remove_node(node)
        self._world.note("admin", f"node {node} is removed")
        self._world.retire(name_of(node))

    async def lose(self) -> None:
        """Take its directory from a node, and give it an empty one under its id.

        Only if others have all that it held: of a log of streams all replicas, of a
        shard a majority.
        """
        node = await self._dispensable()
        known = self._world.nodes[name_of(node)] if node else None
        if known is None or not known.alive or known.paused:
            return
        assert isinstance(known.disk, ClusterDisk)
        self._world.crash(known.name)
        known.disk.wipe()
        self._world.note("admin", f"node {node} has lost its directory")
        while True:
            try:
                await self._client.readmit_node(node)
            except LogError as error:  # It is not known yet to be gone.
                self._world.note("admin", f"readmit: {error.message}")
                await asyncio.sleep(_PATIENCE_S)
            else:
                break
        # Somebody else may have started it meanwhile.
        if not self._world.nodes[known.name].alive:
            self._world.restart(known.name)

    async def _dispensable(self) -> int:
        """Return a node that can lose all it has; 0: none can."""
        metadata = await self._client.metadata()
        held: set[int] = set()
        for log in metadata.logs:
            for stream in log.streams:
                who = stream.members
                if who is None:
                    held.update((*stream.replicas, *stream.learners))
                elif not who.settled or who.lost or len(who.voters) < _VOTERS_MIN:
                    held.update(nodes_of(who.kept))
        # Another one that lost its directory is not back yet.
        if any(each.readmitting for each in metadata.nodes):
            return 0
        voters = sum(each.voter for each in metadata.nodes)
        able = [
            each.node
            for each in metadata.nodes
            if each.node not in held
            and not (each.voter and voters < _VOTERS_MIN)
            and not each.draining
            # Its last directory is registered, so that one can be given up.
            and each.identity
        ]
        return self._random.choice(able) if able else 0

    async def _has_streams(self, node: int) -> bool:
        metadata = await self._client.metadata()
        streams = (stream for log in metadata.logs for stream in log.streams)
        return any(node in (*each.replicas, *each.learners) for each in streams)
