"""One life of a node, as the loop sees it: its clock, what it owns, whether it runs.

A process is the value of a context variable. Tasks, timers and transports copy their
context from what created them, so everything a node starts belongs to it without the
node's code knowing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import Any

from sim.errors import MisuseError

__all__ = ["CURRENT", "Clock", "Process", "process_of"]


class Clock:
    """A clock that began at `offset` and runs `rate` times as fast as time."""

    __slots__ = ("_base_local", "_base_true", "rate")

    def __init__(self, offset: float = 0.0, rate: float = 1.0) -> None:
        """Show `offset` at the true time 0."""
        if rate <= 0:
            raise MisuseError(f"a clock does not run {rate} times as fast")
        self._base_true = 0.0
        self._base_local = offset
        self.rate = rate

    def local(self, true: float) -> float:
        """Return what the clock shows at the true time."""
        return self._base_local + (true - self._base_true) * self.rate

    def due(self, local: float) -> float:
        """Return the first true time at which the clock shows at least `local`.

        A timer that fired a rounding error early would be set again for the same
        instant, for ever.
        """
        true = self._base_true + (local - self._base_local) / self.rate
        while self.local(true) < local:
            true = math.nextafter(true, math.inf)
        return true

    def drift(self, true: float, rate: float) -> None:
        """Run at another rate from the true time on; what it shows does not jump."""
        if rate <= 0:
            raise MisuseError(f"a clock does not run {rate} times as fast")
        self._base_local = self.local(true)
        self._base_true = true
        self.rate = rate


class Process:
    """Owner of tasks, timers and connections; see the module."""

    def __init__(self, name: str, number: int = 0, clock: Clock | None = None) -> None:
        """Begin alive and running. The number orders processes in traces."""
        self.name = name
        self.number = number
        self.clock = clock or Clock()
        self.alive = True
        self.paused = False
        # What became due while the process was paused, in order.
        self.held: list[asyncio.Handle] = []
        # Seconds that a call in the executor takes; asked once for each call.
        self.executor_delay: Callable[[], float] | None = None
        # Whether what it runs in an executor blocks, and so needs a simulated thread.
        self.blocking = False
        self.signals: dict[int, Callable[[], object]] = {}

    def __repr__(self) -> str:
        """Return the name and the state."""
        state = "paused" if self.paused else "running"
        return f"<{self.name} {state if self.alive else 'dead'}>"


CURRENT: ContextVar[Process] = ContextVar("sim_process")


def process_of(context: Context, default: Process) -> Process:
    """Return whose context this is."""
    found: Any = context.get(CURRENT, default)
    assert isinstance(found, Process)
    return found
