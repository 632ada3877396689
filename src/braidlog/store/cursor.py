"""Named, stored positions of readers."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from braidlog.errors import LogError

_MICROSECONDS = 1_000_000


class CursorHome(Protocol):
    """What a cursor needs of its log."""

    @property
    def name(self) -> str:
        """Name of the log."""

    def _cursor_row(self, name: str) -> tuple[int, bool, int, int]: ...
    def _move_cursor(self, name: str, position: int) -> None: ...
    def _delete_cursor(self, name: str) -> None: ...


class Cursor:
    """A reader's position, stored beside the log. Get one from `Log.cursor`."""

    def __init__(self, log: CursorHome, name: str) -> None:
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
        return _seconds(self._log._cursor_row(self.name)[3])

    def commit(self, position: int) -> None:
        """Store ``position`` as the next one to read; durable on return.

        Moving back is allowed; the records are then read again. Pin and lease do not
        change, even if another program has set them.

        Raises:
            NotFoundError: the cursor was deleted.
            InvalidArgumentError: the position is beyond the end of the log.
        """
        self._log._move_cursor(self.name, position)

    def refresh(self) -> None:
        """Check that the cursor exists; its attributes are always current.

        Raises:
            NotFoundError: it was deleted.
        """
        self._log._cursor_row(self.name)

    def delete(self) -> None:
        """Delete the cursor; durable on return."""
        self._log._delete_cursor(self.name)


class StoredCursor(NamedTuple):
    """The stored state of a cursor. ``lease`` and ``touched`` are microseconds."""

    name: str
    position: int
    pin: bool
    touched: int
    lease: int
    """How long a pin holds; 0 for ever."""


class AsyncCursorHome(Protocol):
    """What a cursor for asyncio needs of its log."""

    @property
    def name(self) -> str:
        """Name of the log."""

    async def _read_cursor(self, name: str) -> StoredCursor: ...
    async def _move_cursor(self, row: StoredCursor, position: int) -> StoredCursor: ...
    async def _delete_cursor(self, name: str) -> None: ...


class AsyncCursor:
    """A reader's position, as it was when this was last read or written.

    Get one from `AsyncLog.cursor` or `AsyncClusterLog.cursor`.
    """

    def __init__(self, log: AsyncCursorHome, row: StoredCursor) -> None:
        """Bind to a cursor of the log; users call `cursor` of the log."""
        self._log = log
        self._row = row

    def __repr__(self) -> str:
        """Show name and position."""
        return f"<AsyncCursor {self.name!r} of {self._log.name!r} at {self.position}>"

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
        return _seconds(self._row.lease)

    async def commit(self, position: int) -> None:
        """Store ``position`` as the next one to read; see `Cursor.commit`."""
        self._row = await self._log._move_cursor(self._row, position)

    async def refresh(self) -> None:
        """Read the cursor again.

        Raises:
            NotFoundError: it was deleted.
        """
        self._row = await self._log._read_cursor(self.name)

    async def delete(self) -> None:
        """Delete the cursor; durable on return."""
        await self._log._delete_cursor(self.name)


def _seconds(lease: int) -> float | None:
    return lease / _MICROSECONDS if lease else None
