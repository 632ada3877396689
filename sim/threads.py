"""Threads on virtual time: one runs at a time, and the seed decides which.

*Theory of operation.* Code that blocks needs a stack of its own, so each simulated
thread is a real one, and runs only while the loop waits for it. A callback of the loop
lets it go on; it gives back when it blocks, ends, or yields to another. So a thread
belongs to a process as callbacks do: that of a dead one never goes on, that of a paused
one waits. What blocks is in `sim.locks` and takes virtual time alone.

*Invariants.* The loop or one thread runs, never two of them. Whoever blocks is in a
queue of what wakes it, or has a timer, before it gives back. A thread that holds a lock
for which the loop itself waits goes on at once; if it cannot, the loop would stand
still, and that fails the run.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final

from sim.errors import MisuseError
from sim.loop import VirtualLoop
from sim.process import CURRENT

__all__ = ["SimThread", "Threads"]

# Share of the moments at which a thread could be preempted that it is.
_PREEMPTED: Final = 0.03
_STACK_BYTES: Final = 1 << 20


class _Ended(BaseException):
    """Passes through whatever a thread does that is left when the world ends."""


class SimThread:
    """A thread of a process; see the module."""

    def __init__(self, threads: Threads, target: Callable[[], object]) -> None:
        """Begin blocked; `Threads.begin` lets it go on."""
        self._threads = threads
        self._target = target
        # That of the thread is entered as long as it lives, so callbacks have another.
        self._context = copy_context()
        self.callbacks: Context = self._context.copy()
        self.owner = CURRENT.get(threads.loop.world)
        self.go = threading.Lock()
        self.go.acquire()
        # Counts the times it blocked: a callback of an earlier one is out of date.
        self.turn = 0
        # Whether a callback is on its way that lets it go on.
        self.ready = False
        self.woken = False
        self.done = False
        self.ending = False
        self.on_end: list[Callable[[], None]] = []
        self._real = threading.Thread(target=self._main, daemon=True)
        self._real.start()

    @property
    def ident(self) -> int | None:
        """Number of the real thread."""
        return self._real.ident

    def _main(self) -> None:
        self.go.acquire()
        error: BaseException | None = None
        try:
            if not self.ending:
                self._context.run(self._target)
        except _Ended:
            pass
        except BaseException as caught:
            # Not even its own error handling took it: a thread died.
            error = caught
        finally:
            self._threads.ended(self, error)


class Threads:
    """All threads of a world; one may run while the loop waits."""

    def __init__(self, loop: VirtualLoop, random: Random) -> None:
        """Begin with none; what processes run in an executor gets threads from now."""
        self.loop = loop
        self.random = random
        self.current: SimThread | None = None
        self._back = threading.Lock()
        self._back.acquire()
        self._alive: dict[SimThread, None] = {}
        loop.threads = self
        loop.on_close.append(self.close)

    def begin(self, target: Callable[[], object]) -> SimThread:
        """Start a thread of the process that runs now."""
        stack_bytes = threading.stack_size(_STACK_BYTES)
        try:
            thread = SimThread(self, target)
        finally:
            threading.stack_size(stack_bytes)
        self._alive[thread] = None
        self.wake(thread)
        return thread

    def call(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """Call a function in a thread; the future has what it gives."""
        future = self.loop.create_future()

        def run() -> None:
            try:
                result = function()
            except Exception as error:
                if not future.done():
                    future.set_exception(error)
            else:
                if not future.done():
                    future.set_result(result)

        self.begin(run)
        return future

    # What threads do.

    def block(self, timeout: float | None = None) -> bool:
        """Wait until somebody wakes this thread; False after ``timeout`` seconds.

        Raises:
            MisuseError: it is the loop that would wait.
        """
        thread = self._running()
        thread.turn += 1
        thread.woken = False
        timer = None
        if timeout is not None:
            timer = self.loop.call_later(
                max(0.0, timeout),
                self._due,
                thread,
                thread.turn,
                context=thread.callbacks,
            )
        self._give_back(thread)
        if timer is not None:
            timer.cancel()
        return thread.woken

    def sleep(self, seconds: float) -> None:
        """Let virtual time pass, if it is a thread that asks."""
        if self.current is not None and not self.current.ending:
            self.block(seconds)

    def preempt(self) -> None:
        """Let others run first, now and then."""
        thread = self.current
        if thread is None or thread.ending or self.random.random() >= _PREEMPTED:
            return
        thread.turn += 1
        self.wake(thread)
        self._give_back(thread)

    def _running(self) -> SimThread:
        if self.current is None:
            raise MisuseError("the loop would block")
        if self.current.ending:
            raise _Ended
        return self.current

    def _give_back(self, thread: SimThread) -> None:
        self._back.release()
        thread.go.acquire()
        if thread.ending:
            raise _Ended

    def ended(self, thread: SimThread, error: BaseException | None) -> None:
        """Note that a thread is over; it is the last that it says."""
        thread.done = True
        self._alive.pop(thread, None)
        if error is not None and not thread.ending and thread.owner.alive:
            self.loop.fail(f"a thread of {thread.owner.name} ended", error)
        for callback in thread.on_end:
            callback()
        self._back.release()

    # What wakes them.

    def wake(self, thread: SimThread) -> None:
        """Let a thread that blocks go on, soon."""
        if not thread.done and not thread.ready:
            thread.woken = thread.ready = True
            self._post(thread)

    def _post(self, thread: SimThread) -> None:
        self.loop.call_soon(self._resume, thread, thread.turn, context=thread.callbacks)

    def _due(self, thread: SimThread, turn: int) -> None:
        if thread.turn == turn and not thread.ready and not thread.done:
            thread.ready = True
            self._resume(thread, turn)

    def _resume(self, thread: SimThread, turn: int) -> None:
        if thread.turn == turn and thread.ready and not thread.done:
            self._switch(thread)

    def force(self, thread: SimThread | None) -> None:
        """Let a thread go on at once, because the loop waits for it.

        Raises:
            MisuseError: it waits for something itself.
        """
        if thread is None or not thread.ready:
            raise MisuseError("the loop would wait for a thread that blocks")
        self._switch(thread)

    def _switch(self, thread: SimThread) -> None:
        loop = self.loop
        before, ident = self.current, loop._thread_id
        thread.ready = False
        self.current = thread
        loop._thread_id = thread.ident
        thread.go.release()
        self._back.acquire()
        loop._thread_id = ident
        self.current = before

    def close(self) -> None:
        """End every thread that is left, in order of creation."""
        for thread in list(self._alive):
            thread.ending = True
            while not thread.done:
                self._switch(thread)
