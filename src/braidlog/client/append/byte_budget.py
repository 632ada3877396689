"""A bound on bytes that are outstanding; whoever wants more waits in line."""

from __future__ import annotations

import asyncio
from collections import deque


class ByteBudget:
    """So many bytes, given out first come, first served."""

    def __init__(self, size: int) -> None:
        """Begin with all of it free."""
        self._free = size
        self._size = size
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._served = 0
        """Those that got their room and have not run since: nobody may overtake them,
        because appends keep the order in which they began."""

    def _wanted(self, size: int) -> int:
        # What is larger than everything gets everything.
        return size if size < self._size else self._size

    def take_now(self, size: int) -> bool:
        """Take ``size`` bytes if they are free and nobody waits for them."""
        if self._line or self._served:
            return False
        if size > self._free:
            # What is larger than everything gets everything.
            if size < self._size or self._free < self._size:
                return False
            size = self._size
        self._free -= size
        return True

    async def take(self, size: int) -> None:
        """Wait for ``size`` bytes."""
        if self.take_now(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((size, turn))
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._served -= 1
                self.give(size)
            elif (size, turn) in self._line:
                self._line.remove((size, turn))
                self._serve()
            raise
        self._served -= 1
        self._serve()

    def give(self, size: int) -> None:
        """Give bytes back."""
        self._free += size if size < self._size else self._size
        if self._line:
            self._serve()

    def _serve(self) -> None:
        while self._line and self._wanted(self._line[0][0]) <= self._free:
            size, turn = self._line.popleft()
            if not turn.done():
                self._free -= self._wanted(size)
                self._served += 1
                turn.set_result(None)
