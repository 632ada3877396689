"""For how long the leases hold that an earlier leader gave.

*Theory of operation.* A lease counts from the time of day that the leader had when its
cursor was moved. The clock of the next leader may be ahead, and would end it early. So
what had not run out when a leader began holds for its whole time from then, by a clock
that only goes forward. etcd does the same with its leases.

*Invariants.* A lease lasts its time after it was given, and longer by at most its time
for each change of the leader.

*Limits.* Whether a lease had run out is judged by the last cursor that was moved. If an
earlier leader was ahead too, its cursors say that much time has passed, and a lease
that a leader with the right time gave after it ends early.
"""

from __future__ import annotations

from collections.abc import Iterable

from braidlog.metarepo.machine.state import CursorState, State


class Leases:
    """What of the leases a leader found when it began."""

    def __init__(self, state: State, now: float) -> None:
        """Begin with a state that has everything earlier leaders did."""
        self._began = now
        cursors = (each for log in state.logs.values() for each in log.cursors.values())
        self._last = max((each.touched for each in cursors), default=0)

    def time(self, cursors: Iterable[CursorState], wall: int, now: float) -> int:
        """Return the time of day at which leases count: ``wall``, or what is before.

        Both times of day are in microseconds since the epoch, ``now`` in seconds.
        """
        passed = (now - self._began) * 1e6
        held = (
            cursor.touched + cursor.lease - 1
            for cursor in cursors
            if cursor.touched <= self._last < cursor.touched + cursor.lease
            and passed < cursor.lease
        )
        return min(wall, min(held, default=wall))
