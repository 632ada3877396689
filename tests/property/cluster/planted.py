"""Bugs, each a small patch of the real code that the simulation has to find.

A patch takes one necessary step out of the nodes or the client. `PLANTED` says which
storm brings it to light, and the seeds with which it did when it was tried; the seeds
are hints, and others are tried behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from sim.faults import Storm
from sim.frames import FrameFaults

from braidlog import _native
from braidlog.client.lane import Lane
from braidlog.client.merge import Merge
from braidlog.client.routing import Routes
from braidlog.logstream import backup, committer, reading, sequencer
from braidlog.logstream.core import Core
from braidlog.logstream.storage import Batch, Placed
from braidlog.metarepo import cuts
from braidlog.metarepo.collector import Collector
from braidlog.metarepo.group import Group
from braidlog.metarepo.leadership import Leadership
from braidlog.node.replica_store import ReplicaStore
from braidlog.node.repository import RepositoryMember
from braidlog.types import Producer
from braidlog.wire.messages import Appended

__all__ = ["PLANTED", "Planted"]

_EVERYTHING = 1 << 62
Patch = pytest.MonkeyPatch

_CALM = Storm("calm", {}, seconds=2.0)
_RESETS = Storm("resets", {"reset": 3, "half-open": 1}, seconds=3.0, every_s=0.15)
_LATE = Storm(
    "late",
    {"reset": 2, "pause": 1},
    seconds=4.0,
    every_s=0.3,
    lasts_s=(0.3, 1.2),
    frames=FrameFaults(loss=0.05, repeat=0.05, delay=0.2, delay_max=1.0),
)
_POWER = Storm(
    "power",
    {"blackout": 1, "slow disk": 3},
    seconds=6.0,
    every_s=0.4,
    lasts_s=(0.05, 0.5),
)
_LEADERS = Storm(
    "leaders",
    {"crash": 2, "isolate": 2, "pause": 2},
    seconds=5.0,
    every_s=0.4,
    lasts_s=(0.3, 1.5),
)


@dataclass(frozen=True, slots=True)
class Planted:
    """One bug, and where to look for it."""

    plant: Callable[[Patch], None]
    storm: Storm
    seeds: Sequence[int]


def no_epoch_check(patch: Patch) -> None:
    """A backup takes what the primary of another epoch sends."""
    right = backup.replicate

    def wrong(core: Core, message: Any, batches: Any) -> None:
        if core.config is not None:
            message = msgspec.structs.replace(message, epoch=core.config.epoch)
        right(core, message, batches)

    patch.setattr(backup, "replicate", wrong)


def ack_before_cut(patch: Patch) -> None:
    """The primary answers with the position that it expects."""

    def wrong(core: Core, request: Any, place: Placed, batch: Batch) -> None:
        glsn = core.context.high_watermark + 1 + place.llsn - core.committed
        answer = Appended(place.llsn, glsn, place.count, core.context.version)
        core.answer(request, answer)

    patch.setattr(sequencer, "_wait", wrong)


def report_before_sync(patch: Patch) -> None:
    """A replica reports what it wrote as if it were durable."""
    right = Core.wrote

    def wrong(core: Core) -> None:
        right(core)
        core.durable.synced(_EVERYTHING)

    patch.setattr(Core, "wrote", wrong)


def raft_before_sync(patch: Patch) -> None:
    """A member of the repository counts on entries and votes that are not durable."""
    right = RepositoryMember.flush

    def wrong(member: RepositoryMember) -> bool:
        busy = right(member)
        member.synced(_EVERYTHING)
        return busy

    patch.setattr(RepositoryMember, "flush", wrong)


def no_truncation(patch: Patch) -> None:
    """A replica enters an epoch with the tail of the one before."""
    patch.setattr(Core, "rollback", lambda core, llsn: None)


def no_windows(patch: Patch) -> None:
    """A primary knows nothing of what a producer sent before."""
    right = ReplicaStore.append

    def nameless(batch: Batch) -> bytes:
        records = list(_native.Batch(batch).records(1))
        values = [record.value for record in records]
        return _native.encode_batch(values, [r.key for r in records], timestamps=0)

    def wrong(
        store: ReplicaStore, epoch: int, batches: Sequence[Batch]
    ) -> list[Placed]:
        return right(store, epoch, [nameless(batch) for batch in batches])

    patch.setattr(ReplicaStore, "append", wrong)


def missed_cut(patch: Patch) -> None:
    """A replica that missed a cut goes on with the next."""

    def wrong(core: Core, cut: Any) -> None:
        run = next((run for run in cut.runs if run.stream == core.stream), None)
        if core.stopped or cut.version <= core.context.version:
            return
        if run is not None and run.llsn_begin == core.committed:
            committer._commit_run(core, cut, run)
        else:
            committer.idle(core, cut.version, cut.high_watermark)

    patch.setattr(committer, "commit", wrong)


def cut_of_the_majority(patch: Patch) -> None:
    """A cut takes what most replicas have instead of what all have."""

    def wrong(collector: Collector, stream: Any) -> int:
        ends = [collector._end(node, stream) or 0 for node in stream.replicas]
        return sorted(ends)[len(ends) // 2]

    patch.setattr(Collector, "_common_end", wrong)


def glsn_twice(patch: Patch) -> None:
    """A leader numbers cuts from where it knows the log; nobody checks them."""
    patch.setattr(cuts, "_require_cut", lambda state, made: None)
    right = Leadership.__init__

    def wrong(leadership: Leadership, *given: Any) -> None:
        right(leadership, *given)
        leadership.ready = True

    patch.setattr(Leadership, "__init__", wrong)


def stale_cut(patch: Patch) -> None:
    """A cut of an epoch that is over commits what is there now."""
    patch.setattr(cuts, "_require_run", lambda stream, run: None)
    right = committer._commit_run

    def wrong(core: Core, cut: Any, run: Any) -> None:
        right(core, cut, msgspec.structs.replace(run, epoch=core.epoch))

    patch.setattr(committer, "_commit_run", wrong)


def retry_as_new(patch: Patch) -> None:
    """A client sends a batch again under another name."""
    right = Lane._send

    def wrong(lane: Lane, link: Any, batch: Any) -> None:
        if batch.data is not None and batch.own:
            batch.data, batch.sequence = None, 1
            batch.producer = Producer(batch.producer.id + 1 + lane._epoch)
        right(lane, link, batch)

    patch.setattr(Lane, "_send", wrong)


def skip_at_failover(patch: Patch) -> None:
    """A subscriber takes a position that nobody had for one that was trimmed."""
    right = Merge.take

    def wrong(merge: Merge) -> Any:
        spans = right(merge)
        for span in spans[1:]:
            if span.glsn % 97 == 0:
                spans.remove(span)
        return spans

    patch.setattr(Merge, "take", wrong)


def told_too_much(patch: Patch) -> None:
    """A replica says that it has all up to a position beyond its commits."""
    right = reading.read

    def wrong(core: Core, message: Any, *, expired: bool) -> Any:
        found = right(core, message, expired=expired)
        if found is None:
            return None
        answer, batches = found
        more = msgspec.structs.replace(answer, complete=answer.complete + 3)
        return more, batches

    patch.setattr(reading, "read", wrong)


def stale_metadata(patch: Patch) -> None:
    """A member answers linearizable reads with what it happens to know."""
    right = Group.read_metadata

    def wrong(group: Group, request: int, now: float, **options: Any) -> None:
        right(group, request, now, **(options | {"linearizable": False}))

    patch.setattr(Group, "read_metadata", wrong)


def primary_of_yesterday(patch: Patch) -> None:
    """A client reads below a trim: it never asks where the log begins."""
    patch.setattr(Routes, "log", _untrimmed(Routes.log))
    patch.setattr(reading, "_first", _first_whatever)


def _untrimmed(right: Callable[..., Any]) -> Callable[..., Any]:
    def wrong(routes: Routes, log: bytes) -> Any:
        return msgspec.structs.replace(right(routes, log), trim=1)

    return wrong


def _first_whatever(core: Core, message: Any) -> int:
    if not message.by_glsn:
        return max(core.low, int(message.begin))
    return core.storage.llsn_of(message.begin)


PLANTED: Mapping[str, Planted] = {
    "no epoch check in replicate": Planted(no_epoch_check, _LATE, ()),
    "ack before cut": Planted(ack_before_cut, _CALM, ()),
    "report before sync": Planted(report_before_sync, _POWER, (25, 58, 128, 159, 167, 207, 214, 229, 282, 356)),
    "Raft before sync": Planted(raft_before_sync, _POWER, (2, 8, 9, 11, 15, 27, 29, 35, 38, 42)),
    "no tail truncation at an epoch": Planted(no_truncation, _LEADERS, ()),
    "dedupe window lost": Planted(no_windows, _RESETS, ()),
    "commits applied with gaps": Planted(missed_cut, _LATE, ()),
    "cut of the majority": Planted(cut_of_the_majority, _RESETS, ()),
    "GLSN twice at a leader change": Planted(glsn_twice, _LEADERS, (2, 8, 9, 11, 15, 27, 29, 35)),
    "cut of an old epoch applied": Planted(stale_cut, _LEADERS, ()),
    "client retry as new": Planted(retry_as_new, _RESETS, ()),
    "subscriber skips": Planted(skip_at_failover, _CALM, ()),
    "replica promises too much": Planted(told_too_much, _CALM, ()),
    "stale metadata": Planted(stale_metadata, _LATE, ()),
    "trim ignored": Planted(primary_of_yesterday, _CALM, ()),
}
