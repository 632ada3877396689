"""The scenario of tables with more of them, which move to nodes that have few.

Those who run the cluster start nodes, drain some and take that back: so nodes are empty
again and again, and hosts of tables have to move to them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from sim.cluster.clients import opened
from sim.errors import ViolationError
from sim.faults import Storm
from sim.tables.scenario import TABLE, TableScenario
from sim.world import Life, World

if TYPE_CHECKING:
    from braidlog.client.client import AsyncClient
    from braidlog.metarepo.machine.repository import Repository
    from braidlog.metarepo.machine.state import State
    from braidlog.node.config import NodeConfig

__all__ = ["BalanceScenario"]

_TABLES: Final = 5
"""Beside the one that is read."""
_REPAIR_MS: Final = 900
"""Longer than a node is away that is started again, or the witness would take it for
one that the leader should have waited for."""


class BalanceScenario(TableScenario):
    """Tables that move, and a witness of how many hosts have all of each."""

    def __init__(self, **options: Any) -> None:
        """Let those who run the cluster empty nodes, unless told otherwise."""
        super().__init__(**{"actions": ("drain", "grow", "restart", "trim"), **options})

    def build(self, world: World, storm: Storm) -> None:
        """Start the nodes."""
        super().build(world, storm)
        # Hosts that seem dead leave also where nobody takes their place.
        self._judges = not storm.weights
        self._seen: dict[bytes, int] = {}
        self._index = 0
        watch: Any = self.watch
        decided = watch._decided

        def with_tables(repository: Repository) -> None:
            decided(repository)
            if repository.index > self._index:
                self._index = repository.index
                lacks = self._lacks(repository.state)
                if lacks and self._judges:
                    world.loop.fail("hosts of tables", ViolationError(lacks))

        watch._decided = with_tables

    def _lacks(self, state: State) -> str:
        """Return which table has fewer hosts with all of it than it had, and needs.

        Nothing damages tables here, so none ever has to.
        """
        before, self._seen = (
            self._seen,
            {table.table: len(table.joined) for table in state.tables.values()},
        )
        # Those that are drained or dead lose theirs, also where too few are left.
        living = {live.node.id for live in self.watch.living()}
        able = sum(
            not node.draining and node.node in living for node in state.nodes.values()
        )
        for table in state.tables.values():
            had, has = before.get(table.table, 0), len(table.joined)
            if has < min(had, table.replicas, able):
                return f"{has} hosts have all of {table.name!r}, and {had} had: {table}"
        return ""

    def _config(self, number: int) -> NodeConfig:
        config = super()._config(number)
        return replace(
            config, timing=replace(config.timing, table_repair_ms=_REPAIR_MS)
        )

    async def _change(self, life: Life) -> None:
        """Create tables."""
        random, world = life.random, life.world
        async with opened(life, self.shared) as client:
            await self._create(client, random.randint(1, 3))
            for number in range(_TABLES):
                identity = (number + 1).to_bytes(16)
                name = f"side-{number}"
                await self._create(client, random.randint(1, 2), identity, name)
            await world.calm.wait()

    async def _unrest(self, client: AsyncClient) -> str:
        """Return what hosts have still to do, and whether nodes have unlike numbers."""
        if unrest := await super()._unrest(client):
            return unrest
        metadata = client._cluster.routes.metadata
        loads = Counter(node for table in metadata.tables for node in table.hosts)
        able = [each.node for each in metadata.nodes if not each.draining]
        most, least = (pick(loads[node] for node in able) for pick in (max, min))
        if len(metadata.tables) != _TABLES + 1 or TABLE not in self._seen:
            return f"{len(metadata.tables)} tables are there"
        return f"nodes keep {dict(loads)}" if most - least > 1 else ""
