"""Effect-logged calls of a host: computed, taken back, logged.

*Theory of operation.* While a call computes, the calls of this host on its partitions
are held back, and those on their way come to their end first: otherwise one of them
would come between every time. What others log meanwhile makes the effects void, and
they are computed again.

*Invariant.* Between two commands nothing of a call that computed is in the state.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Final, Protocol

from braidlog.app.errors import ConflictError
from braidlog.app.execution.entries import CallId, Effect, pack
from braidlog.app.execution.outcome import Outcome, Status
from braidlog.app.host.call_table import PendingCall
from braidlog.app.host.calls import Calls, Routing
from braidlog.app.procedure import Procedure
from braidlog.errors import DeadlineError, LogError
from braidlog.store.arguments import checked_timeout

# Effects are computed again when others were faster, at most so often.
_ATTEMPTS: Final = 64


class Computing(Protocol):
    """The host, as computing effects needs it."""

    def admit(self, numbers: list[int] | None) -> None:
        """Let a call on these partitions pass.

        Raises:
            BusyError: the log has grown too far.
            DivergedError: a partition is stopped.
        """

    def prepare(
        self,
        procedure: Procedure,
        arguments: list[object],
        call: CallId,
        numbers: list[int] | None,
        routing: Routing,
    ) -> Effect | Outcome | None:
        """Execute the procedure between two commands, and take back what it did.

        None if the partitions are others by now.
        """


class EffectCalls:
    """Computes effects and logs them, one call at a time."""

    def __init__(self, host: Computing, calls: Calls) -> None:
        """Compute on a host, and append among its calls."""
        self._host = host
        self._calls = calls
        self._computing = threading.Lock()

    def call(
        self,
        procedure: Procedure,
        arguments: list[object],
        call: CallId,
        timeout: float | None,
    ) -> Outcome:
        """Compute effects, log them, and return the outcome; see `Runner.effect`."""
        deadline = _Deadline(call, timeout)
        for _ in range(_ATTEMPTS):
            routing = self._calls.routing
            numbers = procedure.partitions(arguments, routing.partitions)
            touched = range(routing.partitions) if numbers is None else numbers
            self._host.admit(numbers)
            with self._alone(deadline), self._calls.gate(touched, deadline):
                entry = self._host.prepare(procedure, arguments, call, numbers, routing)
                if entry is None:
                    continue
                if isinstance(entry, Outcome):
                    return entry
                deadline.check()
                pending = PendingCall(call)
                self._calls.submit_now(pack(entry), call, entry.partitions, pending)
            # From here on it may be in the log: the answer may come later.
            outcome = pending.outcome(deadline.left())
            if outcome.status != Status.VOID:
                return outcome
        raise ConflictError(
            f"other commands changed the partitions of {procedure.name!r} "
            f"during each of {_ATTEMPTS} attempts"
        )

    @contextlib.contextmanager
    def _alone(self, deadline: _Deadline) -> Iterator[None]:
        left = deadline.left()
        if not self._computing.acquire(timeout=-1 if left is None else left):
            deadline.check()
        try:
            yield
        finally:
            self._computing.release()


class _Deadline:
    """How long the caller waits for an effect-logged call that is not logged yet."""

    def __init__(self, call: CallId, timeout: float | None) -> None:
        self._call, self._timeout = call, timeout
        left = checked_timeout(timeout)
        self._end = None if left is None else time.monotonic() + left

    def left(self) -> float | None:
        """Return the seconds that are left; None without a bound."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def check(self) -> None:
        """Raise if nothing is left: the call is not in the log.

        Raises:
            DeadlineError: it is over; the outcome is certain.
        """
        if self.left() == 0.0:
            msg = f"the call {self._call.hex()} was not logged in {self._timeout} s"
            late: LogError = DeadlineError(msg)
            late.outcome = "not_stored"
            raise late
