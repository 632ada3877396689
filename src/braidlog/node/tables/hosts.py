"""Which tables this node has to keep, by the catalog.

*Theory of operation.* Whatever the metadata names this node as a host of is kept; what
it names no more is closed, and taken away. What lies on the disk and was not named
since the start is taken away only after the repository has confirmed that there is no
such table: a node that starts may know less than it did before.

*Invariants.* No directory is taken away by metadata that is older than the directory,
nor by that of a cluster that was rescued, before it knows again what there was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

from braidlog.errors import LogError, NotReadyError
from braidlog.node.metrics.status import HostedStatus
from braidlog.node.tables.host import HostParts, TableHost
from braidlog.node.tables.view import CatalogView
from braidlog.wire.tables import TableInfo

__all__ = ["Hosts"]

_log = logging.getLogger(__name__)

_ORPHANS_S = 1.0
"""Pause before the disk is looked at again after nobody could confirm what is there."""


class Hosts:
    """All tables of a node."""

    def __init__(
        self, parts: HostParts, view: CatalogView, closed: Callable[[bytes], None]
    ) -> None:
        """Begin with none; ``closed`` is told of each that is closed."""
        self._parts = parts
        self._view = view
        self._closed = closed
        self._hosts: dict[bytes, TableHost] = {}
        self._leaving: dict[bytes, asyncio.Task[None]] = {}
        """Tables that are being closed and taken away."""
        self._orphans: asyncio.Task[None] | None = None
        self._looked = False
        """Whether the disk was compared with the catalog."""
        self._ended = False
        view.listeners.append(self._look)

    def __len__(self) -> int:
        """Return how many this node keeps."""
        return len(self._hosts)

    def host(self, table: bytes) -> TableHost:
        """Return the host of a table.

        Raises:
            NotReadyError: this node keeps no such table.
        """
        host = self._hosts.get(table)
        if host is None:
            node = self._parts.node
            msg = f"node {node} keeps no table with identity {table.hex()}"
            raise NotReadyError(msg)
        return host

    def status(self) -> tuple[HostedStatus, ...]:
        """Return how each table is."""
        return tuple(host.status() for host in self._hosts.values())

    async def close(self) -> None:
        """Stop to keep any."""
        self._ended = True
        self._view.listeners.remove(self._look)
        tasks = [*self._leaving.values()]
        if self._orphans is not None:
            self._orphans.cancel()
            tasks.append(self._orphans)
        for host in self._hosts.values():
            host.stop()
        for host in self._hosts.values():
            await host.close()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _look(self) -> None:
        """Compare what is kept with what the catalog says."""
        if self._ended or not self._view.is_settled:
            return
        wanted = {
            each.table: each
            for each in self._view.tables
            if self._parts.node in each.hosts
        }
        for table in self._hosts.keys() - wanted.keys():
            self._leave(self._hosts.pop(table))
        for table, info in wanted.items():
            if table in self._hosts:
                self._hosts[table].change(info)
            elif table not in self._leaving:
                self._keep(info)
        if not self._looked and self._orphans is None:
            loop = asyncio.get_running_loop()
            self._orphans = loop.create_task(self._clear())

    def _keep(self, info: TableInfo) -> None:
        host = self._hosts[info.table] = TableHost(info, self._parts)
        host.start()

    def _leave(self, host: TableHost) -> None:
        table = host.info.table
        self._closed(table)
        task = asyncio.get_running_loop().create_task(self._take_away(host))
        self._leaving[table] = task
        task.add_done_callback(lambda _: self._left(table))

    def _left(self, table: bytes) -> None:
        del self._leaving[table]
        self._look()  # It may be this node's again.

    async def _take_away(self, host: TableHost) -> None:
        await host.close()
        await self._trash(host.info.table)

    async def _trash(self, table: bytes) -> None:
        trash = partial(self._parts.engine.files.trash, table)
        try:
            await self._parts.slow.run(trash)
        except LogError as error:
            # It is found again at the next start.
            _log.warning("table %s cannot be taken away: %s", table.hex(), error)

    async def _clear_one(self, table: bytes) -> None:
        task = asyncio.current_task()
        assert task is not None, "this is one"
        self._leaving[table] = task
        try:
            await self._trash(table)
        finally:
            self._left(table)

    async def _clear(self) -> None:
        """Take away what no table of the catalog is on the disk for."""
        while not self._looked:
            try:
                routes = await self._view.confirm()
                if not routes.metadata.settled:
                    msg = "the cluster was rescued, and not all tables are known yet"
                    raise NotReadyError(msg)
                found = await self._parts.slow.run(self._parts.engine.files.tables)
                node = self._parts.node
                kept = {t.table for t in routes.metadata.tables if node in t.hosts}
                for table in found:
                    # Meanwhile it may have become this node's.
                    if not {table} & (kept | self._hosts.keys() | self._leaving.keys()):
                        await self._clear_one(table)
                self._looked = True
            except LogError as error:
                _log.debug("tables on the disk were not compared yet: %s", error)
                await asyncio.sleep(_ORPHANS_S)
