"""What a leader does with a command of a client first: its time, its names, its room.

*Theory of operation.* The time of a command is that of the leader that logs it: one
clock says when a lease began and whether it is over, and no client's.

The state has to fit the head of a segment when the log is folded, and a message when it
is sent. It grows by what clients ask for and by what the cluster does itself: earlier
epochs, results of calls, cuts that a replica may still need. Clients may fill `SHARE`
of it; beyond that what makes it larger is refused, and what makes it smaller, or leaves
it as it is, is not. A log counts with the cuts that are always kept of it, not with
those that happen to be there: nobody can delete cuts. Encoding the state costs time, so
between two measurements an upper bound is kept, and the state is measured again when
that reaches the limit.

*Invariants.* What is let in keeps the state below the limit, but for cuts that a
replica lacks: the bound counts what is let in when it is logged, and all entries when
they are applied.
"""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from braidlog.errors import (
    LogInUseError,
    MetadataFullError,
    TableCursorError,
    TablePinError,
)
from braidlog.metarepo.machine.repository import Repository
from braidlog.metarepo.machine.state import (
    HISTORY_CUTS_MIN,
    State,
    StreamState,
    encode_state,
)
from braidlog.metarepo.machine.tables import tables_of
from braidlog.names import checked_new_name
from braidlog.wire import commands
from braidlog.wire.commands import Command
from braidlog.wire.tables import PIN_PREFIX, CreateIndex, CreateTable, RenameTable

SHARE: Final = (3, 4)
"""Part of the state that clients may fill; the rest is for what goes on anyway."""

_AGAIN_S: Final = 1.0
"""Between two measurements that find no room, if nothing was deleted."""
_ENTRY_BYTES: Final = 64
"""What one entry may add to the state beyond its own bytes: its call and result."""
_STREAM_BYTES: Final = len(
    msgspec.msgpack.encode(
        StreamState(1 << 31, bytes(16), (1 << 15,) * 9, holders=(1 << 15,) * 9)
    )
)
"""What a stream takes when its log is created, and its number in result and log."""
_TABLE_BYTES: Final = 9 * 120
"""What the hosts of a table and their cursors take."""
_CUT_BYTES: Final = 40
_RUN_BYTES: Final = 24
"""What a cut takes, and each run in it, with numbers as large as they get in years."""

_TIMED: Final = (
    commands.CreateLog,
    commands.Trim,
    commands.SetCursor,
    commands.Retain,
    commands.ChangeTables,
)
_SHRINKING: Final = (
    commands.AlterLog,
    commands.DeleteCursor,
    commands.DeleteLog,
    commands.ChangeTables,
    commands.RemoveNode,
)

_T = TypeVar("_T", bound=Command)


def stamped(command: _T, wall: int) -> _T:
    """Return a command with the time of the leader, microseconds since the epoch."""
    if isinstance(command, commands.CreateLog):
        return msgspec.structs.replace(command, created=wall)
    if isinstance(command, _TIMED):
        return msgspec.structs.replace(command, now=wall)
    return command


def require_names(state: State, command: Command) -> None:
    """Refuse a new name that means something else in a path, a shell or a listing.

    The state machine does not: what earlier versions logged comes to the same result
    on all nodes. For the same reason a name that is there goes on.

    Raises:
        InvalidArgumentError: it cannot be a name; TooLargeError if it is too long.
    """
    match command:
        case commands.CreateLog(log=log, name=name) if log not in state.logs:
            checked_new_name(name, "log")
        case commands.AlterLog(log=log, name=str(name)):
            known = state.logs.get(log)
            if known is None or known.name != name:
                checked_new_name(name, "log")
        case commands.SetCursor(log=log, name=name, change=change):
            known = state.logs.get(log)
            if name.startswith(PIN_PREFIX) and change is not commands.CursorChange.MOVE:
                _refuse_pin(state, name)
            if known is None or name not in known.cursors:
                checked_new_name(name, "cursor")
        case commands.DeleteCursor(name=name) if name.startswith(PIN_PREFIX):
            _refuse_pin(state, name)
        case commands.ChangeTables(changes=changes):
            for each in changes:
                if isinstance(each, CreateTable | RenameTable):
                    checked_new_name(each.name, "table")
                elif isinstance(each, CreateIndex):
                    checked_new_name(each.name, "index")


def _refuse_pin(state: State, name: str) -> None:
    table = _table_of(state, name)
    what = f"table {table!r}" if table else "a table"
    msg = f"cursor {name!r} belongs to {what}: it goes when the table is dropped"
    raise TableCursorError(msg, table=table)


def _table_of(state: State, name: str) -> str:
    """Return the name of the table that a cursor belongs to; empty if it is gone."""
    table, _, _ = name.removeprefix(PIN_PREFIX).partition(":")
    found = next((t for key, t in state.tables.items() if key.hex() == table), None)
    return found.name if found is not None else ""


