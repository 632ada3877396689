"""An event loop in a thread of its own, for code that blocks."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from braidlog.errors import ClosedError

__all__ = ["BackgroundLoop", "new_loop"]

T = TypeVar("T")


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
        """Start the thread."""
        self._loop = new_loop()
        self._waited: set[Future[Any]] = set()
        self._interrupted = False
        self._thread = threading.Thread(
            target=self._serve, name="braidlog-client", daemon=True
        )
        self._thread.start()

    def _serve(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

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
            if not self._interrupted:
                raise
            msg = "the call was interrupted"
            raise ClosedError(msg) from None
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

    def begin(self, call: Coroutine[Any, Any, T]) -> Future[T]:
        """Start a call; calls begin in the order in which they were given.

        Raises:
            ClosedError: the loop was closed.
        """
        if not self._thread.is_alive():
            call.close()
            msg = "the client is closed"
            raise ClosedError(msg)
        return asyncio.run_coroutine_threadsafe(call, self._loop)

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
