"""The log of an application in a cluster, as the threads of a host need it.

A loop in a thread of its own talks to the cluster. It reads ahead of the host, a
bounded number of chunks, and goes on where it was when nodes fail. What the host has
not read yet is not there for it: `end` is the end of what was read, and `latest` asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from braidlog.app.log.cursors import counting
from braidlog.app.log.stop import Stop
from braidlog.client.background import BackgroundLoop
from braidlog.client.client import AsyncClient
from braidlog.client.internals import stored_cursors, subscribe_chunks
from braidlog.client.log import AsyncClusterLog
from braidlog.client.retry import Backoff, Verdict, verdict_of
from braidlog.errors import ClosedError, DeadlineError, LogError, NotFoundError
from braidlog.store.arguments import checked_timeout
from braidlog.store.retention import lowest_pin

if TYPE_CHECKING:
    from braidlog._native import Record
    from braidlog.store.cursor import StoredCursor

_log = logging.getLogger(__name__)

# Chunks that were read ahead; one is a batch of the log, of 1 MiB unless set otherwise.
_AHEAD: Final = 16
# Between two looks at where the log ends: lag, and how stale a read may be.
_LOOK_S: Final = 0.5
# What was submitted last, outcomes, may take so long when the log is closed.
_CLOSE_S: Final = 2.0
# Records from whose length that of all others is estimated.
_SAMPLE: Final = 256


class ClusteredLog:
    """One log of a cluster; a `TrimmableLog`."""

    def __init__(
        self,
        make: Callable[[], AsyncClient],
        name: str,
        *,
        streams: int = 0,
        stop: Stop | None = None,
    ) -> None:
        """Connect. With ``streams`` the log is made if there is none.

        Raises:
            NotFoundError: there is no log of that name.
            DeadlineError: no node answered.
            ClosedError: it was told to ``stop``.
        """
        self._changed = threading.Condition()
        self._chunks: deque[Sequence[Record]] = deque()
        self._end = 0
        self._woken = False
        self._failure: Exception | None = None
        self._submitted: deque[
            tuple[bytes, bytes | None, Callable[[Exception], None]]
        ] = deque()
        self._posted = False
        self._under_way: set[asyncio.Future[int]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._as_of = (0.0, 1)
        self._trimmed = 1
        self._client = make()
        self._loop = BackgroundLoop()
        try:
            with (stop or Stop()).telling(self.interrupt):
                self._log = self._loop.run(self._open(name, streams))
        except BaseException:
            self.close()
            raise

    async def _open(self, name: str, streams: int) -> AsyncClusterLog:
        self._room = asyncio.Event()
        client = await self._client.__aenter__()
        try:
            log = await client.log(name)
        except NotFoundError:
            if not streams:
                raise
            log = await client.create_log(name, exist_ok=True, streams=streams)
        self._tasks.append(asyncio.create_task(self._look_on(log)))
        return log

    @property
    def identity(self) -> str:
        """Identity of the log."""
        return self._log.id

    # -- positions ---------------------------------------------------------------

    @property
    def first(self) -> int:
        """First position that can be read."""
        return max(self._trimmed, self._log.first)

    @property
    def end(self) -> int:
        """One past the last position that was read ahead."""
        return self._end

    @property
    def as_of(self) -> tuple[float, int]:
        """A moment of the monotonic clock, and the end of the log then or later."""
        return self._as_of

    def latest(self, timeout: float | None = None) -> int:
        """Ask the cluster for one past the last position that is durable.

        Raises:
            DeadlineError: no node that knows answered in time.
        """
        return self._loop.run(self._ask(timeout))

    async def _ask(self, timeout: float | None) -> int:  # noqa: ASYNC109
        began = time.monotonic()
        try:
            async with asyncio.timeout(checked_timeout(timeout)):
                end = (await self._log.refresh()).stop
        except TimeoutError as error:
            if isinstance(error, LogError):
                raise
            msg = f"the cluster did not report the end of the log within {timeout} s"
            raise DeadlineError(msg) from error
        self._as_of = max(self._as_of, (began, end))
        return end

    async def _look_on(self, log: AsyncClusterLog) -> None:
        while True:
            with contextlib.suppress(LogError):
                began = time.monotonic()
                end = (await log.refresh()).stop
                self._as_of = max(self._as_of, (began, end))
            await asyncio.sleep(_LOOK_S)

    # -- appends -----------------------------------------------------------------

    def submit(
        self, value: bytes, key: bytes | None, failed: Callable[[Exception], None]
    ) -> None:
        """Append without waiting; ``failed`` is called if it does not get in.

        Calls with the same key are placed in their order.
        """
        if self._failure is not None:
            raise ClosedError(str(self._failure))
        self._submitted.append((value, key, failed))
        if not self._posted:
            self._posted = True
            self._loop.post(self._send)

    def _send(self) -> None:
        self._posted = False  # First: what is submitted from here on posts again.
        while self._submitted:
            value, key, failed = self._submitted.popleft()
            try:
                appended = self._log.submit(value, key=key)
            except LogError as error:
                failed(error)
            else:
                self._under_way.add(appended)
                appended.add_done_callback(self._under_way.discard)
                appended.add_done_callback(partial(_tell, failed))

    def append(self, value: bytes) -> int:
        """Append, and return the position once it is durable."""
        return self._loop.run(self._log.append(value))

    # -- reading -----------------------------------------------------------------

    def read(self, begin: int, limit: int) -> Sequence[Record]:
        """Return up to ``limit`` records from ``begin`` on; waits for the first.

        None after a `wake`. Whoever reads does so in the order of positions.
        """
        while not self.wait(begin, _LOOK_S):
            if self._woken:
                return []
        with self._changed:
            chunk = self._chunks.popleft()
            if len(chunk) > limit:
                self._chunks.appendleft(chunk[limit:])
        self._loop.post(self._room.set)
        return chunk[:limit]

    def wait(self, position: int, timeout: float) -> bool:
        """Wait until a position was read; False after ``timeout`` or a `wake`.

        Raises:
            TrimmedError: the host was overtaken by trimming.
            NotFoundError: the log was deleted.
        """
        with self._changed:
            if not self._end:
                self._end = position
                self._loop.post(partial(self._begin, position))
            self._changed.wait_for(
                lambda: self._end > position or self._failure or self._woken, timeout
            )
            if self._end > position:
                return True
            if self._failure is not None:
                raise self._failure
            return False

    def _begin(self, position: int) -> None:
        self._tasks.append(asyncio.create_task(self._read_on(position)))

    async def _read_on(self, position: int) -> None:
        """Read for ever, whatever nodes fail."""
        backoff = Backoff()
        while True:
            try:
                chunks = subscribe_chunks(self._log, position)
                async with contextlib.aclosing(chunks):
                    async for chunk in chunks:
                        backoff.reset()
                        position = await self._put(chunk)
                error: Exception = ClosedError("the client of the log was closed")
            except LogError as caught:
                error = caught
                if verdict_of(caught) is not Verdict.FINAL:
                    _log.warning(
                        "reading failed and continues at %d: %s", position, caught
                    )
                    await asyncio.sleep(backoff.pause(0.5))
                    continue
            with self._changed:
                self._failure = error
                self._changed.notify_all()
            return

    async def _put(self, chunk: Sequence[Record]) -> int:
        with self._changed:
            if self._woken:
                return self._end  # The host ends where it was told to.
            self._chunks.append(chunk)
            self._end = chunk[-1].position + 1
            full = len(self._chunks) >= _AHEAD
            self._changed.notify_all()
        while full:
            self._room.clear()
            with self._changed:
                full = len(self._chunks) >= _AHEAD
            if full:
                await self._room.wait()
        return self._end

    def wake(self) -> None:
        """End the waits; waits that come later return at once.

        What was read ahead and not read yet is let go: a host that ends leaves it to
        its next start.
        """
        with self._changed:
            self._woken = True
            if self._chunks:
                self._end = self._chunks[0][0].position
                self._chunks.clear()
            self._changed.notify_all()

    def interrupt(self) -> None:
        """End the waits, and all that the cluster is asked; only `close` is left."""
        self.wake()
        self._loop.interrupt()

    # -- keeping -----------------------------------------------------------------

    def keep(self, name: str, position: int, lease_s: float) -> None:
        """Ask the log to keep what begins at ``position`` for so many seconds."""
        self._loop.run(
            self._log.set_cursor(name, position, pin=True, lease=lease_s),
        )

    @property
    def capacity(self) -> int | None:
        """None: the disks of the nodes are shared by all logs."""
        return None

    def size(self, begin: int, end: int) -> int:
        """Return about how many bytes of values there are from ``begin`` to ``end``.

        The cluster counts no bytes of a log: the first records stand for the others.
        """
        return self._loop.run(self._estimate(begin, end))

    async def _estimate(self, begin: int, end: int) -> int:
        count = bytes_seen = 0
        async for record in self._log.read(begin, min(end, begin + _SAMPLE)):
            count += 1
            bytes_seen += len(record.value or b"")
        return bytes_seen * (end - begin) // count if count else 0

    def trim(self, before: int) -> int:
        """Let what is below ``before`` go, as far as pins allow; return the first."""
        self._trimmed = max(self._trimmed, self._loop.run(self._log.trim(before)))
        return self._trimmed

    def cursor_rows(self) -> tuple[StoredCursor, ...]:
        """Return all that the cluster knows of the cursors."""
        return self._loop.run(stored_cursors(self._log))

    def pinned(self) -> int | None:
        """Return the lowest position that a cursor holds, or None."""
        cursors = {
            row.name: (row.position, row.pin, row.touched, row.lease)
            for row in self.cursor_rows()
        }
        return lowest_pin(cursors, time.time_ns() // 1000)

    def cursors(self) -> dict[str, int]:
        """Return the positions of the named cursors whose lease has not ended."""
        return counting(self.cursor_rows(), time.time_ns() // 1000)

    def set_cursor(self, name: str, position: int, lease_s: float | None) -> None:
        """Store a cursor that does not pin; durable on return."""
        self._loop.run(self._log.set_cursor(name, position, lease=lease_s))

    def close(self) -> None:
        """Release the log. Idempotent."""
        if self._loop.alive:
            self._loop.finish(self._close())
        self._loop.close()

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._under_way:
            await asyncio.wait(self._under_way, timeout=_CLOSE_S)
        await self._client.close()


def _tell(failed: Callable[[Exception], None], appended: asyncio.Future[int]) -> None:
    if appended.cancelled():
        failed(ClosedError("the client was closed"))
    elif (error := appended.exception()) is not None:
        failed(error if isinstance(error, Exception) else ClosedError(str(error)))
