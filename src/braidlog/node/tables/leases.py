"""Positions of a table that clients go on reading at.

*Invariants.* A position is kept until nobody has asked for it for as long as was asked
for, and no longer than the longest lease. Each table has a bounded number of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from braidlog.errors import NotReadyError
from braidlog.node.share import share_of_one
from braidlog.node.tables.engine import HostedTable, Lease
from braidlog.node.tables.settings import TableSettings

__all__ = ["Leases"]


@dataclass(slots=True)
class _Kept:
    lease: Lease
    ends: float
    owner: Hashable


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
        owner: Hashable,
    ) -> None:
        """Keep a position readable for so long, or for that much longer.

        Raises:
            NotReadyError: the table has too many of them, or ``owner`` has.
            TrimmedError: what it sees is gone.
        """
        ends = now + min(ms / 1000, self._settings.lease_max_s)
        kept = self._kept.setdefault(identity, {})
        known = kept.get(position)
        if known is not None:
            known.ends = max(known.ends, ends)
            return
        if len(kept) >= self._settings.leases_max:
            msg = f"{len(kept)} positions of the table are being read: try again later"
            raise NotReadyError(msg)
        most, of_one = self._settings.leases_max, self._settings.leases_of_one_max
        share = share_of_one(len(kept), most, of_one, self._connections())
        if sum(each.owner == owner for each in kept.values()) >= share:
            msg = f"this connection reads the table at {share} positions already"
            raise NotReadyError(msg).advising("Let a scan or a snapshot end first")
        kept[position] = _Kept(table.lease(position), ends, owner)

    def tick(self, now: float) -> None:
        """Let go of those whose time is over."""
        for identity, kept in list(self._kept.items()):
            for position in [p for p, each in kept.items() if now >= each.ends]:
                kept.pop(position).lease.release()
            if not kept:
                del self._kept[identity]

    def drop(self, identity: bytes) -> None:
        """Let go of those of a table that was closed."""
        for each in self._kept.pop(identity, {}).values():
            each.lease.release()
