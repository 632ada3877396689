"""Who gets one of a bounded number of places, and who gives one up for it.

*Theory of operation.* Places are shared by origin: an address, or whatever names those
who act together. When all are taken, the origin that has most gives one up. So one
machine never keeps another out, and alone it may have them all. Of its own holders
either the oldest goes, where holders pass quickly and one that stays is suspect, or the
newcomer does, where those that are in should stay.

*Invariants.* There are never more holders than places. An origin that has fewer places
than another gets one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

H = TypeVar("H", bound=Hashable)

_IPV6_NETWORK: Final = 64
"""Prefix length that is given to one subscriber, who may use any address in it."""


def origin_of(host: str) -> str:
    """Return who an address stands for: itself, or its network of IPv6."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    network = ipaddress.ip_network((address, _IPV6_NETWORK), strict=False)
    return str(network)


class Places(Generic[H]):
    """A bounded number of places."""

    def __init__(self, size: int, *, oldest_goes: bool) -> None:
        """Begin with all places free.

        If the newcomer's origin has most, its oldest holder goes or the newcomer does.
        """
        self.size = size
        self._oldest_goes = oldest_goes
        self._origins: dict[H, str] = {}
        # Dicts, for their order.
        self._held: dict[str, dict[H, None]] = {}

    def __len__(self) -> int:
        """Return how many places are taken."""
        return len(self._origins)

    def enter(
        self, holder: H, origin: str, busy: Callable[[H], bool] = lambda _: False
    ) -> H | None:
        """Take a place; return who gave one up for it, which may be the newcomer.

        Of another origin one goes that is not `busy`, if there is one.
        """
        self._origins[holder] = origin
        self._held.setdefault(origin, {})[holder] = None
        if len(self._origins) <= self.size:
            return None
        goes = self._choose(holder, origin, busy)
        self.leave(goes)
        return goes

    def _choose(self, holder: H, origin: str, busy: Callable[[H], bool]) -> H:
        heaviest = max(self._held, key=lambda each: len(self._held[each]))
        own = self._held[origin]
        if len(own) < len(self._held[heaviest]):
            others = self._held[heaviest]
            idle = (each for each in others if not busy(each))
            return next(idle, next(iter(others)))
        return next(iter(own)) if self._oldest_goes else holder

    def leave(self, holder: H) -> None:
        """Give the place back, if there is one."""
        origin = self._origins.pop(holder, None)
        if origin is None:
            return
        held = self._held[origin]
        del held[holder]
        if not held:
            del self._held[origin]
