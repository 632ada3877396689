"""What ends a run that is not in order.

SimulationError ─ DeadlockError    nothing will ever happen again
                ─ LivelockError    too much happens and time stands still, or runs out
                ─ UnhandledError   an exception nobody took
                ─ ViolationError   a checker disagrees
                ─ MisuseError      the code asks for what no simulation can give
"""

from __future__ import annotations

__all__ = [
    "DeadlockError",
    "LivelockError",
    "MisuseError",
    "SimulationError",
    "UnhandledError",
    "ViolationError",
]


class SimulationError(Exception):
    """The run of a seed has failed."""


class DeadlockError(SimulationError):
    """Nothing is ready, no timer is set, and the main task waits."""


class LivelockError(SimulationError):
    """A bound on steps or on virtual time was passed."""


class UnhandledError(SimulationError):
    """An exception reached the loop's exception handler, or ended a node."""


class ViolationError(SimulationError):
    """An observation contradicts what is promised."""


class MisuseError(SimulationError):
    """Code on the loop wanted another thread, real sockets or TLS."""
