"""Positions that are kept, until the last lease of each has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from braidlog.errors import NotReadyError, TrimmedError
from braidlog.node.tables.leases import Leases
from braidlog.node.tables.settings import TableSettings


@dataclass
class Table:
    """Counts how often each position is held."""

    held: list[int] = field(default_factory=list)
    floor: int = 0

    def lease(self, position: int) -> Held:
        if position < self.floor:
            raise TrimmedError("gone", first=self.floor)
        self.held.append(position)
        return Held(self, position)


@dataclass
class Held:
    table: Table
    position: int

    def release(self) -> None:
        self.table.held.remove(self.position)


class Kept:
    def __init__(self, **settings: int) -> None:
        self.table = Table()
        self.leases = Leases(TableSettings(**settings), lambda: 1)

    def keep(self, position: int, who: Any, now: float = 0.0) -> None:
        self.leases.keep(self.table, b"t", position, 1000, now, who)  # type: ignore[arg-type]


def test_a_position_is_kept_until_its_last_lease_is_released() -> None:
    kept = Kept()
    for who in (("a", 1), ("a", 2), ("b", 1)):
        kept.keep(5, who)
    kept.keep(6, ("a", 3))
    assert kept.table.held == [5, 6]
    for who, left in ((("a", 1), [5, 6]), (("b", 1), [5, 6]), (("a", 2), [6])):
        kept.leases.release(b"t", 5, who)
        assert kept.table.held == left
    # What has ended, or never was, may be released.
    for position, who in ((5, ("a", 2)), (6, ("b", 3)), (7, ("a", 3))):
        kept.leases.release(b"t", position, who)
    kept.leases.release(b"other", 6, ("a", 3))
    assert kept.table.held == [6]


def test_leases_end_by_themselves_unless_they_are_asked_for() -> None:
    kept = Kept()
    kept.keep(5, ("a", 1))
    kept.keep(5, ("b", 1), now=0.5)
    kept.leases.tick(1.2)
    assert kept.table.held == [5]
    kept.keep(5, ("a", 1), now=1.3)
    kept.leases.tick(1.6)
    assert kept.table.held == [5]
    kept.leases.tick(2.4)
    assert (kept.table.held, len(kept.leases)) == ([], 0)


def test_places_are_bounded_and_a_refusal_keeps_nothing() -> None:
    kept = Kept(leases_max=3, leases_of_one_max=2)
    kept.table.floor = 3
    with pytest.raises(TrimmedError):
        kept.keep(2, ("a", 1))
    assert not kept.leases._kept
    for number in range(3):
        kept.keep(5, ("a", number))
    with pytest.raises(NotReadyError, match="3 positions"):
        kept.keep(5, ("a", 3))
    kept.keep(6, ("a", 4))
    with pytest.raises(NotReadyError, match="this connection"):
        kept.keep(7, ("a", 5))
    kept.keep(7, ("b", 1))
    assert kept.table.held == [5, 6, 7]
    kept.leases.drop(b"t")
    assert kept.table.held == []
