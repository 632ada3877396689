"""When a standby makes itself the active host. Pure: looks and times are passed in.

*Theory of operation.* The active host moves its cursor every few seconds, and that is
its sign of life. A standby looks at the cursors. It does not compare clocks: it waits
until it has seen the same sign for ``after_s`` seconds of its own clock. The standby
that is furthest waits no longer than that, the next one a step more, and so on, so they
do not all begin at a time. Two that do are harmless: of equal epochs the first counts.

*Invariants.* Silence is counted over looks that worked, without a gap: who could not
look for a while begins again, because the active host may have been cut off from the
same cluster. A host that has just become active has as long as any other to be heard.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from braidlog.errors import InvalidArgumentError

BEAT_S: Final = 2.0
"""So often the active host shows that it is there."""
AFTER_S: Final = 30.0
"""So long it may be silent, unless said otherwise."""
# One beat that is late is no silence.
_LEAST_S: Final = 2 * BEAT_S
# Between one standby and the next: more than a promotion takes.
_STEP_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class Sign:
    """What a host last showed of itself."""

    position: int
    """Next position that it needs: how far it is, about."""
    touched: int
    """When it said so, by its own clock."""
    live: bool = True
    """Whether that was so short ago that it still holds; for the rank alone."""


@dataclass(frozen=True, slots=True)
class View:
    """What a standby sees of the hosts."""

    active: bytes
    """Identity of the active host; empty if there was none."""
    epoch: int
    signs: Mapping[bytes, Sign]
    """By identity of the host."""


class Succession:
    """The rule of one standby."""

    def __init__(self, host: bytes, after_s: float) -> None:
        """Take over when the active host was silent for so many seconds.

        Raises:
            InvalidArgumentError: that is shorter than two of its signs are apart.
        """
        if not after_s > _LEAST_S:
            raise InvalidArgumentError(
                f"promote_after must be more than {_LEAST_S:g} seconds, got "
                f"{after_s:g}: the active host sends a sign of life every "
                f"{BEAT_S:g} seconds"
            )
        self._host = host
        self._after_s = after_s
        self._seen: tuple[bytes, int, Sign | None] | None = None
        self._since = 0.0
        self._looked = 0.0

    @property
    def pause_s(self) -> float:
        """Seconds between two looks."""
        return min(BEAT_S, self._after_s / 5)

    def look(self, now: float, view: View | None) -> bool:
        """Return whether to take over; ``view`` is None if nothing could be seen."""
        gap = now - self._looked
        self._looked = now
        if view is None:
            self._seen = None
            return False
        seen = (view.active, view.epoch, view.signs.get(view.active))
        if seen != self._seen or gap > self._after_s:
            self._seen, self._since = seen, now
            return False
        if view.active == self._host:
            return False
        return now - self._since >= self._after_s + _STEP_S * self._rank(view)

    def begin_again(self) -> None:
        """Wait as long as at first: to take over failed."""
        self._seen = None

    def _rank(self, view: View) -> int:
        """Return how many standbys come before this one."""
        mine = view.signs.get(self._host)
        place = (-mine.position if mine is not None else 0, self._host)
        return sum(
            (-sign.position, host) < place
            for host, sign in view.signs.items()
            if sign.live and host not in (self._host, view.active)
        )
