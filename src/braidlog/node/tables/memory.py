"""Memory of all tables of a node together.

*Theory of operation.* A table is flushed when it has as much in memory as it may by
itself. With many tables that adds up, so there is a bound for all of them. Whoever is
about to apply more first has the tables flushed that have most, one after the other,
until there is room. The one that has most has its share at least, an equal part of the
bound: so a table below its share is never flushed because of others.

*Invariants.* What all tables have in memory, and what is being applied, is less than
the bound whenever something begins to be applied. One table at a time is flushed
because of others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from braidlog.node.tables.counters import TableCounters

__all__ = ["TableMemory"]


class _Table(Protocol):
    """A table of the node, open or not."""

    @property
    def memory_bytes(self) -> int:
        """What it has that is not in files."""

    async def relieve(self) -> None:
        """Write that to files.

        Raises:
            UnavailableError: there is no room for them.
        """


class TableMemory:
    """Shares a bound among the tables of a node."""

    def __init__(self, bytes_max: int, counters: TableCounters) -> None:
        """Begin with no table."""
        self._bytes_max = bytes_max
        self._counters = counters
        self._tables: dict[int, _Table] = {}
        self._applying = 0
        self._relieving = asyncio.Lock()

    @property
    def used(self) -> int:
        """What tables have in memory, and what is being applied to them."""
        return self._applying + sum(each.memory_bytes for each in self._tables.values())

    @property
    def share(self) -> int:
        """What each table may have, whatever the others have."""
        return self._bytes_max // max(1, len(self._tables))

    @property
    def is_full(self) -> bool:
        """Whether nothing may be applied now."""
        return self.used >= self._bytes_max

    @contextmanager
    def counted(self, table: _Table) -> Iterator[None]:
        """Count a table while the node keeps it."""
        self._tables[id(table)] = table
        try:
            yield
        finally:
            del self._tables[id(table)]

    @contextmanager
    def applying(self, size: int) -> Iterator[None]:
        """Count so many bytes while they are applied: then they are a table's."""
        self._applying += size
        try:
            yield
        finally:
            self._applying -= size

    async def relieve(self) -> bool:
        """Flush the table that has most; tell whether there is more room now.

        Raises:
            UnavailableError: there is no room for its files.
        """
        async with self._relieving:
            before = self.used
            if not self.is_full or not self._tables:
                return True
            largest = max(self._tables.values(), key=lambda each: each.memory_bytes)
            # Below that, what is being applied fills the bound, and will be a table's.
            if largest.memory_bytes >= self.share:
                self._counters.table_reliefs += 1
                await largest.relieve()
            return self.used < before
