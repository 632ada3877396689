"""After the storm: the cluster comes to rest by itself, and every copy is whole.

Rest means: all streams run with as many replicas as they should have and no learner,
all replicas are in the current epoch, and everything they have is committed. Then the
stores are read, not the nodes: all replicas of a stream have the same records at the
same places, and together they are the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from braidlog import _native
from braidlog.errors import CorruptionError
from braidlog.logstream.states import ReplicaState
from braidlog.wire.members import node_of
from braidlog.wire.messages import LogKind, Read, StreamInfo, StreamStatus
from sim.checkers.appends import Seen
from sim.cluster.watch import Live, Watch
from sim.errors import ViolationError

if TYPE_CHECKING:
    from braidlog.client.client import AsyncClient
    from braidlog.node.shards.shard_host import ShardHost
    from braidlog.wire.messages import LogInfo

__all__ = ["damage", "read_log", "unrest"]

_READ_BYTES = 1 << 20


async def unrest(client: AsyncClient, watch: Watch, log: str) -> str:
    """Return what is not at rest yet; empty if everything is."""
    routes = await client._cluster.linearize()
    info = routes.named(log)
    lives = {live.node.id: live for live in watch.living()}
    for node in routes.nodes:
        if not node.alive or node.node not in lives:
            return f"node {node.node} is not alive"
    for stream in info.streams:
        shard = info.kind is LogKind.SHARD
        find = _shard_unrest if shard else _stream_unrest
        found = find(info, stream, lives)
        if found:
            return f"stream {stream.stream}: {found}"
    return ""


def _stream_unrest(info: LogInfo, stream: StreamInfo, lives: dict[int, Live]) -> str:
    removed = info.spread is not None and stream.stream in dict(info.spread.removed)
    wanted = StreamStatus.SEALED if removed else StreamStatus.RUNNING
    if stream.status is not wanted:
        return f"it is {stream.status.name}"
    if len(stream.replicas) != info.replication or stream.learners:
        return f"replicas {stream.replicas}, learners {stream.learners}"
    for node, live in lives.items():
        there = live.node.replicas._hosted.get(stream.stream)
        if node not in stream.replicas:
            if there is not None:
                return f"node {node} still has a replica"
            continue
        if there is None:
            return f"node {node} has no replica"
        report = there.replica.report()
        state = ReplicaState.SEALED if removed else ReplicaState.RUNNING
        if (report.state, report.epoch) != (state, stream.epoch):
            return f"node {node} is {report.state!r} in epoch {report.epoch}"
        if not report.committed == report.end == stream.committed:
            return f"node {node} has {report}, committed is {stream.committed}"
    return ""


def _shard_unrest(info: LogInfo, stream: StreamInfo, lives: dict[int, Live]) -> str:
    who = stream.members
    assert who is not None
    if {*who.wanted} != {*who.kept} or {*who.voters} != {*who.wanted}:
        return f"its members change: {who}"
    for node, live in lives.items():
        here = {
            each
            for number, each in live.node.shards._hosts
            if number == info.streams[0].stream
        }
        if here != {each for each in who.kept if node_of(each) == node}:
            return f"node {node} has members {here} of {who}"
    for node in stream.replicas:
        host = lives[node].node.shards._serving.get(stream.stream)
        if host is None:
            return f"node {node} is no member"
        log, state = host.member.raft.core.log, host.member.state
        if not log.last == log.commit == log.applied == log.durable:
            return f"node {node} has {log.last}, committed is {log.commit}"
        if state.next != info.high_watermark + 1 or state.first < info.trim:
            return f"node {node} has {state.first} to {state.next}"
    return ""


def read_log(watch: Watch, info: LogInfo) -> list[Seen]:
    """Return the log as the stores of all replicas have it.

    Raises:
        ViolationError: two replicas differ.
    """
    lives = {live.node.id: live for live in watch.living()}
    found: list[Seen] = []
    for stream in info.streams:
        copies = [
            (node, list(_read_stream(lives[node], stream.stream)))
            for node in stream.replicas
        ]
        found += _agreed(stream, copies, info.trim)
    return sorted(found, key=lambda seen: seen.glsn)


def damage(watch: Watch) -> str:
    """Return where a replica is damaged; it is its node that has to find that out."""
    for live in watch.living():
        for stream in live.node.replicas._hosted:
            try:
                for _ in _read_stream(live, stream):
                    pass
            except CorruptionError as error:
                return f"node {live.node.id}, stream {stream}: {error.message}"
        for stream, host in live.node.shards._serving.items():
            known = host.replica.damaged
            try:
                for _ in _read_shard(host):
                    pass
            except CorruptionError as error:
                host.replica.damaged = known
                return f"node {live.node.id}, shard {stream}: {error.message}"
    return ""


def _agreed(
    stream: StreamInfo, copies: Sequence[tuple[int, list[Seen]]], trim: int
) -> list[Seen]:
    """Return what all copies have; some may keep more of what was trimmed."""
    kept = [(node, [s for s in copy if s.glsn >= trim]) for node, copy in copies]
    first, expected = kept[0]
    for node, copy in kept[1:]:
        if copy != expected:
            here, there = set(copy), set(expected)
            odd = sorted(here ^ there, key=lambda seen: seen.glsn)[:5]
            what = f"nodes {first} and {node} differ in stream {stream.stream}"
            raise ViolationError(f"{what}: {odd}")
    return expected


def _read_shard(host: ShardHost) -> Iterator[Seen]:
    state, stream = host.member.state, host.stream
    position = state.first
    while position < state.next:
        asked = Read(stream, position, True, _READ_BYTES, 0)
        found = host.replica.read(asked, expired=True)
        assert found is not None
        records, batches = found
        for first, data in zip(records.llsns, batches, strict=True):
            for record in _native.Batch(data).records(first):
                if position <= record.position < state.next:
                    at = record.position
                    yield Seen(at, record.value, stream, at)
        position = records.next


def _read_stream(live: Live, stream: int) -> Iterator[Seen]:
    if stream in live.node.shards:
        yield from _read_shard(live.node.shards._serving[stream])
        return
    hosted = live.node.replicas._hosted[stream]
    storage = hosted.storage
    state = storage.state()
    glsns = {
        run.llsn_begin + at: run.glsn_begin + at
        for run in storage.runs(state.low, state.committed)
        for at in range(run.length)
    }
    llsn = state.low
    while llsn < state.committed:
        for batch in storage.read(llsn, state.committed, _READ_BYTES):
            for record in _native.Batch(batch.data).records(batch.llsn):
                if llsn <= record.position < state.committed:
                    glsn = glsns[record.position]
                    yield Seen(glsn, record.value, stream, record.position)
            llsn = batch.llsn + batch.count
