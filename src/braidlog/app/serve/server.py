"""Calls from elsewhere: the side of the host.

One loop serves all connections. Commands are appended at once and answered when the
host has executed them, a round of it with one wake-up; what runs code before it is
logged, or is not logged, takes one of a few threads. What a connection may have
unanswered is bounded by its window, what all of them may by the host, and one that does
not take its answers is closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from braidlog.app.determinism.codec import decode
from braidlog.app.errors import BusyError
from braidlog.app.execution.entries import CallId
from braidlog.app.execution.outcome import Outcome, Status
from braidlog.app.host.host import Host, beside
from braidlog.app.procedure import Procedure, bind
from braidlog.app.serve.snapshot_jobs import SnapshotJobs
from braidlog.app.snapshots.transfer import StateCopies
from braidlog.errors import (
    CorruptionError,
    InvalidArgumentError,
    LogError,
    NotReadyError,
    UnauthorizedError,
)
from braidlog.serving.sessions import Request, Session
from braidlog.serving.transport import Wire
from braidlog.store.threads import begin_in
from braidlog.wire.events import Appends, Received, Requested, Taken
from braidlog.wire.messages import (
    AppStatus,
    Call,
    CallResult,
    FetchSnapshot,
    GetAppStatus,
    Message,
    Promote,
    Resize,
    TakeSnapshot,
)
from braidlog.wire.roles import Role

_log = logging.getLogger(__name__)

_THREADS: Final = 8
# What waits for these threads; more is refused.
_WAITING_MAX: Final = 1024
# Answers that a connection has not taken.
_UNSENT_BYTES_MAX: Final = 64 << 20
_READ_S: Final = 30.0
_PROMOTE_S: Final = 60.0
# Who asks for other partitions hears so often that it is not done yet.
_RESIZE_S: Final = 5.0


class _Answer:
    """Waits for the outcome of a call, for who sent it."""

    __slots__ = ("_settled", "request")

    def __init__(self, request: Request, settled: deque[tuple[Request, Any]]) -> None:
        self.request = request
        self._settled = settled

    def settle(self, outcome: Outcome | Exception) -> None:
        """Hear of it; `CallServer.flush` has it sent."""
        self._settled.append((self.request, outcome))


class CallServer:
    """Takes what connections ask of a host; a `braidlog.serving.sessions.Handler`."""

    def __init__(
        self,
        host: Host,
        status: Callable[[tuple[bytes, ...]], AppStatus],
        copies: StateCopies,
    ) -> None:
        """Serve a host on the running loop; ``status`` says how it is."""
        self._host = host
        self._runner = host.runner
        self._status = status
        self._copies = copies
        self._takings = SnapshotJobs(host)
        self._loop = asyncio.get_running_loop()
        self._settled: deque[tuple[Request, Any]] = deque()
        self._pool = ThreadPoolExecutor(_THREADS, "braidlog-call")
        self._in_pool = 0
        self.draining = False
        self._runner.calls.on_settled.append(self._flush)

    def close(self) -> None:
        """Take nothing more; the host goes on."""
        self.draining = True
        self._runner.calls.on_settled.remove(self._flush)
        self._pool.shutdown(wait=False, cancel_futures=True)

    # -- braidlog.serving.sessions.Handler --------------------------------------------

    def appends(self, session: Session, event: Appends) -> None:
        """Refuse what is for a node."""
        for request in event.requests:
            session.fail(request, _no_node())

    def received(self, wire: Wire, event: Received) -> None:
        """Pass over what peers say to one another: nobody gets that role here."""

    def taken(self, wire: Wire, event: Taken) -> None:
        """Pass over what a lane took: there are no replicas here."""

    def gone(self, session: Session) -> None:
        """Go on: what was called is executed all the same."""

    def requested(self, request: Request, event: Requested, role: Role) -> None:
        """Take a request; it is answered now or later."""
        message = event.message
        try:
            if isinstance(message, Call):
                self._call(request, message, bytes(event.payload), role)
            elif isinstance(message, GetAppStatus):
                self._say(request, message, role)
            elif isinstance(message, Promote):
                self._in_thread(request, self._promote)
            elif isinstance(message, Resize):
                self._in_thread(request, partial(self._resize, message.partitions))
            elif isinstance(message, TakeSnapshot):
                self._in_thread(request, partial(self._takings.ask, message))
            elif isinstance(message, FetchSnapshot):
                self._in_thread(request, partial(self._copies.part, message))
            else:
                request.fail(_no_node())
        except LogError as error:
            request.fail(error)

    # -- calls -------------------------------------------------------------------

    def _call(
        self, request: Request, message: Call, payload: bytes, role: Role
    ) -> None:
        if self.draining:
            raise NotReadyError("the host stops: call another one")
        procedure = self._host.application.find(message.procedure)
        arguments = _arguments(procedure, payload)
        if procedure.mode != "read_only" and role < Role.APPEND:
            raise UnauthorizedError(
                f"{procedure.name!r} needs a token of role append; this token has role "
                f"{role.word}"
            )
        call = CallId(message.call)
        if procedure.mode != "command":
            timeout = message.timeout_ms / 1000 or _READ_S
            stale = message.stale_us / 1_000_000 or None
            behind = message.behind or None
            run = partial(
                beside,
                self._runner,
                procedure,
                arguments,
                call,
                timeout,
                stale,
                behind,
            )
            self._in_thread(request, run)
        elif call.issued > self._runner.known.stop:
            # Whether it was made so far ahead has to be asked of the cluster.
            submit = partial(self._submit, request, procedure, arguments, call)
            self._in_thread(request, submit)
        else:
            self._submit(request, procedure, arguments, call)

    def _submit(
        self, request: Request, procedure: Procedure, arguments: list[Any], call: CallId
    ) -> None:
        answer = _Answer(request, self._settled)
        self._runner.submit(procedure, arguments, call, answer)

    def _flush(self) -> None:
        if self._settled:
            with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits.
                self._loop.call_soon_threadsafe(self._answer_settled)

    def _answer_settled(self) -> None:
        while self._settled:
            self._answer(*self._settled.popleft())

    def _answer(self, request: Request, given: Any) -> None:
        """Send what a call gave: an outcome, an error, a message and its payload."""
        payload = b""
        if given is None:
            return  # It will be answered by the host.
        if isinstance(given, Outcome):
            payload = b"" if given.status == Status.STOPPED else given.body
            given = CallResult(
                given.position, given.status, given.procedure, self._runner.position
            )
        elif isinstance(given, tuple):
            given, payload = given
        if isinstance(given, Message):
            request.answer(given, (payload,) if payload else ())
        else:
            request.fail(_told(given))
        session = request.session
        if session.unsent_bytes() > _UNSENT_BYTES_MAX:
            _log.warning(
                "closed the connection of a caller that does not read its answers"
            )
            session.abort()

    # -- in threads --------------------------------------------------------------

    def _in_thread(self, request: Request, function: Callable[[], Any]) -> None:
        if self._in_pool >= _WAITING_MAX:
            raise BusyError(
                f"{_WAITING_MAX} reads are waiting, which is the limit: try again later"
            )
        task = begin_in(self._pool, function)
        self._in_pool += 1
        task.add_done_callback(partial(self._ended, request))

    def _ended(self, request: Request, task: asyncio.Future[Any]) -> None:
        self._in_pool -= 1
        if task.cancelled():
            self._answer(request, NotReadyError("the host stops: call another one"))
        else:
            self._answer(request, task.exception() or task.result())

    def _say(self, request: Request, message: GetAppStatus, role: Role) -> None:
        if not message.hashes:
            request.answer(self._status(()))
            return
        if role < Role.ADMIN:
            raise UnauthorizedError(
                "state hashes need a token of role admin; this token has role "
                f"{role.word}"
            )
        self._in_thread(request, self._hashed)

    def _hashed(self) -> AppStatus:
        # The status has the position of the hashes, or the hashes would say nothing.
        import msgspec

        position, hashes = self._runner.hashes()
        status = self._status(tuple(hashes))
        return msgspec.structs.replace(status, applied=position)

    def _promote(self) -> AppStatus:
        self._runner.promote(_PROMOTE_S)
        return self._status(())

    def _resize(self, partitions: int) -> AppStatus:
        self._runner.resize(partitions, _RESIZE_S)
        return self._status(())


def _no_node() -> InvalidArgumentError:
    return InvalidArgumentError(
        "this is a host of an application, not a cluster node: use "
        "braidlog.app.connect_async, or the address of a node"
    )


def _arguments(procedure: Procedure, payload: bytes) -> list[Any]:
    try:
        positional, named = decode(payload)
        return bind(procedure, tuple(positional), dict(named))
    except (CorruptionError, TypeError, ValueError) as error:
        if isinstance(error, InvalidArgumentError):
            raise
        msg = f"the arguments of the call cannot be read: {error}"
        raise InvalidArgumentError(msg) from error


def _told(error: BaseException) -> LogError:
    if isinstance(error, LogError):
        return error
    _log.error("a request failed", exc_info=error)
    return CorruptionError(f"the host failed while it handled this request: {error!r}")
