"""A bound on bytes that are outstanding; whoever wants more waits in line."""

from __future__ import annotations

import asyncio
from collections import deque

from braidlog._native import Budget


class ByteBudget:
    """So many bytes, given out first come, first served."""

    def __init__(self, size: int) -> None:
        """Begin with all of it free."""
        self.core = Budget(size)
        """Who takes of it without waiting, and gives back, needs no more than that."""
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._served = 0
        """Those that got their room and have not run since: nobody may overtake them,
        because appends keep the order in which they began."""

    def take_now(self, size: int) -> bool:
        """Take ``size`` bytes if they are free and nobody waits for them."""
        return self.core.take_now(size)

    async def take(self, size: int) -> None:
        """Wait for ``size`` bytes."""
        if self.core.take_now(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size, turn))
        self._shut()
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._served -= 1
                self.give(size)
            elif (size, turn) in self._line:
                self._line.remove((size, turn))
            self.serve()
            raise
        self._served -= 1
        self.serve()

    def give(self, size: int) -> None:
        """Give bytes back."""
        self.core.give(size)
        if self.core.shut:
            self.serve()

    def serve(self) -> None:
        """Let those go on that wait for what is free now."""
        while self._line and self.core.take(self._line[0][0]):
            size, turn = self._line.popleft()
            if turn.done():
                self.core.give(size)
            else:
                self._served += 1
                turn.set_result(None)
        self._shut()

    def _shut(self) -> None:
        self.core.shut = bool(self._line or self._served)
