"""An asyncio event loop on virtual time.

*Theory of operation.* Callbacks that are ready run first in, first out, in rounds as
those of asyncio's own loops: a round is what was ready when it began, and timers that
are due join at the start of one. When nothing is ready, the time is set to that of the
next timer. Every callback belongs to the `Process` of its context. That of a dead
process never runs, that of a paused one waits in the process, and `time()` is what the
process's clock shows.

*Invariants.* Time never falls. No callback runs while an older one of the same instant
is ready. Nothing depends on addresses, on the real clock or on when garbage is
collected: tasks and futures hash by serial number, so that sets of them (`TaskGroup`,
`wait`) have one order, and the collector runs after a fixed number of steps. An
exception that reaches the loop ends the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import heapq
import socket
import sys
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from concurrent.futures import Executor
from contextvars import Context, copy_context
from functools import partial
from threading import get_ident
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, Unpack

from sim.errors import DeadlockError, LivelockError, MisuseError, UnhandledError
from sim.process import CURRENT, Process, process_of
from sim.tasks import SimFuture, SimHandle, SimTask, SimTimer, describe
from sim.trace import Trace

if TYPE_CHECKING:
    from sim.network import Network
    from sim.threads import Threads

__all__ = ["VirtualLoop"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

# Steps without time moving on after which the run is taken for an endless loop.
_STEPS_AT_ONE_TIME_MAX = 1_000_000
_COLLECT_EVERY = 20_000
_TASKS_PRUNED_FROM = 256
_TIMERS_PRUNED_FROM = 1024


class VirtualLoop(asyncio.BaseEventLoop):
    """Event loop of a simulated world; see the module."""

    _thread_id: int | None
    _closed: bool

    def __init__(self, trace: Trace | None = None) -> None:
        """Begin at time 0 with no network and one process, the world's own."""
        super().__init__()
        self.set_debug(False)
        self.trace = trace or Trace()
        self.network: Network | None = None
        # Set by who simulates code that blocks.
        self.threads: Threads | None = None
        self.on_close: list[Callable[[], None]] = []
        self.world = Process("world")
        self.true_time = 0.0
        self.time_max = float("inf")
        self.steps_max: int | None = None
        self._queue: deque[SimHandle | SimTimer] = deque()
        self._timers: list[tuple[float, int, SimTimer]] = []
        self._cancelled_timers = 0
        self._serial = 0
        self._stop = False
        self._failure: BaseException | None = None
        self._tasks: dict[SimTask[Any], None] = {}
        self._tasks_prune_at = _TASKS_PRUNED_FROM
        self._steps_here = 0
        self._ending = False

    # Time and callbacks.

    def process(self) -> Process:
        """Return the process whose code runs now."""
        return CURRENT.get(self.world)

    def time(self) -> float:
        """Return what the clock of the running process shows."""
        return self.process().clock.local(self.true_time)

    def serial(self) -> int:
        """Return a number that was not returned before."""
        self._serial += 1
        return self._serial

    def call_soon(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Run the callback after those that are ready, unless its process is dead."""
        if self._closed or self._thread_id not in (None, get_ident()):
            self._refuse()
        if context is None:
            context = copy_context()
        owner = context.get(CURRENT, self.world)
        handle = SimHandle(callback, args, self, context, owner)
        if owner.alive and not self._ending:
            self._queue.append(handle)
        else:
            handle.cancel()
        return handle

    def call_soon_threadsafe(
        self,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Do as `call_soon`: there is one thread.

        Raises:
            MisuseError: another thread calls; when it does, no seed decides.
        """
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback when the clock of its process has moved on by `delay`."""
        context = context if context is not None else copy_context()
        clock = process_of(context, self.world).clock
        when = clock.local(self.true_time) + delay
        return self.call_at(when, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run the callback when the clock of its process shows `when`."""
        self._check_thread_and_open()
        context = context if context is not None else copy_context()
        owner = process_of(context, self.world)
        timer = SimTimer(when, callback, args, self, context, owner)
        if owner.alive and not self._ending:
            due = owner.clock.due(when)
            heapq.heappush(self._timers, (due, self.serial(), timer))
        else:
            timer.cancel()
        return timer

    def call_kernel(
        self,
        when: float,
        callback: Callable[..., object],
        args: tuple[object, ...],
        context: Context,
    ) -> None:
        """Run the callback as the world, whose clock shows the true time, at `when`.

        What a kernel and a wire do is a third of all timers, and never taken back.
        """
        if not self._ending:
            timer = SimTimer(when, callback, args, self, context, self.world)
            self._serial += 1
            heapq.heappush(self._timers, (when, self._serial, timer))

    def timer_cancelled(self) -> None:
        """Drop cancelled timers when they are more than those that are left."""
        self._cancelled_timers += 1
        if self._cancelled_timers > _TIMERS_PRUNED_FROM + len(self._timers) // 2:
            self._timers = [t for t in self._timers if not t[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def _check_thread_and_open(self) -> None:
        if self._closed or self._thread_id not in (None, get_ident()):
            self._refuse()

    def _refuse(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")
        raise MisuseError("a thread calls the loop, and threads follow no seed")

    # Tasks and futures.

    def create_future(self) -> asyncio.Future[Any]:
        """Return a future with a serial number."""
        return SimFuture(self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Return a task that belongs to the process of the context.

        Unlike asyncio's, the loop keeps it alive until it is done.
        """
        self._check_thread_and_open()
        context = context if context is not None else copy_context()
        owner = process_of(context, self.world)
        task: SimTask[T] = SimTask(coro, self, name, context, owner)
        self._tasks[task] = None
        if len(self._tasks) > self._tasks_prune_at:
            self._tasks_prune_at = 2 * len(self.pending()) + _TASKS_PRUNED_FROM
        return task

    def pending(self) -> list[SimTask[Any]]:
        """Return the tasks that are not done, oldest first."""
        self._tasks = {task: None for task in self._tasks if not task.done()}
        return list(self._tasks)

    def run_in_executor(
        self,
        executor: Executor | None,
        func: Callable[[Unpack[Ts]], T],
        *args: *Ts,
    ) -> asyncio.Future[T]:
        """Call the function on this thread, at once or after the process's delay.

        A crash before the delay is over means that the function is never called. In a
        process whose functions block, it gets a simulated thread of its own.
        """
        self._check_thread_and_open()
        if self.threads is not None and self.process().blocking:
            return self.threads.call(partial(func, *args))
        future: asyncio.Future[T] = self.create_future()
        delay = self.process().executor_delay
        seconds = delay() if delay is not None else 0.0
        if seconds > 0:
            self.call_later(seconds, _call, future, func, args)
        else:
            _call(future, func, args)
        return future

    # Running.

    def run_forever(self) -> None:
        """Run until stopped, failed or stuck.

        Raises:
            DeadlockError: nothing is ready and no timer is set.
            LivelockError: `steps_max` or `time_max` was passed, or time stands still.
            UnhandledError: an exception reached the loop.
        """
        self._check_thread_and_open()
        if self.is_running() or asyncio._get_running_loop() is not None:
            raise RuntimeError(
                "Cannot run the event loop while another loop is running"
            )
        with self._running():
            while True:
                self._run_once()
                if self._stop:
                    break

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        hooks = sys.get_asyncgen_hooks()
        collecting = gc.isenabled()
        gc.disable()
        self._thread_id = get_ident()
        sys.set_asyncgen_hooks(None, self._generator_dropped)
        asyncio._set_running_loop(self)
        try:
            yield
        finally:
            self._stop = False
            self._thread_id = None
            asyncio._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            if collecting:
                gc.enable()

    def stop(self) -> None:
        """End `run_forever` after the current round."""
        self._stop = True

    def _run_once(self) -> None:
        timers, queue = self._timers, self._queue
        if timers and timers[0][0] <= self.true_time:
            self._take_due()
        while not queue and not self._stop:
            self._jump()
        steps_begin = self.trace.steps
        for _ in range(len(queue)):
            self._run_handle(queue.popleft())
        self._steps_here += self.trace.steps - steps_begin
        if self._steps_here > _STEPS_AT_ONE_TIME_MAX:
            raise LivelockError(f"time stands still at {self.true_time}")

    def _run_handle(self, handle: SimHandle | SimTimer) -> None:
        owner = handle.owner
        if handle._cancelled or not owner.alive:
            return
        if owner.paused:
            owner.held.append(handle)
            return
        trace = self.trace
        trace.step(self.true_time, owner.number)
        if trace.steps % _COLLECT_EVERY == 0:
            gc.collect()
        try:
            handle._context.run(handle._callback, *handle._args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:
            self._raised(handle, error)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if self.steps_max is not None and trace.steps > self.steps_max:
            raise LivelockError(f"more than {self.steps_max} steps" + self._waiting())

    def _raised(self, handle: SimHandle | SimTimer, error: BaseException) -> None:
        """Do as asyncio's handles do with what a callback raises."""
        message = f"Exception in callback {handle!r}"
        context = {"message": message, "exception": error, "handle": handle}
        self.call_exception_handler(context)

    def _take_due(self) -> None:
        timers, now = self._timers, self.true_time
        while timers and timers[0][0] <= now:
            timer = heapq.heappop(timers)[2]
            if timer._cancelled:
                self._cancelled_timers = max(0, self._cancelled_timers - 1)
            else:
                self._queue.append(timer)

    def _jump(self) -> None:
        while self._timers and self._timers[0][2].cancelled():
            heapq.heappop(self._timers)
            self._cancelled_timers = max(0, self._cancelled_timers - 1)
        if not self._timers:
            raise DeadlockError("nothing will happen any more" + self._waiting())
        due = self._timers[0][0]
        if due > self.time_max:
            raise LivelockError(f"not done at {self.time_max} s" + self._waiting())
        if due > self.true_time:
            self.true_time = due
            self._steps_here = 0
        self._take_due()

    def _waiting(self) -> str:
        return "".join(f"\n  {describe(task)}" for task in self.pending())

    # Failing and closing.

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Fail the run, unless the exception is that of a dead process."""
        subject = context.get("task") or context.get("future") or context.get("handle")
        owner = getattr(subject, "owner", None)
        if self._ending or (isinstance(owner, Process) and not owner.alive):
            return
        self.fail(str(context.get("message")), context.get("exception"))

    def fail(self, message: str, cause: BaseException | None) -> None:
        """End the run after the current step; the first failure is the one reported."""
        if self._failure is None:
            error = UnhandledError(f"{message}: {cause!r}" if cause else message)
            error.__cause__ = cause
            self._failure = error

    def drift(self, process: Process, rate: float) -> None:
        """Let the clock of a process run at another rate; its timers follow."""
        process.clock.drift(self.true_time, rate)
        self._timers = [
            (process.clock.due(t.when()), serial, t) if t.owner is process else item
            for item in self._timers
            for _, serial, t in [item]
        ]
        heapq.heapify(self._timers)

    def resume(self, process: Process) -> None:
        """Run what became due while the process was paused."""
        process.paused = False
        held: list[Any] = process.held
        self._queue.extend(held)
        process.held = []

    def add_signal_handler(
        self,
        sig: int,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
    ) -> None:
        """Take a signal that the world sends to the running process."""
        context = copy_context()
        handler = self.call_soon

        def deliver() -> None:
            handler(callback, *args, context=context)

        self.process().signals[int(sig)] = deliver

    def remove_signal_handler(self, sig: int) -> bool:
        """Return whether there was a handler."""
        return self.process().signals.pop(int(sig), None) is not None

    def _generator_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        if not self.is_closed():
            self.call_soon(self.create_task, generator.aclose())

    def close(self) -> None:
        """End every coroutine that is left, in order of creation, then the loop.

        Nothing they still do counts: no process is alive any more.
        """
        if self.is_closed():
            return
        if self.network is not None:
            self.network.close()
        self._queue.clear()
        self._timers.clear()
        self._ending = True
        for callback in self.on_close:
            callback()
        self._end_tasks()
        super().close()

    def _end_tasks(self) -> None:
        while self._tasks:
            task = next(iter(self._tasks))
            del self._tasks[task]
            task.abandon()

    # Connections; see `sim.network`.

    def _net(self) -> Network:
        if self.network is None:
            raise MisuseError("this loop has no network")
        return self.network

    async def getaddrinfo(  # type: ignore[override]
        self, host: str | None, port: int | None, **options: Any
    ) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        """Look a host up on the simulated network, which takes no time."""
        address = self._net().look_up(host)
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (address, port or 0))]

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        """Connect to a listener of the simulated network."""
        return await self._net().connect(protocol_factory, host, port, options)

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        **options: Any,
    ) -> asyncio.AbstractServer:
        """Listen on the simulated network."""
        return self._net().listen(protocol_factory, host, port, options)


def _call(
    future: asyncio.Future[T], func: Callable[[Unpack[Ts]], T], args: tuple[*Ts]
) -> None:
    if future.cancelled():
        return
    try:
        result = func(*args)
    except Exception as error:
        future.set_exception(error)
    else:
        future.set_result(result)
