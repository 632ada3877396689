"""What a host still needs of its log: a cursor with a lease, moved as it goes on."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final, Protocol

from braidlog.app.execution.succession import BEAT_S
from braidlog.errors import LogError
from braidlog.store.threads import start_thread

_log = logging.getLogger(__name__)

_EVERY_S: Final = 10.0
LEASE_S: Final = 60.0
"""So long a host that is gone holds up what others let go of."""

SNAPSHOT_LEASE_S: Final = 3600.0
"""So long the snapshots of a host that is gone count among those of others."""
_RENEW_S: Final = 120.0


class Keeping(Protocol):
    """A log that keeps what somebody asks for."""

    def keep(self, name: str, position: int, lease_s: float) -> None:
        """Keep what begins at ``position`` for so many seconds."""


class CursorLease:
    """Moves the cursor of a host, in a thread of its own.

    A host that is gone holds nothing up for longer than its lease. One that comes back
    later and finds its place trimmed takes the state of another host.
    """

    def __init__(self, log: Keeping, name: str, first: int) -> None:
        """Keep everything from ``first`` on; `follow` lets go of more.

        Raises:
            LogError: the cursor could not be stored.
        """
        self._log = log
        self._name = name
        self._synced: Callable[[], int] = lambda: first - 1
        self._beats: Callable[[], bool] = lambda: False
        self._renew: Callable[[], None] = lambda: None
        self.kept = first - 1
        """Last position whose effects are durable at this host."""
        self._stopping = threading.Event()
        self._moving = threading.Lock()
        self.move()
        self._thread = start_thread("braidlog-keeper", self._serve)

    def follow(
        self,
        synced: Callable[[], int],
        beats: Callable[[], bool],
        renew: Callable[[], None],
    ) -> None:
        """Let go of what ``synced`` makes durable; it returns up to where.

        ``renew`` is called for the other leases of the host, long before they end.

        While ``beats`` the cursor is stored every `BEAT_S` seconds, where it is: that
        is how the others see that the active host is there.
        """
        self._synced = synced
        self._beats = beats
        self._renew = renew

    def move(self) -> None:
        """Move the cursor now.

        Raises:
            LogError: it could not be stored.
        """
        with self._moving:  # Of two at a time the later must not have less.
            kept = self._synced()
            self._log.keep(self._name, kept + 1, LEASE_S)
            self.kept = kept

    def _beat(self) -> None:
        with self._moving:
            self._log.keep(self._name, self.kept + 1, LEASE_S)

    def _serve(self) -> None:
        passed = renewed = 0.0
        while not self._stopping.wait(BEAT_S):
            passed, renewed = passed + BEAT_S, renewed + BEAT_S
            try:
                if passed >= _EVERY_S:
                    passed = 0.0
                    self.move()
                elif self._beats():
                    self._beat()
                if renewed >= _RENEW_S:
                    renewed = 0.0
                    self._renew()
            except (LogError, OSError) as error:
                _log.warning("could not move the cursor %r: %s", self._name, error)

    def stop(self) -> None:
        """Move it no more; the lease ends by itself."""
        self._stopping.set()
        self._thread.join()
