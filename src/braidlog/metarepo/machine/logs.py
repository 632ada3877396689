"""Commands about logs. Each checks first and changes the state then."""

from __future__ import annotations

import msgspec

from braidlog.errors import (
    AlreadyExistsError,
    FencedError,
    InvalidArgumentError,
    NotFoundError,
    TooLargeError,
)
from braidlog.metarepo.machine import faults
from braidlog.metarepo.machine.nodes import require_node
from braidlog.metarepo.machine.placement import place
from braidlog.metarepo.machine.state import (
    LOGS_MAX,
    NAME_BYTES_MAX,
    OPTIONS_BYTES_MAX,
    REPLICAS_MAX,
    STREAMS_MAX,
    STREAMS_OF_LOG_MAX,
    CursorState,
    LogState,
    ShardPlace,
    State,
    StreamState,
)
from braidlog.wire.commands import AlterLog, CreateLog, DeleteLog, Trim
from braidlog.wire.messages import LogKind
from braidlog.wire.results import Created, Done, Trimmed
from braidlog.wire.tables import PIN_PREFIX

LOG_ID_BYTES = 16


def require_log(state: State, log: bytes) -> LogState:
    """Return a log that must exist.

    Raises:
        NotFoundError: it does not.
    """
    found = state.logs.get(log)
    if found is None:
        raise NotFoundError(f"a log with identity {log.hex()} does not exist")
    return found


def create(state: State, index: int, command: CreateLog) -> Created:
    """Apply `CreateLog`."""
    known = state.logs.get(command.log)
    if known and _same(known, command):
        return Created(known.log, known.streams)
    faults.require_settled(state)
    if known or len(command.log) != LOG_ID_BYTES:
        msg = f"{command.log.hex()} is the identity of another log, or not an identity"
        raise InvalidArgumentError(msg)
    _require_name(state, command.name)
    require_shape(command.replication, command.min_replicas, command.options)
    _require_room(state, command.streams, command.kind)
    placement = command.placement or place(
        state,
        state.nodes,
        command.streams,
        command.replication,
        command.min_replicas,
    )
    _require_placement(state, command, placement)
    begin = state.stream_next
    numbers = tuple(range(begin, begin + command.streams))
    for number, replicas in zip(numbers, placement, strict=True):
        if command.kind is LogKind.SHARD:
            state.shards[number] = ShardPlace(number, command.log, replicas)
            continue
        state.streams[number] = StreamState(
            number, command.log, replicas, holders=replicas, changed=index
        )
    state.logs[command.log] = LogState(
        log=command.log,
        name=command.name,
        replication=command.replication,
        min_replicas=command.min_replicas,
        options=command.options,
        created=command.created,
        streams=numbers,
        kind=command.kind,
    )
    state.stream_next += command.streams
    state.revision = index
    return Created(command.log, numbers)


def _same(log: LogState, command: CreateLog) -> bool:
    shape = len(log.streams), log.replication, log.min_replicas
    return (log.kind, log.name, *shape, log.options) == (
        command.kind,
        command.name,
        command.streams,
        command.replication,
        command.min_replicas,
        command.options,
    )


def _require_name(state: State, name: str) -> None:
    if not name or len(name.encode()) > NAME_BYTES_MAX:
        raise InvalidArgumentError(f"a name must have 1 to {NAME_BYTES_MAX} bytes")
    if any(log.name == name for log in state.logs.values()):
        raise AlreadyExistsError(f"log {name!r} exists already")


def require_shape(replication: int, fewest: int, options: bytes) -> None:
    """Refuse numbers of replicas and options that no log can have.

    Raises:
        InvalidArgumentError: the numbers make no sense.
        TooLargeError: the options are too many bytes.
    """
    if not 1 <= fewest <= replication <= REPLICAS_MAX:
        raise InvalidArgumentError(
            f"replication = {replication} and min_replicas = {fewest} must "
            f"satisfy 1 <= min_replicas <= replication <= {REPLICAS_MAX}"
        )
    if len(options) > OPTIONS_BYTES_MAX:
        msg = (
            f"the options of the log have {len(options)} bytes, at most "
            f"{OPTIONS_BYTES_MAX} fit"
        )
        raise TooLargeError(msg, size=len(options), limit=OPTIONS_BYTES_MAX)


def _require_room(state: State, streams: int, kind: LogKind) -> None:
    if kind is LogKind.SHARD and streams != 1:
        raise InvalidArgumentError(f"a shard has one stream, got {streams}")
    if not 1 <= streams <= STREAMS_OF_LOG_MAX:
        msg = f"a log has 1 to {STREAMS_OF_LOG_MAX} streams, got {streams}"
        raise InvalidArgumentError(msg)
    there = len(state.streams) + len(state.shards)
    if len(state.logs) >= LOGS_MAX or there + streams > STREAMS_MAX:
        msg = (
            f"the cluster has {len(state.logs)} logs with {there} "
            f"streams: it holds at most {LOGS_MAX} logs and {STREAMS_MAX} "
            "streams"
        )
        raise TooLargeError(msg, size=there, limit=STREAMS_MAX)


