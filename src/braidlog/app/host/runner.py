"""A host: a thread that executes the log, and calls that wait for it.

Callers append to the log and wait; the thread reads what has become durable, executes
it, commits, and answers. So what is executed is what is in the log at its position, and
what came while the thread was busy is executed together with one commit.

Locks, in the order in which they may be taken: ``_turn`` (executor and state),
``_committing`` (commits against the begin of views), ``_lock`` (calls on their way).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final

from braidlog.app.errors import ExecutionError, GivenUpError
from braidlog.app.execution.definition import ApplicationDefinition
from braidlog.app.execution.entries import (
    CallId,
    Command,
    Create,
    key_of,
    pack,
)
from braidlog.app.execution.executor import Executor
from braidlog.app.execution.outcome import Outcome
from braidlog.app.execution.record import RecordLike
from braidlog.app.execution.state import State
from braidlog.app.fingerprint import EnvironmentRule
from braidlog.app.host.abort import Abandoner, Ahead
from braidlog.app.host.effects import Effects
from braidlog.app.host.reporting import OUTCOMES, Reporter
from braidlog.app.host.role import Role
from braidlog.app.host.waiting import Calls, Waiter, unknown
from braidlog.app.log.source import CommandLog
from braidlog.app.log.stop import Stop
from braidlog.app.procedure import Procedure
from braidlog.app.snapshots.snapshotter import Gauge
from braidlog.errors import (
    CorruptionError,
    InvalidArgumentError,
    LogError,
    LogFullError,
    TrimmedError,
    UnavailableError,
)
from braidlog.storage.threads import start_thread

__all__ = ["Runner"]

_LOGGER = logging.getLogger("braidlog")

# Records executed with one commit: enough to make it cheap, few enough to answer soon.
_ROUND: Final = 1024
# An idle host logs the outcomes it still has after so long.
_IDLE_S: Final = 1.0
# A host that is closed logs outcomes for so long.
_LAST_S: Final = 2.0
_CALLS_MAX: Final = 4096


class Runner(Effects):
    """Executes a log on a state, and takes calls.

    It owns both from here on: `close` closes them.
    """

    def __init__(
        self,
        application: ApplicationDefinition,
        log: CommandLog,
        state: State,
        gauge: Gauge | None = None,
        *,
        active: bool = True,
        host: bytes | None = None,
        environment: EnvironmentRule = "refuse",
        watchdog: float | None = None,
        stop: Stop | None = None,
    ) -> None:
        """Apply what is in the log, say that this host is active, and go on.

        Not ``active``, it is a standby: it follows, and takes calls all the same, but
        writes nothing of its own until `promote`. ``host`` is its identity. A command
        that takes more than ``watchdog`` seconds is given up, on all hosts. Told to
        ``stop``, what was applied is stored, and it ends.

        Raises:
            ClosedError: it was told to stop.
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
        self._gauge = gauge
        self._turn = threading.Lock()
        self._committing = threading.Lock()
        self._lock = threading.Lock()
        self._drained = threading.Condition(self._lock)
        self._progress = threading.Condition()
        self._watchers = 0
        self._caught_up = time.monotonic()
        self._failure: Exception | None = None
        self._closing = False
        self._ending = False
        self._finished = threading.Event()
        self._effects = threading.Lock()
        self._promoting = threading.Lock()
        self._gated: frozenset[int] = frozenset()
        self._deferred: list[tuple[Command, Waiter]] = []
        self._reporter = Reporter(log, time.monotonic)
        self._executed = 0
        self.on_settled: list[Callable[[], None]] = []
        self._environment: EnvironmentRule = environment
        self._ahead = Ahead(log)
        self._stop = stop or Stop()
        self._abandoner = Abandoner(
            log,
            self._ahead,
            watchdog,
            lambda: self._closing or self._stop.is_set(),
            lambda: self._ending or self._stop.is_set(),
        )
        self._stopped: GivenUpError | None = None
        self._executor = self._new_executor()
        self.position = self._executor.position
        self._migrated = False
        identity = os.urandom(16) if host is None else host
        self.role = Role(identity, self._executor.shared, log)
        try:
            self._open(active=active)
        except BaseException:
            self._abandoner.close()
            raise
        self.applied = 0
        limit = max(1, min(_CALLS_MAX, self._executor.shared.results_kept // 2))
        self._calls = Calls(application.partitions, limit)
        try:
            self._thread = start_thread(f"braidlog-{application.name}", self._serve)
        except BaseException:
            self._abandoner.close()
            raise

    # -- opening -----------------------------------------------------------------

    def _open(self, *, active: bool) -> None:
        executor, log, mine = self._executor, self._log, self.application
        end = log.latest()
        if end == 1:
            name = (os.urandom(16), mine.name, mine.partitions, mine.results_kept)
            end = log.append(pack(Create(*name))) + 1
        if executor.highest >= end:
            msg = f"the state has position {executor.highest}, the log ends before it"
            raise CorruptionError(msg)
        if executor.position + 1 < log.first:
            msg = f"the state ends at {executor.position}, the log begins later"
            raise TrimmedError(msg, first=log.first)
        with self._abandoner.claiming(active):
            self._catch_up(end)
            if active:
                self._claim()
        self._executor.commit(everywhere=True)
        self._migrated = self._executor.shared.migrated

    def _claim(self) -> None:
        try:
            self.role.log_catalog(self.role.wanted_catalog())
            self._catch_up(self.role.claim() + 1)
        except LogFullError as error:
            # It reads, and takes the snapshot that makes room: then it is promoted.
            _LOGGER.warning("this host is not the active one yet: %s", error)
            self.role.wait_for_room()

    def _catch_up(self, end: int) -> None:
        while self._executor.position + 1 < end:
            self._stop.check()
            self._step()

    def _new_executor(self) -> Executor:
        return Executor(
            self.application,
            self._state,
            given_up=self._abandoner.given_up.get,
            environment=self._environment,
            watchdog=self._abandoner.watchdog,
            ending=self._stop.is_set,
        )

    def _feed(self, records: Iterable[RecordLike]) -> list[Outcome]:
        if self._gauge is None:
            return self._executor.feed(records)
        return self._gauge.feed(self._executor, records)

    def promote(self, timeout: float | None = None) -> None:
        """Make this host the active one; it is on return. Nothing if it is already.

        What the log has from the active host behind this entry does not count.

        Raises:
            FencedError: another host did so at the same time.
            LogFullError: there is no room for the entry. It is tried again from here
                on, and this host may trim the log until another one is active.
            DeadlineError: the entry was not applied within ``timeout`` seconds.
        """
        self._check_open()
        # One at a time: a second claim would make the first one look overtaken.
        with self._promoting, self._abandoner.claiming(not self.role.active):
            self._promote(timeout)

    def _promote(self, timeout: float | None) -> None:
        role = self.role
        if not role.active:
            self.wait_applied(self._log.latest(timeout) - 1, timeout)
        if role.active:
            return  # It was, or had to say so to give a command up.
        with self._turn, self._stops("the schema could not be tried"):
            catalog = role.wanted_catalog()
        try:
            role.log_catalog(catalog)
            at = role.claim()
        except LogFullError:
            role.wait_for_room()
            raise
        self.wait_applied(at, timeout)
        role.check_active()

    # -- the thread --------------------------------------------------------------

    def _serve(self) -> None:
        try:
            # Not before all calls are answered: what is on its way may not be durable.
            while not (self._ending and self.position + 1 >= self._log.end):
                if self._failure is not None:
                    return
                if self._log.wait(self.position + 1, _IDLE_S):
                    self._round()
                elif not self._ending:
                    self._reporter.report(self.role, 1)
            self._reporter.report_all(self.role, _LAST_S)
            with self._turn:  # What a call computes is not there to stay.
                self._executor.commit(everywhere=True)
        except Exception as error:  # The callers get it; there is nobody else.
            self._fail(error)
        except BaseException as error:
            # Of a procedure that was allowed to raise what ends a process.
            msg = f"a procedure ended the thread of the host: {error!r}"
            self._fail(ExecutionError(msg))
        finally:
            self._finished.set()

    def _round(self) -> None:
        outcomes = self._step()
        if self._watchers:
            with self._progress:
                self._progress.notify_all()
        self._settle(outcomes)
        self._executed += len(outcomes)
        if self._executed >= OUTCOMES:
            self._executed = 0
            self._reporter.report(self.role, OUTCOMES)

    def _step(self) -> list[Outcome]:
        """Execute what comes next, and commit it."""
        begin, limit = self._executor.position + 1, _ROUND
        if (stopped := self._stopped) is not None:
            # What came before it is answered first; it may be long until it is decided.
            limit = stopped.position - begin
            if limit <= 0:
                self._stopped, limit = None, _ROUND
                self._abandoner.decide(stopped, self.role)
        records = self._ahead.read(begin, limit)
        began = time.monotonic()
        with self._turn:
            if self._failure is not None:
                return []
            try:
                outcomes = self._feed(records)
            except GivenUpError as error:
                self._take_back(begin - 1, records)
                self._stopped = error
                return []
            with self._committing:
                self._executor.commit()
                self._migrated = self._executor.shared.migrated
                self.applied += self._executor.position - self.position
                self.position = self._executor.position
        self.busy_s += time.monotonic() - began
        return outcomes

    def _take_back(self, committed: int, records: Sequence[RecordLike]) -> None:
        """Be as after the last commit; a command was stopped in the middle."""
        self._ahead.put_back(records)
        with self._committing:
            before = self._executor
            before.rollback()
            self._executor = self._new_executor()
            # Partitions that were idle are said to be further back than they are.
            self._executor.pass_over(committed)
            self._executor.shared.mismatches = before.shared.mismatches
            self.role.shared = self._executor.shared

    def _settle(self, outcomes: Sequence[Outcome]) -> None:
        calls = self._calls
        with self._lock:
            answered = [(calls.pop(outcome.call), outcome) for outcome in outcomes]
            if self._gated or self._closing:
                self._drained.notify_all()
        self.answered += sum(len(waiters) for waiters, _ in answered)
        for waiters, outcome in answered:
            for waiter in waiters:
                waiter.settle(outcome)
        for flush in self.on_settled:
            flush()

    def _lost(self, call: bytes, error: Exception) -> None:
        """Answer a call whose append failed: it may be in the log all the same."""
        with self._lock:
            waiters = self._calls.pop(call)
            self._drained.notify_all()
        refused = isinstance(error, UnavailableError) and error.outcome == "not_stored"
        for waiter in waiters:
            waiter.settle(error if refused else unknown(call, error))
        for flush in self.on_settled:
            flush()

    # -- commands ----------------------------------------------------------------

    def submit(
        self, procedure: Procedure, arguments: list[Any], call: CallId, waiter: Waiter
    ) -> None:
        """Append a command; ``waiter`` hears of its outcome."""
        if self._gauge is not None:
            self._gauge.admit()
        if call.issued > self.known.stop and call.issued > self._log.latest():
            msg = f"the call id {call.hex()} was not made here: use Host.new_call_id"
            raise InvalidArgumentError(msg)
        count = self.application.partitions
        numbers = procedure.partitions(arguments, count)
        if (stopped := self._executor.stopped(numbers)) is not None:
            raise stopped
        self.role.check_code(procedure)
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

    # -- closing -----------------------------------------------------------------

    def close(self) -> None:
        """Answer what is on its way, store everything, release log and state."""
        with self._lock:
            if self._closing:
                return
            self._closing = True
            while self._calls.on_their_way and self._failure is None:
                self._drained.wait()
        self._ending = True
        self._log.wake()
        self._finished.wait()
        self._thread.join()
        self._abandoner.close()
        try:
            with self._turn:
                if self._failure is None:
                    self._state.close()
                else:
                    self._abandon()
        finally:
            self._log.close()

    def _abandon(self) -> None:
        """Close a state that failed: that it fails at this as well is no news."""
        for step in (self._executor.rollback, self._state.close):
            try:
                step()
            except LogError as error:
                # What was not committed is taken back by the next start.
                _LOGGER.warning("%s", error)
