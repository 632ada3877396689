"""Commands of clients: cursors."""

from __future__ import annotations

from braidlog.errors import InvalidArgumentError, NotFoundError, TooLargeError
from braidlog.metarepo.machine.logs import require_log
from braidlog.metarepo.machine.state import (
    CURSORS_MAX,
    NAME_BYTES_MAX,
    CursorState,
    State,
)
from braidlog.wire.commands import (
    CursorChange,
    DeleteCursor,
    GetCursors,
    SetCursor,
)
from braidlog.wire.results import CursorRow, Cursors, Done


def set_cursor(state: State, index: int, command: SetCursor) -> Done:
    """Apply `SetCursor`."""
    log = require_log(state, command.log)
    name = command.name
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidArgumentError(f"a name must have 1 to {NAME_BYTES_MAX} bytes")
    if not 1 <= command.position <= log.high_watermark + 1 or command.lease < 0:
        raise InvalidArgumentError(
            "the position of a cursor must be from 1 to "
            f"{log.high_watermark + 1}, got {command.position}"
        )
    known = log.cursors.get(name)
    if known is None and command.change is CursorChange.MOVE:
        raise NotFoundError(f"log {log.name!r}: cursor {name!r} does not exist")
    if known is None and len(log.cursors) >= CURSORS_MAX:
        msg = f"log {log.name!r} has {CURSORS_MAX} cursors, the maximum: delete some"
        raise TooLargeError(msg, limit=CURSORS_MAX)
    if known is not None and command.change is CursorChange.CREATE:
        return Done(known.touched)
    position, pin, lease = command.position, command.pin, command.lease
    if command.change is CursorChange.CREATE:
        position = max(position, log.trim)  # What was the first when it was asked.
    if known is not None and command.change is CursorChange.MOVE:
        pin, lease = known.pin, known.lease
    log.cursors[name] = CursorState(position, pin, lease, command.now)
    return Done(command.now)


def delete_cursor(state: State, index: int, command: DeleteCursor) -> Done:
    """Apply `DeleteCursor`."""
    log = require_log(state, command.log)
    if command.name not in log.cursors:
        raise NotFoundError(f"log {log.name!r}: cursor {command.name!r} does not exist")
    del log.cursors[command.name]
    return Done()


def get_cursors(state: State, index: int, command: GetCursors) -> Cursors:
    """Apply `GetCursors`."""
    cursors = require_log(state, command.log).cursors
    return Cursors(
        tuple(
            CursorRow(name, each.position, each.pin, each.touched, each.lease)
            for name, each in sorted(cursors.items())
        )
    )
