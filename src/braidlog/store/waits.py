"""What the tasks of a loop wait for: positions of logs that cannot be read yet.

Theory of operation: nobody holds a thread while it waits. A task leaves its position
here, and the loop looks at the logs that somebody waits for when it is woken: by the
sync thread of a writer after each sync, or by one poller of a read-only store after
each look at the files. A look costs one call for each of these logs, however many wait
for it.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from typing import Final, TypeAlias

from braidlog.errors import ClosedError, LogError, StoreFailedError
from braidlog.store.log import POLL_MAX_S, POLL_MIN_S, Log
from braidlog.store.store import Store
from braidlog.store.threads import in_thread

_Waiting: TypeAlias = "tuple[int, int, asyncio.Future[bool]]"

# Those that gave up stay in a queue until they are as many as those that wait, and
# this many: clearing it then costs each of them a constant.
_GONE_MAX: Final = 64


class _Queue:
    """Who waits for a log, the lowest position first."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._waiting: list[_Waiting] = []
        self._order = itertools.count()
        # How many have neither been told nor given up.
        self.live = 0

    def add(self, position: int, future: asyncio.Future[bool]) -> None:
        heapq.heappush(self._waiting, (position, next(self._order), future))
        self.live += 1

    def forget_one(self) -> None:
        """Count one that gave up."""
        self.live -= 1
        if len(self._waiting) > 2 * self.live + _GONE_MAX:
            self._waiting = [each for each in self._waiting if not each[2].done()]
            heapq.heapify(self._waiting)

    def look(self) -> bool:
        """Tell those whose position can be read; whether there were any."""
        before = self.live
        try:
            while self._waiting:
                position, _, future = self._waiting[0]
                if not future.done():
                    if not self._log._view.wait(position, 0):
                        break
                    future.set_result(True)
                    self.live -= 1
                heapq.heappop(self._waiting)
        except LogError as error:
            self.end(error)
        return self.live < before

    def end(self, reason: Exception) -> None:
        """Tell everybody that nothing more comes, and why."""
        closed = isinstance(reason, ClosedError)
        for _, _, future in self._waiting:
            if future.done():
                continue
            if closed and not isinstance(reason, StoreFailedError):
                future.set_result(False)
            else:
                future.set_exception(reason)
        self._waiting.clear()
        self.live = 0


class Waits:
    """Everything that tasks of one loop wait for."""

    def __init__(self, store: Store) -> None:
        """Wait for logs of ``store``, in the loop that runs."""
        self._store = store
        self._queues: dict[int, _Queue] = {}
        self._poller: asyncio.Task[None] | None = None

    async def wait(self, log: Log, position: int, timeout: float | None) -> bool:  # noqa: ASYNC109
        """Wait until ``position`` can be read; see `Log.wait`."""
        # Checks the arguments too, and that there is something to wait for.
        if self._store.read_only:
            there = await in_thread(log.wait, position, timeout=0)
        else:
            there = log.wait(position, timeout=0)
        # Its own: a log from before the store was entered again has a former one.
        if there or log._store.closed:
            return there
        future = asyncio.get_running_loop().create_future()
        queue = self._queues.get(log._stream)
        if queue is None:
            queue = self._queues[log._stream] = _Queue(log)
        queue.add(position, future)
        self._start_poller()
        try:
            await asyncio.wait((future,), timeout=timeout)
            return future.result() if future.done() else False
        finally:
            if future.cancel():
                queue.forget_one()

    def look(self) -> bool:
        """Tell those whose position can be read now; whether there were any."""
        told = [queue.look() for queue in self._queues.values()]
        self._queues = {at: each for at, each in self._queues.items() if each.live}
        return any(told)

    def end(self, reason: Exception) -> None:
        """Tell everybody that nothing more comes, and why."""
        for queue in self._queues.values():
            queue.end(reason)
        self._queues.clear()

    def _start_poller(self) -> None:
        if self._store.read_only and (self._poller is None or self._poller.done()):
            self._poller = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        pause = POLL_MIN_S
        while self._queues:
            await asyncio.sleep(pause)
            try:
                await in_thread(self._store._backend.refresh)
            except Exception as error:
                # Whatever it is, those who wait have to hear of it.
                self.end(error)
                return
            pause = POLL_MIN_S if self.look() else min(pause * 2, POLL_MAX_S)
