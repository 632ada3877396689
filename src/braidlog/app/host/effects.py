"""Effect-logged calls of a host: computed, taken back, logged.

*Theory of operation.* While a call computes, the calls of this host on its partitions
are held back, and those on their way come to their end first: otherwise one of them
would come between every time. What others log meanwhile makes the effects void, and
they are computed again.

*Invariant.* Between two commands nothing of a call that computed is in the state.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from braidlog.app.errors import ConflictError
from braidlog.app.execution.entries import CallId, Command, Effect, key_of, pack
from braidlog.app.execution.outcome import Outcome, Status
from braidlog.app.host.figures import Figures
from braidlog.app.host.role import Role
from braidlog.app.host.waiting import PendingCall, Waiter
from braidlog.app.procedure import Procedure
from braidlog.app.snapshots.snapshotter import Gauge
from braidlog.errors import DeadlineError, LogError
from braidlog.storage.arguments import checked_timeout

__all__ = ["Effects"]

# Effects are computed again when others were faster, at most so often.
_ATTEMPTS: Final = 64


class Effects(Figures, ABC):
    """The part of a host that computes effects; `Runner` has the thread."""

    role: Role
    on_settled: list[Callable[[], None]]
    _deferred: list[tuple[Command, Waiter]]
    _drained: threading.Condition
    _effects: threading.Lock
    _gated: frozenset[int]
    _gauge: Gauge | None
    _lock: threading.Lock

    @abstractmethod
    def _place(
        self, value: bytes, command: Command, waiter: Waiter, touched: Sequence[int]
    ) -> None:
        """Append a command; ``_lock`` is held."""

    @abstractmethod
    def _lost(self, call: bytes, error: Exception) -> None:
        """Answer a call whose append failed."""

    def effect(
        self,
        procedure: Procedure,
        arguments: list[object],
        call: CallId,
        timeout: float | None = None,
    ) -> Outcome:
        """Compute effects, log them, and return the outcome.

        The procedure itself is not stopped after ``timeout`` seconds, but what it then
        did is not logged.

        Raises:
            ConflictError: other hosts changed the partitions each time.
            DeadlineError: there was no answer within ``timeout`` seconds; its
                ``outcome`` says whether there may be one yet.
        """
        deadline = _Deadline(call, timeout)
        count = self.application.partitions
        numbers = procedure.partitions(arguments, count)
        self.role.check_code(procedure)
        touched = range(count) if numbers is None else numbers
        for _ in range(_ATTEMPTS):
            if self._gauge is not None:
                self._gauge.admit()
            if (stopped := self._executor.stopped(numbers)) is not None:
                raise stopped
            with self._alone(deadline), self._gate(touched, deadline):
                prepared = self._compute(procedure, arguments, call, numbers, deadline)
                if isinstance(prepared, Outcome):
                    return prepared
                pending = self._log_effect(prepared, call, touched)
            # From here on it may be in the log: the answer may come later.
            outcome = pending.outcome(deadline.left())
            if outcome.status != Status.VOID:
                return outcome
        msg = f"{procedure.name!r} was overtaken {_ATTEMPTS} times"
        raise ConflictError(msg)

    def _compute(
        self,
        procedure: Procedure,
        arguments: list[object],
        call: CallId,
        numbers: list[int] | None,
        deadline: _Deadline,
    ) -> Effect | Outcome:
        with self._turn:
            self._check_open()
            now, seed = time.time_ns() // 1000, os.urandom(16)
            with self._stops():
                entry = self._executor.prepare(
                    procedure, call, arguments, numbers, now, seed
                )
        if not isinstance(entry, Outcome):
            deadline.check()
        return entry

    def _log_effect(
        self, entry: Effect, call: CallId, touched: Sequence[int]
    ) -> PendingCall:
        value, pending = pack(entry), PendingCall(call)
        with self._lock:
            self._check_open()
            self._calls.add(call, pending, touched)
            try:
                lost = partial(self._lost, call)
                self._log.submit(value, key_of(entry.partitions), lost)
            except BaseException:
                self._calls.remove(call, pending)
                raise
        return pending

    @contextlib.contextmanager
    def _alone(self, deadline: _Deadline) -> Iterator[None]:
        left = deadline.left()
        if not self._effects.acquire(timeout=-1 if left is None else left):
            deadline.check()
        try:
            yield
        finally:
            self._effects.release()

    @contextlib.contextmanager
    def _gate(self, touched: Sequence[int], deadline: _Deadline) -> Iterator[None]:
        with self._lock:
            self._gated = frozenset(touched)
            try:
                by_partition = self._calls.by_partition
                while any(by_partition[number] for number in touched):
                    self._check_open()
                    deadline.check()
                    self._drained.wait(deadline.left())
            except BaseException:
                self._open_gate()
                raise
        try:
            yield
        finally:
            with self._lock:
                self._open_gate()

    def _open_gate(self) -> None:
        self._gated = frozenset()
        deferred, self._deferred = self._deferred, []
        count, refused = self.application.partitions, False
        for command, waiter in deferred:
            numbers = command.partitions
            touched = range(count) if numbers is None else numbers
            try:
                self._check_open()
                self._place(pack(command), command, waiter, touched)
            except Exception as error:  # Of the call that was held back.
                waiter.settle(error)
                refused = True
        if refused:
            for flush in self.on_settled:
                flush()


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
