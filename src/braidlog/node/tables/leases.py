"""Positions of a table that clients go on reading at.

*Theory of operation.* A position is kept once, however many leases there are of it. A
lease is of a connection and has a number there, so that who ends one ends no other.
Clients of earlier versions have no numbers: theirs are one for each connection. A
shared lease is for those who come later, from wherever: a position has one, of the
connection that asked for it last.

*Invariants.* A position is kept until each of its leases was released, or was not asked
for as long as was asked for; none lasts longer than the longest lease. Each table has a
bounded number of positions, and each position of leases, and no connection can have so
many that others get none. Where there are too many, those of connections that have
ended make room.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from braidlog.errors import NotReadyError
from braidlog.node.share import share_of_one
from braidlog.node.tables.engine import HostedTable, Lease
from braidlog.node.tables.settings import TableSettings
from braidlog.wire.rows import SHARED_LEASE

__all__ = ["Holder", "Leases"]

_END_ONE: Final = "Let a scan or a snapshot end first"

Holder: TypeAlias = tuple[Hashable, int]
"""A connection, and the number of one of its leases."""


@dataclass(slots=True)
class _Kept:
    """A position."""

    lease: Lease
    total: Counter[Hashable]
    """How many leases each connection has, of all positions."""
    ends: dict[Holder, float] = field(default_factory=dict)
    of: Counter[Hashable] = field(default_factory=Counter)
    """How many each has of this one."""
    shared: Hashable | None = None
    """The connection that has the shared lease."""

    def has(self, holder: Holder) -> bool:
        """Whether it needs no place more for a lease."""
        if holder[1] == SHARED_LEASE:
            holder = self.shared, SHARED_LEASE
        return holder in self.ends

    def add(self, holder: Holder, ends: float) -> None:
        if holder not in self.ends:
            self.of[holder[0]] += 1
            self.total[holder[0]] += 1
        self.ends[holder] = max(ends, self.ends.get(holder, ends))

    def remove(self, holder: Holder) -> float:
        """End a lease; return when it would have ended, 0 if there is none."""
        ends = self.ends.pop(holder, 0.0)
        if ends:
            for counter in (self.of, self.total):
                counter[holder[0]] -= 1
                if not counter[holder[0]]:
                    del counter[holder[0]]
        return ends

    def clear(self) -> None:
        for holder in list(self.ends):
            self.remove(holder)


class Leases:
    """All positions that are kept, of all tables."""

    def __init__(
        self,
        settings: TableSettings,
        connections: Callable[[], int],
        is_gone: Callable[[Hashable], bool],
    ) -> None:
        """Begin with none; ``connections`` share the places.

        ``is_gone`` tells whether a connection has ended: its leases go on, because the
        client may have another one, but they make room for others.
        """
        self._settings = settings
        self._connections = connections
        self._is_gone = is_gone
        self._kept: dict[bytes, dict[int, _Kept]] = {}
        self._of: Counter[Hashable] = Counter()
        """How many leases each connection has."""

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
        if known is None or not known.has(holder):
            self._require_lease(holder[0])
        if known is None or holder[0] not in known.of:
            self._require_position(kept, holder[0])
        if known is None:
            lease = table.lease(position)
            try:
                self._require_room(identity, kept)
            except NotReadyError:
                lease.release()
                raise
            # What was let go of for it may have been the last one of the table.
            kept = self._kept.setdefault(identity, kept)
            known = kept[position] = _Kept(lease, self._of)
        elif not known.has(holder):
            self._require_place(known, holder[0])
        if holder[1] == SHARED_LEASE:
            ends = max(ends, known.remove((known.shared, SHARED_LEASE)))
            known.shared = holder[0]
        known.add(holder, ends)

    def _require_lease(self, connection: Hashable) -> None:
        """Refuse one more lease to a connection.

        Raises:
            NotReadyError: it has too many.
        """
        most = self._settings.leases_of_one_connection_max
        if self._of[connection] >= most:
            msg = f"this connection has {most} leases of positions of tables"
            raise NotReadyError(msg).advising(_END_ONE)

    def _require_room(self, identity: bytes, kept: dict[int, _Kept]) -> None:
        """Refuse one more position to a table, unless nobody is there for another one.

        Raises:
            NotReadyError: it has too many.
        """
        most = self._settings.leases_max
        if len(kept) < most:
            return
        left = [
            (max(each.ends.values()), position)
            for position, each in kept.items()
            if all(map(self._is_gone, each.of))
        ]
        if not left:
            msg = f"{most} positions of the table are being read: try again later"
            raise NotReadyError(msg)
        _, position = min(left)
        kept[position].clear()
        self._let_go(identity, position)

    def _require_place(self, known: _Kept, connection: Hashable) -> None:
        """Refuse a lease of a position that has too many, unless some may end.

        Raises:
            NotReadyError: it has, or the connection has.
        """
        most, count = self._settings.leases_max, len(known.ends)
        if count >= most:
            left = [who for who in known.ends if self._is_gone(who[0])]
            if left:
                known.remove(min(left, key=lambda who: known.ends[who]))
                count -= 1
        if count >= most:
            msg = f"{most} scans read the table at this position: try again later"
            raise NotReadyError(msg)
        share = share_of_one(count, most, most // 2, self._connections())
        if known.of[connection] >= share:
            msg = f"this connection reads the table {share} times at this position"
            raise NotReadyError(msg).advising(_END_ONE)

    def _require_position(self, kept: dict[int, _Kept], connection: Hashable) -> None:
        """Refuse one more position to a connection, or to all.

        Raises:
            NotReadyError: there are too many.
        """
        most, of_one = self._settings.leases_max, self._settings.leases_of_one_max
        share = share_of_one(len(kept), most, of_one, self._connections())
        if sum(1 for each in kept.values() if connection in each.of) >= share:
            msg = f"this connection reads the table at {share} positions already"
            raise NotReadyError(msg).advising(_END_ONE)

    def release(self, identity: bytes, position: int, holder: Holder) -> None:
        """End a lease; nothing happens if it has ended, or is shared."""
        kept = self._kept.get(identity, {})
        if position in kept and holder[1] != SHARED_LEASE:
            kept[position].remove(holder)
            self._let_go(identity, position)

    def tick(self, now: float) -> None:
        """End those whose time is over."""
        for identity, kept in list(self._kept.items()):
            for position, each in list(kept.items()):
                for holder in [who for who, end in each.ends.items() if end <= now]:
                    each.remove(holder)
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
            each.clear()
            each.lease.release()
