"""Nodes that come and go for good, and who votes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from braidlog.client.client import AsyncClient
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

    async def _has_streams(self, node: int) -> bool:
        metadata = await self._client.metadata()
        streams = (stream for log in metadata.logs for stream in log.streams)
        return any(node in (*each.replicas, *each.learners) for each in streams)
