"""Calling procedures: a host for blocking code, and one for asyncio."""
# One file: the calls of one class and their contracts; what they do is elsewhere.

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Self

from braidlog import durable
from braidlog.app.execution.answers import answer
from braidlog.app.execution.definition import ApplicationDefinition
from braidlog.app.execution.entries import CallId
from braidlog.app.execution.outcome import Outcome
from braidlog.app.fingerprint import EnvironmentRule
from braidlog.app.host.call_table import PendingCall, late
from braidlog.app.host.promotion import Promoter
from braidlog.app.host.runner import Runner
from braidlog.app.host.watchdog import WATCHDOG_S
from braidlog.app.log.source import EmbeddedLog
from braidlog.app.log.stop import Stop
from braidlog.app.procedure import Procedure, bind
from braidlog.app.snapshots.files import Progress, Snapshot, SnapshotFiles
from braidlog.app.snapshots.policy import SnapshotSettings
from braidlog.app.snapshots.restore import position_of, restore_if_needed
from braidlog.app.snapshots.snapshotter import SnapshotStatus, Snapshotter
from braidlog.app.state.failures import breakage_at
from braidlog.app.state.sqlite import SqliteState
from braidlog.closable import AsyncClosable, Closable
from braidlog.errors import InvalidArgumentError
from braidlog.paths import local_path
from braidlog.store.arguments import checked_timeout
from braidlog.store.threads import close_in_thread, in_thread

_LOG: Final = "log"
_STATE: Final = "state"
_SNAPSHOTS: Final = "snapshots"


