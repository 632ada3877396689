"""Calling an application whose hosts are elsewhere.

A call is sent to one host after the other until one of them answers, always with the
same call id: however often it was sent, it is executed once, and what is returned is
what its first execution gave.
"""

from __future__ import annotations

import asyncio
import ssl as tls
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from concurrent.futures import Future
from typing import Any, Final, Self, TypeVar

from braidlog.app.determinism.codec import encode
from braidlog.app.errors import CallExpiredError, DivergedError
from braidlog.app.execution.answers import answer
from braidlog.app.execution.entries import CallId
from braidlog.app.execution.outcome import Outcome, Status
from braidlog.client.background import BackgroundLoop, BlockingClient, blocking_call
from braidlog.client.connection.attempts import Said
from braidlog.client.connection.link import Connector
from braidlog.client.connection.links import Links
from braidlog.client.connection.routing import parse_seeds
from braidlog.client.connection.sockets import socket_connector
from braidlog.client.retry import Backoff, Verdict, is_unknown, late, verdict_of
from braidlog.client.settings import ClientSettings
from braidlog.closable import AsyncClosable
from braidlog.errors import (
    ClosedError,
    DeadlineError,
    LogError,
    RemoteProtocolError,
)
from braidlog.store.arguments import checked_timeout
from braidlog.wire.messages import (
    AppStatus,
    Call,
    CallResult,
    FetchSnapshot,
    GetAppStatus,
    Message,
    Promote,
    Resize,
    SnapshotPart,
    SnapshotProgress,
    TakeSnapshot,
)

T = TypeVar("T")

# A call id is not made of a position that was heard longer ago than this: the host
# might have forgotten calls of that age.
_FRESH_S: Final = 0.5
_NEVER: Final = float("-inf")
_COPY_S: Final = 600.0
_PROMOTE_S: Final = 90.0


