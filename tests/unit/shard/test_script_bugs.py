"""Defects of the original, planted on purpose: the scripts named beside them differ."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from braidlog.errors import FencedError, TrimmedError
from braidlog.metarepo.machine import logs
from braidlog.node.shards.shard_reading import ShardReplica
from braidlog.raft import NotLeaderError, dispatch
from braidlog.raft.membership import Change
from braidlog.shard import ShardMember, ShardState, entries, membership
from braidlog.shard import member as member_module
from braidlog.shard.entries import Grant, Truncate
from braidlog.shard.stamps import Stamps
from property.shard.planted import (
    acknowledge_what_is_logged,
    fold_too_much,
    give_without_asking,
)
from unit.shard.test_scripts import SCRIPTS, replay

Plant = Callable[[pytest.MonkeyPatch], None]


def log_what_is_refused(patch: pytest.MonkeyPatch) -> None:
    """K1: an append that is refused is in the log all the same."""
    append, refuse = ShardMember.append, ShardMember._refuse
    seen: list[bool] = []

    def noted(self: ShardMember, refused) -> None:  # type: ignore[no-untyped-def]
        seen.extend(isinstance(error, FencedError) for _, error in refused)
        refuse(self, refused)

    def logged(self: ShardMember, batches, **options) -> None:  # type: ignore[no-untyped-def]
        seen.clear()
        append(self, batches, **options)
        planned = self._planned
        if any(seen) and planned is not None:
            data = entries.encode_append(1, planned.next, 0, batches[0][1])
            planned.apply(data)
            self.raft.propose([data])

    patch.setattr(ShardMember, "_refuse", noted)
    patch.setattr(ShardMember, "append", logged)


def let_the_last_one_own_it(patch: pytest.MonkeyPatch) -> None:
    """K2: whoever asks gets the log."""
    grant = ShardState.grant

    def any_time(self: ShardState, owner, ttl_ms, expected, *, lapsed):  # type: ignore[no-untyped-def]
        return grant(self, owner, ttl_ms, None, lapsed=True)

    patch.setattr(ShardState, "grant", any_time)


def forget_who_may_write(patch: pytest.MonkeyPatch) -> None:
    """K2: an older writer goes on."""
    patch.setattr(ShardState, "require_writer", lambda *_: None)


def store_repeats_again(patch: pytest.MonkeyPatch) -> None:
    """K3: a repeat is one more record."""
    append = ShardMember.append

    def anew(self: ShardMember, batches, *, repeat=False, **options) -> None:  # type: ignore[no-untyped-def]
        if repeat and self._planned is not None:
            self._planned.windows = ShardState().windows
        append(self, batches, repeat=repeat, **options)

    patch.setattr(ShardMember, "append", anew)


def never_fold(patch: pytest.MonkeyPatch) -> None:
    """K4, K5: what was truncated stays on the disk."""

    def nothing(self: ShardMember) -> None:
        self._folded = self.state.first

    patch.setattr(ShardMember, "_fold", nothing)


def take_the_end_for_truncated(patch: pytest.MonkeyPatch) -> None:
    """K6: what is not there yet, and what is there no more, is one error."""
    read = ShardReplica.read

    def one_error(self: ShardReplica, message, *, expired):  # type: ignore[no-untyped-def]
        if message.begin >= self.committed:
            raise TrimmedError("invalid range", first=0)
        return read(self, message, expired=expired)

    patch.setattr(ShardReplica, "read", one_error)


def tell_no_removed_member(patch: pytest.MonkeyPatch) -> None:
    """K8: a member that was removed is not told, and stands for ever."""
    patch.setattr(dispatch, "_from_removed", lambda *_: False)


def log_any_bytes(patch: pytest.MonkeyPatch) -> None:
    """K9: bytes are logged as they come, and looked at when they are applied."""

    def unseen(self: ShardState, batch, *_, **__):  # type: ignore[no-untyped-def]
        return self.next, 1, True

    patch.setattr(ShardState, "admit", unseen)


def truncate_beyond_the_end(patch: pytest.MonkeyPatch) -> None:
    """K10: a truncation may be of what is not there yet."""

    def any_position(self: ShardMember, position: int) -> None:
        planned = self._planned
        if planned is not None and position > planned.first:
            self.stirred = True
            data = entries.encode(Truncate(min(position, planned.next)))
            self.raft.propose([data])
            planned.apply(data)

    patch.setattr(ShardMember, "truncate", any_position)


def pass_over_pins(patch: pytest.MonkeyPatch) -> None:
    """K11: what consumers say holds nothing back."""
    patch.setattr(logs, "live_pins", lambda *_: [])


def bound_nothing(patch: pytest.MonkeyPatch) -> None:
    """K14: what waits for a majority has no bound."""
    init = ShardMember.__init__

    def endless(self, settings, raft, *rest):  # type: ignore[no-untyped-def]
        init(self, settings, replace(raft, tail_bytes_max=1 << 30), *rest)

    patch.setattr(ShardMember, "__init__", endless)


def remove_first(patch: pytest.MonkeyPatch) -> None:
    """K17: who should go is removed before somebody else is there."""
    after = membership.next_change

    def early(core, wanted):  # type: ignore[no-untyped-def]
        now = core.membership
        gone = tuple(sorted(set(now.voters) - set(wanted)))
        if gone and not now.joint and now.epoch <= core.log.commit:
            return Change(remove=gone)
        return after(core, wanted)

    patch.setattr(member_module, "next_change", early)


def end_without_asking(patch: pytest.MonkeyPatch) -> None:
    """K22: a member says where the log ends as it knows it itself."""

    def at_once(self: ShardMember, request: object) -> None:
        self.stirred = True
        self._answers.append((request, self._end()))

    patch.setattr(ShardMember, "find_end", at_once)


def number_every_entry(patch: pytest.MonkeyPatch) -> None:
    """K6: what is no record takes a position, too."""
    apply = ShardState.apply

    def numbered(self: ShardState, data: bytes) -> entries.Entry:
        entry = apply(self, data)
        self.next += isinstance(entry, Grant)
        return entry

    patch.setattr(ShardState, "apply", numbered)


def read_what_is_truncated(patch: pytest.MonkeyPatch) -> None:
    """A read gets what is still on the disk, whatever was truncated."""
    read = ShardReplica.read

    def on_disk(self: ShardReplica, message, *, expired):  # type: ignore[no-untyped-def]
        state = self._member.state
        first, state.first = state.first, 1
        try:
            return read(self, message, expired=expired)
        finally:
            state.first = first

    patch.setattr(ShardReplica, "read", on_disk)


def say_that_nothing_was_stored(patch: pytest.MonkeyPatch) -> None:
    """K16: an error does not say that the outcome is not known."""
    unknown = ShardMember._unknown

    def certain(self: ShardMember) -> NotLeaderError:
        error = unknown(self)
        error.outcome = "not_stored"
        return error

    patch.setattr(ShardMember, "_unknown", certain)


def give_what_others_gave(patch: pytest.MonkeyPatch) -> None:
    """A leader gives timestamps from the first one on."""
    init = Stamps.__init__

    def anew(self: Stamps, reserved: int) -> None:
        init(self, min(reserved, 1))

    patch.setattr(Stamps, "__init__", anew)


def refuse_at_once(patch: pytest.MonkeyPatch) -> None:
    """A leader refuses by itself, though another may lead already."""

    def at_once(self: ShardMember, refused) -> None:  # type: ignore[no-untyped-def]
        self._answers += refused

    patch.setattr(ShardMember, "_refuse", at_once)


BUGS: list[tuple[Plant, str]] = [
    (log_what_is_refused, "S04 S05 S08"),
    (let_the_last_one_own_it, "S02 S05"),
    (forget_who_may_write, "S02 S04 S05 S07"),
    (store_repeats_again, "S11"),
    (never_fold, "S29 S32 S35"),
    (take_the_end_for_truncated, "S16 S17"),
    (tell_no_removed_member, "S40"),
    (log_any_bytes, "poison"),
    (truncate_beyond_the_end, "S25"),
    (pass_over_pins, "S31 S38"),
    (bound_nothing, "S10"),
    (remove_first, "replacement"),
    (end_without_asking, "S13 S19 S20"),
    (number_every_entry, "S01 S14 S22"),
    (read_what_is_truncated, "S17 S19 S29 S31"),
    (fold_too_much, "S29 S30 S32 S35"),
    (acknowledge_what_is_logged, "S04 S10 S11"),
    (give_what_others_gave, "S37"),
    (give_without_asking, "S37"),
    (refuse_at_once, "S05 conditional"),
    (say_that_nothing_was_stored, "S11"),
]


def differs(text: str) -> bool:
    try:
        return replay(text) != text
    except Exception:
        # The bug broke something that no script foresees.
        return True


@pytest.mark.parametrize(
    "plant", [bug for bug, _ in BUGS], ids=lambda bug: bug.__name__
)
def test_a_planted_defect_is_found(
    plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    finders = dict(BUGS)[plant].split()
    plant(monkeypatch)
    blind = [
        path.stem
        for path in SCRIPTS
        if path.stem.split("-")[0] in finders and not differs(path.read_text())
    ]
    assert blind == []