class Host(Closable):
    """An application that is open in this process. Safe to use from many threads.

    Calls are executed in the order of the log, each exactly once. When `call` returns,
    the call and its changes are durable: they survive a crash of the machine.
    """

    def __init__(
        self,
        runner: Runner,
        keeper: Snapshotter | None = None,
        promoter: Promoter | None = None,
    ) -> None:
        """Wrap a runner; users call `Application.open`."""
        self.runner = runner
        self._keeper = keeper
        self._promoter = promoter

    def __repr__(self) -> str:
        """Show the application and how far it is."""
        return f"<Host of {self.application.name!r} at {self.position}>"

    @property
    def application(self) -> ApplicationDefinition:
        """What is hosted."""
        return self.runner.application

    @property
    def position(self) -> int:
        """Last position of the log that is executed and committed."""
        return self.runner.position

    @property
    def alarms(self) -> tuple[str, ...]:
        """Problems that an operator has to look at, except those of snapshots."""
        return self._promoter.alarms if self._promoter is not None else ()

    def new_call_id(self) -> CallId:
        """Return an id for a call that may have to be repeated, also after a restart.

        Store the id before the call: `CallId.hex` gives text, `CallId.parse` reads it.
        Use one id for one call, always with the same arguments.
        """
        return self.runner.new_call_id()

    def submit(
        self,
        procedure: str,
        /,
        *arguments: Any,
        call_id: CallId | None = None,
        **named: Any,
    ) -> PendingCall:
        """Append a call without waiting; ``result()`` waits for the answer.

        Calls of one thread are executed in the order in which it submits them. The
        call is not durable before ``result()`` has returned. Repeat a call only with
        the ``call_id`` of its first attempt.

        Raises:
            BusyError: too many calls are waiting; the call was not logged.
            LogBoundError: the log is at its hard mark; the call was not logged.
            UnknownProcedureError: the application has no such procedure.
            InvalidArgumentError: the procedure is read-only or has effects: use `call`.
            EncodingError: an argument cannot be stored.
        """
        found = self.application.find(procedure)
        if found.mode != "command":
            msg = f"{procedure!r} is no command ({found.mode}): use call"
            raise InvalidArgumentError(msg)
        call = self.runner.new_call_id() if call_id is None else call_id
        pending = PendingCall(call)
        self.runner.submit(found, bind(found, arguments, named), call, pending)
        return pending

    def call(
        self,
        procedure: str,
        /,
        *arguments: Any,
        call_id: CallId | None = None,
        timeout: float | None = None,
        stale: float | None = None,
        behind: int | None = None,
        **named: Any,
    ) -> Any:
        """Call a procedure, and return what it returned.

        On return the call and its changes are durable. A repeated call with the same
        ``call_id`` returns the first result and executes nothing. ``timeout`` is in
        seconds; None waits without limit. A read-only procedure sees everything that
        was committed before the call, unless you allow it to be ``stale`` by so many
        seconds, or ``behind`` by so many positions.

        Raises:
            Abort: the procedure refused the call; none of its changes remain.
            ProcedureError: the procedure raised something else; no changes remain.
            BusyError: too many calls are waiting; the call was not logged.
            LogBoundError: the log is at its hard mark; the call was not logged.
            CallExpiredError: the call id is so old that its result may be forgotten.
            ConflictError: effects could not be logged, because other commands changed
                the partitions each time.
            OutcomeUnknownError: the host failed; repeat with the same call id.
            DeadlineError: no answer within ``timeout`` seconds. The call may still be
                executed; repeat it with the same call id.
            UnknownProcedureError: the application has no such procedure.
        """
        found = self.application.find(procedure)
        if found.mode == "command":
            pending = self.submit(procedure, *arguments, call_id=call_id, **named)
            return pending.result(timeout)
        bound = bind(found, arguments, named)
        return answer(
            beside(self.runner, found, bound, call_id, timeout, stale, behind)
        )

    def wait_applied(self, position: int, timeout: float | None = None) -> None:
        """Wait until everything up to ``position`` is executed and committed.

        Raises:
            DeadlineError: that took longer than ``timeout`` seconds.
        """
        self.runner.wait_applied(position, timeout)

    def hashes(self) -> tuple[int, list[bytes]]:
        """Return a position, and the state hash of each partition at that position.

        Two hosts have the same content if their hashes at one position are equal.
        """
        return self.runner.hashes()

    @property
    def partitions(self) -> int:
        """How many partitions there are, as far as the log was executed."""
        return self.runner.partitions

    def total_hash(self) -> tuple[int, bytes]:
        """Return a position, and the total hash of all partitions at that position.

        Unlike `hashes`, it does not depend on how many partitions there are:
        `braidlog.app.execution.total` defines it.
        """
        return self.runner.total_hash()

    def resize(self, partitions: int, timeout: float | None = None) -> int:
        """Give the application another number of partitions, on all its hosts.

        An entry in the log says so; its position is returned when this host has
        executed it. Each host spreads the rows over the new partitions when it comes to
        the entry, and executes nothing else meanwhile. Calls continue before and after
        it; each is executed once, and those of one thread in their order. Repeating it
        is harmless.

        Raises:
            ResizeRefusedError: the rows do not allow it; nothing was changed.
            InvalidArgumentError: no application has so many partitions, or procedures
                do not say which of them they touch.
            DivergedError: a partition has diverged; nothing was changed.
            DeadlineError: not executed within ``timeout`` seconds; it may still be.
            NotReadyError: the log does not have the schema of this program yet.
        """
        return self.runner.resize(partitions, timeout)

    def snapshot(self, progress: Progress | None = None) -> Snapshot:
        """Take a snapshot now, and trim the log as far as the settings allow.

        Calls continue meanwhile. On return the snapshot is durable and was read back.
        ``progress`` is called with the bytes done (copied and read back) and the total.

        Raises:
            SnapshotFailedError: no snapshot was taken, and nothing was trimmed.
            InvalidArgumentError: this host takes no snapshots.
        """
        return self._kept().take(progress)

    def snapshots(self) -> list[Snapshot]:
        """Return the usable snapshots, oldest first."""
        return self._kept().snapshots()

    @property
    def newest_snapshot(self) -> Snapshot | None:
        """The newest snapshot, or None."""
        taken = self._keeper.snapshots() if self._keeper is not None else []
        return taken[-1] if taken else None

    @property
    def growth(self) -> SnapshotStatus | None:
        """How far the log has grown; None if the host takes no snapshots."""
        return self._keeper.status() if self._keeper is not None else None

    def snapshot_status(self) -> SnapshotStatus:
        """Return how far the log has grown, and the alarms about snapshots."""
        return self._kept().status()

    def _kept(self) -> Snapshotter:
        if self._keeper is None:
            msg = "this host takes no snapshots, because its log cannot be trimmed"
            raise InvalidArgumentError(msg)
        return self._keeper

    def close(self) -> None:
        """Wait for pending calls, store everything, and release the directory.

        A snapshot that is being taken is completed first. Idempotent.
        """
        if self._promoter is not None:
            self._promoter.close()
        if self._keeper is not None:
            self._keeper.close()
        self.runner.close()


