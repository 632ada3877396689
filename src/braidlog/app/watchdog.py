"""Stops commands that take too long, wherever they are in code of Python.

A loop that never asks the context for anything has no steps that could be counted, and
a clock is no part of a command. So stopping it is an event of its own: the host logs an
ABORT entry that names the command, and every host and replay gives it up without
executing it.
"""

from __future__ import annotations

import ctypes
import threading
import time
from types import TracebackType
from typing import Final, Self

from braidlog.app.errors import GiveUp

__all__ = ["WATCHDOG_S", "Watchdog"]

WATCHDOG_S: Final = 10.0
"""What a command may take, unless a host is told otherwise."""

# An eighth of the time too late at most, within these.
_LOOK_MIN_S: Final = 0.001
_LOOK_MAX_S: Final = 1.0

_raise_in: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)


class Watchdog:
    """Raises `GiveUp` in a thread whose command takes more than ``seconds``.

    It acts between two instructions of Python: a long call into C ends first. Used by
    one thread at a time, with ``with``; `close` ends its own thread.
    """

    def __init__(self, seconds: float) -> None:
        """Begin to watch; ``seconds`` of real time for each command."""
        self.seconds = seconds
        self._change = threading.Condition()
        self._deadline: float | None = None
        self._watched = 0
        self._fired = False
        self._closed = False
        self._thread = threading.Thread(
            target=self._run, name="braidlog-watchdog", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        """Begin a command in this thread."""
        with self._change:
            # The thread looks now and then: telling it would cost every command.
            self._deadline = time.monotonic() + self.seconds
            self._watched = threading.get_ident()
            self._fired = False
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the command; nothing is raised in this thread afterwards."""
        with self._change:
            self._deadline = None
            late = self._fired and not isinstance(error, GiveUp)
            if late:
                _raise_in(self._watched, ctypes.py_object())  # Take it back.

    def close(self) -> None:
        """End the thread."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._thread.join()

    def _run(self) -> None:
        with self._change:
            while not self._closed:
                self._change.wait(min(max(self.seconds / 8, _LOOK_MIN_S), _LOOK_MAX_S))
                late = self._deadline is not None and not self._fired
                if late and time.monotonic() >= (self._deadline or 0.0):
                    self._fired = True
                    _raise_in(self._watched, GiveUp)
