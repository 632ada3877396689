"""Who makes durable what was appended, and says when it is; who keeps house."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Callable
from typing import Final, Protocol

from braidlog.errors import LogError, UnavailableError
from braidlog.store.node_store import NodeStore
from braidlog.store.threads import close_in_thread

_log = logging.getLogger(__name__)

_FAST_S: Final = 0.0003
"""A sync that takes no longer is made by the loop: to wake a thread, and to be woken by
it, takes about as long on a machine that has other things to do."""
_BYTE_S: Final = 1e-9
"""What a byte may add to that."""
_SLOW_MAX: Final = 8.0
_COMMITS_S: Final = 0.05
"""Nobody waits for the frames of commits, but they should become durable some time."""


class Syncer(Protocol):
    """Makes appended groups durable, one after the other, as fast as the disk can.

    What comes while a sync is on its way is made durable by the next one. A store that
    creates or deletes a log syncs by itself: that is told like any other sync.
    """

    def start(self, synced: Callable[[], None]) -> None:
        """Begin; call `synced` on the loop after every sync, failed or not."""

    def wake(self) -> None:
        """Note that something may have been appended."""

    async def close(self) -> None:
        """Make durable what there is, close the store, stop."""


class ThreadSyncer:
    """Two threads in the core: one syncs, one makes and drops segments.

    The loop hears of a sync through an eventfd, however many were made meanwhile.

    While the device is faster than a thread wakes up, the loop syncs by itself instead,
    at the end of a turn, when what the turn sends is on its way. Once too many of these
    syncs were slow, the thread takes over for good.
    """

    def __init__(self, store: NodeStore) -> None:
        """Serve a store."""
        self._store = store
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._synced: Callable[[], None] | None = None
        self._threaded = False
        self._slow = 0.0
        self._turn: asyncio.Handle | None = None
        self._syncing = False
        self._hurried = 0
        self._last = 0.0
        self._told = 0

    @property
    def event(self) -> int:
        """Return the descriptor that becomes readable when the thread has synced."""
        return self._event

    def start(self, synced: Callable[[], None]) -> None:
        """Start the threads.

        Raises:
            UnavailableError: the system gives no more threads.
        """
        self._synced = synced
        self._loop = asyncio.get_running_loop()
        self._store.start_housekeeper()
        self._loop.add_reader(self._event, self._on_event)

    def wake(self) -> None:
        """Sync at the end of the turn; the thread hears in the core what it has to."""
        if not self._is_due():
            return
        if self._syncing:
            # One sync a turn: what others sent meanwhile goes with the next.
            self._turn = self._loop.call_soon(self._sync_here)
        else:
            self._sync_here()

    def sync_if_due(self) -> bool:
        """Sync if the thread does not; return whether it was done, failed or not.

        Nobody is called. The thread hears in the core what it has to do.
        """
        due = self._is_due()
        if due:
            self._sync()
        return due

    def _is_due(self) -> bool:
        if self._threaded or self._synced is None or self._turn is not None:
            return False
        if self._store.hurried() != self._hurried:
            return True
        recent = self._loop.time() - self._last <= _COMMITS_S
        return not recent and self._has_commits()

    def _has_commits(self) -> bool:
        with contextlib.suppress(LogError):
            return self._store.ticket() > self._told
        return False  # The store failed, and says so to who writes next.

    def _sync_here(self) -> None:
        self._turn = None
        if self._synced is None:
            return
        self._sync()
        self._syncing = True
        try:
            self._synced()
        finally:
            self._syncing = False

    def _sync(self) -> None:
        waited = self._store.hurried() - self._hurried
        self._hurried += waited
        begun = time.monotonic()
        try:
            self._told = self._store.sync()
        except LogError as error:
            # A store that failed says so to every later call: who writes next acts.
            _log.debug("a sync failed: %s", error)
        # Left to the thread if more than every fifth sync is slow.
        slow = time.monotonic() - begun > _FAST_S + waited * _BYTE_S
        self._slow = max(0.0, self._slow + (1.0 if slow else -0.25))
        if self._slow >= _SLOW_MAX:
            self._leave()
        self._last = self._loop.time()

    def _leave(self) -> None:
        """Leave syncs to the thread."""
        self._slow = 0.0
        try:
            self._store.start_syncer(os.dup(self._event))
        except UnavailableError as error:
            _log.warning(
                "no thread for syncs could be started, so the event loop goes on "
                "with them: %s",
                error,
            )
            return
        _log.info("syncs are slow on this disk, so a thread makes them from now on")
        self._threaded = True

    def _on_event(self) -> None:
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return
        if self._synced is not None:
            self._synced()

    async def close(self) -> None:
        """Close the store, which ends the threads."""
        self._synced = None
        loop = asyncio.get_running_loop()
        await close_in_thread(self._store.close)
        loop.remove_reader(self._event)
        os.close(self._event)
