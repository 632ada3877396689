"""Where the cursors of a log of a cluster are stored: in its metadata repository."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from braidlog.client.connection.cluster import Cluster
from braidlog.errors import InvalidArgumentError, NotFoundError, RemoteProtocolError
from braidlog.store.arguments import checked_int
from braidlog.store.cursor import StoredCursor
from braidlog.suggestions import does_not_exist
from braidlog.wire import commands, results


class CursorStore:
    """The cursors of one log, as `AsyncCursor` reads and writes them."""

    def __init__(
        self,
        cluster: Cluster,
        log: bytes,
        name: str,
        refresh: Callable[[], Awaitable[range]],
    ) -> None:
        """Keep the cursors of a log; ``refresh`` gives the positions it has now."""
        self._cluster = cluster
        self._id = log
        self.name = name
        self._refresh = refresh

    async def rows(self) -> tuple[StoredCursor, ...]:
        """Return all that the cluster knows of the cursors."""
        result = await self._cluster.execute(commands.GetCursors(self._id))
        if not isinstance(result, results.Cursors):
            msg = f"{type(result).__name__} is no answer to GetCursors"
            raise RemoteProtocolError(msg)
        return tuple(
            StoredCursor(row.name, row.position, row.pin, row.touched, row.lease)
            for row in result.rows
        )

    async def _read_cursor(self, name: str) -> StoredCursor:
        rows = {row.name: row for row in await self.rows()}
        if name in rows:
            return rows[name]
        what = f"log {self.name!r}: cursor"
        raise NotFoundError(does_not_exist(what, name, rows))

    async def _move_cursor(self, row: StoredCursor, position: int) -> StoredCursor:
        change = commands.CursorChange.MOVE
        return await self.set(row.name, position, row.pin, row.lease, change)

    async def set(
        self,
        name: str,
        position: int,
        pin: bool,
        lease: int,
        change: commands.CursorChange = commands.CursorChange.SET,
    ) -> StoredCursor:
        """Store a cursor; durable on return."""
        position = checked_int(position, "position")
        there = await self._refresh()
        if not 0 < position <= there.stop:
            end = there.stop
            msg = f"the position of a cursor must be from 1 to {end}, got {position}"
            raise InvalidArgumentError(msg)
        await self._cluster.told(self._id)
        now = self._cluster.settings.clock()
        result = await self._cluster.execute(
            commands.SetCursor(self._id, name, position, pin, lease, now, change)
        )
        if isinstance(result, results.Done) and result.at:
            now = result.at
        return StoredCursor(name, position, pin, now, lease)

    async def _delete_cursor(self, name: str) -> None:
        await self._cluster.execute(commands.DeleteCursor(self._id, name))
