"""Positions that are kept, until the last lease of each has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from braidlog.errors import NotReadyError, TrimmedError
from braidlog.node.tables.leases import Leases
from braidlog.node.tables.settings import TableSettings
from braidlog.wire.rows import SHARED_LEASE


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
        self.gone: set[Any] = set()
        is_gone = self.gone.__contains__
        self.leases = Leases(TableSettings(**settings), lambda: 1, is_gone)

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
    kept.keep(5, ("a", 1))
    with pytest.raises(NotReadyError, match="this connection reads the table 1 times"):
        kept.keep(5, ("a", 2))
    kept.keep(5, ("b", 1))
    kept.keep(5, ("c", 1))
    with pytest.raises(NotReadyError, match="3 scans"):
        kept.keep(5, ("d", 1))
    kept.keep(6, ("a", 4))
    with pytest.raises(NotReadyError, match="this connection"):
        kept.keep(7, ("a", 5))
    kept.keep(7, ("d", 1))
    assert kept.table.held == [5, 6, 7]
    with pytest.raises(NotReadyError, match="3 positions"):
        kept.keep(8, ("e", 1))
    kept.leases.drop(b"t")
    assert kept.table.held == []


def test_a_shared_lease_is_one_for_all_who_ask() -> None:
    kept = Kept(leases_max=4, leases_of_one_max=2)
    kept.keep(5, ("a", 1))
    for number, who in enumerate("abcdefgh"):
        kept.keep(5, (who, SHARED_LEASE), now=number / 10)
    kept.leases.release(b"t", 5, ("h", SHARED_LEASE))
    kept.leases.release(b"t", 5, ("a", 1))
    kept.leases.tick(1.6)
    assert kept.table.held == [5]
    # It counts for who asked last, and for nobody else.
    kept.keep(6, ("h", 1), now=1.6)
    with pytest.raises(NotReadyError, match="at 2 positions"):
        kept.keep(7, ("h", 2), now=1.6)
    kept.keep(7, ("g", 1), now=1.6)
    kept.leases.tick(1.75)
    assert kept.table.held == [6, 7]
    # It never ends sooner because somebody else asks.
    kept.keep(7, ("a", SHARED_LEASE), now=5.0)
    kept.leases.release(b"t", 7, ("g", 1))
    kept.keep(7, ("b", SHARED_LEASE), now=4.0)
    kept.leases.tick(5.5)
    assert 7 in kept.table.held


def test_one_connection_leaves_places_to_others() -> None:
    kept = Kept(leases_max=8, leases_of_one_max=4)
    for number in range(4):
        kept.keep(5, ("greedy", number))
    with pytest.raises(NotReadyError, match="this connection") as refused:
        kept.keep(5, ("greedy", 4))
    assert "end first" in (refused.value.hint or "")
    for who in "abcd":
        kept.keep(5, (who, 1))
    for number in range(4):
        kept.leases.release(b"t", 5, ("greedy", number))
    kept.keep(5, ("greedy", 9))


def test_leases_of_connections_that_ended_make_room() -> None:
    kept = Kept(leases_max=3, leases_of_one_max=3)
    for position, who in ((5, "a"), (6, "b"), (7, "c")):
        kept.keep(position, (who, 1), now=position)
    kept.keep(6, ("d", 1))
    with pytest.raises(NotReadyError):
        kept.keep(8, ("e", 1), now=8)
    # One that somebody else reads at stays, and that of the oldest lease ends.
    kept.gone |= {"b", "c", "a"}
    kept.keep(8, ("e", 1), now=8)
    assert kept.table.held == [6, 7, 8]
    kept.table.floor = 9
    with pytest.raises(TrimmedError):
        kept.keep(5, ("f", 1), now=8)
    assert kept.table.held == [6, 7, 8]
    # So do leases of one position.
    kept.keep(6, ("h", 1))
    kept.keep(6, ("f", 1))
    with pytest.raises(NotReadyError, match="3 scans"):
        kept.keep(6, ("g", 1))
    kept.gone.add("d")
    kept.keep(6, ("g", 1))


def test_leases_of_one_connection_are_bounded_over_all_tables() -> None:
    kept = Kept(leases_of_one_connection_max=3)
    for table in (b"t", b"u", b"v"):
        kept.leases.keep(kept.table, table, 5, 1000, 0.0, ("a", 1))  # type: ignore[arg-type]
    with pytest.raises(NotReadyError, match="3 leases"):
        kept.leases.keep(kept.table, b"w", 5, 1000, 0.0, ("a", 1))  # type: ignore[arg-type]
    kept.keep(5, ("a", 1))  # For longer.
    kept.leases.drop(b"u")
    kept.keep(5, ("a", 2))
    kept.leases.tick(9.0)
    assert not kept.leases._of
    assert not kept.table.held