def require_no_table(state: State, command: Command) -> None:
    """Refuse what would take records away that a table needs.

    Raises:
        LogInUseError: tables follow the log that is to be deleted.
        TablePinError: a host of a table does not have the records in files yet.
    """
    match command:
        case commands.DeleteLog(log=log):
            if names := tuple(table.name for table in tables_of(state, log)):
                msg = (
                    f"log {state.logs[log].name!r} cannot be deleted: table "
                    f"{names[0]!r} follows it"
                )
                raise LogInUseError(msg, tables=names)
        case commands.Trim(log=log, glsn=glsn, ignore_pins=True) if log in state.logs:
            for name, cursor in state.logs[log].cursors.items():
                if name.startswith(PIN_PREFIX) and cursor.position < glsn:
                    table = _table_of(state, name)
                    msg = (
                        f"table {table!r} needs log {state.logs[log].name!r} from "
                        f"position {cursor.position} on, so it cannot be trimmed to "
                        f"{glsn}"
                    )
                    raise TablePinError(msg, table=table, position=cursor.position)


class StateBudget:
    """How large the state is, at most, as a leader knows it."""

    def __init__(self, state_bytes_max: int) -> None:
        """Know nothing yet: the first command that asks for room measures."""
        part, whole = SHARE
        self._limit = state_bytes_max * part // whole
        self._size = self._limit + 1
        self._measured = float("-inf")
        self._shrinking: set[int] = set()
        self._shrunk = False

    def begun(self, index: int, command: Command) -> None:
        """Note a command that was logged."""
        if isinstance(command, _SHRINKING):
            self._shrinking.add(index)

    def applied(self, index: int, size: int) -> None:
        """Count an entry of so many bytes that is no cut."""
        self._size += size + _ENTRY_BYTES
        if index in self._shrinking:
            self._shrinking.remove(index)
            self._shrunk = True

    def require(self, repository: Repository, command: Command, now: float) -> None:
        """Refuse what makes the state larger than it may be.

        Raises:
            MetadataFullError: there is no room for it.
        """
        growth = _growth(repository.state, command)
        if not growth:
            return
        if self._size + growth > self._limit:
            # What was counted is an upper bound: entries that replaced something count
            # in full. So the state itself has the last word.
            self._measure(repository.state, now)
        if self._size + growth > self._limit:
            msg = (
                f"the metadata of the cluster would take {self._size + growth} "
                f"bytes, but at most {self._limit} fit"
            )
            raise MetadataFullError(msg, size=self._size + growth, limit=self._limit)
        self._size += growth

    def _measure(self, state: State, now: float) -> None:
        # It costs as much as a snapshot. Clients that are refused ask again and again,
        # and only a deletion can have made room for them meanwhile.
        if not self._shrunk and now - self._measured < _AGAIN_S:
            return
        self._measured, self._shrunk = now, False
        # The cuts come and go: all that may be kept are counted, however few are there.
        logs = {
            key: msgspec.structs.replace(log, history=[])
            for key, log in state.logs.items()
        }
        size = len(encode_state(msgspec.structs.replace(state, logs=logs)))
        self._size = size + _kept_cuts(len(logs), len(state.streams))


def _kept_cuts(logs: int, streams: int) -> int:
    """Return the bytes of the cuts that are always kept, if all streams are busy."""
    return HISTORY_CUTS_MIN * (logs * _CUT_BYTES + streams * _RUN_BYTES)


def _growth(state: State, command: Command) -> int:
    """Return how many bytes a command may add that clients can leave; 0: none."""
    size = len(commands.encode(command)) + _ENTRY_BYTES
    match command:
        case commands.CreateLog(log=log, streams=streams):
            # A repeated one finds the log and adds nothing.
            cuts = _kept_cuts(1, streams)
            return 0 if log in state.logs else size + cuts + streams * _STREAM_BYTES
        case commands.AlterLog(log=log) if log in state.logs:
            known = state.logs[log]
            name, options = command.name or "", command.options or b""
            # A shorter name or options make room; they pass where nothing else does.
            more = len(name.encode()) > len(known.name.encode())
            return size if more or len(options) > len(known.options) else 0
        case commands.SetStreams(log=log, placement=placement) if log in state.logs:
            count = len(placement)
            cuts = HISTORY_CUTS_MIN * count * _RUN_BYTES
            # The streams that are there have one more epoch to remember.
            return (size + cuts + count * _STREAM_BYTES) if count else 0
        case commands.SetCursor(log=log) if log in state.logs:
            moves = command.change is commands.CursorChange.MOVE
            # A reader that goes on must never be stopped by what others store.
            there = command.name in state.logs[log].cursors
            return 0 if there or moves else size
        case commands.ChangeTables(changes=changes):
            grow = any(
                isinstance(each, CreateTable | RenameTable | CreateIndex)
                for each in changes
            )
            # Each host of a table has a cursor.
            return size + _TABLE_BYTES * len(changes) if grow else 0
    return 0
