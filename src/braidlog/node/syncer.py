"""Who makes durable what was appended, and says when it is."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Syncer", "ThreadSyncer"]


class Syncer(Protocol):
    """Makes appended groups durable, one after the other, as fast as the disk can.

    What comes while a sync is on its way is made durable by the next one.
    """

    def start(self, synced: Callable[[], None]) -> None:
        """Begin; call `synced` on the loop after every sync, failed or not."""

    def wake(self) -> None:
        """Note that something was appended."""

    async def close(self) -> None:
        """Make durable what there is and stop."""


class ThreadSyncer:
    """A thread in the core that syncs; the loop hears of it through an eventfd."""

    def __init__(self, store: Any) -> None:
        """Serve a native store."""
        self._store = store
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._thread = threading.Thread(
            target=store.run_syncer, args=(self._event,), name="braidlog-sync"
        )
        self._synced: Callable[[], None] | None = None

    def start(self, synced: Callable[[], None]) -> None:
        """Start the thread."""
        self._synced = synced
        asyncio.get_running_loop().add_reader(self._event, self._on_event)
        self._thread.start()

    def wake(self) -> None:
        """Do nothing: the thread waits in the core, for what is appended there."""

    def _on_event(self) -> None:
        try:
            os.eventfd_read(self._event)
        except BlockingIOError:
            return
        if self._synced is not None:
            self._synced()

    async def close(self) -> None:
        """Wait for the thread, which ends when the store is closed."""
        loop = asyncio.get_running_loop()
        if self._thread.is_alive():
            await loop.run_in_executor(None, self._thread.join)
        loop.remove_reader(self._event)
        os.close(self._event)
