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


class Rot:
    """What rots, and where it did already."""

    def __init__(self, watch: Watch) -> None:
        """Begin with disks that are whole."""
        self._watch = watch
        self._streams: set[int] = set()

    def strike(self, random: Random) -> bool:
        """Flip one bit of one record; False if there is none that may be damaged."""
        places = [
            (stream.stream, live, segment)
            for stream in self._whole()
            for live in self._watch.living()
            if live.node.id in stream.replicas
            for segment in _sealed(live, stream.stream, self._newest(live))
        ]
        if not places:
            return False
        stream, live, (number, begin, end) = random.choice(places)
        value = _value(live, stream, random.randrange(begin, end))
        if not value or not self._watch.disk_of(live).rot(number, value):
            return False
        self._streams.add(stream)
        return True

    def _newest(self, live: Live) -> int:
        segments: dict[int, str] = self._watch.disk_of(live).segments()
        return max(segments)

    def _whole(self) -> Iterator[StreamState]:
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
    """Return the segments of a replica that are written no more, and their LLSNs."""
    storage = _storage(live, stream)
    committed = storage.state().committed
    for number, lane, begin, end, *_ in storage.view().segments():
        if not lane and number != newest and begin < min(end, committed):
            yield number, begin, min(end, committed)


def _value(live: Live, stream: int, llsn: int) -> bytes:
    batches = _storage(live, stream).read(llsn, llsn + 1, _READ_BYTES)
    for batch in batches:
        for record in _native.Batch(batch.data).records(batch.llsn):
            if record.position == llsn:
                return bytes(record.value)
    return b""
