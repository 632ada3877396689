"""Bits that rot on a disk: in one replica of a stream, where the others have all.

*Theory of operation.* The nemesis asks for one now and then. What is damaged is a
record in a segment that is written no more, of a stream whose replicas all run in one
epoch: a node notices when it reads it, and has to be repaired by the others. Damage in
the newest segment is another matter: it ends the node at its next start, for good.

*Invariants.* Of each stream one replica rots, once. Two that lost something each could
have lost the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

from braidlog import _native
from braidlog.logstream.states import ReplicaState

if TYPE_CHECKING:
    from braidlog.metarepo.machine.state import StreamState
    from sim.cluster.watch import Live, Watch

__all__ = ["Rot"]

_READ_BYTES = 1 << 20
_ANY = -1
"""Which segments have the log of a shard is not known from its entries."""


class Rot:
    """What rots, and where it did already."""

    def __init__(self, watch: Watch) -> None:
        """Begin with disks that are whole."""
        self._watch = watch
        self._streams: set[int] = set()

    def strike(self, random: Random) -> bool:
        """Flip one bit of one record; False if there is none that may be damaged."""
        places = [
            (stream, live, segment)
            for stream, nodes in self._whole()
            for live in self._watch.living()
            if live.node.id in nodes
            for segment in _sealed(live, stream, self._newest(live))
        ]
        if not places:
            return False
        stream, live, (number, begin, end) = random.choice(places)
        value = _value(live, stream, random.randrange(begin, end))
        disk = self._watch.disk_of(live)
        numbers = [number]
        if number == _ANY:
            numbers = sorted({*disk.segments()} - {self._newest(live)})
        if not value or not any(disk.rot(each, value) for each in numbers):
            return False
        self._streams.add(stream)
        return True

    def _newest(self, live: Live) -> int:
        segments: dict[int, str] = self._watch.disk_of(live).segments()
        return max(segments)

    def _whole(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Return what has all its replicas, two at least, and on which nodes."""
        yield from ((each.stream, each.replicas) for each in self._whole_streams())
        state = self._watch.state()
        there = {live.node.id for live in self._watch.living()}
        for shard in state.shards.values() if state is not None else ():
            nodes, known = shard.nodes, shard.stream in self._streams
            if shard.settled and not known and len(nodes) > 2 and there >= {*nodes}:
                yield shard.stream, nodes

    def _whole_streams(self) -> Iterator[StreamState]:
        """Return the streams of which every replica runs, two at least."""
        state = self._watch.state()
        lives = {live.node.id: live for live in self._watch.living()}
        for stream in state.streams.values() if state is not None else ():
            log = state.logs[stream.log] if state is not None else None
            if stream.stream in self._streams or log is None or log.min_replicas < 2:
                continue
            reports = [
                _report(lives[node], stream.stream)
                for node in stream.replicas
                if node in lives
            ]
            ready = (ReplicaState.RUNNING, stream.epoch)
            if reports == [ready] * len(stream.replicas) and not stream.learners:
                yield stream


def _report(live: Live, stream: int) -> tuple[int, int] | None:
    hosted = live.node.replicas._hosted.get(stream)
    if hosted is None:
        return None
    report = hosted.replica.report()
    return report.state, report.epoch


def _storage(live: Live, stream: int) -> Any:
    return live.node.replicas._hosted[stream].storage


def _sealed(live: Live, stream: int, newest: int) -> Iterator[tuple[int, int, int]]:
    """Return segments that are written no more, and the LLSNs of a replica in them."""
    if stream in live.node.shards:
        log = live.node.shards._serving[stream].member.raft.core.log
        if log.applied > log.base.index:
            yield _ANY, log.base.index + 1, log.applied + 1
        return
    if stream not in live.node.replicas._hosted:
        return
    storage = _storage(live, stream)
    committed = storage.state().committed
    for number, lane, begin, end, *_ in storage.view().segments():
        if not lane and number != newest and begin < min(end, committed):
            yield number, begin, min(end, committed)


def _value(live: Live, stream: int, llsn: int) -> bytes:
    if stream in live.node.shards:
        (entry,) = live.node.shards._serving[stream].log.read(llsn, llsn + 1, 1)
        return entry.data
    batches = _storage(live, stream).read(llsn, llsn + 1, _READ_BYTES)
    for batch in batches:
        for record in _native.Batch(batch.data).records(batch.llsn):
            if record.position == llsn:
                return bytes(record.value)
    return b""
