"""Calls of a host from when they are appended until they are answered.

*Theory of operation.* A RESIZE entry changes where calls belong. What was appended
behind it and routed before it ends as `Status.MOVED`: it executed nothing. When this
host reads the entry, it holds back all new calls until those on their way are answered
or moved; then it routes the moved ones anew, appends them, and lets the others follow.

*Invariants.* A call is in the table before it is appended, because its outcome may come
before the append returns. While the gate of a partition is closed, no call of this host
on it is on its way, and those that come wait behind the gate in their order. Calls of
one thread are appended in their order, also over a change of the partitions.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from braidlog.app.errors import BusyError
from braidlog.app.execution.entries import CallId, Command, key_of, pack
from braidlog.app.execution.outcome import Outcome, Status
from braidlog.app.host.call_table import CallTable, Waiter, unknown
from braidlog.app.log.source import CommandLog
from braidlog.errors import UnavailableError


class Deadline(Protocol):
    """How long somebody waits at a gate."""

    def left(self) -> float | None:
        """Return the seconds that are left; None without a bound."""

    def check(self) -> None:
        """Raise if nothing is left.

        Raises:
            DeadlineError: it is over.
        """


class Routing(NamedTuple):
    """Where calls belong."""

    position: int
    """Of the RESIZE entry that it follows from; 0 for CREATE."""
    partitions: int


class Calls:
    """Appends calls to the log, and answers them. Safe to use from many threads."""

    def __init__(
        self,
        log: CommandLog,
        partitions: int,
        check_open: Callable[[], None],
        route: Callable[[Command, Routing], Command],
    ) -> None:
        """Take none until `allow`; ``check_open`` raises where the host takes none.

        ``route`` returns a command as it is by another routing.
        """
        self._log = log
        self.routing = Routing(0, partitions)
        """Where calls belong, as far as this host has read."""
        self._check_open = check_open
        self._route = route
        self._table = CallTable(partitions)
        self._lock = threading.Lock()
        self._drained = threading.Condition(self._lock)
        self._gated: frozenset[int] = frozenset()
        self._deferred: list[tuple[Command, Waiter]] = []
        self._commands: dict[bytes, Command] = {}
        """Of calls on their way: what to append again if they are moved."""
        self._moved: list[tuple[Command, Waiter]] = []
        self._rerouting = False
        self._failed = False
        self.closing = False
        """Whether the host takes no more calls, because it is being closed."""
        self.answered = 0
        """Calls that were answered by an outcome."""
        self.on_settled: list[Callable[[], None]] = []
        """Called by the thread that answers, after each round of answers."""

    def allow(self, limit: int) -> None:
        """Let so many calls wait for their outcomes at a time."""
        self._table.limit = limit

    @property
    def waiting(self) -> int:
        """How many calls have no answer yet."""
        return self._table.on_their_way

    def touched(self, numbers: Sequence[int] | None) -> Sequence[int]:
        """Return the partitions of a call; None stands for all."""
        return range(self.routing.partitions) if numbers is None else numbers

    # -- appending ---------------------------------------------------------------

    def submit(self, command: Command, waiter: Waiter) -> None:
        """Append a command, or keep it until its gate is open.

        Raises:
            BusyError: too many calls are on their way.
        """
        value = pack(command)
        with self._lock:
            self._check_open()
            if command.routing != self.routing.position:
                command = self._route(command, self.routing)
                value = pack(command)
            if self._held(command):
                if len(self._deferred) >= self._table.limit:
                    raise BusyError(
                        f"{len(self._deferred)} calls wait until others end: the limit"
                    )
                self._deferred.append((command, waiter))
                return
            self._append_command(value, command, waiter)

    def _held(self, command: Command) -> bool:
        """Whether a call has to wait behind others."""
        if self._rerouting:
            return True
        gated = self._gated
        return bool(gated) and not gated.isdisjoint(self.touched(command.partitions))

    def _append_command(self, value: bytes, command: Command, waiter: Waiter) -> None:
        self._commands[command.call] = command
        self._append(value, command.call, command.partitions, waiter)

    def submit_now(
        self, value: bytes, call: CallId, numbers: list[int] | None, waiter: Waiter
    ) -> None:
        """Append the record of a call, whose gate the caller has closed."""
        with self._lock:
            self._check_open()
            self._append(value, call, numbers, waiter)

    def _append(
        self, value: bytes, call: bytes, numbers: list[int] | None, waiter: Waiter
    ) -> None:
        self._table.add(call, waiter, self.touched(numbers))
        try:
            self._log.submit(value, key_of(numbers), partial(self._lost, call))
        except BaseException:
            self._table.remove(call, waiter)
            raise

    # -- another number of partitions ----------------------------------------------

    def reroute(self, routing: Routing) -> None:
        """Route calls anew from here on, behind those that are on their way."""
        with self._lock:
            self.routing = routing
            self._table.grow(routing.partitions)
            self._rerouting = True
            self._end_rerouting()

    def _move(self, outcome: Outcome) -> None:
        """Keep a call that was routed before a change, to append it again."""
        command = self._commands.pop(outcome.call, None)
        for waiter in self._table.pop(outcome.call):
            if command is None:  # Nobody appends effects again but who computed them.
                waiter.settle(outcome)
            else:
                self._moved.append((command, waiter))
                self._rerouting = True

    def _end_rerouting(self) -> None:
        """Let the calls go on that were held back, if none is on its way any more."""
        if not self._rerouting or self._table.on_their_way:
            return
        self._rerouting = False
        moved, self._moved = self._moved, []
        for command, waiter in moved:
            try:  # Also while the host is being closed: they were taken before.
                routed = self._route(command, self.routing)
                self._append_command(pack(routed), routed, waiter)
            except Exception as error:
                waiter.settle(unknown(command.call, error))
        self._release()

    # -- answering ---------------------------------------------------------------

    def settle(self, outcomes: Sequence[Outcome]) -> None:
        """Answer those who wait for these outcomes."""
        table, commands = self._table, self._commands
        with self._lock:
            answered = []
            for outcome in outcomes:
                if outcome.status == Status.MOVED:
                    self._move(outcome)
                    continue
                commands.pop(outcome.call, None)
                answered.append((table.pop(outcome.call), outcome))
            self._end_rerouting()
            if self._gated or self.closing:
                self._drained.notify_all()
        self.answered += sum(len(waiters) for waiters, _ in answered)
        for waiters, outcome in answered:
            for waiter in waiters:
                waiter.settle(outcome)
        self._flush()

    def _lost(self, call: bytes, error: Exception) -> None:
        """Answer a call whose append failed: it may be in the log all the same."""
        with self._lock:
            waiters = self._table.pop(call)
            self._commands.pop(call, None)
            self._end_rerouting()
            self._drained.notify_all()
        refused = isinstance(error, UnavailableError) and error.outcome == "not_stored"
        for waiter in waiters:
            waiter.settle(error if refused else unknown(call, error))
        self._flush()

    def fail(self, error: Exception) -> None:
        """Answer all calls: their outcomes are unknown, and no more will come."""
        with self._lock:
            self._failed = True
            waiting = [(call, self._table.pop(call)) for call in self._table.all()]
            held = [*self._moved, *self._deferred]
            waiting += [(command.call, [waiter]) for command, waiter in held]
            self._moved, self._deferred = [], []
            self._drained.notify_all()
        for call, waiters in waiting:
            for waiter in waiters:
                waiter.settle(unknown(call, error))
        self._flush()

    def _flush(self) -> None:
        for flush in self.on_settled:
            flush()

    # -- the gate ----------------------------------------------------------------

    @contextlib.contextmanager
    def gate(self, touched: Sequence[int], deadline: Deadline) -> Iterator[None]:
        """Hold back the calls on some partitions, and wait for those on their way.

        One gate at a time.

        Raises:
            DeadlineError: they took longer than the ``deadline``.
        """
        with self._lock:
            self._gated = frozenset(touched)
            try:
                by_partition = self._table.by_partition
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
        self._release()

    def _release(self) -> None:
        """Append the calls that were held back, unless they still are."""
        deferred, self._deferred = self._deferred, []
        refused = False
        for command, waiter in deferred:
            try:
                self._check_open()
                routed = self._route(command, self.routing)
                if self._held(routed):
                    self._deferred.append((routed, waiter))
                    continue
                self._append_command(pack(routed), routed, waiter)
            except Exception as error:  # Of the call that was held back.
                waiter.settle(error)
                refused = True
        if refused:
            self._flush()

    # -- closing -----------------------------------------------------------------

    def close(self) -> bool:
        """Wait until all calls are answered; False if somebody did so before."""
        with self._lock:
            if self.closing:
                return False
            self.closing = True
            while (self._table.on_their_way or self._moved) and not self._failed:
                self._drained.wait()
        return True
