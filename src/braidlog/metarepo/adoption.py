"""How a repository that begins anew after a rescue learns what there is.

*Theory of operation.* The rescue wrote a configuration to the valid nodes. Each says
what replicas it has, with the last configuration under which each became a member of
an epoch. When all have, the logs and streams are made of that. A stream goes on with
those that are members of its newest epoch, in the next one. Every one of them holds
all that was acknowledged; so what all of them hold is committed, by one cut for each
log, and the rest was never acknowledged.

*Invariants.* Nothing is adopted before every valid node was heard. Numbers of streams
and producers do not come again. What cannot be adopted is left where it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec

from braidlog.errors import FencedError, InvalidArgumentError
from braidlog.metarepo.nodes import require_node
from braidlog.metarepo.state import (
    EPOCHS_MAX,
    STREAMS_MAX,
    LogState,
    State,
    StreamState,
)
from braidlog.wire.commands import OfferReplicas, StoredReplica
from braidlog.wire.messages import LogCut, StreamConfig, StreamRun
from braidlog.wire.results import Done

__all__ = ["about", "offer"]

PRODUCER_EPOCH_SHIFT: Final = 40
"""Producers of each rescue have numbers of their own."""

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
        msg = f"the cluster was rescued as {current}, not as {command.epoch}"
        raise FencedError(msg, given=command.epoch, current=current)
    if command.node not in known.awaited:
        return Done()
    parts = known.offers.setdefault(command.node, {})
    if any(part.parts != command.parts for part in parts.values()):
        parts.clear()  # the node started again and counts anew
    parts[command.part] = command
    waits = [node for node in known.awaited if not _is_whole(known.offers.get(node))]
    if not waits:
        _adopt(state, index, known.offers)
        known.awaited, known.offers = (), {}
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
        if config is not None and config.epoch == replica.epoch:
            member = _Member(node, replica, config)
            members.setdefault(replica.stream, []).append(member)
    newest: dict[int, int] = {}
    for _, replica in stored:
        newest[replica.stream] = max(replica.epoch, newest.get(replica.stream, 0))
    for stream, found in sorted(members.items()):
        _adopt_stream(state, index, stream, newest[stream], found)
    for log in state.logs.values():
        _commit_tails(state, log, members)
    numbers = set(newest)
    state.orphans = tuple(sorted(numbers - set(state.streams)))
    state.stream_next = max(numbers, default=0) + STREAMS_MAX + 1
    epoch = state.faults.epoch if state.faults else 0
    state.producer_next = (epoch << PRODUCER_EPOCH_SHIFT) + 1


def _config(replica: StoredReplica) -> StreamConfig | None:
    """Return the configuration beside a replica; None if it never was a member."""
    if not replica.about:
        return None
    try:
        return _decoder.decode(replica.about)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        msg = f"what is stored beside stream {replica.stream} cannot be read: {error}"
        raise InvalidArgumentError(msg) from error


def _adopt_stream(
    state: State, index: int, number: int, newest: int, found: list[_Member]
) -> None:
    epoch = max(each.config.epoch for each in found)
    last = [each for each in found if each.config.epoch == epoch]
    nodes, config = {each.node for each in last}, last[0].config
    replicas = tuple(node for node in config.replicas if node in nodes)
    start = max(
        min(each.stored.end for each in last),
        max(each.stored.committed for each in last),
    )
    log = state.logs.get(config.log) or _make_log(state, config)
    log.streams = tuple(sorted({*log.streams, number}))
    log.trim = max([log.trim, *(each.config.trim for each in found)])
    for each in found:
        log.version = max(log.version, each.stored.version)
        log.high_watermark = max(log.high_watermark, each.stored.high_watermark)
    state.streams[number] = StreamState(
        number,
        config.log,
        replicas,
        # A copy may have entered an epoch that no member is left of.
        epoch=newest + 1,
        status=config.status,
        start=start,
        committed=start,
        epochs=(*config.epochs, (epoch, config.start))[-EPOCHS_MAX:],
        holders=replicas,
        changed=index,
    )


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
    state: State, log: LogState, members: dict[int, list[_Member]]
) -> None:
    """Commit what is on all members and of which no commit is on a disk."""
    runs = []
    glsn = log.high_watermark
    for number in log.streams:
        stream, epoch = state.streams[number], state.streams[number].epochs[-1][0]
        last = [each for each in members[number] if each.config.epoch == epoch]
        begin = max(each.stored.committed for each in last)
        length = stream.committed - begin
        if length > 0:
            runs.append(StreamRun(number, begin, glsn + 1, length, epoch))
            glsn += length
    if runs:
        log.version += 1
        log.high_watermark = glsn
        log.history = [LogCut(log.log, log.version, glsn, tuple(runs))]
    for number in log.streams:
        stream = state.streams[number]
        stream.version, stream.high_watermark = log.version, log.high_watermark
        stream.last_version = log.version
