"""Commands of clients: cursors and producers."""

from __future__ import annotations

from braidlog.errors import InvalidArgumentError, NotFoundError, TooLargeError
from braidlog.metarepo.machine.logs import require_log
from braidlog.metarepo.machine.state import (
    CURSORS_MAX,
    NAME_BYTES_MAX,
    PRODUCERS_MAX,
    CursorState,
    State,
)
from braidlog.wire.commands import (
    AllocateProducer,
    CursorChange,
    DeleteCursor,
    GetCursors,
    SetCursor,
)
from braidlog.wire.results import CursorRow, Cursors, Done, Producer

__all__ = ["allocate_producer", "delete_cursor", "get_cursors", "set_cursor"]


def set_cursor(state: State, index: int, command: SetCursor) -> Done:
    """Apply `SetCursor`."""
    log = require_log(state, command.log)
    name = command.name
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        msg = f"a name must have 1 to {NAME_BYTES_MAX} bytes"
        raise InvalidArgumentError(msg)
    if not 1 <= command.position <= log.high_watermark + 1 or command.lease < 0:
        msg = (
            "the position of a cursor must be from 1 to "
            f"{log.high_watermark + 1}, got {command.position}"
        )
        raise InvalidArgumentError(msg)
    known = log.cursors.get(name)
    if known is None and command.change is CursorChange.MOVE:
        msg = f"log {log.name!r}: cursor {name!r} does not exist"
        raise NotFoundError(msg)
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
        msg = f"log {log.name!r}: cursor {command.name!r} does not exist"
        raise NotFoundError(msg)
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


def allocate_producer(state: State, index: int, command: AllocateProducer) -> Producer:
    """Apply `AllocateProducer`: a new id, or the next epoch, which fences the last."""
    producer = command.producer
    if producer == 0:
        state.producer_next += 1
        return Producer(state.producer_next - 1, 1)
    if not 0 < producer < state.producer_next:
        msg = f"producer {producer} does not exist"
        raise NotFoundError(msg)
    if producer not in state.producers and len(state.producers) >= PRODUCERS_MAX:
        msg = f"{PRODUCERS_MAX} producers were acquired again"
        raise TooLargeError(msg, limit=PRODUCERS_MAX)
    epoch = state.producers.get(producer, 1) + 1
    state.producers[producer] = epoch
    return Producer(producer, epoch)
