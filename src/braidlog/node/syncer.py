"""Who makes durable what was appended, and says when it is; who keeps house."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from braidlog.errors import ClosedError
from braidlog.storage.streams import NodeStore

__all__ = ["Syncer", "ThreadSyncer"]

_log = logging.getLogger(__name__)

_HOUSEKEEPING_S: Final = 1.0


class Syncer(Protocol):
    """Makes appended groups durable, one after the other, as fast as the disk can.

    What comes while a sync is on its way is made durable by the next one.
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
    """

    def __init__(self, store: NodeStore) -> None:
        """Serve a store."""
        self._store = store
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._keeper = threading.Thread(
            target=self._keep_house, name="braidlog-house", daemon=True
        )
        self._synced: Callable[[], None] | None = None

    def start(self, synced: Callable[[], None]) -> None:
        """Start the threads."""
        self._synced = synced
        asyncio.get_running_loop().add_reader(self._event, self._on_event)
        self._store.start_syncer(self._event)
        self._keeper.start()

    def wake(self) -> None:
        """Do nothing: the thread waits in the core, for what is appended there."""

    def _on_event(self) -> None:
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return
        if self._synced is not None:
            self._synced()

    def _keep_house(self) -> None:
        due = time.monotonic()
        while (wanted := self._store.wait_housekeeping(_HOUSEKEEPING_S)) is not None:
            try:
                if wanted or time.monotonic() >= due:
                    due = time.monotonic() + _HOUSEKEEPING_S
                    self._store.housekeeping()
            except ClosedError:
                return
            except Exception:
                # Appends meet the same trouble and report it to somebody who can act.
                _log.exception("housekeeping failed")
                time.sleep(_HOUSEKEEPING_S)

    async def close(self) -> None:
        """Close the store, which ends the threads."""
        self._synced = None
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._store.close)
        if self._keeper.is_alive():
            await loop.run_in_executor(None, self._keeper.join)
        loop.remove_reader(self._event)
        os.close(self._event)