def beside(
    runner: Runner,
    procedure: Procedure,
    arguments: list[Any],
    call_id: CallId | None,
    timeout: float | None,
    stale: float | None,
    behind: int | None,
) -> Outcome:
    """Execute what is not logged as a command."""
    if procedure.mode == "effects":
        call = runner.new_call_id() if call_id is None else call_id
        return runner.effect(procedure, arguments, call, timeout)
    if stale is None or not runner.caught_up_within(stale):
        runner.wait_applied(runner.end(timeout) - 1 - (behind or 0), timeout)
    return runner.read(procedure, arguments)


def open_host(
    application: ApplicationDefinition,
    path: str | os.PathLike[str],
    *,
    snapshots: SnapshotSettings | None = None,
    environment: EnvironmentRule = "refuse",
    step: Callable[[str], None] | None = None,
    watchdog: float | None = WATCHDOG_S,
    stop: Stop | None = None,
    **options: Any,
) -> Host:
    """Open ``path``, which holds ``log/``, ``state/`` and ``snapshots/``.

    Databases that end before the log begins are restored from the newest snapshot. If
    the log is full, the host refuses calls until a snapshot and a trim make room.

    ``environment`` is for commands that still have to be executed and were logged under
    other versions: "refuse" to open, or "report" and execute them. A command that takes
    more than ``watchdog`` seconds is aborted; None waits without limit. ``stop`` ends a
    long opening; what was executed until then is stored, and the next opening continues
    there. ``step`` is called with a name before each step of a snapshot. Other options
    are those of `braidlog.open`.

    Raises:
        LockedError: another process has the directory open.
        TrimmedError: the log was trimmed beyond the state and every snapshot.
        SnapshotDamagedError: the snapshots that reach the log are damaged.
        StateDamagedError: a database is damaged.
        ApplicationMismatchError: log or state belong to another application.
        EnvironmentMismatchError: commands to execute were logged under other versions.
        UnavailableError: a file cannot be read or written; see ``path``.
        ClosedError: ``stop`` was set.
    """
    where, stop = local_path(path, "the directory of a host").absolute(), stop or Stop()
    with breakage_at(where), contextlib.ExitStack() as stack:
        durable.make_directory(where)
        log = EmbeddedLog(where / _LOG, **options)
        stack.callback(log.close)
        state = SqliteState(where / _STATE, application.partitions)
        stack.callback(state.close)
        files = SnapshotFiles(where / _SNAPSHOTS, step)
        stack.callback(files.close)
        first, end = log.first, log.end
        restore_if_needed(state, files, log.identity, first, end, stop.check)
        settings = snapshots or SnapshotSettings()
        keeper = Snapshotter(log, state, files, settings, position_of(state))
        runner = Runner(
            application,
            log,
            state,
            keeper,
            environment=environment,
            watchdog=watchdog,
            stop=stop,
        )
        # From here on the runner closes log and state; both may be closed twice.
        stack.callback(runner.close)
        promoter = Promoter(runner)
        stack.callback(promoter.close)
        stack.callback(keeper.close)
        host = Host(runner, keeper, promoter)
        keeper.start(runner)
        stack.pop_all()
    return host


