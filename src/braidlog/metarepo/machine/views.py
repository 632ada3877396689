"""The state as nodes and clients see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import and_

from braidlog.metarepo.machine.spread import place_of
from braidlog.metarepo.machine.state import (
    LogState,
    ShardPlace,
    State,
    StreamState,
)
from braidlog.metarepo.machine.streams import require_stream
from braidlog.wire.members import node_of, nodes_of
from braidlog.wire.messages import (
    LogInfo,
    LogKind,
    NodeInfo,
    ShardMembers,
    StreamConfig,
    StreamInfo,
    StreamStatus,
)


@dataclass(frozen=True, slots=True)
class Standing:
    """What only the leader knows of a stream; see `StreamInfo`."""

    in_sync: tuple[int, ...] | None = None
    damaged: tuple[int, ...] = ()
    lacking_ms: int = 0
    lacking_why: str = ""


Judge = Callable[[StreamState | ShardPlace], Standing]


def config(state: State, number: int) -> StreamConfig:
    """Return what the replicas of a stream have to be.

    Raises:
        NotFoundError: there is no such stream.
    """
    stream = require_stream(state, number)
    log = state.logs[stream.log]
    return StreamConfig(
        stream=stream.stream,
        log=stream.log,
        name=log.name,
        epoch=stream.epoch,
        status=stream.status,
        replicas=stream.replicas,
        learners=stream.learners,
        start=stream.start,
        epochs=stream.epochs,
        version=stream.version,
        high_watermark=stream.high_watermark,
        trim=log.trim,
        options=log.options,
        replication=log.replication,
        min_replicas=log.min_replicas,
        created=log.created,
        features=shared_features(state),
        place=place_of(log, number),
    )


def shared_features(state: State) -> int:
    """Return what every node of the cluster knows, alive or not."""
    each = [node.features for node in state.nodes.values()]
    return reduce(and_, each) if each else 0


def streams_of(state: State, node: int) -> list[int]:
    """Return the streams that a node has a replica of, or learns."""
    return [
        stream.stream
        for stream in state.streams.values()
        if node in stream.replicas or node in stream.learners
    ]


def nodes(
    state: State,
    alive: Callable[[int], bool],
    voters: frozenset[int],
    silent_ms: Callable[[int], int],
    slow_ms: Callable[[int], int] = lambda _: 0,
) -> tuple[NodeInfo, ...]:
    """Return the nodes as clients see them."""
    return tuple(
        NodeInfo(
            node=each.node,
            address=each.address,
            alive=alive(each.node),
            voter=each.node in voters,
            draining=each.draining,
            identity=each.identity,
            readmitting=each.readmitting,
            silent_ms=silent_ms(each.node),
            features=each.features,
            slow_ms=slow_ms(each.node),
            incarnation=each.incarnation,
        )
        for each in state.nodes.values()
    )


def logs(state: State, judge: Judge) -> tuple[LogInfo, ...]:
    """Return the logs as clients see them."""
    return tuple(_log(state, log, judge) for log in state.logs.values())


def _log(state: State, log: LogState, judge: Judge) -> LogInfo:
    return LogInfo(
        log=log.log,
        name=log.name,
        streams=_streams(state, log, judge),
        version=log.version,
        high_watermark=log.high_watermark,
        trim=log.trim,
        replication=log.replication,
        min_replicas=log.min_replicas,
        options=log.options,
        created=log.created,
        revision=log.revision,
        spread=log.spread,
        kind=log.kind,
    )


def _streams(state: State, log: LogState, judge: Judge) -> tuple[StreamInfo, ...]:
    if log.kind is LogKind.SHARD:
        places = (state.shards[each] for each in log.streams)
        return tuple(_shard(each, log, judge(each)) for each in places)
    return tuple(_stream(state.streams[each], judge) for each in log.streams)


def _shard(shard: ShardPlace, log: LogState, standing: Standing) -> StreamInfo:
    """Return a shard as a stream: its leader is the primary, its term the epoch."""
    first = shard.leader or node_of(shard.voters[0])
    voters = nodes_of(shard.voters)
    learners = (each for each in nodes_of(shard.wanted) if each not in voters)
    return StreamInfo(
        stream=shard.stream,
        epoch=shard.term,
        status=StreamStatus.RUNNING,
        replicas=(first, *(each for each in voters if each != first)),
        learners=tuple(learners),
        committed=log.high_watermark + 1,
        in_sync=standing.in_sync,
        damaged=nodes_of(shard.damaged),
        lacking_ms=standing.lacking_ms,
        lacking_why=standing.lacking_why,
        move=_moves(shard),
        members=ShardMembers(
            shard.plan,
            shard.wanted,
            shard.voters,
            shard.kept,
            shard.lost,
            shard.settled,
        ),
    )


def _moves(shard: ShardPlace) -> tuple[int, int] | None:
    """Return from where to where a member goes, if it is one."""
    source = [each for each in shard.voters if each not in shard.wanted]
    target = [each for each in shard.wanted if each not in shard.voters]
    if len(source) != 1 or len(target) != 1:
        return None
    return node_of(source[0]), node_of(target[0])


def _stream(stream: StreamState, judge: Judge) -> StreamInfo:
    standing = judge(stream)
    return StreamInfo(
        stream=stream.stream,
        epoch=stream.epoch,
        status=stream.status,
        replicas=stream.replicas,
        learners=stream.learners,
        committed=stream.committed,
        in_sync=standing.in_sync,
        damaged=standing.damaged,
        lacking_ms=standing.lacking_ms,
        move=stream.move,
        lacking_why=standing.lacking_why,
    )
