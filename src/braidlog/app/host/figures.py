"""What can be seen of a host beside its thread: reads, figures, images, its end."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from braidlog.app.errors import ExecutionError, GiveUp, StateDamagedError
from braidlog.app.execution.context import Context
from braidlog.app.execution.definition import ApplicationDefinition
from braidlog.app.execution.entries import CallId
from braidlog.app.execution.evaluation import evaluate, failed
from braidlog.app.execution.executor import Executor
from braidlog.app.execution.outcome import Outcome
from braidlog.app.execution.state import State
from braidlog.app.host.waiting import Calls, unknown
from braidlog.app.log.source import CommandLog
from braidlog.app.procedure import Procedure
from braidlog.app.snapshots.files import Image, close_all, views_of
from braidlog.errors import ClosedError, DeadlineError, LogError, NotReadyError
from braidlog.storage.arguments import checked_timeout

__all__ = ["Figures"]

_LOGGER = logging.getLogger("braidlog")


class Figures:
    """The part of a host that looks, and that fails; `Runner` has the thread."""

    answered: int = 0
    applied: int = 0
    busy_s: float = 0.0
    application: ApplicationDefinition
    position: int
    on_settled: list[Callable[[], None]]
    _calls: Calls
    _caught_up: float
    _closing: bool
    _committing: threading.Lock
    _drained: threading.Condition
    _executor: Executor
    _failure: Exception | None
    _lock: threading.Lock
    _log: CommandLog
    _migrated: bool
    _state: State
    _turn: threading.Lock

    _progress: threading.Condition
    _watchers: int

    def _fail(self, error: Exception) -> None:
        """Stop for good: answer all calls, and refuse those that come."""
        _LOGGER.error("the host of %r failed: %s", self.application.name, error)
        self._failure = error
        with self._lock:
            waiting = [(call, self._calls.pop(call)) for call in self._calls.all()]
            self._drained.notify_all()
        for call, waiters in waiting:
            for waiter in waiters:
                waiter.settle(unknown(call, error))
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
            msg = f"position {position} was not applied in {timeout} s"
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
        return self._calls.on_their_way

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
        count = range(self.application.partitions)
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

    def hashes(self) -> tuple[int, list[bytes]]:
        """Return a position and the state hash of each partition there."""
        with self._committing:
            self._check_open()
            position = self.position
            views = views_of(self._state.partitions)
        with close_all(views):
            return position, [view.hash() for view in views]

    def new_call_id(self) -> CallId:
        """Return the id of a call that is made now."""
        return CallId.make(self.position + 1, os.urandom(9))

    def end(self, timeout: float | None = None) -> int:
        """Return one past the last position that is durable."""
        self._check_open()
        return self._log.latest(timeout)

    def read(self, procedure: Procedure, arguments: list[Any]) -> Outcome:
        """Execute a read-only procedure on what is committed now, in this thread.

        Raises:
            NotReadyError: the log has not the schema that the program expects.
            DivergedError: a partition is stopped, so what it has is old.
        """
        count = self.application.partitions
        numbers = procedure.partitions(arguments, count)
        touched = range(count) if numbers is None else numbers
        with contextlib.ExitStack() as stack:
            with self._committing:
                self._check_open()
                self._check_schema()
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
            msg = (
                "the log has not the schema of this program yet: promote a host with"
                " this version, or call one with that of the log"
            )
            raise NotReadyError(msg)

    def mark(self) -> Image:
        """Hold the state between two commands; the caller closes the views.

        Raises:
            DivergedError: a partition is stopped, so it is at no one position.
        """
        executor = self._executor
        with self._turn, self._committing:
            self._check_open()
            if (stopped := executor.stopped(None)) is not None:
                raise stopped
            with self._stops():
                executor.commit(everywhere=True)
            views = views_of(self._state.partitions)
            facts = executor.shared.facts()
            return Image(executor.position, time.time_ns() // 1000, views, facts)
