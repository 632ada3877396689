"""Errors planted into a shard on purpose: the histories find each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from braidlog._native import ProducerWindows
from braidlog.metarepo.machine import shards
from braidlog.metarepo.machine.state import State
from braidlog.shard import ShardMember, ShardState
from braidlog.shard.checkpoint import Checkpoint
from braidlog.shard.stamps import Stamps
from braidlog.wire.commands import ReportShards
from braidlog.wire.results import Done
from property.shard.planted import (
    acknowledge_what_is_logged,
    fold_too_much,
    give_without_asking,
)
from property.shard.test_shard_world import (
    check,
    check_a_leader_that_slept,
    comes_to_rest,
    history,
)

Plant = Callable[[pytest.MonkeyPatch], None]
SEEDS = range(40)


def forget_producers(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not know what producers have stored."""
    copy = ShardState.copy

    def blank(self: ShardState) -> ShardState:
        made = copy(self)
        made.windows = ProducerWindows()
        return made

    patch.setattr(ShardState, "copy", blank)


def read_without_asking(patch: pytest.MonkeyPatch) -> None:
    """Any member says where the log ends as it knows it itself."""

    def at_once(self: ShardMember, request: object) -> None:
        self.stirred = True
        self._answers.append((request, self._end()))

    patch.setattr(ShardMember, "find_end", at_once)


def lead_before_all_is_applied(patch: pytest.MonkeyPatch) -> None:
    """A leader decides on a state that lacks what earlier ones have logged."""
    stand = ShardMember._stand

    def early(self: ShardMember, *arguments: object) -> None:
        stand(self, *arguments)  # type: ignore[arg-type]
        if self._term and self._planned is None:
            self._planned = self.state.copy()

    patch.setattr(ShardMember, "_stand", early)


def forget_members_too_early(patch: pytest.MonkeyPatch) -> None:
    """Whoever has no place in the last plan is taken for gone at once."""
    note = shards.note

    def early(state: State, index: int, command: ReportShards) -> Done:
        done = note(state, index, command)
        for place in state.shards.values():
            place.kept = place.wanted
        return done

    patch.setattr(shards, "note", early)


def follow_plans_that_are_not_logged(patch: pytest.MonkeyPatch) -> None:
    """A leader changes the members as it heard last, which may be long ago."""

    def at_once(self: ShardMember, plan: int, wanted: tuple[int, ...]) -> None:
        if self._planned is not None and plan:
            self.state.plan, self.state.wanted = plan, wanted

    patch.setattr(ShardMember, "follow", at_once)


@pytest.mark.parametrize(
    ("plant", "seeds"),
    [
        (forget_members_too_early, SEEDS),
        # One history in a hundred shows it: somebody hears late, and leads then.
        (follow_plans_that_are_not_logged, range(80, 200)),
    ],
)
def test_a_bug_in_changes_of_members_is_found(
    plant: Plant, seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    for seed in seeds:
        try:
            world = history(seed, 4000, changes=True)
            check(world)
            assert comes_to_rest(world)
        except Exception:
            return
    pytest.fail("no history found it")


def test_a_leader_that_gives_without_asking_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    give_without_asking(monkeypatch)
    with pytest.raises(AssertionError, match="it gave"):
        check_a_leader_that_slept()


def give_what_is_not_reserved(patch: pytest.MonkeyPatch) -> None:
    """Timestamps are given before a majority knows of it."""
    ready = Stamps.ready
    patch.setattr(Stamps, "ready", lambda self, _: ready(self, 1 << 62))


def save_what_is_not_committed(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint has all that is logged."""

    def early(self: ShardMember) -> Checkpoint:
        log = self.raft.core.log
        state = self._planned or self.state
        self._unsaved = 0
        mark = replace(log.mark(), index=log.last, runs=tuple(log.runs()))
        return Checkpoint(mark, state.snapshot())

    patch.setattr(ShardMember, "checkpoint", early)


@pytest.mark.parametrize(
    "plant",
    [
        save_what_is_not_committed,
        give_what_is_not_reserved,
        acknowledge_what_is_logged,
        forget_producers,
        read_without_asking,
        lead_before_all_is_applied,
        fold_too_much,
    ],
)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in SEEDS:
        try:
            check(history(seed, 4000))
        except Exception:
            return
    pytest.fail("no history found it")
