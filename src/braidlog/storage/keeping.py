"""What a log is and what it keeps: its range, trimming, retention, cursors, figures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from braidlog.errors import InvalidArgumentError, LogError, NotFoundError
from braidlog.names import checked_name, checked_new_name
from braidlog.storage.archived import located
from braidlog.storage.arguments import (
    DurationLike,
    TimestampLike,
    checked_int,
)
from braidlog.storage.catalog import (
    CatalogEntry,
    LogDescription,
    LogOptions,
    LogStats,
    SegmentRange,
)
from braidlog.storage.cursor import Cursor
from braidlog.storage.retention import keep_bytes, lease_us, retention_of
from braidlog.suggestions import does_not_exist

if TYPE_CHECKING:
    from braidlog.archive import Archive
    from braidlog.storage.backend import Backend
    from braidlog.storage.node import Store

__all__ = ["KeptLog"]


def _now_us() -> int:
    return time.time_ns() // 1000


class KeptLog:
    """The part of a log that needs no record: what is there, and letting go of it.

    `Log` adds appending and reading.
    """

    def __init__(self, store: Store, backend: Backend, entry: CatalogEntry) -> None:
        """Bind to a stream of the store; users call `Store.log`."""
        self._node = store
        self._backend = backend
        self._entry = entry
        self._stream = entry.stream
        self._view = backend.view(entry)
        backend.lend(self)

    def __repr__(self) -> str:
        """Show the name and the range."""
        try:
            first, end, *_ = self._range()
        except LogError as error:
            return f"<Log {self.name!r}: {error.message}>"
        return f"<Log {self.name!r} {first}..{end}>"

    def _told(self, error: Exception) -> Exception:
        """Return an error of the core, which knows the number of a stream, by name."""
        if isinstance(error, NotFoundError):
            return NotFoundError(f"the log {self.name!r} was deleted")
        return error

    @property
    def name(self) -> str:
        """Name of the log."""
        return self._entry.name

    @property
    def id(self) -> str:
        """Random identity of the log, 32 hexadecimal digits; never used again."""
        return f"{self._entry.id:032x}"

    @property
    def options(self) -> LogOptions:
        """How the log is stored and kept."""
        return self._entry.options

    @property
    def first(self) -> int:
        """First position that can be read (low watermark)."""
        self._backend.refresh()
        return self._view.range()[0]

    @property
    def end(self) -> int:
        """Next position: one past the last durable record."""
        self._backend.refresh()
        return self._view.range()[1]

    def __len__(self) -> int:
        """Return the number of records that can be read."""
        first, end, *_ = self._range()
        return end - first

    def _range(self) -> tuple[int, int, int, int]:
        self._backend.refresh()
        return self._view.range()

    def _positions(self) -> range:
        first, end, *_ = self._range()
        return range(first, end)

    def find(self, timestamp: TimestampLike) -> int | None:
        """Return the first position whose timestamp is at least ``timestamp``, if any.

        Timestamps need not rise with positions.
        """
        self._backend.refresh()
        return self._view.find(timestamp)

    # -- keeping and letting go --------------------------------------------------

    def trim(self, before: int, *, ignore_pins: bool = False) -> int:
        """Let every record below position ``before`` go; return the first one kept.

        Durable before any file goes. Pinning cursors hold the log at their position
        unless ``ignore_pins``. Trimming below ``first`` does nothing.

        Raises:
            BeyondEndError: ``before`` is beyond the end.
        """
        pinned_at = None if ignore_pins else _now_us()
        try:
            return self._backend.store.trim(self._stream, before, pinned_at)
        except NotFoundError as error:
            raise self._told(error) from None

    def apply_retention(self, now_us: int) -> int:
        """Trim what the log's retention lets go of; return the first position kept."""
        first, end, *_ = self._range()
        wish = first
        if self.options.retention_ms is not None:
            oldest = now_us - self.options.retention_ms * 1000
            wish = max(wish, self.find(oldest) or end)
        if self.options.retention_bytes is not None:
            kept = keep_bytes(self.segments(), self.options.retention_bytes)
            wish = max(wish, kept or first)
        return self.trim(wish) if wish > first else first

    def set_options(
        self,
        *,
        retention_ms: int | timedelta | None = None,
        retention_bytes: int | None = None,
    ) -> None:
        """Replace the log's retention; None keeps records until they are trimmed.

        ``retention_ms`` is in milliseconds, or a `timedelta`.
        """
        age = retention_of(retention_ms)
        self._alter(
            lambda old: replace(old, retention_ms=age, retention_bytes=retention_bytes)
        )

    def archive(self, location: str | os.PathLike[str] | None = None) -> Archive:
        """Open the log's archive to read: the recorded one, or the one at a place.

        Raises:
            NotFoundError: none was recorded, or none is there.
            InvalidArgumentError: it is the archive of another log.
            ArchiveDamagedError: its manifest is damaged.
        """
        from braidlog.archive import open_archive

        recorded = self._current().options.archive
        return open_archive(located(self.name, recorded, location), log_id=self.id)

    def set_archive(self, location: str | os.PathLike[str] | None) -> None:
        """Record where the log's archive is, a path or a URI; durable on return.

        Nothing is looked for there. None: the log has no archive.
        """
        from braidlog.archive.place import absolute

        where = None if location is None else absolute(location)
        self._alter(lambda old: old.archived_at(where))

    def _alter(self, change: Callable[[LogOptions], LogOptions]) -> None:
        # Two who change different options at once must not undo each other.
        with self._node._altering:
            new = change(self._current().options)
            self._backend.store.alter_log(self._entry.id, new.encode())
            self._entry = self._current()

    def _cursor_rows(self) -> dict[str, tuple[int, bool, int, int]]:
        return self._current().cursors

    def _current(self) -> CatalogEntry:
        return self._node._entry_of(self._entry.id, self.name)

    def cursor(
        self, name: str, *, pin: bool = False, lease: DurationLike | None = None
    ) -> Cursor:
        """Return the named cursor, creating it at the first position if it is new.

        A cursor stores a reader's next position. If several create it at once, one
        does. With ``pin`` retention and trimming keep what it has not read. A pin ends
        ``lease`` seconds, or a `timedelta`, after its last commit (None: never), so
        that a dead reader need not fill the disk.
        A cursor that is there keeps its pin and lease; `set_cursor` changes them.
        """
        microseconds = lease_us(lease)
        name = checked_name(name, "cursor")
        if name not in self._cursor_rows():
            checked_new_name(name, "cursor")
            store = self._backend.store
            store.create_cursor(self._stream, name, pin, microseconds)
        return Cursor(self, name)

    def set_cursor(
        self,
        name: str,
        position: int,
        *,
        pin: bool = False,
        lease: DurationLike | None = None,
    ) -> Cursor:
        """Store all of a cursor, new or not, in one step; durable on return.

        ``pin`` and ``lease`` are those of `cursor` and replace what was stored.

        Raises:
            InvalidArgumentError: the position is beyond the end of the log; nothing
                was changed.
        """
        microseconds = lease_us(lease)
        name = checked_name(name, "cursor")
        position = self._checked(position)
        if name not in self._cursor_rows():
            checked_new_name(name, "cursor")
        store = self._backend.store
        store.set_cursor(self._stream, name, position, pin, microseconds)
        return Cursor(self, name)

    def cursors(self) -> list[Cursor]:
        """Return the cursors of the log, by name."""
        return [Cursor(self, name) for name in sorted(self._cursor_rows())]

    def _checked(self, position: int) -> int:
        position = checked_int(position, "position")
        first, end, *_ = self._range()
        if not 1 <= position <= max(end, first):
            msg = f"a cursor's position must be from 1 to {end}, got {position}"
            raise InvalidArgumentError(msg)
        return position

    def _move_cursor(self, name: str, position: int) -> None:
        self._cursor_row(name)
        self._backend.store.move_cursor(self._stream, name, self._checked(position))

    def _delete_cursor(self, name: str) -> None:
        self._backend.store.delete_cursor(self._stream, name)

    def _cursor_row(self, name: str) -> tuple[int, bool, int, int]:
        rows = self._cursor_rows()
        row = rows.get(name)
        if row is None:
            what = f"log {self.name!r}: cursor"
            raise NotFoundError(does_not_exist(what, name, rows))
        return row

    # -- figures -----------------------------------------------------------------

    def segments(self) -> list[SegmentRange]:
        """Return where the log is stored, by position."""
        self._backend.refresh()
        ranges = [
            SegmentRange(number, begin, end, size, frames, low, high, lane > 0)
            for number, lane, begin, end, size, frames, low, high in (
                self._view.segments()
            )
        ]
        return sorted(ranges, key=lambda segment: (segment.begin, segment.number))

    def stats(self) -> LogStats:
        """Return figures of the log; bytes count segments that are only partly kept."""
        segments = self.segments()
        first, end, *_ = self._view.range()
        return LogStats(
            first=first,
            end=end,
            records=end - first,
            bytes=sum(segment.bytes for segment in segments),
            segments=len({segment.number for segment in segments}),
            timestamp_min=min((s.timestamp_min for s in segments), default=None),
            timestamp_max=max((s.timestamp_max for s in segments), default=None),
        )

    def describe(self) -> LogDescription:
        """Return what there is to know of the log."""
        stats = self.stats()
        entry = self._current()
        return LogDescription(
            name=self.name,
            id=self.id,
            stream=self._stream,
            created=entry.created,
            epoch=entry.epoch,
            first=stats.first,
            end=stats.end,
            records=stats.records,
            bytes=stats.bytes,
            segments=stats.segments,
            compression=entry.options.compression,
            retention_ms=entry.options.retention_ms,
            retention_bytes=entry.options.retention_bytes,
            cursors=len(entry.cursors),
        )