class AsyncCaller(AsyncClosable):
    """An application whose hosts are elsewhere. Use `braidlog.app.connect_async`.

    Many calls can run at a time. If a host fails, its calls are retried at the other
    hosts. Cancelling a call only stops the wait: a call that was sent may be executed.
    """

    def __init__(
        self,
        seeds: str | Iterable[str],
        *,
        connector: Connector,
        settings: ClientSettings | None = None,
    ) -> None:
        """Prepare for the hosts at ``seeds``; entering connects."""
        self._settings = settings = settings or ClientSettings()
        self._seeds = parse_seeds(seeds)
        self._links = Links(connector, settings.connect_timeout_s, settings.share)
        self._turn = 0
        self._position = 0
        self._heard = _NEVER

    async def __aenter__(self) -> Self:
        """Connect to a host.

        Raises:
            ConnectionLostError: every seed refuses connections.
            DeadlineError: no host answered in time.
            UnauthorizedError: the hosts refuse the token.
            NotFoundError: the hosts run another application.
        """
        try:
            await self.status()
        except BaseException:
            await self.close()
            raise
        return self

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        await self._links.close()

    # -- calls -------------------------------------------------------------------

    async def new_call_id(self) -> CallId:
        """Return an id for a call that may have to be repeated, also after a restart.

        Store it before the call; see `Host.new_call_id`.
        """
        if asyncio.get_running_loop().time() - self._heard > _FRESH_S:
            await self.status()
        return CallId.make(self._position + 1, self._settings.entropy(9))

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
        """Call a procedure, and return what it returned; see `Host.call`.

        On return the call is durable and was executed once, however often it was sent.
        ``timeout`` is in seconds (30 by default) and includes all retries. ``stale``
        and ``behind`` are those of `Host.call`.

        Raises:
            Abort: the procedure refused the call; none of its changes remain.
            ProcedureError: the procedure raised something else; no changes remain.
            CallExpiredError: the id is so old that its result may be forgotten; its
                ``outcome`` is unknown if an earlier attempt may have been executed.
            DeadlineError: no answer in time. If ``outcome`` is unknown, repeat the call
                with the same call id.
            UnauthorizedError: the token does not allow the call.
            LogError: any other error of `Host.call`.
        """
        outcome = await self._outcome(
            procedure, arguments, named, call_id, timeout, stale, behind
        )
        return answer(outcome)

    async def _outcome(
        self,
        procedure: str,
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        call_id: CallId | None,
        timeout: float | None,  # noqa: ASYNC109
        stale: float | None,
        behind: int | None,
    ) -> Outcome:
        payload = encode([list(arguments), named])
        left = checked_timeout(timeout)
        within = self._settings.timeout_s if left is None else left
        call = await self.new_call_id() if call_id is None else call_id
        message = Call(
            bytes(call),  # The encoder takes no subclass.
            procedure,
            max(1, int(within * 1000)),
            int((checked_timeout(stale) or 0) * 1_000_000),
            behind or 0,
        )
        found, body = await self._ask(message, payload, within)
        given = _answer(Call, found, CallResult)
        return Outcome(
            given.position,
            call,
            given.procedure,
            Status(given.status),
            bytes(body),
            b"",
        )

    async def _ask(
        self,
        message: Message,
        payload: bytes,
        within: float,
        attempt_s: float | None = None,
    ) -> tuple[Message, memoryview]:
        """Ask one host after the other until one answers."""
        loop, settings = asyncio.get_running_loop(), self._settings
        deadline = loop.time() + within
        refused_until = min(deadline, loop.time() + settings.refused_s)
        backoff = Backoff(settings.retry_first_s, settings.retry_max_s)
        unknown = False
        failures = 0
        said = Said()
        while (left := deadline - loop.time()) > 0:
            turn = self._turn
            address = self._seeds[turn % len(self._seeds)]
            most = min(left, attempt_s or settings.attempt_timeout_s)
            try:
                given = await self._links.ask(address, message, payload, within=most)
                self._check_here(given[0])
            except LogError as error:
                if self._links.closed:
                    raise ClosedError("the caller is closed") from error
                failures += 1
                if self._is_answer(error, failures):
                    raise _with_outcome(error, unknown=unknown) from None
                unknown = unknown or is_unknown(error)
                said.note(address, error, whole=most < left)
            else:
                self._hear(given[0])
                return given
            if turn == self._turn:
                self._turn += 1  # Else another call has moved on already.
            if failures % len(self._seeds) == 0:
                until = deadline
                # Who was never there is not waited for as long as who is away.
                if self._heard == _NEVER and said.all_refused and not unknown:
                    if loop.time() >= refused_until:
                        raise said.unreached("host")
                    until = refused_until
                pause = backoff.pause(settings.share())
                await asyncio.sleep(min(pause, max(0.0, until - loop.time())))
        over = late(f"no host answered in {within:.3g} s: {said}", said.quota)
        over.outcome = "unknown" if unknown else "not_stored"
        raise over

    def _is_answer(self, error: LogError, failures: int) -> bool:
        """Whether an error is the answer of all hosts: what diverged at one is not."""
        if isinstance(error, DivergedError) and failures < len(self._seeds):
            return False
        return verdict_of(error) is Verdict.FINAL

    @staticmethod
    def _check_here(given: Message) -> None:
        # A partition that diverged at one host goes on at those that agree.
        if isinstance(given, CallResult) and given.status == Status.STOPPED:
            msg = (
                f"{given.procedure!r} touches a partition that has diverged at "
                "this host"
            )
            raise DivergedError(msg, position=given.position, procedure=given.procedure)

    def _hear(self, given: Message) -> None:
        if isinstance(given, (CallResult, AppStatus)):
            self._position = max(self._position, given.applied)
            self._heard = asyncio.get_running_loop().time()

    # -- hosts -------------------------------------------------------------------

    async def status(self, *, hashes: bool = False) -> AppStatus:
        """Return the status of the host that the next call goes to.

        With ``hashes`` it has the state hash of each partition, which can take minutes.

        Raises:
            DeadlineError: no host answered.
            UnauthorizedError: ``hashes`` needs a token of role admin.
        """
        seconds = _COPY_S if hashes else None
        within = seconds or self._settings.timeout_s
        given, _ = await self._ask(GetAppStatus(hashes), b"", within, seconds)
        return _answer(GetAppStatus, given, AppStatus)

    async def statuses(self) -> dict[str, AppStatus | LogError]:
        """Return the status of each host by address, or the error that it gave."""

        async def one(address: str) -> AppStatus | LogError:
            within = self._settings.attempt_timeout_s
            try:
                given, _ = await self._links.ask(address, GetAppStatus(), within=within)
                return _answer(GetAppStatus, given, AppStatus)
            except LogError as error:
                return error

        found = await asyncio.gather(*map(one, self._seeds))
        return dict(zip(self._seeds, found, strict=True))

    async def promote(self, address: str | None = None) -> AppStatus:
        """Make the host at ``address`` (by default the first seed) the active one.

        Raises:
            FencedError: another host became active at the same time.
            UnauthorizedError: the token does not have the role admin.
        """
        where = address or self._seeds[0]
        given, _ = await self._links.ask(where, Promote(), within=_PROMOTE_S)
        return _answer(GetAppStatus, given, AppStatus)

    async def resize(self, partitions: int, address: str | None = None) -> AppStatus:
        """Give the application so many partitions; see `braidlog.app.Host.resize`.

        The host at ``address`` (by default the first seed) logs it, and has executed it
        on return. If you cancel this, it may still happen.

        Raises:
            ResizeRefusedError: the rows do not allow it; nothing was changed.
            UnauthorizedError: the token does not have the role admin.
        """
        where = address or self._seeds[0]
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                asked = Resize(partitions)
                given, _ = await self._links.ask(where, asked, within=_PROMOTE_S)
            except DeadlineError:
                if loop.time() - began >= _PROMOTE_S:
                    raise  # The host itself does not answer.
                continue  # It is being executed: the next request waits for it.
            return _answer(Resize, given, AppStatus)

    async def take_snapshot(
        self,
        address: str | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> SnapshotProgress:
        """Have the host at ``address`` (by default the first seed) take a snapshot.

        On return the snapshot is durable at that host and was read back, and the log is
        trimmed as far as the settings of the host allow. ``progress`` is called with
        the bytes done (copied and read back) and the total. If you cancel this, or if
        it fails, the host continues.

        Raises:
            SnapshotFailedError: no snapshot was taken, and nothing was trimmed.
            NotFoundError: the host was restarted in the meantime.
            UnauthorizedError: the token does not have the role admin.
        """
        where = address or self._seeds[0]
        job = 0
        while True:
            asked = TakeSnapshot(job)
            found, _ = await self._links.ask(where, asked, within=_PROMOTE_S)
            given = _answer(TakeSnapshot, found, SnapshotProgress)
            if progress is not None:
                progress(given.done, given.total)
            if given.number:
                return given
            job = given.job

    async def copy(self) -> AsyncIterator[tuple[SnapshotPart, int, bytes]]:
        """Iterate over a copy of a host's state: its facts, the partition, next bytes.

        Raises:
            NotFoundError: the host dropped the copy while it was read; begin again.
            UnauthorizedError: the token does not have the role admin.
        """
        address = self._seeds[self._turn % len(self._seeds)]

        async def part(asked: FetchSnapshot) -> tuple[SnapshotPart, bytes]:
            given, data = await self._links.ask(address, asked, within=_COPY_S)
            return _answer(FetchSnapshot, given, SnapshotPart), bytes(data)

        made, data = await part(FetchSnapshot())
        for partition, size in enumerate(made.sizes):
            offset = 0
            while offset < size:
                if partition or offset:
                    asked = FetchSnapshot(made.copy, partition, offset)
                    made, data = await part(asked)
                if not data:
                    raise RemoteProtocolError(
                        f"the copy of partition {partition} ended at byte {offset} of "
                        f"{size}"
                    )
                yield made, partition, data
                offset += len(data)


def _answer(asked: type[Message], given: Message, kind: type[T]) -> T:
    if not isinstance(given, kind):
        name = type(given).__name__
        raise RemoteProtocolError(f"the host answered {asked.__name__} with {name}")
    return given


def _with_outcome(error: LogError, *, unknown: bool) -> LogError:
    if unknown and isinstance(error, CallExpiredError):
        error.outcome = "unknown"
    return error


class Caller(BlockingClient[AsyncCaller]):
    """An application whose hosts are elsewhere, for blocking code.

    Each call is that of `AsyncCaller` with the same name and arguments. Safe to use
    from many threads. Use `braidlog.app.connect`.
    """

    new_call_id = blocking_call(AsyncCaller.new_call_id)
    call = blocking_call(AsyncCaller.call)
    status = blocking_call(AsyncCaller.status)
    statuses = blocking_call(AsyncCaller.statuses)
    promote = blocking_call(AsyncCaller.promote)
    resize = blocking_call(AsyncCaller.resize)
    take_snapshot = blocking_call(AsyncCaller.take_snapshot)

    def __init__(self, caller: AsyncCaller) -> None:
        """Start the loop; entering connects."""
        super().__init__(BackgroundLoop(), caller)

    def interrupt(self) -> None:
        """Have calls raise `ClosedError`, those under way and later ones."""
        self._loop.interrupt()

    def run(self, ask: Callable[[AsyncCaller], Coroutine[Any, Any, T]]) -> T:
        """Run what `ask` does with the async caller, on its loop."""
        return self._loop.run(ask(self._target))

    def submit(self, procedure: str, /, *arguments: Any, **options: Any) -> Future[Any]:
        """Begin `call`; the future gives the answer."""
        return self._loop.begin(self._target.call(procedure, *arguments, **options))


def connect_async(
    seeds: str | Iterable[str],
    *,
    application: str = "",
    token: str = "",
    ssl: tls.SSLContext | None = None,
    settings: ClientSettings | None = None,
) -> AsyncCaller:
    """Call an application, with ``async with``; `connect` is for blocking code.

    ``seeds`` are the addresses of its hosts, as a list or as HOST:PORT,...; if one does
    not answer, a call goes to the next one. If ``application`` is given, hosts of
    another application refuse the connection. ``ssl`` is a context, such as
    `ssl.create_default_context` makes; None connects without TLS. The hosts check
    ``token`` for each call. Nothing is sent before the caller is entered.
    """
    connector = socket_connector(token=token, context=ssl, cluster=application)
    return AsyncCaller(seeds, connector=connector, settings=settings)


def connect(
    seeds: str | Iterable[str],
    *,
    application: str = "",
    token: str = "",
    ssl: tls.SSLContext | None = None,
    settings: ClientSettings | None = None,
) -> Caller:
    """Call an application from blocking code, with ``with``; see `connect_async`."""
    return Caller(
        connect_async(
            seeds, application=application, token=token, ssl=ssl, settings=settings
        )
    )
