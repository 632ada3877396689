"""When a node carries out what came in: all of it at once, at the end of a turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from braidlog.serving.transport import Outbox


class FlushScheduler:
    """One flush for each turn of the loop in which something came in.

    A turn of the loop costs about as much as a message, so what comes in while a flush
    runs, or right before one that comes anyway, gets none of its own.
    """

    def __init__(
        self,
        outbox: Outbox,
        flush: Callable[[], None],
        sync: Callable[[], None] = lambda: None,
    ) -> None:
        """Call `flush` when something came in; it never raises.

        Then call `sync` if something was written.
        """
        self._loop = asyncio.get_running_loop()
        self._outbox = outbox
        self._flush = flush
        self._sync = sync
        self._handle: asyncio.Handle | None = None
        self._flushing = False
        self.stirred = False
        """Whether something came in since the flush looked: it has to look again."""
        self.wrote = True
        """Whether something was written, or may wait for a sync for too long."""

    def soon(self) -> None:
        """Flush at the end of this turn, or go on with the flush that runs."""
        self.stirred = True
        if self._handle is None and not self._flushing:
            self._handle = self._loop.call_soon(self.now)

    def now(self, first: Callable[[], None] | None = None) -> None:
        """Flush what came in, and what comes in by `first`."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._flushing = self._outbox.held = True
        if first is not None:
            first()
        self._flush()
        self._flushing = self._outbox.held = False
        if self._outbox.wires:
            self._outbox.flush()
        if self.wrote:
            self.wrote = False
            self._sync()

    def close(self) -> None:
        """Forget the flush that waits."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
