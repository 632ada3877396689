"""Named, stored positions of readers of a cluster's log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.wire.results import CursorRow

if TYPE_CHECKING:
    from braidlog.client.kept import KeptClusterLog

__all__ = ["AsyncClusterCursor"]

_MICROSECONDS = 1_000_000


class AsyncClusterCursor:
    """A reader's position, as the cluster had it when this was last read or set."""

    def __init__(self, log: KeptClusterLog, row: CursorRow) -> None:
        """Bind to a cursor of the log; users call `AsyncClusterLog.cursor`."""
        self._log = log
        self._row = row

    def __repr__(self) -> str:
        """Show name and position."""
        return f"<ClusterCursor {self.name!r} of {self._log.name!r} at {self.position}>"

    @property
    def name(self) -> str:
        """Name of the cursor."""
        return self._row.name

    @property
    def position(self) -> int:
        """Next position to read."""
        return self._row.position

    @property
    def pin(self) -> bool:
        """Whether the cursor asks to keep what it has not read."""
        return self._row.pin

    @property
    def touched(self) -> int:
        """When the cursor was last written, microseconds since the epoch."""
        return self._row.touched

    @property
    def lease(self) -> float | None:
        """Seconds that a pin holds after the last commit; None for ever."""
        return self._row.lease / _MICROSECONDS if self._row.lease else None

    async def commit(self, position: int) -> None:
        """Store ``position`` as the next one to read; durable on return.

        Going back is allowed: the records are read again. Pin and lease stay what they
        are, also if another program has set them.

        Raises:
            NotFoundError: the cursor was deleted.
            InvalidArgumentError: the position is beyond the end of the log.
        """
        self._row = await self._log._move_cursor(self._row, position)

    async def refresh(self) -> None:
        """Read the cursor again.

        Raises:
            NotFoundError: it was deleted.
        """
        self._row = await self._log._cursor_row(self.name)

    async def delete(self) -> None:
        """Delete the cursor; durable on return."""
        await self._log._delete_cursor(self.name)
