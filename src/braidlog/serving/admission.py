"""Which connections are let in, of those that want to be.

*Theory of operation.* A connection is a stranger until it has said who it is, through
TLS if there is any. Strangers have places of their own, and those of clients that are
free. When all are taken the oldest is sent away: whoever has something to say does so
at once, and a newcomer can always say it.
Clients have places until they leave; when all are taken, a client is refused with the
reason. Nodes of the cluster have places that no client can take. A connection that has
to leave for another takes the place of a stranger until it is closed.

*Invariants.* All places together, and what the process needs besides, are no more than
the descriptors that it may have.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from braidlog.errors import InvalidArgumentError, NotReadyError
from braidlog.serving.places import Places

H = TypeVar("H", bound=Hashable)

RESERVED_FILES: Final = 128
"""For what is no connection: 64 segments that are read, files that are written, spares,
the fault log, HTTP, and what Python itself opens."""
_FREE_MIN: Final = 32
_STRANGERS_MAX: Final = 1024
_PEERS_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class Capacity:
    """How many connections there may be."""

    strangers: int
    clients: int
    peers: int


def capacity(connections_max: int, files_max: int) -> Capacity:
    """Return what fits the limit of open files of a process.

    Raises:
        InvalidArgumentError: nothing does; the message names the limit.
    """
    free = files_max - RESERVED_FILES
    if free < _FREE_MIN:
        least = RESERVED_FILES + _FREE_MIN
        raise InvalidArgumentError(
            f"this process may open {files_max} files and needs at least "
            f"{least}: raise the limit (ulimit -n, or LimitNOFILE of systemd)"
        )
    peers = min(_PEERS_MAX, free // 8)
    strangers = min(_STRANGERS_MAX, free // 4)
    return Capacity(strangers, min(connections_max, free - peers - strangers), peers)


@dataclass(slots=True)
class ConnectionCounters:
    """Totals since the start."""

    connections_refused: int = 0
    """Clients for which there was no place, or that gave theirs up for others."""
    strangers_dropped: int = 0
    """Connections closed before they said who they are, for others or for silence."""
    frames_overdue: int = 0
    """Connections closed because a frame was not whole in time."""


class ConnectionAdmission(Generic[H]):
    """The places of a listener."""

    def __init__(self, places: Capacity) -> None:
        """Begin with nobody."""
        self.counters = ConnectionCounters()
        self._origins: dict[H, str] = {}
        self._own = places.strangers
        self._strangers = Places[H](places.strangers, oldest_goes=True)
        self._clients = Places[H](places.clients, oldest_goes=False)
        self._peers = Places[H](places.peers, oldest_goes=True)

    @property
    def strangers(self) -> int:
        """Return how many have not said who they are."""
        return len(self._strangers)

    @property
    def clients(self) -> int:
        """Return how many clients there are."""
        return len(self._clients)

    @property
    def has_room(self) -> bool:
        """Whether one more client would find a place."""
        return len(self._clients) < self._clients.size

    def arrive(self, holder: H, origin: str) -> H | None:
        """Let a stranger in; return the one that has to be closed for it, at once."""
        # Each is on its way to a place; many may come at once, as after a restart.
        self._strangers.size = self._own + self._clients.size - len(self._clients)
        self._origins[holder] = origin
        goes = self._strangers.enter(holder, origin)
        if goes is not None:
            self.counters.strangers_dropped += 1
        return goes

    def greet(
        self, holder: H, origin: str, node: int, busy: Callable[[H], bool]
    ) -> H | None:
        """Give who has said who it is a place; return who has to go for it.

        It has the place of a stranger until it leaves.

        Raises:
            NotReadyError: there is none for a client from there.
        """
        if node:
            goes = self._peers.enter(holder, str(node))
        else:
            goes = self._clients.enter(holder, origin, busy)
        if goes is not None and not node:
            self.counters.connections_refused += 1
        if goes == holder:
            raise NotReadyError(
                f"all {self._clients.size} client connections of this node are in "
                "use: close connections, raise [limits] connections_max and the "
                "limit of open files, or add nodes"
            )
        self._strangers.leave(holder)
        if goes is not None:
            # Its descriptor is in use until it has read why it goes, or too long.
            self._strangers.enter(goes, self._origins[goes])
        return goes

    def leave(self, holder: H) -> None:
        """Give back whatever place it has."""
        self._origins.pop(holder, None)
        for places in (self._strangers, self._clients, self._peers):
            places.leave(holder)
