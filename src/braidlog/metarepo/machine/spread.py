"""Streams of a log that come and go: which of them take what.

*Theory of operation.* One entry changes the streams over which keys are spread, and
begins the next epoch of every stream that had keys. So what was sent there by the
former spread is committed before the entry or never: no cut of an epoch that is over
applies. All records of a key in its former stream have lower GLSNs than those in its
new one. Who sends names the epoch, so whoever does not know the change is refused, and
looks.

New streams come last; the last ones are removed first. So a stream keeps its place
among those for keys as long as it is one. A removed stream is sealed for good: it is
read as before, its replicas are repaired, and it goes with its last record. One that
was there when the log was created stays open for the producers that callers bring,
because only it knows what they have stored: it takes no keys any more, and nothing that
may go anywhere.

*Invariants.* The generation rises with each change. Producers never move. A stream is
removed once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from braidlog.errors import InvalidArgumentError, TooLargeError
from braidlog.metarepo.machine import faults
from braidlog.metarepo.machine.logs import require_log, require_revision
from braidlog.metarepo.machine.placement import place
from braidlog.metarepo.machine.state import (
    STREAMS_MAX,
    STREAMS_OF_LOG_MAX,
    LogState,
    State,
    StreamState,
)
from braidlog.metarepo.machine.streams import begin
from braidlog.wire.commands import SetStreams
from braidlog.wire.messages import LogKind, Place, Spread, StreamStatus
from braidlog.wire.results import Created
from braidlog.wire.spread import first_streams


def spread_of(log: LogState) -> Spread:
    """Return how a log spreads what it takes; of one that was never changed, too."""
    if log.spread is not None:
        return log.spread
    try:
        keyed = first_streams(log.streams, log.options)
    except (ValueError, TypeError, AttributeError):
        # Earlier versions took any options. No client can send a key to such a log.
        keyed = log.streams
    return Spread(0, keyed, keyed)


def place_of(log: LogState, stream: int) -> Place | None:
    """Return the place of a stream, for its replicas."""
    spread = log.spread
    if spread is None:
        return None
    return Place(
        spread.generation,
        _at(spread.keyed, stream),
        len(spread.keyed),
        _at(spread.producers, stream),
    )


def _at(streams: tuple[int, ...], stream: int) -> int:
    return streams.index(stream) + 1 if stream in streams else 0


def after_rescue(state: State, log: LogState, places: Mapping[int, Place]) -> None:
    """Bring the spread of a log up to what its replicas know, by stream.

    All streams begin an epoch with a rescue, so its spread may change there: it leaves
    out streams that are lost.
    """
    mine = {n: place for n, place in places.items() if n in log.streams}
    newest = max(mine.values(), key=lambda place: place.generation, default=None)
    if newest is None and log.spread is None:
        return
    known = spread_of(log)
    keyed, producers, removed = known.keyed, known.producers, dict(known.removed)
    if newest is not None and newest.generation > known.generation:
        # A stream has the same place in all generations in which it takes keys.
        keys = {p.key: n for n, p in mine.items() if 0 < p.key <= newest.keys}
        keyed = tuple(keys[at] for at in sorted(keys))
        homes = {p.producer: n for n, p in mine.items() if p.producer}
        producers = tuple(homes[at] for at in sorted(homes))
        ended = set(mine) - {*keyed, *producers}
        removed = {n: removed.get(n, log.high_watermark) for n in sorted(ended)}
    there = set(log.streams)
    for number in removed.keys() & there:
        state.streams[number].status = StreamStatus.SEALED
    running = tuple(sorted(there - removed.keys()))
    log.spread = Spread(
        max(known.generation, newest.generation if newest else 0) + 1,
        tuple(n for n in keyed if n in there) or running,
        tuple(n for n in producers if n in there) or running,
        tuple((n, last) for n, last in removed.items() if n in there),
    )


def set_streams(state: State, index: int, command: SetStreams) -> Created:
    """Apply `SetStreams`; the result names the streams that take keys now."""
    log = require_log(state, command.log)
    require_revision(log, command.expected)
    if not 1 <= command.streams <= STREAMS_OF_LOG_MAX:
        raise InvalidArgumentError(
            f"a log has 1 to {STREAMS_OF_LOG_MAX} streams, got {command.streams}"
        )
    if log.kind is LogKind.SHARD and command.streams != 1:
        msg = f"log {log.name!r} is a shard, which has one stream"
        raise InvalidArgumentError(msg)
    spread = spread_of(log)
    more = command.streams - len(spread.keyed)
    if not more:
        return Created(log.log, spread.keyed)
    faults.require_settled(state)
    if more > 0:
        keyed = spread.keyed + _made(state, index, log, spread, command)
    else:
        keyed = spread.keyed[: command.streams]
    gone = [
        stream
        for stream in spread.keyed
        if stream not in keyed and stream not in spread.producers
    ]
    for number in spread.keyed:
        stream = state.streams[number]
        status = StreamStatus.SEALED if number in gone else stream.status
        begin(state, index, stream, status)
    removed = ((stream, log.high_watermark) for stream in gone)
    log.spread = Spread(
        spread.generation + 1, keyed, spread.producers, (*spread.removed, *removed)
    )
    log.revision = state.revision = index
    return Created(log.log, keyed)


def _made(
    state: State, index: int, log: LogState, spread: Spread, command: SetStreams
) -> tuple[int, ...]:
    """Make the streams that are lacking; return those for keys that come anew.

    A stream that stayed for its producers takes keys again before a new one is made:
    those come first, as they did before.
    """
    more = command.streams - len(spread.keyed)
    kept = tuple(each for each in spread.producers if each not in spread.keyed)[:more]
    count = more - len(kept)
    _require_room(state, log, count)
    placement = command.placement
    if len(placement) != count or not _is_possible(state, log, placement):
        # Another change came between, or a node went: places are chosen anew, here.
        nodes = tuple(state.nodes)
        placement = place(state, nodes, count, log.replication, log.min_replicas)
    numbers = tuple(range(state.stream_next, state.stream_next + count))
    for number, replicas in zip(numbers, placement, strict=True):
        state.streams[number] = StreamState(
            number,
            log.log,
            replicas,
            last_version=log.version,
            version=log.version,
            high_watermark=log.high_watermark,
            holders=replicas,
            changed=index,
        )
    state.stream_next += count
    log.streams = (*log.streams, *numbers)
    return kept + numbers


def missing_streams(log: LogState, streams: int) -> int:
    """Return how many streams have to be made for so many that take keys."""
    spread = spread_of(log)
    kept = sum(each not in spread.keyed for each in spread.producers)
    return max(0, streams - len(spread.keyed) - kept)


def _require_room(state: State, log: LogState, count: int) -> None:
    if len(log.streams) + count > STREAMS_OF_LOG_MAX:
        held = len(log.streams)
        msg = (
            f"log {log.name!r} has {held} streams with those that are removed and not "
            f"trimmed yet; {count} more are over the limit of {STREAMS_OF_LOG_MAX}"
        )
        raise TooLargeError(msg, size=held + count, limit=STREAMS_OF_LOG_MAX)
    if len(state.streams) + count > STREAMS_MAX:
        held = len(state.streams)
        msg = f"the cluster has {held} streams, and holds at most {STREAMS_MAX}"
        raise TooLargeError(msg, size=held + count, limit=STREAMS_MAX)


def _is_possible(
    state: State, log: LogState, placement: Iterable[tuple[int, ...]]
) -> bool:
    return all(
        len(set(replicas)) == len(replicas)
        and log.min_replicas <= len(replicas) <= log.replication
        and all(node in state.nodes for node in replicas)
        for replicas in placement
    )
