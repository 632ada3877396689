"""A host: a thread that executes the log, and calls that wait for it.

Callers append to the log and wait; the thread reads what has become durable, executes
it, commits, and answers. So what is executed is what is in the log at its position, and
what came while the thread was busy is executed together with one commit.

Locks, in the order in which they may be taken: ``_turn`` (executor and state),
``committing`` (commits against the begin of views), that of ``calls``.
"""
# One file: the thread of one host, and the calls that wait for it.

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from braidlog.app.errors import (
    ExecutionError,
    GivenUpError,
    GiveUp,
    ResizeRefusedError,
    StateDamagedError,
)
from braidlog.app.execution.context import Context
from braidlog.app.execution.definition import (
    ApplicationDefinition,
    check_partitions,
)
from braidlog.app.execution.entries import (
    CallId,
    Command,
    Create,
    Effect,
    Resize,
    pack,
)
from braidlog.app.execution.evaluation import evaluate, failed
from braidlog.app.execution.executor import Executor
from braidlog.app.execution.outcome import Outcome
from braidlog.app.execution.record import RecordLike
from braidlog.app.execution.state import State
from braidlog.app.execution.total import total_hash
from braidlog.app.fingerprint import EnvironmentRule
from braidlog.app.host.abort import Aborter, ReadAhead
from braidlog.app.host.call_table import Waiter
from braidlog.app.host.calls import Calls, Routing
from braidlog.app.host.effects import EffectCalls
from braidlog.app.host.reporting import OUTCOMES, Reporter
from braidlog.app.host.role import Role
from braidlog.app.log.source import CommandLog
from braidlog.app.log.stop import Stop
from braidlog.app.procedure import Procedure
from braidlog.app.snapshots.files import Image, close_all, views_of
from braidlog.app.snapshots.snapshotter import Gauge
from braidlog.errors import (
    ClosedError,
    CorruptionError,
    DeadlineError,
    InvalidArgumentError,
    LogError,
    LogFullError,
    NotReadyError,
    TrimmedError,
)
from braidlog.store.arguments import checked_timeout
from braidlog.store.threads import start_thread

_log = logging.getLogger(__name__)

# Records executed with one commit: enough to make it cheap, few enough to answer soon.
_ROUND: Final = 1024
# An idle host logs the outcomes it still has after so long.
_IDLE_S: Final = 1.0
# A host that is closed logs outcomes for so long.
_LAST_S: Final = 2.0
_CALLS_MAX: Final = 4096


