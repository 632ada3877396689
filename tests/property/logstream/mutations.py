"""Bugs to plant: each breaks one rule that a replica keeps.

A mutation takes a monkeypatch and changes the code as a mistake would. The simulation
has to notice every one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from braidlog.errors import UnavailableError
from braidlog.logstream import (
    backup,
    committer,
    epochs,
    fetch,
    reporter,
    sequencer,
    source,
)
from braidlog.logstream.core import Core
from braidlog.logstream.states import ReplicaState
from braidlog.logstream.storage import Batch, Placed
from braidlog.wire.messages import (
    Appended,
    Entries,
    Fetch,
    LogCut,
    Replicate,
    StreamConfig,
    StreamReport,
    StreamRun,
)

Mutation = Callable[[pytest.MonkeyPatch], None]


def old_primary_is_heard(patch: pytest.MonkeyPatch) -> None:
    replicate = backup.replicate

    def any_epoch(core: Core, message: Replicate, batches: Sequence[Batch]) -> None:
        epoch = core.config.epoch if core.config else 0
        replicate(core, msgspec.structs.replace(message, epoch=epoch), batches)

    patch.setattr(backup, "replicate", any_epoch)


def answered_before_the_cut(patch: pytest.MonkeyPatch) -> None:
    def wait(core: Core, request: Any, place: Placed, batch: Batch) -> None:
        glsn = core.context.high_watermark + 1
        core.answer(request, Appended(place.llsn, glsn, place.count, 1))

    patch.setattr(sequencer, "_wait", wait)


def repeat_answered_before_the_cut(patch: pytest.MonkeyPatch) -> None:
    wait = sequencer._wait

    def at_once(core: Core, request: Any, place: Placed, batch: Batch) -> None:
        if place.new:
            wait(core, request, place, batch)
        else:
            glsn = core.context.high_watermark + 1
            core.answer(request, Appended(place.llsn, glsn, place.count, 1))

    patch.setattr(sequencer, "_wait", at_once)


def tail_survives_the_epoch(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Core, "rollback", lambda core, llsn: None)
    patch.setattr(epochs, "check", lambda holds, reason: None)


def reported_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    report = reporter.report

    def early(core: Core) -> StreamReport:
        return msgspec.structs.replace(report(core), end=core.next)

    patch.setattr(reporter, "report", early)


def epoch_reported_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    report = reporter.report

    def early(core: Core) -> StreamReport:
        return msgspec.structs.replace(report(core), epoch=core.epoch)

    patch.setattr(reporter, "report", early)


def version_reported_before_the_sync(patch: pytest.MonkeyPatch) -> None:
    report = reporter.report

    def early(core: Core) -> StreamReport:
        version = core.context.version
        return msgspec.structs.replace(report(core), version=version)

    patch.setattr(reporter, "report", early)


def learner_takes_uncommitted(patch: pytest.MonkeyPatch) -> None:
    answer = source.fetch

    def all_of_it(core: Core, peer: int, message: Fetch) -> None:
        whole = msgspec.structs.replace(message, epoch=core.epoch, committed_only=False)
        answer(core, peer, whole)

    def whole_end(core: Core, message: Entries) -> int:
        return message.end

    patch.setattr(source, "fetch", all_of_it)
    patch.setattr(fetch, "_committed_end", whole_end)


def run_of_any_epoch(patch: pytest.MonkeyPatch) -> None:
    commit_run = committer._commit_run

    def any_epoch(core: Core, cut: LogCut, run: StreamRun) -> None:
        epoch = core.epoch or run.epoch
        commit_run(core, cut, msgspec.structs.replace(run, epoch=epoch))

    patch.setattr(committer, "_commit_run", any_epoch)
    patch.setattr(committer, "fail", lambda reason: None)


def restart_stays_in_its_epoch(patch: pytest.MonkeyPatch) -> None:
    """The epoch that was entered last goes on after a restart."""
    is_old = epochs._is_old

    def older(core: Core, config: StreamConfig) -> bool:
        if core.config is None and config.epoch == core.epoch:
            core.config, core.entered = config, True
            core.state = ReplicaState.RUNNING
        return is_old(core, config)

    patch.setattr(epochs, "_is_old", older)


def missed_cut_is_idle(patch: pytest.MonkeyPatch) -> None:
    def move_on(core: Core, cut: LogCut) -> None:
        if core.stopped or cut.version <= core.context.version:
            return
        run = next((run for run in cut.runs if run.stream == core.stream), None)
        if run is not None:
            committer._commit_run(core, cut, run)
        else:
            committer.idle(core, cut.version, cut.high_watermark)

    patch.setattr(committer, "commit", move_on)


def rollback_stays_durable(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Core, "take_back", lambda core, llsn: None)


def refused_for_certain(patch: pytest.MonkeyPatch) -> None:
    """Everything that waits is refused as though it never was."""
    give_up = sequencer.give_up

    def certain(core: Core, llsn: int, epoch: int, *, unknown: bool) -> None:
        give_up(core, 0, epoch, unknown=False)

    patch.setattr(sequencer, "give_up", certain)


def gap_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    def place(core: Core, numbered: Sequence[tuple[int, int, Batch]]) -> bool:
        fresh = [batch for first, _, batch in numbered if first >= core.next]
        if fresh:
            core.storage.place(core.epoch, core.next, fresh)
            core.wrote()
        return bool(fresh)

    patch.setattr(backup, "place", place)


def gap_is_never_filled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sequencer, "probe", lambda core: None)
    patch.setattr(fetch, "pump", lambda core: None)


def waiter_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    def append_once(core: Core, request: Any, place: Placed, batch: Batch) -> None:
        if place.new:
            core.wait(request, place.llsn, place.count, len(batch))

    patch.setattr(sequencer, "_wait", append_once)


def trim_counts_before_it_is_made(patch: pytest.MonkeyPatch) -> None:
    trim = epochs._trim

    def counted(core: Core) -> None:
        try:
            trim(core)
        except UnavailableError:
            core.trimmed = min(core.trim, core.context.glsn_end)
            raise

    patch.setattr(epochs, "_trim", counted)


@dataclass(frozen=True)
class Planted:
    """A bug and the storm that shows it."""

    mutate: Mutation
    storm: str

    @property
    def name(self) -> str:
        return self.mutate.__name__


PLANTED = [
    Planted(old_primary_is_heard, "epochs"),
    Planted(answered_before_the_cut, "calm"),
    Planted(repeat_answered_before_the_cut, "lossy"),
    Planted(tail_survives_the_epoch, "epochs"),
    Planted(reported_before_the_sync, "calm"),
    Planted(epoch_reported_before_the_sync, "calm"),
    Planted(version_reported_before_the_sync, "calm"),
    Planted(learner_takes_uncommitted, "epochs"),
    Planted(run_of_any_epoch, "deaf"),
    Planted(restart_stays_in_its_epoch, "crashes"),
    Planted(missed_cut_is_idle, "lossy"),
    Planted(rollback_stays_durable, "epochs"),
    Planted(refused_for_certain, "epochs"),
    Planted(gap_is_overlooked, "lossy"),
    Planted(gap_is_never_filled, "lossy"),
    Planted(waiter_is_forgotten, "lossy"),
    Planted(trim_counts_before_it_is_made, "stuffed"),
]
