"""Errors that are planted into a shard for histories and for scripts alike."""

from __future__ import annotations

import pytest

from braidlog.shard import ShardMember
from braidlog.shard.member import Placed
from braidlog.shard.questions import Questions


def acknowledge_what_is_logged(patch: pytest.MonkeyPatch) -> None:
    """An append is answered before a majority has it."""
    append = ShardMember.append

    def early(self: ShardMember, *arguments: object, **options: object) -> None:
        append(self, *arguments, **options)  # type: ignore[arg-type]
        for request, answer in self._pending.values():
            if isinstance(answer, Placed):
                self._answers.append((request, answer))
        self._pending.clear()

    patch.setattr(ShardMember, "append", early)


def fold_too_much(patch: pytest.MonkeyPatch) -> None:
    """A truncation takes the entry that has what is kept, too."""
    fold = ShardMember._fold

    def more(self: ShardMember) -> None:
        first, self.state.first = self.state.first, self.state.next
        try:
            fold(self)
        finally:
            self.state.first = first

    patch.setattr(ShardMember, "_fold", more)


def confirm_at_once(self: Questions[object]) -> tuple[list[object], None]:
    """Take for granted what a majority was to be asked."""
    self._confirmed += [(each.index, each) for each in self._asked]
    self._asked = []
    return [], None


def give_without_asking(patch: pytest.MonkeyPatch) -> None:
    """A leader gives timestamps without being sure that it still leads."""

    patch.setattr(Questions, "send", confirm_at_once)