def _require_placement(
    state: State, command: CreateLog, placement: tuple[tuple[int, ...], ...]
) -> None:
    if len(placement) != command.streams:
        msg = f"places for {len(placement)} of {command.streams} streams"
        raise InvalidArgumentError(msg)
    for replicas in placement:
        if len(set(replicas)) != len(replicas) or not (
            command.min_replicas <= len(replicas) <= command.replication
        ):
            msg = f"replicas {list(replicas)} are too few, too many, or not distinct"
            raise InvalidArgumentError(msg)
        for node in replicas:
            require_node(state, node)


def alter(state: State, index: int, command: AlterLog) -> Done:
    """Apply `AlterLog`; the leader brings the replicas to the new number."""
    log = require_log(state, command.log)
    require_revision(log, command.expected)
    if command.known not in (None, log.options):
        msg = f"another program changed the options of log {log.name!r} in the meantime"
        raise FencedError(msg)
    replication = _given(command.replication, log.replication)
    fewest = _given(command.min_replicas, log.min_replicas)
    options = log.options if command.options is None else command.options
    require_shape(replication, fewest, options)
    if command.name not in (None, log.name):
        _require_name(state, command.name or "")
        log.name = command.name or log.name
    if options != log.options:
        # What primaries said of retention was worked out with the old ones.
        for number in log.streams:
            if (stream := state.streams.get(number)) is not None:
                stream.keep, stream.sizes = 0, ()
    log.replication, log.min_replicas, log.options = replication, fewest, options
    if command.counted:
        log.revision = index
    _tell(state, log, index)
    return Done()


def require_revision(log: LogState, expected: int | None) -> None:
    """Refuse a change by somebody who has not seen the last one.

    Raises:
        FencedError: the settings are of another revision.
    """
    if expected not in (None, log.revision):
        msg = (
            f"log {log.name!r} is at revision {log.revision}, not {expected}: its "
            "settings were changed meanwhile. Look at them, then decide again"
        )
        raise FencedError(msg, given=expected or 0, current=log.revision)


def _given(value: int | None, known: int) -> int:
    return known if value is None else value


def _tell(state: State, log: LogState, index: int) -> None:
    """Note that the replicas of a log have something to learn."""
    state.revision = index
    for number in log.streams:
        if (stream := state.streams.get(number)) is not None:
            stream.changed = index


def delete(state: State, index: int, command: DeleteLog) -> Done:
    """Apply `DeleteLog`."""
    log = require_log(state, command.log)
    followers = [each.name for each in state.tables.values() if each.log == log.log]
    if followers:
        msg = (
            f"log {log.name!r} cannot be deleted: table {followers[0]!r} follows it. "
            "Drop its tables first"
        )
        raise InvalidArgumentError(msg)
    for stream in log.streams:
        if state.streams.pop(stream, None) is None:
            del state.shards[stream]
    del state.logs[log.log]
    state.revision = index
    return Done()


def trim(state: State, index: int, command: Trim) -> Trimmed:
    """Apply `Trim`: never back, never behind a live pin that is not to be ignored.

    Those of tables never are: nothing else has what they hold.
    """
    log = require_log(state, command.log)
    if not 1 <= command.glsn <= log.high_watermark + 1:
        raise InvalidArgumentError(
            f"a trim must go to a position from 1 to {log.high_watermark + 1}, "
            f"got {command.glsn}"
        )
    pins = _table_pins(log) if command.ignore_pins else live_pins(log, command.now)
    advance(state, index, log, min([command.glsn, *pins]))
    return Trimmed(log.trim)


def advance(state: State, index: int, log: LogState, first: int) -> None:
    """Let records before a GLSN go, if they are not gone yet.

    A removed stream goes with its last record.
    """
    if first > log.trim:
        log.trim = first
        _forget_removed(state, log)
        _tell(state, log, index)


def _forget_removed(state: State, log: LogState) -> None:
    if log.spread is None:
        return
    gone = {stream for stream, last in log.spread.removed if last < log.trim}
    if not gone:
        return
    for stream in gone:
        state.streams.pop(stream, None)
    log.streams = tuple(stream for stream in log.streams if stream not in gone)
    left = tuple(each for each in log.spread.removed if each[0] not in gone)
    log.spread = msgspec.structs.replace(log.spread, removed=left)


def _table_pins(log: LogState) -> list[int]:
    return [
        cursor.position
        for name, cursor in log.cursors.items()
        if name.startswith(PIN_PREFIX)
    ]


def live_pins(log: LogState, now: int) -> list[int]:
    """Return the positions that pins hold at a time."""
    return [
        cursor.position
        for cursor in log.cursors.values()
        if cursor.pin and _live(cursor, now)
    ]


def _live(cursor: CursorState, now: int) -> bool:
    return cursor.lease == 0 or now < cursor.touched + cursor.lease
