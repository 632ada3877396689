"""Whether a node works and serves, and what it lacks if not."""

from __future__ import annotations

import asyncio
from typing import Final

from braidlog.errors import LogError
from braidlog.node.leader.registration import Registration
from braidlog.node.peers.peer_identity import PeerIdentity
from braidlog.node.repository.route import RepositoryRoute

_STUCK_S: Final = 2.0


class Readiness:
    """Judges a node by its last tick, its registration and its way to the leader."""

    def __init__(
        self,
        route: RepositoryRoute,
        registration: Registration,
        peer_identity: PeerIdentity,
        failed: asyncio.Future[LogError],
        now: float,
    ) -> None:
        """Begin at ``now``, as if the node had just ticked.

        ``failed`` is set when the node cannot go on.
        """
        self.draining = False
        """Whether the node is stopping."""
        self._route = route
        self._registration = registration
        self._peer_identity = peer_identity
        self._failed = failed
        self._ticked_at = now

    def ticked(self, now: float) -> None:
        """Note that the loop of the node turns."""
        self._ticked_at = now

    def unhealthy(self, now: float) -> str:
        """Return why the node does not work, empty if it does."""
        if self._failed.done():
            return self._failed.result().message
        late = now - self._ticked_at
        return (
            f"the node did not react for {late:.1f} seconds" if late > _STUCK_S else ""
        )

    def unready(self) -> str:
        """Return what a node that works lacks for serving, empty if nothing."""
        if self.draining:
            return "the node is shutting down"
        if self._peer_identity.why and not self._registration.done:
            return self._peer_identity.why
        if not self._route.way_to_leader:
            return "the node knows no leader of the metadata repository"
        member = self._route.member
        if member is not None and member.lacks_room:
            return "the metadata repository waits for disk space"
        if not self._registration.done:
            return "the metadata repository has not registered the node yet"
        return ""
