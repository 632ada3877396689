"""A host: a thread that executes the log, and calls that wait for it.

Callers append to the log and wait; the thread reads what has become durable, executes
it, commits, and answers. So what is executed is what is in the log at its position, and
what came while the thread was busy is executed together with one commit.

Locks, in the order in which they may be taken: ``_turn`` (executor and state),
``_committing`` (commits against the begin of views), ``_lock`` (calls on their way).
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from braidlog.app.application import Application
from braidlog.app.context import Context
from braidlog.app.entries import (
    CallId,
    Command,
    Create,
    Host,
    Outcomes,
    key_of,
    pack,
)
from braidlog.app.errors import (
    ConflictError,
    ExecutionError,
    OutcomeUnknownError,
)
from braidlog.app.executor import Executor
from braidlog.app.fingerprint import EnvironmentRule
from braidlog.app.outcome import Outcome, Status
from braidlog.app.procedure import Procedure
from braidlog.app.running import evaluate
from braidlog.app.source import CommandLog
from braidlog.app.state import State
from braidlog.app.waiting import Calls, PendingCall, Waiter
from braidlog.errors import (
    ClosedError,
    CorruptionError,
    InvalidArgumentError,
    LogError,
    TimeoutError_,
    TrimmedError,
    UnavailableError,
)

__all__ = ["Runner"]

_LOGGER = logging.getLogger("braidlog")

# Records executed with one commit: enough to make it cheap, few enough to answer soon.
_ROUND: Final = 1024
# Digests of outcomes in one record.
_OUTCOMES: Final = 1024
# An idle host logs the outcomes it still has after so long.
_IDLE_S: Final = 1.0
# Effects are computed again when others were faster, at most so often.
_ATTEMPTS: Final = 64
_CALLS_MAX: Final = 4096


class Runner:
    """Executes a log on a state, and takes calls.

    It owns both from here on: `close` closes them.
    """

    def __init__(
        self,
        application: Application,
        log: CommandLog,
        state: State,
        *,
        environment: EnvironmentRule = "refuse",
    ) -> None:
        """Apply what is in the log, say that this host is active, and go on.

        Raises:
            ApplicationMismatchError: the log or the state is of another application.
            UnknownProcedureError: the log has a command whose code is not here.
            EnvironmentMismatchError: commands that the state lacks were logged under
                other versions.
            TrimmedError: the log begins behind the state: restore a snapshot.
            CorruptionError: the log ends before the state.
        """
        self.application = application
        self._log = log
        self._state = state
        self._turn = threading.Lock()
        self._committing = threading.Lock()
        self._lock = threading.Lock()
        self._drained = threading.Condition(self._lock)
        self._progress = threading.Condition()
        self._watchers = 0
        self._caught_up = time.monotonic()
        self._failure: Exception | None = None
        self._closing = False
        self._finished = threading.Event()
        self._effects = threading.Lock()
        self._gated: frozenset[int] = frozenset()
        self._deferred: list[tuple[Command, Waiter]] = []
        self._outcomes_logged = 0
        self._executed = 0
        self.on_settled: list[Callable[[], None]] = []
        self._executor = Executor(application, state, environment=environment)
        self._open()
        limit = max(1, min(_CALLS_MAX, self._executor.shared.results_kept // 2))
        self._calls = Calls(application.partitions, limit)
        self.position = self._executor.position
        self._thread = threading.Thread(
            target=self._serve, name=f"braidlog-{application.name}", daemon=True
        )
        self._thread.start()

    # -- opening -----------------------------------------------------------------

    def _open(self) -> None:
        executor, log, mine = self._executor, self._log, self.application
        if log.end == 1:
            name = (os.urandom(16), mine.name, mine.partitions, mine.results_kept)
            log.append(pack(Create(*name)))
        if executor.highest >= log.end:
            msg = f"the state has position {executor.highest}, the log ends before it"
            raise CorruptionError(msg)
        if executor.position + 1 < log.first:
            msg = f"the state ends at {executor.position}, the log begins later"
            raise TrimmedError(msg, first=log.first)
        self._catch_up()
        shared = executor.shared
        catalog = shared.wanted_catalog()
        if catalog is not None:
            shared.try_schema(catalog)
            log.append(pack(catalog))
        log.append(pack(Host(os.urandom(16), shared.epoch + 1)))
        self._catch_up()
        executor.commit(everywhere=True)

    def _catch_up(self) -> None:
        executor = self._executor
        while executor.position + 1 < self._log.end:
            executor.feed(self._log.read(executor.position + 1, _ROUND))
            executor.commit()

    # -- the thread --------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while not (self._closing and self.position + 1 >= self._log.end):
                if self.position + 1 >= self._log.end:
                    self._caught_up = time.monotonic()
                if self._log.wait(self.position + 1, _IDLE_S):
                    self._round()
                elif not self._closing:
                    self._log_outcomes(1)
            self._executor.commit(everywhere=True)
        except Exception as error:  # The callers get it; there is nobody else.
            self._fail(error)
        finally:
            self._finished.set()

    def _round(self) -> None:
        executor = self._executor
        with self._turn:
            outcomes = executor.feed(self._log.read(self.position + 1, _ROUND))
            with self._committing:
                executor.commit()
        self.position = executor.position
        if self._watchers:
            with self._progress:
                self._progress.notify_all()
        self._settle(outcomes)
        self._executed += len(outcomes)
        if self._executed >= _OUTCOMES:
            self._log_outcomes(_OUTCOMES)

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        calls = self._calls
        with self._lock:
            answered = [(calls.pop(outcome.call), outcome) for outcome in outcomes]
            if self._gated or self._closing:
                self._drained.notify_all()
        for waiters, outcome in answered:
            for waiter in waiters:
                waiter.settle(outcome)
        for flush in self.on_settled:
            flush()

    def _log_outcomes(self, least: int) -> None:
        """Append the digests that the log does not have, if there are enough."""
        shared = self._executor.shared
        self._executed = 0
        digests = shared.unlogged(self._outcomes_logged, _OUTCOMES)
        if len(digests) < least:
            return
        value = pack(Outcomes(shared.epoch, digests))
        try:
            self._log.submit(value, None, self._outcomes_lost)
            self._outcomes_logged = digests[-1][0]
        except UnavailableError as error:
            # A full log: commands are what the room is for, and these come again.
            _LOGGER.warning("outcomes were not logged: %s", error)

    def _outcomes_lost(self, error: Exception) -> None:
        _LOGGER.warning("outcomes were not logged: %s", error)
        self._outcomes_logged = 0  # Those that the log has are not offered again.

    def _lost(self, call: bytes, error: Exception) -> None:
        """Answer a call whose append failed: it may be in the log all the same."""
        with self._lock:
            waiters = self._calls.pop(call)
            self._drained.notify_all()
        for waiter in waiters:
            waiter.settle(_unknown(call, error))
        for flush in self.on_settled:
            flush()

    def _fail(self, error: Exception) -> None:
        """Stop for good: answer all calls, and refuse those that come."""
        _LOGGER.error("the host of %r failed: %s", self.application.name, error)
        self._failure = error
        with self._lock:
            waiting = [(call, self._calls.pop(call)) for call in self._calls.all()]
            self._drained.notify_all()
        for call, waiters in waiting:
            for waiter in waiters:
                waiter.settle(_unknown(call, error))
        for flush in self.on_settled:
            flush()
        with self._progress:
            self._progress.notify_all()

    def _check_open(self) -> None:
        if self._failure is not None:
            msg = f"the host stopped: {self._failure}"
            raise ExecutionError(msg) from self._failure
        if self._closing:
            msg = f"the host of {self.application.name!r} is closed"
            raise ClosedError(msg)

    # -- commands ----------------------------------------------------------------

    def new_call_id(self) -> CallId:
        """Return the id of a call that is made now."""
        return CallId.make(self.position + 1, os.urandom(9))

    def submit(
        self, procedure: Procedure, arguments: list[Any], call: CallId, waiter: Waiter
    ) -> None:
        """Append a command; ``waiter`` hears of its outcome."""
        if call.issued > self._log.end:
            msg = f"the call id {call.hex()} was not made here: use Host.new_call_id"
            raise InvalidArgumentError(msg)
        count = self.application.partitions
        numbers = procedure.partitions(arguments, count)
        if (stopped := self._executor.stopped(numbers)) is not None:
            raise stopped
        command = Command(
            call,
            os.urandom(16),
            procedure.name,
            procedure.content,
            numbers,
            arguments,
        )
        value = pack(command)
        touched = range(count) if numbers is None else numbers
        with self._lock:
            self._check_open()
            if self._gated and not self._gated.isdisjoint(touched):
                self._deferred.append((command, waiter))
                return
            self._place(value, command, waiter, touched)

    def _place(
        self, value: bytes, command: Command, waiter: Waiter, touched: Sequence[int]
    ) -> None:
        call = command.call
        # Before the append: the outcome may come before it returns.
        self._calls.add(call, waiter, touched)
        try:
            lost = partial(self._lost, call)
            self._log.submit(value, key_of(command.partitions), lost)
        except BaseException:
            self._calls.remove(call, waiter)
            raise

    # -- effects -----------------------------------------------------------------

    def effect(
        self, procedure: Procedure, arguments: list[Any], call: CallId
    ) -> Outcome:
        """Compute effects, log them, and return the outcome.

        Raises:
            ConflictError: other hosts changed the partitions each time.
        """
        count = self.application.partitions
        numbers = procedure.partitions(arguments, count)
        touched = range(count) if numbers is None else numbers
        for _ in range(_ATTEMPTS):
            if (stopped := self._executor.stopped(numbers)) is not None:
                raise stopped
            prepared = self._prepare(procedure, arguments, call, numbers, touched)
            if isinstance(prepared, Outcome):
                return prepared
            outcome = prepared.outcome()
            if outcome.status != Status.VOID:
                return outcome
        msg = f"{procedure.name!r} was overtaken {_ATTEMPTS} times"
        raise ConflictError(msg)

    def _prepare(
        self,
        procedure: Procedure,
        arguments: list[Any],
        call: CallId,
        numbers: list[int] | None,
        touched: Sequence[int],
    ) -> PendingCall | Outcome:
        # Calls of this host on these partitions are held back until the effects have
        # their position: otherwise one of them would always come between.
        pending = PendingCall(call)
        with self._effects, self._gate(touched):
            with self._turn:
                self._check_open()
                now, seed = time.time_ns() // 1000, os.urandom(16)
                entry = self._executor.prepare(
                    procedure, call, arguments, numbers, now, seed
                )
            if isinstance(entry, Outcome):
                return entry
            value = pack(entry)
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
    def _gate(self, touched: Sequence[int]) -> Iterator[None]:
        with self._lock:
            self._gated = frozenset(touched)
            try:
                by_partition = self._calls.by_partition
                while any(by_partition[number] for number in touched):
                    self._check_open()
                    self._drained.wait()
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
        count = self.application.partitions
        for command, waiter in deferred:
            numbers = command.partitions
            touched = range(count) if numbers is None else numbers
            try:
                self._check_open()
                self._place(pack(command), command, waiter, touched)
            except Exception as error:  # Of the call that was held back.
                waiter.settle(error)

    # -- reads -------------------------------------------------------------------

    def wait_applied(self, position: int, timeout: float | None = None) -> None:
        """Wait until everything up to ``position`` is executed and committed.

        Raises:
            TimeoutError_: it was not within ``timeout`` seconds.
        """
        if self.position >= position:
            return
        with self._progress:
            self._watchers += 1
            try:
                done = self._progress.wait_for(
                    lambda: self.position >= position or self._failure is not None,
                    timeout,
                )
            finally:
                self._watchers -= 1
        self._check_open()
        if not done:
            msg = f"position {position} was not applied in {timeout} s"
            raise TimeoutError_(msg)

    def caught_up_within(self, seconds: float) -> bool:
        """Whether the state was that of the end of the log so many seconds ago."""
        return time.monotonic() - self._caught_up <= seconds

    def end(self) -> int:
        """Return one past the last position that is durable."""
        self._check_open()
        return self._log.end

    def read(self, procedure: Procedure, arguments: list[Any]) -> Outcome:
        """Execute a read-only procedure on what is committed now, in this thread."""
        count = self.application.partitions
        numbers = procedure.partitions(arguments, count)
        touched = range(count) if numbers is None else numbers
        with contextlib.ExitStack() as stack:
            with self._committing:
                self._check_open()
                views = {n: self._state.partitions[n].view() for n in touched}
            for view in views.values():
                stack.callback(view.close)
            handles = {n: view.handle for n, view in views.items()}
            now = time.time_ns() // 1000
            context = Context(handles, count, now, os.urandom(16))
            ran = evaluate(procedure, context, arguments, self._state.failures)
        call = CallId.make(0, bytes(9))
        return Outcome(
            0, call, procedure.name, ran.status, ran.body, b"", error=ran.error
        )

    def hashes(self) -> tuple[int, list[bytes]]:
        """Return a position and the state hash of each partition there."""
        with self._committing:
            self._check_open()
            position = self.position
            views = [partition.view() for partition in self._state.partitions]
        try:
            return position, [view.hash() for view in views]
        finally:
            for view in views:
                view.close()

    # -- closing -----------------------------------------------------------------

    def close(self) -> None:
        """Answer what is on its way, store everything, release log and state."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            while self._calls.on_their_way and self._failure is None:
                self._drained.wait()
        if self._failure is None:
            with contextlib.suppress(LogError):
                self._log_outcomes(1)
        self._log.wake()
        self._finished.wait()
        self._thread.join()
        if self._failure is not None:
            self._executor.rollback()
        self._state.close()
        self._log.close()


def _unknown(call: bytes, error: Exception) -> OutcomeUnknownError:
    msg = f"the host failed before it answered the call {call.hex()}: {error}"
    unknown = OutcomeUnknownError(msg)
    unknown.__cause__ = error
    return unknown
