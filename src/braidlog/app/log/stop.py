"""Ending a host that is still being opened: a long replay, or a cluster that is away.

*Invariant.* What `telling` calls is called once at most, and not after its block ended:
whoever got out of it in time has a host that goes on.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from braidlog.errors import ClosedError


class Stop:
    """Ends the opening of a host from another thread, or from a signal handler.

    What was executed until then is stored, and the next opening continues there.
    """

    def __init__(self) -> None:
        """Let it be opened."""
        self._lock = threading.Lock()
        self._told: list[Callable[[], None]] = []
        self._set = False

    def is_set(self) -> bool:
        """Return whether `set` was called."""
        return self._set

    def set(self) -> None:
        """End the opening as soon as possible; does nothing if the host is open."""
        with self._lock:
            self._set = True
            told, self._told = self._told, []
            for interrupt in told:
                interrupt()

    def check(self) -> None:
        """Go on, unless it was told to end.

        Raises:
            ClosedError: it was.
        """
        if self._set:
            raise ClosedError("the host was stopped before it was open")

    @contextlib.contextmanager
    def telling(self, interrupt: Callable[[], None]) -> Iterator[None]:
        """Call ``interrupt``, which must not block, when it is told to end.

        Raises:
            ClosedError: it was before, or meanwhile.
        """
        with self._lock:
            self.check()
            self._told.append(interrupt)
        try:
            yield
        finally:
            with self._lock:
                if interrupt in self._told:
                    self._told.remove(interrupt)
        self.check()
