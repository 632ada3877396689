"""Named, stored positions of readers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from braidlog.errors import LogError

if TYPE_CHECKING:
    from braidlog.storage.keeping import KeptLog

__all__ = ["Cursor"]


class Cursor:
    """A reader's position, stored beside the log. Get one from `Log.cursor`."""

    def __init__(self, log: KeptLog, name: str) -> None:
        """Bind to a cursor of the log; users call `Log.cursor`."""
        self._log = log
        self.name = name

    def __repr__(self) -> str:
        """Show name and position."""
        who = f"Cursor {self.name!r} of {self._log.name!r}"
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
        return lease / 1_000_000 if lease else None

    def commit(self, position: int) -> None:
        """Store ``position`` as the next one to read; durable on return.

        Going back is allowed: the records are read again.

        Raises:
            NotFoundError: the cursor was deleted.
            InvalidArgumentError: the position is beyond the end of the log.
        """
        self._log._move_cursor(self.name, position)

    def delete(self) -> None:
        """Delete the cursor; durable on return."""
        self._log._delete_cursor(self.name)
