"""How a repository that begins anew after a rescue learns what there is.

*Theory of operation.* The rescue wrote a configuration to the valid nodes. Each says
what replicas it has, with the last configuration under which each became a member of
an epoch. When all have, the logs and streams are made of that and of what the rescue
carried over of the repository before (`braidlog.metarepo.succession`). A
stream goes on with those that are members of its newest epoch, in the next one. Every
one of them holds all that was acknowledged; so what all of them hold is committed, by
one cut for each log behind the cuts that are known, and the rest was never
acknowledged.

*Invariants.* Nothing is adopted before every valid node was heard. Numbers of streams
and producers do not come again. What cannot be adopted is left where it is. Positions
that the repository before gave out stay, wherever its cuts fit what is on the disks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from braidlog.errors import FencedError, InvalidArgumentError
from braidlog.metarepo.machine.nodes import require_node
from braidlog.metarepo.machine.spread import after_rescue
from braidlog.metarepo.machine.state import (
    EPOCHS_MAX,
    STREAMS_MAX,
    LogState,
    State,
    StreamState,
    decode_state,
)
from braidlog.wire.commands import OfferReplicas, StoredReplica
from braidlog.wire.messages import LogCut, LogKind, StreamConfig, StreamRun
from braidlog.wire.results import Done

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(StreamConfig)


@dataclass(frozen=True, slots=True)
class _Member:
    """A replica that entered an epoch as a member, and that epoch."""

    node: int
    stored: StoredReplica
    config: StreamConfig


def about(config: StreamConfig) -> bytes:
    """Return what a node stores beside a replica that entered an epoch."""
    return _encoder.encode(config)


def offer(state: State, index: int, command: OfferReplicas) -> Done:
    """Apply `OfferReplicas`."""
    require_node(state, command.node)
    known = state.faults
    if known is None or known.epoch != command.epoch:
        current = known.epoch if known else 0
        msg = (
            f"the cluster was rescued as epoch {current}, not as epoch {command.epoch}"
        )
        raise FencedError(msg, given=command.epoch, current=current)
    if command.node not in known.awaited:
        # Repeated after all was decided: what it holds was counted once.
        return Done()
    parts = known.offers.setdefault(command.node, {})
    if any(part.parts != command.parts for part in parts.values()):
        parts.clear()  # the node started again and counts anew
    parts[command.part] = command
    waits = [node for node in known.awaited if not _is_whole(known.offers.get(node))]
    # One that is missing may hold the only copy of what was acknowledged.
    if not waits:
        _adopt(state, index, known.offers)
        known.awaited, known.offers, known.seed = (), {}, b""
        state.revision = index
    return Done()


def _is_whole(parts: dict[int, OfferReplicas] | None) -> bool:
    return parts is not None and all(len(parts) == p.parts for p in parts.values())


def _adopt(
    state: State, index: int, offers: dict[int, dict[int, OfferReplicas]]
) -> None:
    stored = [
        (node, replica)
        for node, parts in sorted(offers.items())
        for _, part in sorted(parts.items())
        for replica in part.replicas
    ]
    members: dict[int, list[_Member]] = {}
    for node, replica in stored:
        config = _config(replica)
        # A configuration that was heard and never entered makes no member.
        if config is not None and config.epoch == replica.epoch:
            member = _Member(node, replica, config)
            members.setdefault(replica.stream, []).append(member)
    newest: dict[int, int] = {}
    for _, replica in stored:
        newest[replica.stream] = max(replica.epoch, newest.get(replica.stream, 0))
    deleted = _inherit(state, members, newest)
    before = {number: stream.committed for number, stream in state.streams.items()}
    known = {log.log for log in state.logs.values() if _is_newest(state, log, members)}
    for stream, found in sorted(members.items()):
        _adopt_stream(state, index, stream, newest[stream], found, known)
    _settle_others(state, index, before.keys() - members.keys(), newest)
    for log in state.logs.values():
        if log.kind is LogKind.SHARD:
            continue
        _commit_tails(state, log, members, before if log.log in known else None)
        places = {n: _last(found)[0].config.place for n, found in members.items()}
        after_rescue(state, log, {n: p for n, p in places.items() if p is not None})
    lasting = {*state.orphans, *newest} - state.streams.keys() - deleted
    state.orphans = tuple(sorted(lasting))


def _inherit(
    state: State, members: dict[int, list[_Member]], numbers: Collection[int]
) -> set[int]:
    """Take over what the repository before the rescue had, as far as it is known.

    Returns the streams that it had deleted; there may be replicas left of them.
    """
    known = state.faults
    if known is None:
        return set()
    deleted: set[int] = set()
    if known.seed:
        before = decode_state(known.seed)
        state.logs, state.streams = before.logs, before.streams
        # Their groups go on by themselves: each has its own majority.
        state.shards = before.shards
        for shard in state.shards.values():
            # Until their leaders say so, more may belong to them than was known.
            shard.settled = False
        state.stream_next = before.stream_next
        state.calls = {**before.calls, **state.calls}
        state.orphans = before.orphans
        # Their hosts say themselves what they have; those that are gone are replaced.
        state.tables = before.tables
        # Numbers are never given twice, so one below `stream_next` that is not there
        # was deleted, whatever disks still have of it.
        given = {number for number in numbers if number < before.stream_next}
        deleted = given - before.streams.keys() - set(before.orphans)
        for number in deleted & members.keys():
            del members[number]
    # What is missing may have created logs: their numbers must not be given again.
    skipped = 0 if known.complete else STREAMS_MAX
    state.stream_next = max(state.stream_next, max(numbers, default=0) + 1) + skipped
    return deleted


def _is_newest(state: State, log: LogState, members: dict[int, list[_Member]]) -> bool:
    """Tell whether the cuts of a log go on where the disks of all members end."""
    for number, found in members.items():
        last = _last(found)
        if last[0].config.log != log.log:
            continue  # Of another log.
        stream = state.streams.get(number)
        if stream is None or last[0].config.epoch > stream.epoch:
            # The disks know an epoch of which the repository has lost the entry.
            return False
        for each in last:
            has = each.stored
            fits = has.committed <= stream.committed <= has.end
            if not fits or has.version > log.version:
                # A cut was lost that the replica has applied, or the stream lost
                # records that the cuts had committed.
                return False
    return True


def _last(found: list[_Member]) -> list[_Member]:
    """Return the members of the newest epoch that any of them entered."""
    epoch = max((each.config.epoch for each in found), default=0)
    return [each for each in found if each.config.epoch == epoch]


def _settle_others(
    state: State, index: int, others: Iterable[int], newest: dict[int, int]
) -> None:
    """Settle the streams that no valid node is a member of.

    One that never had a record loses nothing if it begins on any nodes. Any other is
    lost: a rescue has said so before it was written.
    """
    live = state.faults.awaited if state.faults else ()
    for number in sorted(others):
        stream = state.streams[number]
        log = state.logs[stream.log]
        if stream.committed > 1:
            log.streams = tuple(each for each in log.streams if each != number)
            del state.streams[number]
            if not log.streams:
                del state.logs[log.log]
            continue
        wanted = [*(n for n in stream.replicas if n in live), *live]
        replicas = tuple(dict.fromkeys(wanted))[: log.replication]
        _begin(stream, index, max(stream.epoch, newest.get(number, 0)), 1, replicas)


def _begin(
    stream: StreamState, index: int, epoch: int, start: int, replicas: tuple[int, ...]
) -> None:
    """Let a stream go on behind an epoch."""
    stream.epochs = (*stream.epochs, (epoch, stream.start))[-EPOCHS_MAX:]
    stream.epoch, stream.start, stream.committed = epoch + 1, start, start
    stream.replicas, stream.holders = replicas, replicas
    stream.learners, stream.changed = (), index
    stream.keep, stream.sizes = 0, ()


def _config(replica: StoredReplica) -> StreamConfig | None:
    """Return the configuration beside a replica; None if it never was a member."""
    if not replica.about:
        return None
    try:
        return _decoder.decode(replica.about)
    # Arrays in arrays without end have an error of their own.
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgumentError(
            f"the configuration stored with stream {replica.stream} cannot be "
            f"read: {error}"
        ) from error


def _adopt_stream(
    state: State,
    index: int,
    number: int,
    newest: int,
    found: list[_Member],
    known: Collection[bytes],
) -> None:
    last = _last(found)
    nodes, config = {each.node for each in last}, last[0].config
    replicas = tuple(node for node in config.replicas if node in nodes)
    # All members have what is before the first: it may have been acknowledged, so it is
    # committed. What any of them knows to be committed is so in any case.
    start = max(
        min(each.stored.end for each in last),
        max(each.stored.committed for each in last),
    )
    log = state.logs.get(config.log) or _make_log(state, config)
    log.streams = tuple(sorted({*log.streams, number}))
    log.trim = max([log.trim, *(each.config.trim for each in found)])
    stream = state.streams.get(number)
    if stream is None:
        stream = StreamState(number, config.log, replicas)
        state.streams[number] = stream
    epoch = config.epoch
    if log.log not in known:
        # The disks know more than the repository: they say how far the log went.
        for each in found:
            log.version = max(log.version, each.stored.version)
            log.high_watermark = max(log.high_watermark, each.stored.high_watermark)
    elif stream.epoch > epoch:
        # Nobody entered it; what lies behind its start was refused by it.
        epoch, start = stream.epoch, stream.committed
    if epoch == config.epoch:
        stream.epochs, stream.start = config.epochs, config.start
        stream.status = config.status
    # A copy may have entered an epoch that no member is left of.
    newest = max(newest, stream.epoch)
    learners = stream.learners
    _begin(stream, index, epoch, start, replicas)
    stream.epoch = newest + 1
    _resume_move(state, stream, learners)


def _resume_move(state: State, stream: StreamState, learners: Iterable[int]) -> None:
    """Go on with a move if both of its nodes are left."""
    if stream.move is None:
        return
    source, target = stream.move
    if source in stream.replicas and target in learners and target in state.nodes:
        # Both ends are there, so nothing stands against what somebody wanted.
        stream.learners = (target,) if target not in stream.replicas else ()
    else:
        stream.move = None


def _make_log(state: State, config: StreamConfig) -> LogState:
    log = LogState(
        log=config.log,
        name=config.name,
        replication=config.replication or len(config.replicas),
        min_replicas=config.min_replicas or 1,
        options=config.options,
        created=config.created,
        streams=(),
    )
    state.logs[config.log] = log
    return log


def _commit_tails(
    state: State,
    log: LogState,
    members: dict[int, list[_Member]],
    known: Mapping[int, int] | None,
) -> None:
    """Commit what is on all members and of which no commit is known.

    `known` says how far the cuts of the log go in each stream, if they fit the disks;
    otherwise the commits on the disks are all there is.
    """
    runs = []
    glsn = log.high_watermark
    for number in log.streams:
        stream = state.streams[number]
        if not (last := _last(members.get(number, []))):
            continue
        # The tail of each stream gets GLSNs behind all that are known: nobody was told
        # any of them, and their order among the streams is free.
        begin = max(each.stored.committed for each in last)
        if known is not None:
            begin = known[number]
        length = stream.committed - begin
        if length > 0:
            epoch = last[0].config.epoch
            runs.append(StreamRun(number, begin, glsn + 1, length, epoch))
            glsn += length
    if known is None:
        log.history = []  # What is kept does not go on where the disks end.
    if runs:
        log.version += 1
        log.high_watermark = glsn
        log.history.append(LogCut(log.log, log.version, glsn, tuple(runs)))
    for number in log.streams:
        stream = state.streams[number]
        stream.version, stream.high_watermark = log.version, log.high_watermark
        stream.last_version = log.version
