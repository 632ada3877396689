"""Tasks, futures and handles that know their process and hash by serial number."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from contextvars import Context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from sim.process import Process

if TYPE_CHECKING:
    from sim.loop import VirtualLoop

__all__ = ["SimFuture", "SimHandle", "SimTask", "SimTimer", "describe"]

T = TypeVar("T")

# Times that a coroutine may wait while it is ended.
_ENDS_MAX = 100


class _Ended(BaseException):
    """Passes through whatever waits, also where a cancel is waited for."""


class SimHandle(asyncio.Handle):
    """A callback of a process."""

    __slots__ = ("owner",)

    def __init__(
        self,
        callback: Callable[..., object],
        args: Any,
        loop: VirtualLoop,
        context: Context,
        owner: Process,
    ) -> None:
        """Hold the callback until the loop runs it."""
        # As the base class does without debugging, which asks the loop each time.
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self.owner = owner


class SimTimer(asyncio.TimerHandle):
    """A callback of a process, for when its clock shows a time."""

    __slots__ = ("_sim_loop", "owner")

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Any,
        loop: VirtualLoop,
        context: Context,
        owner: Process,
    ) -> None:
        """Hold the callback until the loop runs it."""
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None
        self._when = when
        self._scheduled = True
        self._sim_loop = loop
        self.owner = owner

    def cancel(self) -> None:
        """Never run the callback."""
        if not self.cancelled():
            self._sim_loop.timer_cancelled()
        super().cancel()


class SimFuture(asyncio.Future[Any]):
    """A future that hashes by serial number."""

    def __init__(self, loop: VirtualLoop) -> None:
        """Begin pending, owned by the running process."""
        self._serial = loop.serial()
        self.owner = loop.process()
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        """Return the serial number."""
        return self._serial


class SimTask(asyncio.Task[T]):
    """A task that hashes by serial number and belongs to a process."""

    _log_destroy_pending: bool

    def __init__(
        self,
        coro: Any,
        loop: VirtualLoop,
        name: object,
        context: Context,
        owner: Process,
    ) -> None:
        """Schedule the first step of the coroutine."""
        # Before the base class begins: it puts the task into a set.
        self._serial = loop.serial()
        self.owner = owner
        named = str(name) if name is not None else f"task-{self._serial}"
        super().__init__(coro, loop=loop, name=named, context=context)

    def __hash__(self) -> int:
        """Return the serial number."""
        return self._serial

    def abandon(self) -> None:
        """End the coroutine where it stands; it cannot wait any more."""
        self._log_destroy_pending = False
        coroutine: Any = self.get_coro()
        # What a dying coroutine raises is no finding: nobody is left who could act on
        # it. Where it waits in a `finally`, it is ended once more.
        with contextlib.suppress(Exception, _Ended):
            for _ in range(_ENDS_MAX):
                coroutine.throw(_Ended())
            coroutine.close()


def describe(task: SimTask[Any]) -> str:
    """Say whose task it is and in which line it waits."""
    at: Any = task.get_coro()
    name = getattr(at, "__qualname__", repr(at))
    place = "not begun"
    while at is not None:
        frame = getattr(at, "cr_frame", None) or getattr(at, "gi_frame", None)
        if frame is None:
            break
        file = Path(frame.f_code.co_filename).name
        place = f"{frame.f_code.co_name} at {file}:{frame.f_lineno}"
        at = getattr(at, "cr_await", None) or getattr(at, "gi_yieldfrom", None)
    return f"{task.owner!r} {task.get_name()} {name}: {place}"
