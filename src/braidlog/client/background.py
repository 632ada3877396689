"""An event loop in a thread of its own, for code that blocks.

Blocking classes are derived from the async ones call by call. Nothing is done twice:
each call of a blocking class is the call of the async class of the same name and
arguments, run on that loop. So it can be used from many threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from concurrent.futures import CancelledError, Future
from functools import partial
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
)

from braidlog.closable import Closable
from braidlog.errors import ClosedError
from braidlog.store.threads import start_thread

P = ParamSpec("P")
T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")
A_co = TypeVar("A_co", covariant=True)

_LAST_S: Final = 1.0
"""How long calls of other threads may take to end when the loop is closed."""


def new_loop() -> asyncio.AbstractEventLoop:
    """Return the faster event loop, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class _Call(Generic[T]):
    """A call for which a thread waits.

    The lock is all that it takes; a future has a condition, and one is made per call.
    """

    __slots__ = ("_call", "_done", "_loop", "_task", "given_up")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, call: Coroutine[Any, Any, T]
    ) -> None:
        self._loop = loop
        self._call = call
        self._task: asyncio.Task[T] | None = None
        self._done = threading.Lock()
        self._done.acquire()
        self.given_up = False

    def start(self) -> None:
        """Run it; called on the loop."""
        self._task = self._loop.create_task(self._call)
        self._task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # Where nobody waits any more nobody is told.
        self._wake()

    def _wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # It was woken up before.
            self._done.release()

    def wait(self) -> None:
        """Wait until it has ended, or was given up."""
        self._done.acquire()

    def give_up(self) -> None:
        """Cancel it, and wait no more."""
        self.given_up = True
        with contextlib.suppress(RuntimeError):  # The loop has ended, and the call.
            self._loop.call_soon_threadsafe(self._cancel)
        self._wake()

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    @property
    def cancelled(self) -> bool:
        """Whether it has no result."""
        return self.given_up or self._task is None or self._task.cancelled()

    def result(self) -> T:
        """Return what it gave, or raise that."""
        assert self._task is not None
        return self._task.result()


