"""The bank that the tests run on a cluster, and what its log says it should hold."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import braidlog
from braidlog.app.execution.entries import (
    Command,
    Create,
    Host,
    Outcomes,
    Resize,
    unpack,
)
from unit.app.banking import make_bank

# Every retry of a run finds its first result.
app = make_bank(results_kept=100_000, row_keys={"account": "id"})
REFUSED = -1


@dataclass
class Ledger:
    """Balances after all commands of a log, by a model that knows no database."""

    balances: dict[int, int] = field(default_factory=dict)
    answers: dict[str, int] = field(default_factory=dict)
    """What each call gave when it came first."""
    repeated: int = 0
    routing: int = 0
    """Position of the last entry that changed the number of partitions."""
    partitions: int = 0
    moved: int = 0
    """Commands that were routed before it and came behind it."""
    hosts: list[tuple[int, int]] = field(default_factory=list)
    """Position and epoch of each entry of an active host."""
    outcomes: list[tuple[int, int]] = field(default_factory=list)
    """Position and epoch of each record of outcomes."""

    def take(self, position: int, value: bytes) -> None:
        entry = unpack(value, position)
        if isinstance(entry, Host):
            self.hosts.append((position, entry.epoch))
        elif isinstance(entry, Outcomes):
            self.outcomes.append((position, entry.epoch))
        elif isinstance(entry, Create) and position == 1:
            self.partitions = entry.partitions
        elif isinstance(entry, Resize):
            if entry.base == self.routing:
                self.routing, self.partitions = position, entry.partitions
        elif isinstance(entry, Command) and entry.routing != self.routing:
            self.moved += 1
        elif isinstance(entry, Command):
            call = entry.call.hex()
            if call in self.answers:
                self.repeated += 1
            else:
                self.answers[call] = self.execute(entry.procedure, entry.arguments)

    def execute(self, procedure: str, arguments: list[Any]) -> int:
        if procedure == "deposit":
            account, amount = arguments
            self.balances[account] = self.balances.get(account, 0) + amount
            return int(self.balances[account])
        source, target, amount = arguments
        left = self.balances.get(source, 0) - amount
        if left < 0:
            return REFUSED
        self.balances[source] = int(left)
        self.balances[target] = self.balances.get(target, 0) + amount
        return int(left)


def ledger(seeds: str, log: str = "bank") -> Ledger:
    """Read the whole log of a cluster."""

    async def read() -> Ledger:
        found = Ledger()
        async with braidlog.connect_async(seeds) as client:
            async for record in (await client.log(log)).read():
                found.take(record.position, record.value)
        return found

    return asyncio.run(read())


__all__ = ["REFUSED", "Ledger", "app", "ledger"]
