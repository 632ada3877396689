"""Bugs, each a small patch of the real code that the simulation has to find.

A patch takes one necessary step out of the nodes or the client. `PLANTED` says which
storm brings it to light, and the seeds with which it did when it was tried; the seeds
are hints, and others are tried behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from sim.cluster.storms import STORMS
from sim.faults import Storm
from sim.frames import FrameFaults

from braidlog import _native
from braidlog.client.append import log_appender
from braidlog.client.append.byte_budget import ByteBudget
from braidlog.client.append.stream_appender import StreamAppender
from braidlog.client.connection.routing import Routes
from braidlog.client.log import AsyncClusterLog
from braidlog.client.read.merge import Merge
from braidlog.logstream import committer, reading, sequencer
from braidlog.logstream.core import Core
from braidlog.logstream.replica import Replica
from braidlog.logstream.states import ReplicaState
from braidlog.logstream.storage import Batch, Placed
from braidlog.metarepo.group import MetadataMember
from braidlog.metarepo.leader import leadership, publisher, repair
from braidlog.metarepo.machine import repository, spread
from braidlog.node.peers.directory import Directory
from braidlog.node.replication.replica_store import ReplicaStore
from braidlog.node.replication.scrub import Scrub
from braidlog.node.repository.group_writes import GroupWrites
from braidlog.node.requests.metadata import Answers
from braidlog.raft import election
from braidlog.raft.quorum import Vote
from braidlog.serving.intake import Intake
from braidlog.serving.places import Places
from braidlog.serving.sessions import Session
from braidlog.serving.shares import Shares
from braidlog.types import Producer
from braidlog.wire.commands import Trim
from braidlog.wire.messages import Appended, Configure, Replicate, StreamStatus
from braidlog.wire.results import Trimmed
from property.logstream import mutations
from property.metarepo.ends import Ends

__all__ = ["PLANTED", "Planted"]

Patch = pytest.MonkeyPatch

_CALM = Storm("calm", {}, seconds=2.0)
_LONG = Storm("calm", {}, seconds=6.0)
_RESETS = Storm("resets", {"reset": 3, "half-open": 1}, seconds=3.0, every_s=0.15)
_LATE = Storm(
    "late",
    {"reset": 2, "pause": 1},
    seconds=4.0,
    every_s=0.3,
    lasts_s=(0.3, 1.2),
    frames=FrameFaults(loss=0.05, repeat=0.05, delay=0.2, delay_max=1.0),
)
_OUTAGES = STORMS["outages"]
# Whoever is told something by the repository has to be told again.
_UNTOLD = replace(
    STORMS["epochs"],
    name="untold",
    frames=FrameFaults(loss=0.8, kinds=frozenset({Configure.KIND})),
)
# A primary that was replaced goes on, and what it sent comes after its epoch.
_REPLACED = Storm(
    "replaced",
    {"pause": 3, "isolate": 2, "slow disk": 4},
    seconds=4.0,
    every_s=0.3,
    lasts_s=(0.3, 1.5),
    frames=FrameFaults(delay=0.5, delay_max=1.5, kinds=frozenset({Replicate.KIND})),
)
_CROWD = STORMS["strangers"]
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
    # Whether the replicas lie on nodes that do not vote; None: by seed.
    apart: bool | None = None
    # Whether finding it takes too many seeds for each change.
    slow: bool = False


def _in_python(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
    """Plant a bug in what the lane does otherwise while nothing but appends happens."""

    def planted(patch: Patch) -> None:
        patch.setattr(Replica, "_settle", lambda replica: None)
        plant(patch)

    return planted


def ack_before_cut(patch: Patch) -> None:
    """The primary answers with the position that it expects."""

    def wrong(core: Core, request: Any, place: Placed, batch: Batch) -> None:
        glsn = core.context.high_watermark + 1 + place.llsn - core.committed
        answer = Appended(place.llsn, glsn, place.count, core.context.version)
        core.answer(request, answer)

    patch.setattr(sequencer, "_wait", wrong)


def one_vote_elects(patch: Patch) -> None:
    """A member of the repository leads as soon as one votes for it."""

    def wrong(halves: Any, votes: dict[int, bool]) -> Vote:
        return Vote.WON if any(votes.values()) else Vote.PENDING

    patch.setattr(election, "tally", wrong)


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
        store: ReplicaStore,
        epoch: int,
        batches: Sequence[Batch],
        *,
        repeat: bool = False,
    ) -> list[Placed]:
        del repeat
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

    class Wrong(Ends):
        def _common_end(self, stream: Any) -> int:
            ends = [self._end(node, stream) or 0 for node in stream.replicas]
            return sorted(ends)[len(ends) // 2]

    patch.setattr(leadership, "Collector", Wrong)
    # A lane makes its cuts in the core.
    patch.setattr(leadership.Leadership, "let", lambda *_: None)


def retry_as_new(patch: Patch) -> None:
    """A client sends a batch again under another name."""
    right = StreamAppender._send

    def wrong(appender: StreamAppender, link: Any, batch: Any) -> None:
        if batch.data is not None and batch.own:
            batch.data, batch.sequence = None, 1
            batch.producer = Producer(batch.producer.id + 1 + appender._epoch)
        right(appender, link, batch)

    patch.setattr(StreamAppender, "_send", wrong)


def loses_a_batch(patch: Patch) -> None:
    """A subscriber loses some of what it has buffered of several batches."""
    right = Merge.take

    def wrong(merge: Merge) -> Any:
        spans = right(merge)
        return [*spans[:1], *(span for span in spans[1:] if span.glsn % 5)]

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


def trim_forgotten(patch: Patch) -> None:
    """A trim is acknowledged, and the log keeps its beginning."""

    def wrong(state: Any, index: int, command: Any) -> Trimmed:
        return Trimmed(int(command.glsn))

    patch.setitem(repository._APPLY, Trim, wrong)


def stale_metadata(patch: Patch) -> None:
    """A node answers a linearizable read from what it happens to have."""
    right = MetadataMember.read_metadata

    def wrong(
        group: MetadataMember,
        request: int,
        now: float,
        *,
        linearizable: bool,
        **rest: Any,
    ) -> None:
        right(group, request, now, linearizable=False, **rest)

    patch.setattr(MetadataMember, "read_metadata", wrong)


def strangers(patch: Patch) -> None:
    """Nodes that do not vote know the voters only, and not one another."""
    patch.setattr(Directory, "start", lambda directory: None)


def learner_told_once(patch: Patch) -> None:
    """Whatever a learner reports counts as having heard that it is one."""

    def wrong(stream: Any, report: Any, node: int) -> bool:
        if report is None or report.state == ReplicaState.STARTING:
            return False
        return node in stream.learners or report.epoch >= stream.epoch

    patch.setattr(publisher, "_settled", wrong)


def left_out_without_room(patch: Patch) -> None:
    """What the repository writes while the disk is full is as good as stored."""
    right = GroupWrites.put

    def wrong(self: GroupWrites, writes: Any) -> None:
        right(self, writes)
        if self.lacks_room:
            self._waiting.clear()

    patch.setattr(GroupWrites, "put", wrong)


def overtaken_at_the_bound(patch: Patch) -> None:
    """An append takes room that one before it was just given to run with."""

    def wrong(budget: ByteBudget) -> None:
        budget.core.shut = bool(budget._line)

    patch.setattr(ByteBudget, "_shut", wrong)


def certain_for_all(patch: Patch) -> None:
    """The error of one piece of many records speaks for those that are stored too."""
    patch.setattr(log_appender, "_tell_of_the_others", lambda *_: None)


def keys_leave_sealed_streams(patch: Patch) -> None:
    """A key goes to streams that take appends now."""

    right = Routes.key_streams

    def wrong(routes: Routes, log: bytes) -> tuple[int, ...]:
        return routes.running(log) or right(routes, log)

    patch.setattr(Routes, "key_streams", wrong)


def epochs_outlive_a_change(patch: Patch) -> None:
    """A change of streams leaves the epochs of those that had keys as they are."""
    right: Any = vars(spread)["begin"]

    def wrong(state: Any, index: int, stream: Any, status: StreamStatus) -> None:
        if status is StreamStatus.SEALED:
            right(state, index, stream, status)

    patch.setattr(spread, "begin", wrong)


def sent_is_sent_anew(patch: Patch) -> None:
    """What was under way at a change of streams is sent again, stored or not."""

    async def nothing(*_: Any) -> dict[Any, int]:
        return {}

    patch.setattr(AsyncClusterLog, "_stored", nothing)


def nobody_learns_for_too_few(patch: Patch) -> None:
    """A stream that too few replicas are left of waits for those that failed."""
    patch.setattr(Replica, "damaged", Replica._invalid)
    patch.setattr(repair.Repair, "_recruit", lambda look, view: None)


def nobody_looks(patch: Patch) -> None:
    """Damaged records that nobody reads stay as they are."""
    patch.setattr(Scrub, "tick", lambda scrub, now: None)


def learners_that_lack_some_count(patch: Patch) -> None:
    """A learner makes up the number before it has everything."""
    patch.setattr(Replica, "damaged", Replica._invalid)
    right: Any = repair.Repair._learned

    def wrong(look: Any, stream: Any, node: int, *, lacking: int) -> Any:
        return right(look, stream, node, lacking=max(lacking, 4096))

    patch.setattr(repair.Repair, "_learned", wrong)


def connections_without_a_bound(patch: Patch) -> None:
    """Nobody gives a place up for another."""

    def wrong(places: Any, holder: Any, origin: str, *_: Any) -> None:
        places._origins[holder] = origin
        places._held.setdefault(origin, {})[holder] = None

    patch.setattr(Places, "enter", wrong)


def frames_without_a_bound(patch: Patch) -> None:
    """A frame that is not whole gets all the memory it wants."""
    patch.setattr(Intake, "_fits", lambda intake, size: True)


def answers_without_a_bound(patch: Patch) -> None:
    """A connection gets more answers although it takes none."""
    patch.setattr(Session, "_has_room", True)
    patch.setattr(Session, "crowded", False)
    patch.setattr(Shares, "_count", lambda shares: None)


def polls_of_the_gone(patch: Patch) -> None:
    """A poll waits on when its connection has gone."""
    patch.setattr(Answers, "gone", lambda answers, session: None)


PLANTED: Mapping[str, Planted] = {
    "ack before cut": Planted(_in_python(ack_before_cut), _CALM, (2,)),
    "one vote elects": Planted(one_vote_elects, _LEADERS, ()),
    "no tail truncation at an epoch": Planted(no_truncation, _LEADERS, (9,)),
    "dedupe window lost": Planted(_in_python(no_windows), _RESETS, (2,)),
    "commits applied with gaps": Planted(_in_python(missed_cut), _LATE, (3,)),
    "cut of the majority": Planted(cut_of_the_majority, _RESETS, ()),
    "client retry as new": Planted(retry_as_new, _RESETS, (7,)),
    "subscriber loses a batch": Planted(loses_a_batch, _CALM, (5,)),
    "replica promises too much": Planted(told_too_much, _CALM, ()),
    "trim forgotten": Planted(trim_forgotten, _LONG, (10, 5)),
    "stale metadata": Planted(stale_metadata, _LEADERS, (5,)),
    "nodes that are strangers": Planted(strangers, _CALM, (), apart=True),
    "left out without room": Planted(left_out_without_room, STORMS["full"], (3,)),
    "learner told once": Planted(learner_told_once, _UNTOLD, (66, 72, 17), slow=True),
    "nobody learns for too few": Planted(
        nobody_learns_for_too_few, STORMS["rot"], (31, 48, 55)
    ),
    "nobody looks for damage": Planted(nobody_looks, STORMS["rot"], (9,)),
    "learners that lack some count": Planted(
        learners_that_lack_some_count, STORMS["rot"], (56,), slow=True
    ),
    "connections without a bound": Planted(connections_without_a_bound, _CROWD, (1,)),
    "frames without a bound": Planted(frames_without_a_bound, _CROWD, (1,)),
    "answers without a bound": Planted(answers_without_a_bound, _CROWD, (1,)),
    "polls of the gone": Planted(polls_of_the_gone, _CROWD, (1,)),
    "report before the sync": Planted(
        _in_python(mutations.reported_before_the_sync), _OUTAGES, (7, 12), apart=True
    ),
    "overtaken at the bound": Planted(overtaken_at_the_bound, STORMS["crowded"], (1,)),
    "certain for all": Planted(certain_for_all, STORMS["crowded"], (9,)),
    "epochs outlive a change": Planted(
        epochs_outlive_a_change, STORMS["changes"], (1, 2)
    ),
    "sent is sent anew": Planted(sent_is_sent_anew, STORMS["changes"], (10,)),
    "keys leave sealed streams": Planted(keys_leave_sealed_streams, _LONG, (10, 5)),
    "epoch reported before the sync": Planted(
        _in_python(mutations.epoch_reported_before_the_sync),
        _OUTAGES,
        (26, 38),
        apart=True,
    ),
    "replica without a check of the epoch": Planted(
        mutations.old_primary_is_heard, _REPLACED, (148, 236), slow=True
    ),
}
