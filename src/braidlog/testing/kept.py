"""What a log in memory is and keeps: its range, trimming, cursors, figures."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from braidlog.client.rows import size_of
from braidlog.errors import (
    BeyondEndError,
    InvalidArgumentError,
    LogError,
    NotFoundError,
)
from braidlog.names import checked_name, checked_new_name
from braidlog.storage.archived import located
from braidlog.storage.arguments import (
    DurationLike,
    checked_count,
    checked_int,
)
from braidlog.storage.catalog import LogDescription, LogOptions, LogStats
from braidlog.storage.retention import CursorRow, lease_us, lowest_pin, retention_of
from braidlog.suggestions import does_not_exist
from braidlog.testing.contents import Contents, now_us

if TYPE_CHECKING:
    from braidlog.archive import Archive
    from braidlog.testing.node import MemoryStore

__all__ = ["KeptMemoryLog", "MemoryCursor"]

_MICROSECONDS: Final = 1_000_000


class MemoryCursor:
    """A stored position of a reader; see `Cursor`."""

    def __init__(self, log: KeptMemoryLog, name: str) -> None:
        """Bind to a cursor of the log; users call `MemoryLog.cursor`."""
        self._log = log
        self.name = name

    def __repr__(self) -> str:
        """Show name and position."""
        who = f"MemoryCursor {self.name!r} of {self._log.name!r}"
        try:
            return f"<{who} at {self.position}>"
        except LogError as error:
            return f"<{who}: {error.message}>"

    @property
    def position(self) -> int:
        """Next position to read."""
        return self._log._cursor_row(self.name)[0]

    @property
    def pin(self) -> bool:
        """Whether the cursor asks to keep what it has not read."""
        return self._log._cursor_row(self.name)[1]

    @property
    def touched(self) -> int:
        """When the cursor was last written, microseconds since the epoch."""
        return self._log._cursor_row(self.name)[2]

    @property
    def lease(self) -> float | None:
        """Seconds that a pin holds after the last commit; None for ever."""
        lease = self._log._cursor_row(self.name)[3]
        return lease / _MICROSECONDS if lease else None

    def commit(self, position: int) -> None:
        """Store ``position`` as the next one to read."""
        _, pin, _, lease = self._log._cursor_row(self.name)
        self._log._set_cursor(self.name, position, pin, lease)

    def delete(self) -> None:
        """Delete the cursor."""
        self._log._delete_cursor(self.name)


class KeptMemoryLog:
    """The part of a log that needs no record; `MemoryLog` appends and reads."""

    def __init__(self, store: MemoryStore, name: str, contents: Contents) -> None:
        """Bind to contents; users call `MemoryStore.log`."""
        self._node = store
        self._contents = contents
        self.name = name

    def __repr__(self) -> str:
        """Show the name and the range."""
        there = self._contents
        return f"<MemoryLog {self.name!r} {there.first}..{there.end}>"

    def _there(self) -> Contents:
        self._node._check_open()
        if self._contents.deleted:
            msg = f"the log {self.name!r} was deleted"
            raise NotFoundError(msg)
        return self._contents

    @property
    def id(self) -> str:
        """Identity of the log, 32 hexadecimal digits."""
        return f"{self._contents.number:032x}"

    @property
    def options(self) -> LogOptions:
        """How the log is kept."""
        return self._contents.options

    @property
    def first(self) -> int:
        """First position that can be read."""
        return self._there().first

    @property
    def end(self) -> int:
        """Next position."""
        return self._there().end

    def __len__(self) -> int:
        """Return the number of records that can be read."""
        return len(self._there().records)

    def _positions(self) -> range:
        there = self._there()
        return range(there.first, there.end)

    # -- keeping -----------------------------------------------------------------

    def trim(self, before: int, *, ignore_pins: bool = False) -> int:
        """Let every record below position ``before`` go; see `Log.trim`."""
        with self._node._changed:
            there = self._there()
            self._node._check_writer()
            before = checked_count(before, "before")
            if before > there.end:
                msg = f"position {before} is not written yet"
                raise BeyondEndError(msg, next=there.end)
            pin = None if ignore_pins else lowest_pin(there.cursors, now_us())
            limit = before if pin is None else min(before, pin)
            if limit > there.first:
                del there.records[: limit - there.first]
                there.first = limit
            return there.first

    def set_options(
        self,
        *,
        retention_ms: int | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        """Replace the log's retention, which nothing applies in memory."""
        there = self._there()
        self._node._check_writer()
        old = there.options
        there.options = LogOptions(
            old.compression, retention_of(retention_ms), retention_bytes, old.unknown
        )

    def archive(self, location: str | os.PathLike[str] | None = None) -> Archive:
        """Open the log's archive to read; see `Log.archive`."""
        from braidlog.archive import open_archive

        recorded = self.options.archive
        return open_archive(located(self.name, recorded, location), log_id=self.id)

    def set_archive(self, location: str | os.PathLike[str] | None) -> None:
        """Record where the log's archive is; see `Log.set_archive`."""
        from braidlog.archive.place import absolute

        there = self._there()
        self._node._check_writer()
        where = None if location is None else absolute(location)
        there.options = there.options.archived_at(where)

    def cursor(
        self, name: str, *, pin: bool = False, lease: DurationLike | None = None
    ) -> MemoryCursor:
        """Return the named cursor; see `Log.cursor`."""
        name, microseconds = checked_name(name, "cursor"), lease_us(lease)
        with self._node._changed:
            if name not in self._there().cursors:
                self._set_cursor(name, self.first, pin, microseconds)
        return MemoryCursor(self, name)

    def set_cursor(
        self,
        name: str,
        position: int,
        *,
        pin: bool = False,
        lease: DurationLike | None = None,
    ) -> MemoryCursor:
        """Store all of a cursor; see `Log.set_cursor`."""
        name, microseconds = checked_name(name, "cursor"), lease_us(lease)
        self._set_cursor(name, position, pin, microseconds)
        return MemoryCursor(self, name)

    def cursors(self) -> list[MemoryCursor]:
        """Return the cursors of the log, by name."""
        return [MemoryCursor(self, name) for name in sorted(self._there().cursors)]

    def _cursor_row(self, name: str) -> CursorRow:
        cursors = self._there().cursors
        row = cursors.get(name)
        if row is None:
            what = f"log {self.name!r}: cursor"
            raise NotFoundError(does_not_exist(what, name, cursors))
        return row

    def _set_cursor(self, name: str, position: int, pin: bool, lease: int) -> None:
        position = checked_int(position, "position")
        with self._node._changed:
            there = self._there()
            self._node._check_writer()
            if not 1 <= position <= there.end:
                end = there.end
                msg = f"a cursor's position must be from 1 to {end}, got {position}"
                raise InvalidArgumentError(msg)
            if name not in there.cursors:
                checked_new_name(name, "cursor")
            there.cursors[name] = position, pin, now_us(), lease

    def _delete_cursor(self, name: str) -> None:
        with self._node._changed:
            self._node._check_writer()
            self._cursor_row(name)
            del self._there().cursors[name]

    # -- figures -----------------------------------------------------------------

    def stats(self) -> LogStats:
        """Return figures of the log; bytes as the records are counted."""
        with self._node._changed:
            there = self._there()
            times = [record.timestamp for record in there.records]
            size = sum(
                size_of((r.value, r.key, r.timestamp, r.headers)) for r in there.records
            )
            return LogStats(
                first=there.first,
                end=there.end,
                records=len(there.records),
                bytes=size,
                segments=0,
                timestamp_min=min(times, default=None),
                timestamp_max=max(times, default=None),
            )

    def describe(self) -> LogDescription:
        """Return what there is to know of the log."""
        stats = self.stats()
        options = self.options
        return LogDescription(
            name=self.name,
            id=self.id,
            stream=self._contents.number,
            created=self._contents.created,
            epoch=1,
            first=stats.first,
            end=stats.end,
            records=stats.records,
            bytes=stats.bytes,
            segments=0,
            compression=options.compression,
            retention_ms=options.retention_ms,
            retention_bytes=options.retention_bytes,
            cursors=len(self._contents.cursors),
        )
