"""Positions of a table that clients go on reading at.

*Theory of operation.* A position is kept once, however many leases there are of it. A
lease is of a connection and has a number there, so that who ends one ends no other.
Clients of earlier versions have no numbers: theirs are one for each connection.

*Invariants.* A position is kept until each of its leases was released, or was not asked
for as long as was asked for; none lasts longer than the longest lease. Each table has a
bounded number of positions, and each position of leases.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TypeAlias

from braidlog.errors import NotReadyError
from braidlog.node.share import share_of_one
from braidlog.node.tables.engine import HostedTable, Lease
from braidlog.node.tables.settings import TableSettings

__all__ = ["Holder", "Leases"]

Holder: TypeAlias = tuple[Hashable, int]
"""A connection, and the number of one of its leases."""


@dataclass(slots=True)
class _Kept:
    lease: Lease
    ends: dict[Holder, float] = field(default_factory=dict)


class Leases:
    """All positions that are kept, of all tables."""

    def __init__(self, settings: TableSettings, connections: Callable[[], int]) -> None:
        """Begin with none; ``connections`` share the places."""
        self._settings = settings
        self._connections = connections
        self._kept: dict[bytes, dict[int, _Kept]] = {}

    def __len__(self) -> int:
        """Return how many there are."""
        return sum(map(len, self._kept.values()))

    def keep(
        self,
        table: HostedTable,
        identity: bytes,
        position: int,
        ms: int,
        now: float,
        holder: Holder,
    ) -> None:
        """Keep a position readable for so long, or for that much longer.

        Raises:
            NotReadyError: the table has too many of them, or the connection has.
            TrimmedError: what it sees is gone.
        """
        ends = now + min(ms / 1000, self._settings.lease_max_s)
        kept = self._kept.get(identity, {})
        known = kept.get(position)
        if known is None or holder not in known.ends:
            self._require_place(kept, position, holder)
        if known is None:
            known = kept[position] = _Kept(table.lease(position))
            self._kept[identity] = kept
        known.ends[holder] = max(ends, known.ends.get(holder, ends))

    def _require_place(
        self, kept: dict[int, _Kept], position: int, holder: Holder
    ) -> None:
        most, of_one = self._settings.leases_max, self._settings.leases_of_one_max
        known = kept.get(position)
        if len(kept if known is None else known.ends) >= most:
            msg = f"{most} positions of the table are being read: try again later"
            raise NotReadyError(msg)
        share = share_of_one(len(kept), most, of_one, self._connections())
        mine = [
            p for p, each in kept.items() if any(h[0] == holder[0] for h in each.ends)
        ]
        if len(mine) >= share and position not in mine:
            msg = f"this connection reads the table at {share} positions already"
            raise NotReadyError(msg).advising("Let a scan or a snapshot end first")

    def release(self, identity: bytes, position: int, holder: Holder) -> None:
        """End a lease; nothing happens if it has ended."""
        kept = self._kept.get(identity, {})
        if position in kept:
            kept[position].ends.pop(holder, None)
            self._let_go(identity, position)

    def tick(self, now: float) -> None:
        """End those whose time is over."""
        for identity, kept in list(self._kept.items()):
            for position, each in list(kept.items()):
                each.ends = {who: end for who, end in each.ends.items() if now < end}
                self._let_go(identity, position)

    def _let_go(self, identity: bytes, position: int) -> None:
        kept = self._kept[identity]
        if not kept[position].ends:
            kept.pop(position).lease.release()
        if not kept:
            del self._kept[identity]

    def drop(self, identity: bytes) -> None:
        """Let go of those of a table that was closed."""
        for each in self._kept.pop(identity, {}).values():
            each.lease.release()
