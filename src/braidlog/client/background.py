"""An event loop in a thread of its own, for code that blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, Final, TypeVar

from braidlog.errors import ClosedError
from braidlog.store.threads import start_thread

__all__ = ["BackgroundLoop", "new_loop"]

T = TypeVar("T")

_LAST_S: Final = 1.0
"""How long calls of other threads may take to end when the loop is closed."""


def new_loop() -> asyncio.AbstractEventLoop:
    """Return the faster event loop, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class BackgroundLoop:
    """Runs what other threads give it. Safe to use from many threads."""

    def __init__(self) -> None:
        """Start the thread.

        Raises:
            UnavailableError: the system gives no more threads.
        """
        self._loop = new_loop()
        self._waited: set[Future[Any]] = set()
        self._interrupted = False
        # Held where a call is begun, so that none is begun that nobody runs any more.
        self._beginning = threading.Lock()
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
        future = self.begin(call)
        self._waited.add(future)
        if self._interrupted:  # Behind the line above: `interrupt` may not have it.
            future.cancel()
        try:
            return future.result()
        except CancelledError:
            if not (self._interrupted or self._ended):
                raise
            ended = (
                "the client was closed during the call"
                if self._ended
                else "the call was interrupted"
            )
            raise ClosedError(f"{ended}") from None
        except BaseException:
            future.cancel()  # An interrupt: nobody waits any more.
            raise
        finally:
            self._waited.discard(future)

    def interrupt(self) -> None:
        """Have `run` raise `ClosedError`, where it waits now and from here on.

        What was under way is cancelled: it may be done or not.
        """
        self._interrupted = True
        for future in list(self._waited):
            future.cancel()

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
        with self._beginning:
            if self._thread.is_alive() and not self._ended:
                return asyncio.run_coroutine_threadsafe(call, self._loop)
        call.close()
        msg = "the client is closed"
        raise ClosedError(msg)

    def post(self, function: Callable[[], object]) -> None:
        """Call a function on the loop, soon.

        Raises:
            ClosedError: the loop was closed.
        """
        try:
            self._loop.call_soon_threadsafe(function)
        except RuntimeError as error:
            msg = "the client is closed"
            raise ClosedError(msg) from error

    def close(self) -> None:
        """End the loop and its thread. Idempotent."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
