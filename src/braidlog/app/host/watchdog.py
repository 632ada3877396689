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
from braidlog.store.threads import start_thread

WATCHDOG_S: Final = 10.0
"""What a command may take, unless a host is told otherwise."""

# An eighth of the time too late at most, within these.
_LOOK_MIN_S: Final = 0.001
_LOOK_MAX_S: Final = 1.0

_raise_in: Final = ctypes.pythonapi.PyThreadState_SetAsyncExc
_raise_in.argtypes = (ctypes.c_ulong, ctypes.py_object)


class _Command:
    """A command that is watched; whoever takes it out of `Watchdog._armed` decides."""

    __slots__ = ("deadline", "fired", "thread")

    def __init__(self, deadline: float, thread: int) -> None:
        self.deadline = deadline
        self.thread = thread
        self.fired = False


class Watchdog:
    """Raises `GiveUp` in a thread whose command takes more than ``seconds``.

    It acts between two instructions of Python: a long call into C ends first. Used by
    one thread at a time, with ``with``; `close` ends its own thread.

    The exception may come anywhere in the thread that is watched, also between the
    taking of a lock and the block that gives it back. So no lock is taken there: either
    side takes the command out of a dict, which is one instruction.
    """

    def __init__(self, seconds: float) -> None:
        """Begin to watch; ``seconds`` of real time for each command."""
        self.seconds = seconds
        self._armed: dict[_Command, None] = {}
        self._command: _Command | None = None
        self._closing = threading.Condition()
        self._closed = False
        self._thread = start_thread("braidlog-watchdog", self._run)

    def __enter__(self) -> Self:
        """Begin a command in this thread."""
        # The thread looks now and then: telling it would cost every command.
        deadline = time.monotonic() + self.seconds
        self._command = command = _Command(deadline, threading.get_ident())
        self._armed[command] = None
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the command; nothing is raised in this thread afterwards."""
        command = self._command
        if command is None or self._armed.pop(command, command) is None:
            return
        if not isinstance(error, GiveUp):
            while not command.fired:
                time.sleep(0)  # It comes here, or can be taken back.
            _raise_in(command.thread, ctypes.py_object())

    def close(self) -> None:
        """End the thread."""
        with self._closing:
            self._closed = True
            self._closing.notify()
        self._thread.join()

    def _run(self) -> None:
        pause = min(max(self.seconds / 8, _LOOK_MIN_S), _LOOK_MAX_S)
        with self._closing:
            while not self._closed:
                self._closing.wait(pause)
                for command in list(self._armed):
                    self._look_at(command)

    def _look_at(self, command: _Command) -> None:
        if time.monotonic() < command.deadline:
            return
        if self._armed.pop(command, command) is None:
            _raise_in(command.thread, GiveUp)
            command.fired = True
