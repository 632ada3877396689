"""What a log of a cluster is and keeps: its range, trimming, retention, cursors."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from braidlog.client.appending import Appending
from braidlog.client.batches import BatchCodec
from braidlog.client.cluster import Cluster
from braidlog.client.cursor import AsyncClusterCursor
from braidlog.client.routing import Routes, replicas_there
from braidlog.errors import (
    BeyondEndError,
    FencedError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
    RemoteProtocolError,
)
from braidlog.names import checked_name, checked_new_name
from braidlog.storage.archived import located
from braidlog.storage.arguments import (
    DurationLike,
    checked_count,
    checked_int,
)
from braidlog.storage.catalog import LogOptions
from braidlog.storage.retention import lease_us, retention_of
from braidlog.storage.threads import in_thread
from braidlog.suggestions import does_not_exist
from braidlog.types import Compression
from braidlog.wire import commands, results
from braidlog.wire.messages import LogInfo, StreamInfo
from braidlog.wire.results import CursorRow

if TYPE_CHECKING:
    from braidlog.archive import Archive

__all__ = ["ClusterLogDescription", "KeptClusterLog"]


@dataclass(frozen=True, slots=True)
class ClusterLogDescription:
    """What there is to know of a log. Times in microseconds since the epoch."""

    name: str
    id: str
    created: int
    first: int
    end: int
    records: int
    replication: int
    min_replicas: int
    compression: Compression
    retention_ms: int | None
    retention_bytes: int | None
    streams: tuple[StreamInfo, ...]
    replicas_missing: int = 0
    """How many replicas the streams lack together of ``replication`` each."""


class KeptClusterLog:
    """The part of a log that needs no record; `AsyncClusterLog` appends and reads."""

    def __init__(self, cluster: Cluster, info: LogInfo, codec: BatchCodec) -> None:
        """Bind to a log; users call `AsyncClient.log`."""
        self._cluster = cluster
        self._id = info.log
        self._codec = codec
        self._name = info.name
        self._appending = Appending(cluster, info.log, codec)

    def __repr__(self) -> str:
        """Show the name."""
        return f"<ClusterLog {self._name!r}>"

    def _info(self) -> LogInfo:
        return self._cluster.routes.log(self._id)

    def _close(self, error: LogError | None = None) -> None:
        self._appending.close(error)

    @property
    def id(self) -> str:
        """Random identity of the log, 32 hexadecimal digits; never used again."""
        return self._id.hex()

    @property
    def name(self) -> str:
        """Name of the log."""
        return self._name

    @property
    def options(self) -> LogOptions:
        """How the log is kept, as far as this client knows."""
        return LogOptions.decode_or_default(self._info().options)

    @property
    def first(self) -> int:
        """First position that can be read, as far as this client knows."""
        return max(1, self._info().trim)

    @property
    def end(self) -> int:
        """Next position, as far as this client knows; `refresh` asks."""
        return max(self._appending.end, self._info().high_watermark + 1)

    async def refresh(self) -> range:
        """Ask the cluster; return the positions that can be read now."""
        await self._cluster.linearize()
        return range(self.first, self.end)

    async def _positions(self) -> range:
        return await self.refresh()

    # -- keeping -----------------------------------------------------------------

    async def trim(self, before: int, *, ignore_pins: bool = False) -> int:
        """Let records below ``before`` go as far as no pin holds them.

        Returns the first position that is kept.

        Raises:
            BeyondEndError: ``before`` is above the end.
        """
        before = checked_count(before, "before")
        there = await self.refresh()
        if before > there.stop:
            msg = f"position {before} is not written yet"
            raise BeyondEndError(msg, next=there.stop)
        now = self._cluster.settings.clock()  # For leaders before they had their own.
        command = commands.Trim(self._id, max(1, before), now, ignore_pins)
        result = await self._cluster.execute(command)
        if isinstance(result, results.Trimmed):
            return max(1, result.first)
        await self._cluster.linearize()
        return self.first

    async def set_options(
        self,
        *,
        retention_ms: int | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        """Replace the log's retention; None keeps records until they are trimmed.

        ``retention_ms`` is in milliseconds, or a `timedelta`.
        """
        age = retention_of(retention_ms)

        def change(old: LogOptions) -> LogOptions:
            return LogOptions(old.compression, age, retention_bytes, old.unknown)

        await self._alter(change)

    async def set_replication(
        self,
        *,
        replication: int | None = None,
        min_replicas: int | None = None,
        allow_missing: bool = False,
    ) -> None:
        """Change how many nodes have each stream, and how many it needs for appends.

        None leaves a number as it is. It is durable on return; replicas are then copied
        or given up one after the other. With ``min_replicas`` lowered, streams go on
        that waited for more. More replicas than there are nodes are refused, unless
        ``allow_missing``: then nodes that join get them.

        Raises:
            InvalidArgumentError: ``min_replicas`` is not from 1 to ``replication``, or
                there are not so many nodes; nothing was changed.
        """
        command = commands.AlterLog(
            self._id,
            replication=replication,
            min_replicas=min_replicas,
            allow_missing=allow_missing,
        )
        await self._cluster.execute(command)

    async def _alter(self, change: Callable[[LogOptions], LogOptions]) -> None:
        """Change the options, also if another program changes others of them."""
        while True:
            await self._cluster.linearize()
            known, new = self._info().options, change(self.options).encode()
            command = commands.AlterLog(self._id, options=new, known=known)
            try:
                await self._cluster.execute(command)
            except FencedError:
                continue  # They were changed meanwhile: whoever did that got on.
            return

    async def archive(self, location: str | os.PathLike[str] | None = None) -> Archive:
        """Open the log's archive to read; see `Log.archive`."""
        from braidlog.archive import open_archive

        if location is None:
            await self._cluster.linearize()
        place = located(self.name, self.options.archive, location)
        return await in_thread(open_archive, place, log_id=self.id)

    async def set_archive(self, location: str | os.PathLike[str] | None) -> None:
        """Record where the log's archive is; see `Log.set_archive`."""
        from braidlog.archive.place import absolute

        where = None if location is None else absolute(location)
        await self._alter(lambda old: old.archived_at(where))

    async def describe(self) -> ClusterLogDescription:
        """Return what there is to know of the log."""
        there = await self.refresh()
        # The leader knows which replicas are in sync.
        routes = Routes(await self._cluster.judged())
        info = routes.log(self._id)
        options = self.options
        return ClusterLogDescription(
            name=info.name,
            id=info.log.hex(),
            created=info.created,
            first=there.start,
            end=there.stop,
            records=len(there),
            replication=info.replication,
            min_replicas=info.min_replicas,
            compression=options.compression,
            retention_ms=options.retention_ms,
            retention_bytes=options.retention_bytes,
            streams=info.streams,
            replicas_missing=sum(
                max(0, info.replication - replicas_there(each, routes.nodes))
                for each in info.streams
            ),
        )

    # -- cursors -----------------------------------------------------------------

    async def cursor(
        self, name: str, *, pin: bool = False, lease: DurationLike | None = None
    ) -> AsyncClusterCursor:
        """Return a cursor, creating it at the first position if there is none."""
        name, us = checked_name(name, "cursor"), lease_us(lease)
        for row in await self._cursor_rows():
            if row.name == name:
                return AsyncClusterCursor(self, row)
        checked_new_name(name, "cursor")
        # Another program may create it, and move it on, before this one does.
        await self._set_cursor(name, self.first, pin, us, commands.CursorChange.CREATE)
        return AsyncClusterCursor(self, await self._cursor_row(name))

    async def set_cursor(
        self,
        name: str,
        position: int,
        *,
        pin: bool = False,
        lease: DurationLike | None = None,
    ) -> AsyncClusterCursor:
        """Store all of a cursor, creating it if there is none; durable on return.

        Raises:
            InvalidArgumentError: the position is beyond the end of the log.
        """
        name, us = checked_name(name, "cursor"), lease_us(lease)
        try:
            checked_new_name(name, "cursor")
        except InvalidArgumentError:
            if all(row.name != name for row in await self._cursor_rows()):
                raise
        row = await self._set_cursor(name, position, pin, us)
        return AsyncClusterCursor(self, row)

    async def cursors(self) -> list[AsyncClusterCursor]:
        """Return the cursors of the log, by name."""
        rows = sorted(await self._cursor_rows(), key=lambda row: row.name)
        return [AsyncClusterCursor(self, row) for row in rows]

    async def _cursor_rows(self) -> tuple[CursorRow, ...]:
        result = await self._cluster.execute(commands.GetCursors(self._id))
        if not isinstance(result, results.Cursors):
            msg = f"{type(result).__name__} is no answer to GetCursors"
            raise RemoteProtocolError(msg)
        return result.rows

    async def _cursor_row(self, name: str) -> CursorRow:
        rows = {row.name: row for row in await self._cursor_rows()}
        if name in rows:
            return rows[name]
        what = f"log {self.name!r}: cursor"
        raise NotFoundError(does_not_exist(what, name, rows))

    async def _move_cursor(self, row: CursorRow, position: int) -> CursorRow:
        change = commands.CursorChange.MOVE
        return await self._set_cursor(row.name, position, row.pin, row.lease, change)

    async def _set_cursor(
        self,
        name: str,
        position: int,
        pin: bool,
        lease: int,
        change: commands.CursorChange = commands.CursorChange.SET,
    ) -> CursorRow:
        position = checked_int(position, "position")
        there = await self.refresh()
        if not 0 < position <= there.stop:
            end = there.stop
            msg = f"a cursor's position must be from 1 to {end}, got {position}"
            raise InvalidArgumentError(msg)
        now = self._cluster.settings.clock()
        result = await self._cluster.execute(
            commands.SetCursor(self._id, name, position, pin, lease, now, change)
        )
        if isinstance(result, results.Done) and result.at:
            now = result.at
        return CursorRow(name, position, pin, now, lease)

    async def _delete_cursor(self, name: str) -> None:
        await self._cluster.execute(commands.DeleteCursor(self._id, name))