class _AsyncCalls:
    """Resolves futures of one loop: one wake-up for all calls of a round."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._settled: deque[tuple[asyncio.Future[Any], Outcome | Exception]] = deque()

    def waiter(self) -> _AsyncCall:
        return _AsyncCall(self._loop.create_future(), self._settled)

    def flush(self) -> None:
        if self._settled:
            with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits.
                self._loop.call_soon_threadsafe(self._resolve)

    def _resolve(self) -> None:
        while self._settled:
            future, outcome = self._settled.popleft()
            if future.done():
                continue
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
                continue
            try:
                future.set_result(answer(outcome))
            except Exception as error:
                future.set_exception(error)


class _AsyncCall:
    __slots__ = ("_settled", "future")

    def __init__(
        self,
        future: asyncio.Future[Any],
        settled: deque[tuple[asyncio.Future[Any], Outcome | Exception]],
    ) -> None:
        self.future = future
        self._settled = settled

    def settle(self, outcome: Outcome | Exception) -> None:
        self._settled.append((self.future, outcome))


class AsyncHost(AsyncClosable):
    """A host for asyncio: ``async with application.open_async("data/") as host``.

    Calls promise what those of `Host` promise. Cancelling a call only stops the wait:
    a call that was appended is executed.
    """

    def __init__(
        self,
        application: ApplicationDefinition,
        path: str | os.PathLike[str],
        options: dict[str, Any],
    ) -> None:
        """Remember what to open; entering opens it."""
        self.application = application
        self._path = path
        self._options = options
        self._host: Host | None = None
        self._calls: _AsyncCalls | None = None

    async def __aenter__(self) -> Self:
        """Open the directory."""
        opening = asyncio.create_task(
            in_thread(open_host, self.application, self._path, **self._options)
        )
        try:
            self._host = await asyncio.shield(opening)
        except asyncio.CancelledError:
            # The thread goes on; what it opens must not stay locked.
            opening.add_done_callback(_close_unwanted)
            raise
        self._calls = _AsyncCalls()
        self._host.runner.calls.on_settled.append(self._calls.flush)
        return self

    @property
    def blocking(self) -> Host:
        """The same host for blocking code."""
        if self._host is None:
            msg = "enter the host first: async with application.open_async(...)"
            raise RuntimeError(msg)
        return self._host

    @property
    def position(self) -> int:
        """Everything in the log up to here is executed and committed."""
        return self.blocking.position

    def new_call_id(self) -> CallId:
        """Return an id for a call that may have to be repeated."""
        return self.blocking.new_call_id()

    def submit(
        self,
        procedure: str,
        /,
        *arguments: Any,
        call_id: CallId | None = None,
        **named: Any,
    ) -> asyncio.Future[Any]:
        """Append a call without waiting; the future gives the answer. See `Host`."""
        runner = self.blocking.runner
        found = self.application.find(procedure)
        if found.mode != "command" or self._calls is None:
            msg = f"{procedure!r} is no command ({found.mode}): use call"
            raise InvalidArgumentError(msg)
        call = runner.new_call_id() if call_id is None else call_id
        waiter = self._calls.waiter()
        runner.submit(found, bind(found, arguments, named), call, waiter)
        return waiter.future

    async def call(
        self,
        procedure: str,
        /,
        *arguments: Any,
        call_id: CallId | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
        stale: float | None = None,
        behind: int | None = None,
        **named: Any,
    ) -> Any:
        """Call a procedure and return what it returned; see `Host.call`."""
        if self.application.find(procedure).mode == "command":
            call = self.new_call_id() if call_id is None else call_id
            future = self.submit(procedure, *arguments, call_id=call, **named)
            return await (future if timeout is None else _within(future, call, timeout))
        # Reads and effects run the procedure: in a thread of their own.
        return await in_thread(
            self.blocking.call,
            procedure,
            *arguments,
            call_id=call_id,
            timeout=timeout,
            stale=stale,
            behind=behind,
            **named,
        )

    async def hashes(self) -> tuple[int, list[bytes]]:
        """Return a position and the state hash of each partition there."""
        return await in_thread(self.blocking.hashes)

    async def resize(self, partitions: int) -> int:
        """Give the application another number of partitions; see `Host.resize`."""
        return await in_thread(self.blocking.resize, partitions)

    async def snapshot(self) -> Snapshot:
        """Take a snapshot now; see `Host.snapshot`."""
        return await in_thread(self.blocking.snapshot)

    async def close(self) -> None:
        """Wait for the calls on their way, store everything, release the directory."""
        if self._host is not None:
            closing = asyncio.create_task(close_in_thread(self._host.close))
            await asyncio.shield(closing)


async def _within(
    future: asyncio.Future[Any],
    call: CallId,
    timeout: float,  # noqa: ASYNC109
) -> Any:
    done, _ = await asyncio.wait([future], timeout=checked_timeout(timeout))
    if not done:
        future.cancel()  # Nobody waits for it; the call itself goes on.
        raise late(call, timeout)
    return future.result()


def _close_unwanted(opening: asyncio.Task[Host]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close()
