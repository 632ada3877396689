"""What threads wait for, as `threading` and `time` have it, on virtual time.

An object of `Locks` stands in for the module `threading`, one of `Time` for `time`. The
loop itself may take a lock: it never blocks, so a thread that holds it goes on first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeAlias

from sim.errors import MisuseError
from sim.threads import SimThread, Threads

__all__ = ["Condition", "Event", "Lock", "Locks", "RLock", "Thread", "Time"]


class _Entered(ABC):
    """Taken with ``with``."""

    @abstractmethod
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool: ...

    @abstractmethod
    def release(self) -> None: ...

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class Lock(_Entered):
    """As `threading.Lock`; those that wait get it in their order, or a later one."""

    def __init__(self, threads: Threads) -> None:
        """Begin free."""
        self._threads = threads
        self._held = False
        self._holder: SimThread | None = None
        self._waiting: deque[SimThread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it; False after ``timeout`` seconds."""
        threads = self._threads
        threads.preempt()
        end = threads.loop.time() + timeout
        while self._held:
            if not blocking:
                return False
            me = threads.current
            if me is None:
                threads.force(self._holder)
                continue
            self._waiting.append(me)
            left = max(0.0, end - threads.loop.time()) if timeout >= 0 else None
            try:
                woken = threads.block(left)
            finally:
                if me in self._waiting:
                    self._waiting.remove(me)
            if not woken:
                return False
        self._held, self._holder = True, threads.current
        return True

    def release(self) -> None:
        """Give it back, from whichever thread."""
        me = self._threads.current
        if not self._held and (me is None or not me.ending):
            raise RuntimeError("release unlocked lock")
        self._held, self._holder = False, None
        if self._waiting:
            self._threads.wake(self._waiting.popleft())

    def locked(self) -> bool:
        """Return whether somebody has it."""
        return self._held


class RLock(_Entered):
    """As `threading.RLock`."""

    def __init__(self, threads: Threads) -> None:
        """Begin free."""
        self._threads = threads
        self._lock = Lock(threads)
        self._owner: SimThread | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it, once more if this thread has it."""
        me = self._threads.current
        if self._count and self._owner is me:
            self._count += 1
            return True
        if not self._lock.acquire(blocking, timeout):
            return False
        self._owner, self._count = me, 1
        return True

    def release(self) -> None:
        """Give it back as often as it was taken."""
        self._count -= 1
        if not self._count:
            self._owner = None
            self._lock.release()


_AnyLock: TypeAlias = Lock | RLock


class Condition(_Entered):
    """As `threading.Condition`."""

    def __init__(self, threads: Threads, lock: _AnyLock | None = None) -> None:
        """Begin with a lock of its own, unless one is given."""
        self._threads = threads
        self._lock = RLock(threads) if lock is None else lock
        self._waiting: deque[SimThread] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Give the lock back."""
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Give the lock back until somebody notifies, at most so many seconds."""
        me = self._threads._running()
        self._waiting.append(me)
        self._lock.release()
        try:
            return self._threads.block(timeout)
        finally:
            if me in self._waiting:
                self._waiting.remove(me)
            if not me.ending:
                self._lock.acquire()

    def wait_for(
        self, predicate: Callable[[], Any], timeout: float | None = None
    ) -> Any:
        """Wait until the predicate holds; what it returned last."""
        loop = self._threads.loop
        end = None if timeout is None else loop.time() + timeout
        while not (found := predicate()):
            left = None if end is None else end - loop.time()
            if left is not None and left <= 0:
                break
            self.wait(left)
        return found

    def notify(self, n: int = 1) -> None:
        """Let some of those that wait go on."""
        for _ in range(min(n, len(self._waiting))):
            self._threads.wake(self._waiting.popleft())

    def notify_all(self) -> None:
        """Let all that wait go on."""
        self.notify(len(self._waiting))


class Event:
    """As `threading.Event`."""

    def __init__(self, threads: Threads) -> None:
        """Begin unset."""
        self._threads = threads
        self._set = False
        self._waiting: list[SimThread] = []

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._set

    def set(self) -> None:
        """Let all that wait go on, and those that come."""
        self._set = True
        waiting, self._waiting = self._waiting, []
        for thread in waiting:
            self._threads.wake(thread)

    def clear(self) -> None:
        """Let those that come wait."""
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most so many seconds."""
        if not self._set:
            me = self._threads._running()
            self._waiting.append(me)
            try:
                self._threads.block(timeout)
            finally:
                if me in self._waiting:
                    self._waiting.remove(me)
        return self._set


class Thread:
    """As `threading.Thread`."""

    def __init__(
        self,
        threads: Threads,
        target: Callable[..., object],
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        **_: object,
    ) -> None:
        """Begin as soon as it is started."""
        self._threads = threads
        self._call = lambda: target(*args, **(kwargs or {}))
        self._thread: SimThread | None = None
        self._over = Event(threads)

    def start(self) -> None:
        """Begin."""
        self._thread = self._threads.begin(self._call)
        self._thread.on_end.append(self._over.set)

    def is_alive(self) -> bool:
        """Return whether it was started and is not over."""
        return self._thread is not None and not self._thread.done

    def join(self, timeout: float | None = None) -> None:
        """Wait until it is over."""
        if self._thread is None:
            raise MisuseError("a thread is waited for that was not started")
        self._over.wait(timeout)


class Locks:
    """Stands in for the module `threading`."""

    def __init__(self, threads: Threads) -> None:
        """Give what belongs to these threads."""
        self._threads = threads

    def Lock(self) -> Lock:
        """Return a lock."""
        return Lock(self._threads)

    def RLock(self) -> RLock:
        """Return a lock that its holder may take again."""
        return RLock(self._threads)

    def Condition(self, lock: _AnyLock | None = None) -> Condition:
        """Return a condition."""
        return Condition(self._threads, lock)

    def Event(self) -> Event:
        """Return an event."""
        return Event(self._threads)

    def Thread(self, **options: Any) -> Thread:
        """Return a thread."""
        return Thread(self._threads, **options)


class Time:
    """Stands in for the module `time`: clocks of the process that asks."""

    def __init__(self, threads: Threads, wall_s: Callable[[], float]) -> None:
        """Show what the loop shows, and the time of day as ``wall_s`` says it."""
        self._threads = threads
        self._wall_s = wall_s

    def monotonic(self) -> float:
        """Return seconds since some moment."""
        return self._threads.loop.time()

    def time_ns(self) -> int:
        """Return nanoseconds since 1970."""
        return int(self._wall_s() * 1e6) * 1000

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._threads.sleep(seconds)