class _Swapping:
    """Held while the executor changes what there is to be seen of the state."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def __enter__(self) -> None:
        self._runner.committing.acquire()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._runner.note_committed()
        finally:
            self._runner.committing.release()


class Runner:
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
        self.calls = Calls(log, application.partitions, self._check_open, self._routed)
        self._effects = EffectCalls(self, self.calls)
        self._turn = threading.Lock()
        self.committing = threading.Lock()
        """Held where the state changes what views show of it."""
        self._progress = threading.Condition()
        self._watchers = 0
        self._caught_up = time.monotonic()
        self._failure: Exception | None = None
        self._ending = False
        self._finished = threading.Event()
        self._promoting = threading.Lock()
        self._reporter = Reporter(log, time.monotonic)
        self._executed = 0
        self.applied = 0
        """Positions that were applied since the host is open."""
        self.busy_s = 0.0
        """Seconds in which the thread executed."""
        self._environment: EnvironmentRule = environment
        self._ahead = ReadAhead(log)
        self._stop = stop or Stop()
        self._abandoner = Aborter(
            log,
            self._ahead,
            watchdog,
            lambda: self.calls.closing or self._stop.is_set(),
            lambda: self._ending or self._stop.is_set(),
        )
        self._stopped: GivenUpError | None = None
        self._swapping = _Swapping(self)
        self._executor = self._new_executor()
        self.position = self._executor.position
        self._migrated = False
        self._follow_routing()
        identity = os.urandom(16) if host is None else host
        self.role = Role(identity, self._executor.shared, log)
        try:
            self._open(active=active)
        except BaseException:
            self._abandoner.close()
            raise
        self.applied = 0  # What was applied to open it does not count.
        limit = min(_CALLS_MAX, self._executor.shared.results_kept // 2)
        self.calls.allow(max(1, limit))
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
            raise CorruptionError(
                f"the state has executed position {executor.highest}, which is "
                "beyond the end of the log"
            )
        if executor.position + 1 < log.first:
            msg = (
                f"the state ends at {executor.position}, but the log was trimmed "
                "beyond that"
            )
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
            _log.warning("this host is not the active one yet: %s", error)
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
            ending=self._ends_round,
            swapping=self._swapping,
        )

    def _ends_round(self) -> bool:
        # Behind a change of the partitions nothing is executed before it is noted here:
        # a command that is stopped there must not take back what came before it.
        return self._stop.is_set() or self._moves()

    def _moves(self) -> bool:
        return self._executor.shared.routing != self.calls.routing.position

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
            msg = f"a procedure ended the thread that executes commands: {error!r}"
            self._fail(ExecutionError(msg))
        finally:
            self._finished.set()

    def _round(self) -> None:
        outcomes = self._step()
        if self._watchers:
            with self._progress:
                self._progress.notify_all()
        self.calls.settle(outcomes)
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
            with self.committing:
                self._executor.commit()
                self.note_committed()
            if records and self._executor.position < records[-1].position:
                self._ahead.put_back(records)  # `read` passes over those that are done.
            self._follow_routing()
        self.busy_s += time.monotonic() - began
        return outcomes

    def note_committed(self) -> None:
        """Show up to where the state is; the lock of commits is held."""
        self._migrated = self._executor.shared.migrated
        self.applied += self._executor.position - self.position
        self.position = self._executor.position

    def _follow_routing(self) -> None:
        """Have calls go where the log says that they belong."""
        shared = self._executor.shared
        routing = Routing(shared.routing, shared.partitions)
        if routing != self.calls.routing:
            self.calls.reroute(routing)

    def _routed(self, command: Command, routing: Routing) -> Command:
        """Return a command as it is by another routing."""
        if command.routing == routing.position:
            return command
        procedure = self.application.logged(command.procedure, command.content)
        assert procedure is not None, "this program made the command"
        numbers = procedure.partitions(command.arguments, routing.partitions)
        return command._replace(partitions=numbers, routing=routing.position)

    def _take_back(self, committed: int, records: Sequence[RecordLike]) -> None:
        """Be as after the last commit; a command was stopped in the middle."""
        self._ahead.put_back(records)
        with self.committing:
            before = self._executor
            before.rollback()
            self._executor = self._new_executor()
            # Partitions that were idle are said to be further back than they are.
            self._executor.pass_over(committed)
            self._executor.shared.mismatches = before.shared.mismatches
            self.role.shared = self._executor.shared

    def _fail(self, error: Exception) -> None:
        """Stop for good: answer all calls, and refuse those that come."""
        _log.error("the host of %r failed: %s", self.application.name, error)
        self._failure = error
        self.calls.fail(error)
        with self._progress:
            self._progress.notify_all()

    def _check_open(self) -> None:
        if self._failure is not None:
            msg = f"the host stopped: {self._failure}"
            raise ExecutionError(msg) from self._failure
        if self.calls.closing:
            raise ClosedError(f"the host of {self.application.name!r} is closed")

    @contextlib.contextmanager
    def _stops(self, doing: str = "the state failed") -> Iterator[None]:
        """Stop for good if the machine fails the state: nothing may be executed then.

        Raises:
            ExecutionError: it did.
            StateDamagedError: the same, because a database is damaged.
        """
        try:
            with self._executor.failing(doing):
                yield
        except (ExecutionError, StateDamagedError) as error:
            self._fail(error)
            raise

    # -- calls -------------------------------------------------------------------

    def new_call_id(self) -> CallId:
        """Return the id of a call that is made now."""
        return CallId.make(self.position + 1, os.urandom(9))

    def end(self, timeout: float | None = None) -> int:
        """Return one past the last position that is durable."""
        self._check_open()
        return self._log.latest(timeout)

    def submit(
        self, procedure: Procedure, arguments: list[Any], call: CallId, waiter: Waiter
    ) -> None:
        """Append a command; ``waiter`` hears of its outcome."""
        if self._gauge is not None:
            self._gauge.admit()
        if call.issued > self.known.stop and call.issued > self._log.latest():
            raise InvalidArgumentError(
                f"the call id {call.hex()} names a position that this log has not "
                "reached: make call ids with Host.new_call_id"
            )
        routing = self.calls.routing
        numbers = procedure.partitions(arguments, routing.partitions)
        if (stopped := self._executor.stopped(numbers)) is not None:
            raise stopped
        self.role.check_code(procedure)
        seed = os.urandom(16)
        name, content = procedure.name, procedure.content
        command = Command(
            call, seed, name, content, numbers, arguments, routing.position
        )
        self.calls.submit(command, waiter)

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
        self.role.check_code(procedure)
        return self._effects.call(procedure, arguments, call, timeout)

    def admit(self, numbers: list[int] | None) -> None:
        """Let an effect-logged call on these partitions pass.

        Raises:
            BusyError: the log has grown too far.
            DivergedError: a partition is stopped.
        """
        if self._gauge is not None:
            self._gauge.admit()
        if (stopped := self._executor.stopped(numbers)) is not None:
            raise stopped

    def prepare(
        self,
        procedure: Procedure,
        arguments: list[object],
        call: CallId,
        numbers: list[int] | None,
        routing: Routing,
    ) -> Effect | Outcome | None:
        """Execute a procedure between two commands, and take back what it did.

        None if the partitions are others by now.
        """
        with self._turn:
            self._check_open()
            if routing != self.calls.routing:
                return None
            now, seed = time.time_ns() // 1000, os.urandom(16)
            with self._stops():
                return self._executor.prepare(
                    procedure, call, arguments, numbers, now, seed
                )

    def read(self, procedure: Procedure, arguments: list[Any]) -> Outcome:
        """Execute a read-only procedure on what is committed now, in this thread.

        Raises:
            NotReadyError: the log has not the schema that the program expects.
            DivergedError: a partition is stopped, so what it has is old.
        """
        with contextlib.ExitStack() as stack:
            with self.committing:
                self._check_open()
                self._check_schema()
                count = self.partitions
                numbers = procedure.partitions(arguments, count)
                touched = range(count) if numbers is None else numbers
                if (stopped := self._executor.stopped(numbers)) is not None:
                    raise stopped
                views = {n: self._state.partitions[n].view() for n in touched}
            for view in views.values():
                stack.callback(view.close)
            handles = {n: view.handle for n, view in views.items()}
            now = time.time_ns() // 1000
            context = Context(handles, count, now, os.urandom(16))
            try:
                ran = evaluate(procedure, context, arguments, self._state)
            except GiveUp as error:  # Nobody else has to know what became of a read.
                ran = failed(error.__cause__ or error)
        call = CallId.make(0, bytes(9))
        return Outcome(
            0, call, procedure.name, ran.status, ran.body, b"", error=ran.error
        )

    def _check_schema(self) -> None:
        # A standby may have nothing yet, or be newer than the active host.
        if not self._migrated:
            raise NotReadyError(
                "the log does not have the schema of this program yet: promote a host"
                " with this version, or call a host with the version of the log"
            )

    # -- what is to be seen ------------------------------------------------------

    def wait_applied(self, position: int, timeout: float | None = None) -> None:
        """Wait until everything up to ``position`` is executed and committed.

        Raises:
            DeadlineError: it was not within ``timeout`` seconds.
        """
        left = checked_timeout(timeout)
        if self.position >= position:
            return
        with self._progress:
            self._watchers += 1
            try:
                done = self._progress.wait_for(
                    lambda: self.position >= position or self._failure is not None,
                    left,
                )
            finally:
                self._watchers -= 1
        self._check_open()
        if not done:
            msg = f"position {position} was not executed within {timeout} s"
            raise DeadlineError(msg)

    def caught_up_within(self, seconds: float) -> bool:
        """Whether the state was that of the end of the log so many seconds ago."""
        moment, end = self._log.as_of
        if self.position + 1 >= end:
            self._caught_up = max(self._caught_up, moment)
        return time.monotonic() - self._caught_up <= seconds

    @property
    def known(self) -> range:
        """Positions that the log has, as far as they are known here."""
        end = max(self._log.as_of[1], self._log.end, self.position + 1)
        return range(min(self._log.first, end), end)

    @property
    def waiting(self) -> int:
        """How many calls have no answer yet."""
        return self.calls.waiting

    @property
    def answered(self) -> int:
        """How many calls were answered by an outcome."""
        return self.calls.answered

    @property
    def failure(self) -> Exception | None:
        """Why the host stopped, if it did."""
        return self._failure

    @property
    def mismatches(self) -> int:
        """Outcomes that differed from those in the log."""
        return self._executor.shared.mismatches

    def stopped_partitions(self) -> tuple[int, ...]:
        """Return the partitions that diverged from the log."""
        count = range(self.partitions)
        return tuple(n for n in count if self._executor.stopped([n]) is not None)

    def unfit(self) -> str:
        """Why nobody but an operator should make this host the active one; or empty."""
        if stopped := self.stopped_partitions():
            return f"the partitions {', '.join(map(str, stopped))} diverged"
        with self._turn:
            shared = self._executor.shared
            try:
                other = bool(shared.epoch) and shared.wanted_catalog() is not None
            except LogError as error:
                return error.message
        # The others might lack the code that it would bring into the log.
        return "its program is another one than the log names" if other else ""

    @property
    def partitions(self) -> int:
        """How many partitions there are, as far as the log was executed."""
        return self._executor.shared.partitions

    def resize(self, partitions: int, timeout: float | None = None) -> int:
        """Log that there are so many partitions, and return the position of the entry.

        Raises:
            ResizeRefusedError: the rows allow no other partitions.
            DeadlineError: the entry was not executed within ``timeout`` seconds.
        """
        check_partitions(partitions)
        mine = self.application
        mine.check_placed(partitions)
        if not mine.row_keys:
            raise ResizeRefusedError(f"application {mine.name!r} has no row_keys=")
        self.wait_applied(self.end(timeout) - 1, timeout)
        self._check_schema()
        routing = self.calls.routing
        if routing.partitions == partitions:
            return routing.position  # Also if a call whose answer was lost did it.
        entry = Resize(partitions, routing.position, mine.row_keys)
        at = self._log.append(pack(entry))
        self.wait_applied(at, timeout)
        if why := self._executor.shared.refused(at):
            raise ResizeRefusedError(f"{mine.name!r} keeps its partitions: {why}")
        if (stopped := self._executor.stopped(None)) is not None:
            raise stopped
        return at

    def total_hash(self) -> tuple[int, bytes]:
        """Return a position and the total hash of all partitions there."""
        with self.committing:
            self._check_open()
            position = self.position
            views = views_of(self._state.partitions)
        tables = self.application.row_keys.items()
        everywhere = [table for table, key in tables if key is None]
        with close_all(views):
            return position, total_hash([view.tally() for view in views], everywhere)

    def hashes(self) -> tuple[int, list[bytes]]:
        """Return a position and the state hash of each partition there."""
        with self.committing:
            self._check_open()
            position = self.position
            views = views_of(self._state.partitions)
        with close_all(views):
            return position, [view.hash() for view in views]

    def mark(self) -> Image:
        """Hold the state between two commands; the caller closes the views.

        Raises:
            DivergedError: a partition is stopped, so it is at no one position.
        """
        executor = self._executor
        with self._turn, self.committing:
            self._check_open()
            if (stopped := executor.stopped(None)) is not None:
                raise stopped
            with self._stops():
                executor.commit(everywhere=True)
            views = views_of(self._state.partitions)
            facts = executor.shared.facts()
            return Image(executor.position, time.time_ns() // 1000, views, facts)

    # -- closing -----------------------------------------------------------------

    def close(self) -> None:
        """Answer what is on its way, store everything, release log and state."""
        if not self.calls.close():
            return
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
                _log.warning("%s", error)
