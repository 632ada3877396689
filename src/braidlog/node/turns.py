"""When the effects of a node are carried out: once at the end of a turn of its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

__all__ = ["Turns"]


class Turns:
    """Calls `settle`, which does what there is to do, and then `finish`.

    What `settle` changes it carries out itself, so it needs no other turn.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        settle: Callable[[], None],
        finish: Callable[[], None],
    ) -> None:
        """Wait for the first change."""
        self._loop = loop
        self._settle = settle
        self._finish = finish
        self._due: asyncio.Handle | None = None
        self._settling = False

    def ask(self) -> None:
        """Carry effects out at the end of this turn."""
        if self._due is None and not self._settling:
            self._due = self._loop.call_soon(self._run)

    def run(self) -> None:
        """Carry them out now, unless the end of this turn does, or it is done now."""
        if self._due is None and not self._settling:
            self._run()

    def _run(self) -> None:
        self._due = None
        self._settling = True
        try:
            self._settle()
        finally:
            self._settling = False
        self._finish()

    def close(self) -> None:
        """Carry nothing more out."""
        if self._due is not None:
            self._due.cancel()