def _begin(
    loop: asyncio.AbstractEventLoop, call: Coroutine[Any, Any, T], future: Future[T]
) -> None:
    """Run a call whose result goes to a future; called on the loop."""
    task = loop.create_task(call)

    def told(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            future.cancel()
        if not future.set_running_or_notify_cancel():
            return
        if (error := task.exception()) is not None:
            future.set_exception(error)
        else:
            future.set_result(task.result())

    def cancelled(future: Future[T]) -> None:
        if future.cancelled():
            with contextlib.suppress(RuntimeError):  # The loop has ended.
                loop.call_soon_threadsafe(task.cancel)

    task.add_done_callback(told)
    future.add_done_callback(cancelled)


class BackgroundLoop:
    """Runs what other threads give it. Safe to use from many threads."""

    def __init__(self) -> None:
        """Start the thread.

        Raises:
            UnavailableError: the system gives no more threads.
        """
        self._loop = new_loop()
        self._waited: set[_Call[Any]] = set()
        self._interrupted = False
        # Held where a call is begun, so that none is begun that nobody runs any more.
        self._beginning = threading.Lock()
        self._begun: deque[Callable[[], object]] = deque()
        """What the loop has not begun yet; it is woken up once for all of it."""
        self._woken = False
        self._ended = False
        try:
            self._thread = start_thread("braidlog-client", self._serve)
        except BaseException:
            self._loop.close()
            raise

    def _serve(self) -> None:
        self._loop.run_forever()
        with self._beginning:
            self._ended = True
        self._loop.run_until_complete(self._end_calls())
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    async def _end_calls(self) -> None:
        """Let other threads have what their calls come to, now that all is closed."""
        await asyncio.sleep(0)  # Those that were just begun are tasks then.
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        if not calls:
            return
        _, left = await asyncio.wait(calls, timeout=_LAST_S)
        for call in left:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)

    @property
    def alive(self) -> bool:
        """Whether it takes calls."""
        return self._thread.is_alive()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call to its end, and return what it gives.

        Raises:
            ClosedError: the loop was closed, or interrupted.
        """
        waited = _Call(self._loop, call)
        self._give(waited.start, call)
        self._waited.add(waited)
        if self._interrupted:  # Behind the line above: `interrupt` may not have it.
            waited.give_up()
        try:
            waited.wait()
        except BaseException:
            waited.give_up()  # An interrupt: nobody waits any more.
            raise
        finally:
            self._waited.discard(waited)
        if not waited.cancelled:
            return waited.result()
        if not (self._interrupted or self._ended):
            raise CancelledError
        ended = (
            "the client was closed during the call"
            if self._ended
            else "the call was interrupted"
        )
        raise ClosedError(f"{ended}")

    def interrupt(self) -> None:
        """Have `run` raise `ClosedError`, where it waits now and from here on.

        What was under way is cancelled: it may be done or not.
        """
        self._interrupted = True
        for waited in list(self._waited):
            waited.give_up()

    def finish(self, call: Coroutine[Any, Any, T]) -> T:
        """Run the last call, also after an `interrupt`.

        Raises:
            ClosedError: the loop was closed.
        """
        return self.begin(call).result()

    def end(self, call: Coroutine[Any, Any, object]) -> None:
        """Run what ends something that nobody uses any more.

        A collector of garbage may ask for it, in any thread: the loop's own cannot wait
        for itself.

        Raises:
            ClosedError: the loop was closed, and has ended it.
        """
        if threading.current_thread() is self._thread:
            self.begin(call)
        else:
            self.run(call)

    def begin(self, call: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a call; calls begin in the order in which they were given.

        Raises:
            ClosedError: the loop was closed.
        """
        future: Future[T] = Future()
        self._give(partial(_begin, self._loop, call, future), call)
        return future

    def post(self, function: Callable[[], object]) -> None:
        """Call a function on the loop, soon.

        Raises:
            ClosedError: the loop was closed.
        """
        self._give(partial(self._loop.call_soon, function))

    def _give(
        self, begin: Callable[[], object], call: Coroutine[Any, Any, Any] | None = None
    ) -> None:
        """Have the loop begin something behind all that it was given before."""
        with self._beginning:
            if self._thread.is_alive() and not self._ended:
                self._begun.append(begin)
                if not self._woken:
                    self._woken = True
                    self._loop.call_soon_threadsafe(self._begin_all)
                return
        if call is not None:
            call.close()
        raise ClosedError("the client is closed")

    def _begin_all(self) -> None:
        self._woken = False  # First: what is given from here on wakes it up again.
        while self._begun:
            self._begun.popleft()()

    def close(self) -> None:
        """End the loop and its thread. Idempotent."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()


class Blocking(Generic[A_co]):
    """Something of the async client, and the loop that it lives on."""

    def __init__(self, loop: BackgroundLoop, target: A_co) -> None:
        """Users get these from a `Client`."""
        self._loop = loop
        self._target = target

    def __repr__(self) -> str:
        """Show what is delegated to, under the name of this class."""
        _, _, rest = repr(self._target).partition(" ")
        return f"<{type(self).__name__} {rest}"


def blocking_call(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Blocking[A], P], T]:
    """Make a blocking method of an async one."""

    @functools.wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **keywords: P.kwargs) -> T:
        try:
            begun = method(self._target, *args, **keywords)
        except TypeError as error:
            raise _under_own_name(self, call, method, error) from None
        return self._loop.run(begun)

    return call


def blocking_maker(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
    kind: Callable[[BackgroundLoop, T], B],
) -> Callable[Concatenate[Blocking[A], P], B]:
    """Make a blocking method of an async one whose result lives on the loop, too."""

    @functools.wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **keywords: P.kwargs) -> B:
        try:
            begun = method(self._target, *args, **keywords)
        except TypeError as error:
            raise _under_own_name(self, call, method, error) from None
        return kind(self._loop, self._loop.run(begun))

    return call


def blocking_iterator(
    method: Callable[Concatenate[A, P], AsyncGenerator[list[T], None]],
) -> Callable[Concatenate[Blocking[A], P], Iterator[T]]:
    """Make a blocking iterator of an async one that gives chunks."""

    @functools.wraps(method)
    def call(self: Blocking[A], /, *args: P.args, **keywords: P.kwargs) -> Iterator[T]:
        try:
            chunks = method(self._target, *args, **keywords)
        except TypeError as error:
            raise _under_own_name(self, call, method, error) from None
        try:
            while (chunk := self._loop.run(_next(chunks))) is not None:
                yield from chunk
        finally:
            # After a close the loop has ended it.
            with contextlib.suppress(ClosedError):
                self._loop.end(chunks.aclose())

    return call


def _under_own_name(
    it: Blocking[Any],
    call: Callable[..., Any],
    method: Callable[..., Any],
    error: TypeError,
) -> TypeError:
    """Say of arguments that do not fit which call was made, not which async one.

    Nothing of an async method has run before it is awaited, so a TypeError can only be
    about its arguments.
    """
    kind = type(it)
    public = (name for name in dir(kind) if not name.startswith("_"))
    mine = (name for name in public if getattr(kind, name) is call)
    own = f"{kind.__name__}.{next(mine, method.__name__)}"
    return TypeError(str(error).replace(method.__qualname__, own))


async def _next(chunks: AsyncGenerator[T, None]) -> T | None:
    return await anext(chunks, None)


class _Entered(Protocol):
    """Something of the async client that connects, and is closed."""

    async def __aenter__(self) -> Any:
        """Connect."""

    async def close(self) -> None:
        """Close all connections."""


O_co = TypeVar("O_co", bound=_Entered, covariant=True)


class BlockingClient(Blocking[O_co], Closable):
    """One that owns its loop: a context manager that connects and closes."""

    def __enter__(self) -> Self:
        """Connect; raises what entering the async class raises."""
        try:
            self._loop.run(self._target.__aenter__())
        except BaseException:
            self._loop.close()
            raise
        return self

    def close(self) -> None:
        """Close all connections and the loop. Idempotent."""
        if self._loop.alive:
            self._loop.finish(self._target.close())
        self._loop.close()
